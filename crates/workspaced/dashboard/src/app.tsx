/** The frame of every page: navigation, who is signed in, keys. */

import { useEffect, useRef, useState } from "preact/hooks";
import { endSession, get, hasSession, hasToken, setToken, signInIssuer, whenSignedOut } from "./lib/api.ts";
import { useKeys, useLoad } from "./lib/hooks.ts";
import { isDecided, sendAll, useDecisions } from "./lib/outbox.ts";
import { navigate, useRoute } from "./lib/route.ts";
import type { Approval, Node, Operator, Page } from "./lib/types.ts";
import { Boundary } from "./ui/boundary.tsx";
import { toggleWrap } from "./ui/diff_view.tsx";
import { Dialog, Empty, Failed, Loading } from "./ui/parts.tsx";
import { About } from "./pages/about.tsx";
import { Approvals } from "./pages/approvals.tsx";
import { Audit } from "./pages/audit.tsx";
import { LastDecision, undoLast } from "./pages/decide.tsx";
import { Nodes } from "./pages/nodes.tsx";
import { Operators } from "./pages/operators.tsx";
import { Overview } from "./pages/overview.tsx";
import { RunPage } from "./pages/run.tsx";
import { Runs } from "./pages/runs.tsx";
import { SignIn } from "./pages/sign_in.tsx";

/** What the operator may do. Who may `review` sees what a run did; `audit` also its files and what other runs did. */
export interface Rights { operator: string; audit: boolean; decide: boolean; orchestrate: boolean; review: boolean }

function rightsOf({ name, scopes }: Operator): Rights {
  const orchestrate = scopes.includes("orchestrate");
  const audit = orchestrate || scopes.includes("audit");
  const decide = orchestrate || scopes.includes("approve");
  return { operator: name, orchestrate, audit, decide, review: audit || decide };
}

export function App() {
  const [session, setSession] = useState<"asking" | "open" | "none" | "ended">(hasToken() ? "open" : "asking");
  const [issuer, setIssuer] = useState<string>();
  useEffect(() => {
    const controller = new AbortController();
    const ask = async () => {
      const found = await signInIssuer(controller.signal);
      setIssuer(found);
      const isSignedIn = !hasToken() && found !== undefined && (await hasSession(controller.signal));
      setSession((before) => (before === "asking" ? (isSignedIn ? "open" : "none") : before));
    };
    // Without an answer a token may still be entered.
    ask().catch(() => controller.signal.aborted || setSession((before) => (before === "asking" ? "none" : before)));
    return () => controller.abort();
  }, []);
  useEffect(() => whenSignedOut(() => setSession((before) => (before === "open" ? "ended" : before))), []);
  const signOut = () => {
    const isSession = !hasToken();
    // What was decided is sent with the token, or within the session, that decided it.
    const sent = sendAll();
    setToken("");
    setSession("none");
    if (isSession) void sent.then(endSession).catch(() => setSession("open"));
  };
  if (session === "asking") return <main><Loading text="Signing in…" /></main>;
  // The address stays, so that signing in again returns to the same page.
  return session === "open" ? <Frame signOut={signOut} /> : <SignIn issuer={issuer} hasEnded={session === "ended"} onSignedIn={() => setSession("open")} />;
}

function Frame({ signOut }: { signOut: () => void }) {
  const self = useLoad("self", (signal) => get<Operator>("/v1/operators/self", signal));
  const { path } = useRoute();
  useEffect(() => {
    document.title = `${path.join(" / ") || "Overview"} – workspaced`;
  }, [path.join("/")]);
  if (self.error) return <main><Failed error={self.error} what="Signing in" retry={self.reload} /><button type="button" onClick={signOut}>Use another token</button></main>;
  // The header has its height from the start.
  if (!self.data) return <><header class="top"><span class="brand">workspaced</span><nav aria-hidden="true"><a>&nbsp;</a></nav></header><main><Loading text="Signing in…" /></main></>;
  const rights = rightsOf(self.data);
  return (
    <>
      <a class="skip" href="#main" data-outside>Skip to the content</a>
      <Boundary what="the navigation"><Header operator={self.data} rights={rights} signOut={signOut} page={path[0] ?? ""} /></Boundary>
      <main id="main" tabIndex={-1}>{rights.review ? <Boundary key={path.slice(0, 2).join("/")} what="this page"><PageOf path={path} rights={rights} /></Boundary> : <Empty><p>Your token has the scopes {self.data.scopes.join(", ")}. The dashboard needs <code>orchestrate</code>, <code>approve</code> or <code>audit</code>.</p></Empty>}</main>
    </>
  );
}

function PageOf({ path, rights }: { path: string[]; rights: Rights }) {
  const [page, run, part, seq] = path;
  if (!page) return <Overview rights={rights} />;
  if (page === "runs" && !run) return <Runs />;
  if (page === "runs" && (!part || (part === "calls" && /^\d+$/.test(seq ?? "")))) return <RunPage key={run} run={run} seq={part ? Number(seq) : undefined} rights={rights} />;
  if (page === "approvals" && !run) return <Approvals rights={rights} />;
  if (page === "audit" && !run && rights.audit) return <Audit />;
  if (page === "operators" && !run && rights.orchestrate) return <Operators self={rights.operator} />;
  if (page === "nodes" && !run && rights.audit) return <Nodes />;
  if (page === "about" && !run) return <About rights={rights} />;
  return <Empty><p>No such page, or your scopes do not include it.</p><p><a href="/">Overview</a></p></Empty>;
}

interface HeaderProps { operator: Operator; rights: Rights; signOut: () => void; page: string }

function Header({ operator, rights, signOut, page }: HeaderProps) {
  const [isHelpOpen, setHelpOpen] = useState(false);
  const pending = useLoad(rights.review ? "pending" : "", (signal) => get<Page<Approval>>("/v1/approvals?state=pending&limit=20", signal), 10000);
  const sent = useDecisions().filter(({ state }) => state === "sent").length;
  useEffect(() => void (sent && pending.reload()), [sent]);
  // One service alone has no nodes, and so no page of them.
  const nodes = useLoad(rights.audit ? "nodes" : "", (signal) => get<Page<Node>>("/v1/nodes", signal));
  useKeys({
    "?": () => setHelpOpen(true),
    z: undoLast,
    w: toggleWrap,
    "/": () => document.querySelector<HTMLInputElement>("[data-search]")?.focus(),
    1: () => navigate("/"), 2: () => navigate("/runs"), 3: () => navigate("/approvals"), ...(rights.audit ? { 4: () => navigate("/audit") } : {}),
  });
  // On a narrow screen the pages scroll sideways: the present one is in view.
  useEffect(() => document.querySelector(".top nav [aria-current]")?.scrollIntoView({ block: "nearest", inline: "nearest" }), [page, nodes.data !== undefined, pending.data !== undefined]);
  const waiting = pending.data ? `${pending.data.items.filter(({ approvalId }) => !isDecided(approvalId)).length}${pending.data.nextCursor ? "+" : ""}` : "";
  const link = (address: string, text: string, extra = "") => (
    <a href={address} aria-current={`/${page}` === address ? "page" : undefined}>{text}{extra && extra !== "0" && <> <span class="count-badge">{extra}</span></>}</a>
  );
  return (
    <header class="top">
      <a class="brand" href="/" tabIndex={-1} aria-hidden="true">workspaced</a>
      {rights.review && <nav aria-label="Pages">
        {link("/", "Overview")}{link("/runs", "Runs")}{link("/approvals", "Approvals", waiting)}{rights.audit && link("/audit", "Audit")}{rights.orchestrate && link("/operators", "Operators")}{nodes.data && nodes.data.items.length > 0 && link("/nodes", "Nodes")}{link("/about", "About")}
      </nav>}
      <span class="who"><button type="button" class="plain" onClick={() => setHelpOpen(true)} aria-label="Keyboard shortcuts">?</button> <bdi title={`Scopes: ${operator.scopes.join(", ")}`}>{operator.name}</bdi> <button type="button" onClick={signOut}>Sign out</button></span>
      {rights.review && <Stale error={pending.error} />}
      {rights.decide && page !== "approvals" && <LastDecision rights={rights} isToast />}
      {isHelpOpen && <Help rights={rights} onClose={() => setHelpOpen(false)} />}
    </header>
  );
}

/** How often the page looks whether the service has another version of it. */
const VERSION_MILLIS = 60000;

/** Says that this tab is not what the service shows: because the service does not answer, or because it has a newer dashboard. */
function Stale({ error }: { error?: Error }) {
  const first = useRef<string | null>(null);
  const version = useLoad("version", async (signal) => (await fetch("/", { method: "HEAD", signal })).headers.get("etag"), VERSION_MILLIS);
  if (version.data && first.current === null) first.current = version.data;
  if (error) return <p class="note wait stale" role="status">Can't reach the service. Retrying…</p>;
  if (version.data && version.data !== first.current) return <p class="note wait stale" role="status">New version available. <button type="button" onClick={() => location.reload()}>Reload</button></p>;
  return null;
}

const keysOf = ({ audit, decide }: Rights): [string, string][] => [
  ["j, k", "next and previous row"], ["Enter", decide ? "open the row; while denying: send it, and Shift+Enter begins a line" : "open the row"], ["Home, End", "oldest and newest record of a run"], ["Escape", "close the call"], ["/", "search"],
  ["n, p", "next and previous change of a diff"], ["h", "show the next hidden lines of a diff"], ["w", "wrap long lines, or not"], ["o", "what was run for a change: its output, or what ran before it"],
  ...(decide ? [["a", "approve what is open"], ["Shift+A", "approve it despite a red warning"], ["z", "undo a decision, for 5 seconds"], ["r", "ask the agent to redo what no longer applies"], ["d", "deny what is open, with a reason"], ["d, 1 – 6", "deny, then take that ready reason"], ["Ctrl+Enter", "deny with what is written, or approve with your edit"], ["e", "edit what is open before approving it"], ["x", "select what is open, to decide about several"]] satisfies [string, string][] : []),
  audit ? ["1 – 4", "overview, runs, approvals, audit"] : ["1 – 3", "overview, runs, approvals"], ["?", "this list"],
];

function Help({ rights, onClose }: { rights: Rights; onClose: () => void }) {
  return (
    <Dialog title="Keyboard" onClose={onClose}>
      <table><tbody>{keysOf(rights).map(([key, text]) => <tr key={key}><th scope="row"><kbd>{key}</kbd></th><td>{text}</td></tr>)}</tbody></table>
    </Dialog>
  );
}
