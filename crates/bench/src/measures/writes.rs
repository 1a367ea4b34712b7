//! `write_file`: durable, audited replacements of 4 KB, each connection its own file, beside bare durable replacements.

use serde_json::json;

use crate::api::RunHandle;
use crate::compare::compare;
use crate::limits::files::durable_replace;
use crate::load::Script;
use crate::measures::plan;
use crate::report::{Report, Target};
use crate::stage::Stage;
use crate::text::{lines_of, sha256};

/// Lines of a file, of 64 bytes each.
const LINES: usize = 64;

/// Measures writes: into one run and into a run for each connection, few lines changed and all of them.
pub(super) fn measure(stage: &Stage, report: &mut Report) -> anyhow::Result<()> {
    let most = stage.most_connections();
    let one = vec![run_of_writes(stage, "writes", most)?; most];
    let each =
        (0..most).map(|index| run_of_writes(stage, &format!("writes-{index}"), most)).collect::<Result<Vec<_>, _>>()?;
    for &connections in &stage.options.connections {
        let mut cases = vec![("one run, 8 of 64 lines changed", &one, 8, true)];
        if connections > 1 {
            cases.push(("a run for each connection, 8 of 64 lines changed", &each, 8, true));
        }
        cases.push(("one run, every line changed", &one, LINES, false));
        for (case, runs, changed, all_limits) in cases {
            measure_case(stage, report, (case, runs, changed), connections, all_limits)?;
        }
    }
    Ok(())
}

type Case<'a> = (&'a str, &'a [RunHandle], usize);

fn measure_case(
    stage: &Stage,
    report: &mut Report,
    (name, runs, changed): Case<'_>,
    connections: usize,
    all_limits: bool,
) -> anyhow::Result<()> {
    let folder = stage.place().limit("files")?;
    let script = |(worker, run): (usize, &RunHandle)| script(run, worker, changed);
    let scripts = runs.iter().take(connections).enumerate().map(script).collect::<anyhow::Result<_>>()?;
    let mut writes = stage.service(format!("durable write of 4 KB: {name}"), scripts);
    let mut bare = durable_replace(&folder);
    let bare_target = match connections {
        1 => Some(Target::TimesTheTime(1.5)),
        64 => Some(Target::TimesTheRate(1.5)),
        _ => None,
    };
    let content = lines_of(0, LINES, 64).concat();
    std::fs::create_dir_all(stage.place().sources().join("plain"))?;
    let mut in_place = stage.plain(
        "plain axum: writes in place, syncs nothing",
        "/write",
        &json!({ "path": "plain/harbor.rs", "content": &content }),
    )?;
    let mut dufs = stage.dufs("dufs: writes in place, syncs nothing", &content)?;
    let in_place_target = (connections == 64).then_some(Target::TimesTheRate(1.0));
    let mut limits = vec![(&mut bare as _, bare_target)];
    if all_limits {
        limits.push((&mut in_place as _, in_place_target));
        limits.extend(dufs.as_mut().map(|dufs| (dufs as _, in_place_target)));
    }
    report.rows.push(compare(plan(&stage.options, connections), &mut writes, &mut limits)?);
    put_back(stage, runs, connections, changed)
}

fn path(worker: usize) -> String {
    format!("src/harbor_{worker:02}.rs")
}

/// The first version of a file, or the other one, which differs in `changed` lines.
fn version(worker: usize, changed: Option<usize>) -> String {
    let mut lines = lines_of(worker as u64, LINES, 64);
    if let Some(changed) = changed {
        let others = lines_of(1_000 + worker as u64, LINES, 64);
        // Spread over the file, as edits are.
        for (line, other) in lines.iter_mut().zip(others).step_by(LINES / changed) {
            *line = other;
        }
    }
    lines.concat()
}

pub(super) fn run_of_writes(stage: &Stage, name: &str, files: usize) -> anyhow::Result<RunHandle> {
    let files: Vec<_> = (0..files).map(|worker| (path(worker), version(worker, None))).collect();
    stage.run_of(name, &files)
}

/// From one version to the other and back, each naming the hash that it expects.
pub(super) fn script(run: &RunHandle, worker: usize, changed: usize) -> anyhow::Result<Script> {
    let [first, other] = [None, Some(changed)].map(|changed| version(worker, changed));
    let replace = |from: &str, to: &str| {
        let expected = sha256(from.as_bytes());
        let path = path(worker);
        let input = json!({ "path": path, "content": to, "mode": "REPLACE_EXISTING", "expectedSha256": expected, "reason": "bench" });
        run.prepare("write_file", &input)
    };
    Ok(Script::new(vec![replace(&first, &other)?, replace(&other, &first)?]))
}

/// Gives every file its first version again, so that the next figure's scripts fit.
fn put_back(stage: &Stage, runs: &[RunHandle], connections: usize, changed: usize) -> anyhow::Result<()> {
    for (worker, run) in runs.iter().take(connections).enumerate() {
        let is = stage.tool(run, "read_file", &json!({ "path": path(worker), "format": "raw" }))?;
        let (first, other) = (version(worker, None), version(worker, Some(changed)));
        let content = is["content"].as_str().unwrap_or_default();
        anyhow::ensure!(content == first || content == other, "{} is neither version after the writes", path(worker));
        if content == other {
            let expected = sha256(other.as_bytes());
            let input =
                json!({ "path": path(worker), "content": first, "expectedSha256": expected, "reason": "bench" });
            stage.tool(run, "write_file", &input)?;
        }
    }
    Ok(())
}
