/** Where an error ends: a part of a page that cannot be shown says so, and the rest of the page stays. */

import { Component, type ComponentChildren } from "preact";
import { Failed } from "./parts.tsx";

interface Props {
  /** What is shown, for the message. */
  what: string;
  children: ComponentChildren;
  /** What is shown instead of the message. */
  instead?: (error: Error) => ComponentChildren;
}
interface State { error?: Error }

/** Shows its children, or that they cannot be shown. They are tried again whenever the parent renders. */
export class Boundary extends Component<Props, State> {
  static override getDerivedStateFromError(error: unknown): State {
    return { error: error instanceof Error ? error : new Error(String(error)) };
  }
  override componentWillReceiveProps(): void {
    if (this.state.error) this.setState({ error: undefined });
  }
  override render({ what, children, instead }: Props, { error }: State): ComponentChildren {
    if (!error) return children;
    return instead?.(error) ?? <Failed error={error} what={`Showing ${what}`} retry={() => this.setState({ error: undefined })} />;
  }
}
