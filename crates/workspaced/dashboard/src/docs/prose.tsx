/** Text of the document: paragraphs, code, links to the routes and codes that it names. */

import { createContext } from "preact";
import { useContext } from "preact/hooks";

/** Where the words of a text lead: the operation of `GET /v1/tools`, the page of a code. */
export const Targets = createContext<ReadonlyMap<string, string>>(new Map());

/** A line of text, whose code is marked. */
export function Line({ text }: { text: string }) {
  const targets = useContext(Targets);
  return (
    <>{text.split(/(`[^`]+`|\b(?:GET|PUT|POST|DELETE|PATCH) \/[\w/{}.-]*[\w}])/).map((part, index) => {
      if (index % 2 === 0) return part.replace(/\s*\n\s*/g, " ");
      const code = part.replaceAll("`", "");
      const target = targets.get(code);
      return target === undefined ? <code key={index}>{code}</code> : <a key={index} href={target}><code>{code}</code></a>;
    })}</>
  );
}

export function Prose({ text = "" }: { text?: string }) {
  return <>{text.split(/\n{2,}/).filter(Boolean).map((paragraph, index) => <p key={index}><Line text={paragraph} /></p>)}</>;
}
