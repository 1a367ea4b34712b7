import { useRef, useState } from "preact/hooks";
import type { Rights } from "../../app.tsx";
import { download, post, query, runPath } from "../../lib/api.ts";
import { count } from "../../lib/format.ts";
import type { Run } from "../../lib/types.ts";
import { Dialog, Failed } from "../../ui/parts.tsx";

interface Props { run: Run; rights: Rights; changed: () => void }
type Action = "stop" | "close";

/** What closing a run does to the changes that wait. */
const waitingInWords = (waiting: number): string => (waiting ? `${waiting === 1 ? "The change that waits fails" : `The ${count(waiting)} changes that wait fail`}: nobody can approve ${waiting === 1 ? "it" : "them"} afterwards. ` : "");

/** What an operator does with a run as a whole: stop its agent, close it, take its records along. */
export function RunMenu({ run, rights, changed }: Props) {
  const menu = useRef<HTMLDetailsElement>(null);
  const [action, setAction] = useState<Action>();
  const [error, setError] = useState<Error>();
  const [isBusy, setBusy] = useState(false);
  const [said, setSaid] = useState("");
  const [reason, setReason] = useState("");
  const choose = (wanted?: Action) => {
    menu.current!.open = false;
    setError(undefined);
    setSaid("");
    setAction(wanted);
  };
  const act = async (work: () => Promise<unknown>, done: string) => {
    setBusy(true);
    setError(undefined);
    try {
      await work();
      setSaid(done);
      setAction(undefined);
      changed();
    } catch (failure) {
      setError(failure as Error);
    }
    setBusy(false);
  };
  const submit = (event: Event) => {
    event.preventDefault();
    if (action === "stop") void act(() => post(`${runPath(run.runId)}/stop`, { reason: reason.trim() }), "Agent stopped.");
    else void act(() => post(`${runPath(run.runId)}/close`, undefined), "Run closed.");
  };
  const save = () => {
    choose();
    void act(() => download(`/v1/audit/export${query({ run: run.runId, format: "ndjson" })}`, `${run.runId}.ndjson`), "Records exported.");
  };
  if (!rights.audit) return null;
  const isOver = run.state === "closed" || run.state === "deleted";
  return (
    <>
      <details ref={menu} class="menu" onKeyDown={(event) => event.key === "Escape" && (event.stopPropagation(), (menu.current!.open = false))}>
        <summary class="button" aria-label="Actions of the run">⋯</summary>
        <div>
          {rights.orchestrate && <button type="button" onClick={() => choose("stop")}>Stop agent…</button>}
          {rights.orchestrate && <button type="button" disabled={isOver} onClick={() => choose("close")}>Close run…</button>}
          <button type="button" disabled={isBusy} onClick={save}>Export evidence</button>
        </div>
      </details>
      {said && <span role="status" class="quiet">{said}</span>}
      {error && !action && <Failed error={error} what="Exporting the records" />}
      {action && (
        <Dialog title={action === "stop" ? "Stop the agent" : "Close the run"} onClose={() => setAction(undefined)}>
          <form class="stack" onSubmit={submit}>
            <p>{action === "stop" ? "Revokes every token of this run and ends its waiting commands. The run stays open, and its files stay as they are." : `Nothing of this run can be changed any more. ${waitingInWords(run.counts.pendingApprovals)}Its files and records can still be read.`}</p>
            {action === "stop" && <label class="field"><span>Reason (recorded)</span><input required maxLength={2000} value={reason} onInput={(event) => setReason(event.currentTarget.value)} autofocus /></label>}
            <button type="submit" class="danger primary" disabled={isBusy || (action === "stop" && !reason.trim())}>{action === "stop" ? "Stop agent" : "Close run"}</button>
          </form>
          {error && <Failed error={error} what={action === "stop" ? "Stopping the agent" : "Closing the run"} />}
        </Dialog>
      )}
    </>
  );
}
