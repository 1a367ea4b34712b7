//! Several nodes on one database: calls by the number of nodes that own the runs, and a call that another node forwards beside a direct
//! one. Needs `--backend postgres://…`.

use serde_json::json;
use tokio::runtime::Runtime;

use crate::api::{Api, RunHandle};
use crate::args::Options;
use crate::compare::{Subject, compare};
use crate::load::{Http, Script};
use crate::measures::plan;
use crate::process::Server;
use crate::report::{Report, Target};
use crate::testbed::{Scratch, client_runtime, free_address};
use crate::text::{lines_of, sha256};

/// How many nodes are started; the figures use the first one, two, or all of them.
const NODES: usize = 4;
/// Numbers of nodes that are compared with one.
const COMPARED: [usize; 2] = [2, NODES];
/// How much longer a call may take that another node forwards.
const FORWARDING_MILLIS: f64 = 1.0;
const SECRET: &str = "secret-of-the-nodes-of-this-measurement-only";
const PATH: &str = "src/harbor.rs";
/// Lines of the file, of 64 bytes each.
const LINES: usize = 64;

/// A kind of call, as the requests of one caller.
type Calls = (&'static str, fn(&RunHandle) -> anyhow::Result<Script>);

const CALLS: [Calls; 2] = [("read of 4 KB", reads), ("durable write of 4 KB", writes)];

/// Measures reads and writes, each connection in a run of its own.
pub(super) fn measure(scratch: &Scratch, options: &Options, report: &mut Report) -> anyhow::Result<()> {
    anyhow::ensure!(options.backend != "sqlite", "nodes share a PostgreSQL database: name one with --backend");
    let runtime = client_runtime()?;
    let servers = start(scratch, options)?;
    let apis: Vec<_> = servers.iter().map(|server| scratch.api(server)).collect();
    for (name, script) in CALLS {
        for &connections in &options.connections {
            for nodes in COMPARED {
                let mut several = subject((scratch, &runtime), &servers, &apis, (nodes, connections), (name, script))?;
                let mut one = subject((scratch, &runtime), &servers, &apis, (1, connections), (name, script))?;
                let target = (nodes == 2 && connections > 1).then_some(Target::TimesTheRate(1.5));
                let baseline = (&mut one as &mut dyn Subject, target);
                report.rows.push(compare(plan(options, connections), &mut several, &mut [baseline])?);
            }
        }
        let by_way = |way: &str, by: &Server| {
            let run = runtime.block_on(create_run(&apis[0], scratch))?;
            let target = (by.address, Some(by.id()));
            anyhow::Ok(Http::new(format!("{name}, {way}"), &runtime, vec![target], vec![script(&run)?]))
        };
        let (mut direct, mut forwarded) = (by_way("direct", &servers[0])?, by_way("forwarded", &servers[1])?);
        let row = compare(plan(options, 1), &mut forwarded, &mut [(&mut direct, None)])?;
        if let (Some(own), Some(direct)) = (row.p50_ms, row.baselines.first()) {
            let more = own.median - direct.p50_ms;
            let verdict = if more <= FORWARDING_MILLIS { "met" } else { "missed" };
            report.notes.push(format!(
                "{name}: forwarding takes {more:.2} ms more at p50 (≤ {FORWARDING_MILLIS} ms: {verdict})"
            ));
        }
        report.rows.push(row);
    }
    Ok(())
}

fn start(scratch: &Scratch, options: &Options) -> anyhow::Result<Vec<Server>> {
    let store = scratch.baseline_folder("objects")?;
    let secret = scratch.sources().join("secret");
    std::fs::write(&secret, SECRET)?;
    let folder = scratch.sources().join("nodes");
    std::fs::create_dir_all(folder.join("src"))?;
    std::fs::write(folder.join(PATH), content(0))?;
    // A service that is the only one makes a key of checkpoints at its first start.
    let single = scratch.data().join("single");
    let mut alone = options.clone();
    "sqlite".clone_into(&mut alone.backend);
    scratch.start(&alone, &single)?.stop()?;
    let key = single.join("checkpoint.key");
    let node = |number: usize| {
        let address = free_address()?;
        let mut options = options.clone();
        options.server_arg.extend([
            format!("--object-store-url=file://{}", store.display()),
            format!("--cluster-secret-file={}", secret.display()),
            format!("--checkpoint-key-file={}", key.display()),
            format!("--node-url=http://{address}"),
        ]);
        scratch.start_at(&options, &scratch.data().join(format!("node-{number}")), &address)
    };
    (0..NODES).map(node).collect()
}

/// Calls of `connections` runs, which the first `nodes` nodes own in turn.
fn subject<'a>(
    (scratch, runtime): (&Scratch, &'a Runtime),
    servers: &[Server],
    apis: &[Api],
    (nodes, connections): (usize, usize),
    (name, script): Calls,
) -> anyhow::Result<Http<'a>> {
    let scripts = (0..connections).map(|worker| {
        let run = runtime.block_on(create_run(&apis[worker % nodes], scratch))?;
        script(&run)
    });
    let targets = servers.iter().take(nodes).map(|server| (server.address, Some(server.id()))).collect();
    let label = if nodes == 1 { format!("{name}, one node") } else { format!("{name}, {nodes} nodes") };
    Ok(Http::new(label, runtime, targets, scripts.collect::<anyhow::Result<_>>()?))
}

/// Creates a run that the node of `api` owns.
async fn create_run(api: &Api, scratch: &Scratch) -> anyhow::Result<RunHandle> {
    api.create_run(&json!({ "type": "directory", "path": scratch.sources().join("nodes") })).await
}

fn content(version: u64) -> String {
    lines_of(version, LINES, 64).concat()
}

fn reads(run: &RunHandle) -> anyhow::Result<Script> {
    Ok(Script::new(vec![run.prepare("read_file", &json!({ "path": PATH }))?]))
}

/// Replaces one version by the other and back.
fn writes(run: &RunHandle) -> anyhow::Result<Script> {
    let replace = |from: u64, to: u64| {
        let expected = sha256(content(from).as_bytes());
        let input = json!({ "path": PATH, "content": content(to), "mode": "REPLACE_EXISTING", "expectedSha256": expected, "reason": "bench" });
        run.prepare("write_file", &input)
    };
    Ok(Script::new(vec![replace(0, 1)?, replace(1, 0)?]))
}
