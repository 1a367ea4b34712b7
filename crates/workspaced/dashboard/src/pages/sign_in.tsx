import { useState } from "preact/hooks";
import { get, setToken } from "../lib/api.ts";
import type { Operator } from "../lib/types.ts";
import { Failed } from "../ui/parts.tsx";

/** Signing in at the issuer, if the service has one, or with an operator's token, which stays in this tab. */
export function SignIn({ issuer, hasEnded, onSignedIn }: { issuer?: string; hasEnded: boolean; onSignedIn: () => void }) {
  const [token, setText] = useState("");
  const [error, setError] = useState<Error>();
  const [isBusy, setBusy] = useState(false);
  const submit = async (event: Event) => {
    event.preventDefault();
    setBusy(true);
    setToken(token.trim());
    try {
      await get<Operator>("/v1/operators/self");
      onSignedIn();
    } catch (failure) {
      setToken("");
      setError(failure as Error);
      setBusy(false);
    }
  };
  return (
    <main class="sign-in">
      <h1>workspaced</h1>
      <p>This service keeps the files that coding agents work on, and a record of what each of them reads and changes. Sign in to follow runs, to decide about changes that wait for a person, and to check the record.</p>
      {hasEnded && <p role="alert" class="state failed">You are signed out: your token was revoked, or your session has ended. Sign in again to return to this page.</p>}
      {issuer && <p><a class="button primary" href={`/sign-in?to=${encodeURIComponent(location.pathname + location.search)}`} data-outside>Sign in at {new URL(issuer).host}</a></p>}
      <form onSubmit={(event) => void submit(event)}>
        <label class="field">
          <span>{issuer ? "Or with an operator token" : "Operator token"}</span>
          <input type="password" autocomplete="off" required value={token} onInput={(event) => setText(event.currentTarget.value)} autofocus={!issuer} />
        </label>
        <button type="submit" class={issuer ? "" : "primary"} disabled={isBusy}>{isBusy ? "Signing in…" : "Sign in"}</button>
      </form>
      {error && <Failed error={error} what="Signing in" />}
      <section>
        <h2>Where a token comes from</h2>
        <p>The first start of the service prints one. Whoever runs it makes others on its machine:</p>
        <p><code>workspaced operator add NAME --scope approve</code></p>
      </section>
      <p class="quiet">The token stays in this tab until it is closed or you sign out. Programs use <a href="/docs" data-outside>the API</a>.</p>
    </main>
  );
}
