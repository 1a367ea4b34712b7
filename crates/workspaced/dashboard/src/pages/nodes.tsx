import { get } from "../lib/api.ts";
import { count, visible } from "../lib/format.ts";
import { useLoad } from "../lib/hooks.ts";
import type { Node, Page } from "../lib/types.ts";
import { Badge, Empty, Failed, Loading, Time } from "../ui/parts.tsx";

const REFRESH_MILLIS = 5000;

/** The services that share the database: which are alive, and how many runs each owns. */
export function Nodes() {
  const nodes = useLoad("nodes", (signal) => get<Page<Node>>("/v1/nodes", signal), REFRESH_MILLIS);
  const alive = nodes.data?.items.filter(({ isAlive }) => isAlive).length ?? 0;
  return (
    <>
      <h1>Nodes {nodes.data && <span class="quiet">{count(alive)} alive of {count(nodes.data.items.length)}</span>}</h1>
      {nodes.error && <Failed error={nodes.error} what="Reading the nodes" retry={nodes.reload} />}
      {!nodes.data && !nodes.error && <Loading what="the nodes" />}
      {nodes.data && !nodes.data.items.length && <Empty><p>This service is the only one on its database.</p></Empty>}
      <div class="columns">{nodes.data?.items.map((node) => (
        <section key={node.nodeId} aria-label={node.nodeId}>
          <h2 class="wrap"><bdi>{visible(node.nodeId)}</bdi></h2>
          <dl>
            <dt>State</dt><dd><Badge state={node.isAlive ? "alive" : "ended"} />{node.isThis && <span class="quiet"> serving this page</span>}</dd>
            <dt>Runs it owns</dt><dd>{count(node.ownedRuns)}{!node.isAlive && node.ownedRuns > 0 && <span class="quiet">, taken over with the next request</span>}</dd>
            <dt>Address</dt><dd class="wrap"><code>{visible(node.url)}</code></dd>
            <dt>Started</dt><dd><Time at={node.startedAt} /><span class="quiet">{node.incarnation > 1 && `, restarted ${node.incarnation === 2 ? "once" : node.incarnation === 3 ? "twice" : `${count(node.incarnation - 1)} times`}`}</span></dd>
          </dl>
        </section>
      ))}</div>
    </>
  );
}
