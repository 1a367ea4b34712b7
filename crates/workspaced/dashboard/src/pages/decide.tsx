import { useState } from "preact/hooks";
import { post, RequestError } from "../lib/api.ts";
import type { Approval } from "../lib/types.ts";
import { Badge, Failed } from "../ui/parts.tsx";

type Verb = "approve" | "deny";

function decide(id: string, verb: Verb, note: string, onBehalfOf: string): Promise<Approval> {
  return post<Approval>(`/v1/approvals/${encodeURIComponent(id)}/${verb}`, { ...(note ? { note } : {}), ...(onBehalfOf ? { onBehalfOf } : {}) });
}

interface Props { approval: Approval; isReady: boolean; drift: number; changed: () => void }

/** The buttons that decide about one call, with a note. */
export function Decide({ approval, isReady, drift, changed }: Props) {
  const [note, setNote] = useState("");
  const [person, setPerson] = useState("");
  const [busy, setBusy] = useState<Verb>();
  const [error, setError] = useState<Error>();
  const [result, setResult] = useState<Approval>();
  const submit = async (verb: Verb) => {
    setBusy(verb);
    setError(undefined);
    try {
      setResult(await decide(approval.approvalId, verb, note.trim(), person.trim()));
    } catch (failure) {
      setError(failure as Error);
    }
    setBusy(undefined);
    changed();
  };
  // The first token of a service names nobody, so the service asks who decides.
  const needsPerson = person !== "" || (error instanceof RequestError && /decidedBy|onBehalfOf/.test(error.message + error.hint));
  return (
    <form class="decide" onSubmit={(event) => event.preventDefault()}>
      {drift > 0 && <p class="tone-bad" role="alert">{drift === 1 ? "A file has" : `${drift} files have`} changed since this was asked. Approving will most likely fail, and then changes nothing.</p>}
      <label class="field grow"><span>Note (optional)</span><input value={note} maxLength={2000} onInput={(event) => setNote(event.currentTarget.value)} /></label>
      {needsPerson && <label class="field"><span>Your name</span><input value={person} onInput={(event) => setPerson(event.currentTarget.value)} /></label>}
      <button type="button" class="primary" disabled={!isReady || busy !== undefined} onClick={() => void submit("approve")}>{busy === "approve" ? "Approving…" : drift ? "Approve anyway" : "Approve"}</button>
      <button type="button" class="danger" disabled={busy !== undefined} onClick={() => void submit("deny")}>{busy === "deny" ? "Denying…" : "Deny"}</button>
      {result && <span role="status"><Badge state={result.state} /></span>}
      {error && <Failed error={error} what="Deciding" />}
    </form>
  );
}

interface ManyProps { approvals: Approval[]; unopened: number; done: () => void }

/** Decides about several calls, each of which was opened. */
export function DecideMany({ approvals, unopened, done }: ManyProps) {
  const [progress, setProgress] = useState("");
  const [error, setError] = useState<Error>();
  const submit = async (verb: Verb) => {
    setError(undefined);
    try {
      for (const [index, approval] of approvals.entries()) {
        setProgress(`${index + 1} of ${approvals.length}`);
        await decide(approval.approvalId, verb, "", "");
      }
      done();
    } catch (failure) {
      setError(failure as Error);
    }
    setProgress("");
  };
  return (
    <span class="inline">
      <button type="button" class="primary" disabled={unopened > 0 || progress !== ""} onClick={() => void submit("approve")}>Approve {approvals.length}</button>
      <button type="button" class="danger" disabled={unopened > 0 || progress !== ""} onClick={() => void submit("deny")}>Deny {approvals.length}</button>
      {unopened > 0 && <span class="quiet">Open {unopened === approvals.length ? "each" : `the other ${unopened}`} first.</span>} {progress}
      {error && <Failed error={error} what="Deciding" />}
    </span>
  );
}
