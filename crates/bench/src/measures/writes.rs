//! `write_file`: durable, audited replacements of 4 KB, one file per connection. Baselines: durable replacements without a
//! service, and servers that write without a sync.

use serde_json::json;

use crate::api::RunHandle;
use crate::baselines::files::durable_replace;
use crate::compare::compare;
use crate::load::Script;
use crate::measures::plan;
use crate::report::{Report, Target};
use crate::testbed::Testbed;
use crate::text::{lines_of, sha256};

/// Lines of a file, of 64 bytes each.
const LINES: usize = 64;

/// Measures writes to one run and to one run per connection, with few changed lines and with all lines changed.
pub(super) fn measure(testbed: &Testbed, report: &mut Report) -> anyhow::Result<()> {
    let most = testbed.max_connections();
    let one = vec![create_write_run(testbed, "writes", most)?; most];
    let each = (0..most)
        .map(|index| create_write_run(testbed, &format!("writes-{index}"), most))
        .collect::<Result<Vec<_>, _>>()?;
    for &connections in &testbed.options.connections {
        let mut cases = vec![("one run, 8 of 64 lines changed", &one, 8, true)];
        if connections > 1 {
            cases.push(("one run per connection, 8 of 64 lines changed", &each, 8, true));
        }
        cases.push(("one run, every line changed", &one, LINES, false));
        for (case, runs, changed, with_servers) in cases {
            measure_case(testbed, report, (case, runs, changed), connections, with_servers)?;
        }
    }
    Ok(())
}

type Case<'a> = (&'a str, &'a [RunHandle], usize);

fn measure_case(
    testbed: &Testbed,
    report: &mut Report,
    (name, runs, changed): Case<'_>,
    connections: usize,
    with_servers: bool,
) -> anyhow::Result<()> {
    let folder = testbed.scratch().baseline_folder("files")?;
    let script = |(worker, run): (usize, &RunHandle)| script(run, worker, changed);
    let scripts = runs.iter().take(connections).enumerate().map(script).collect::<anyhow::Result<_>>()?;
    let mut writes = testbed.service(format!("durable write of 4 KB: {name}"), scripts);
    let mut files = durable_replace(&folder);
    let files_target = match connections {
        1 => Some(Target::TimesTheTime(1.5)),
        64 => Some(Target::TimesTheRate(1.5)),
        _ => None,
    };
    let content = lines_of(0, LINES, 64).concat();
    std::fs::create_dir_all(testbed.scratch().sources().join("plain"))?;
    let mut in_place = testbed.plain(
        "plain axum: overwrites without a sync",
        "/write",
        &json!({ "path": "plain/harbor.rs", "content": &content }),
    )?;
    let mut dufs = testbed.dufs("dufs: overwrites without a sync", &content)?;
    let in_place_target = (connections == 64).then_some(Target::TimesTheRate(1.0));
    let mut baselines = vec![(&mut files as _, files_target)];
    if with_servers {
        baselines.push((&mut in_place as _, in_place_target));
        baselines.extend(dufs.as_mut().map(|dufs| (dufs as _, in_place_target)));
    }
    report.rows.push(compare(plan(&testbed.options, connections), &mut writes, &mut baselines)?);
    restore_files(testbed, runs, connections, changed)
}

/// Returns the path of the file of a connection.
pub(crate) fn path(worker: usize) -> String {
    format!("src/harbor_{worker:02}.rs")
}

/// Returns the first version of a file, or one that differs from it in `changed` lines.
pub(crate) fn version(worker: usize, changed: Option<usize>) -> String {
    let mut lines = lines_of(worker as u64, LINES, 64);
    if let Some(changed) = changed {
        let others = lines_of(1_000 + worker as u64, LINES, 64);
        // The changed lines are spread over the file.
        for (line, other) in lines.iter_mut().zip(others).step_by(LINES / changed) {
            *line = other;
        }
    }
    lines.concat()
}

/// Creates a run with the files that [`script`] replaces.
pub(super) fn create_write_run(testbed: &Testbed, name: &str, files: usize) -> anyhow::Result<RunHandle> {
    let files: Vec<_> = (0..files).map(|worker| (path(worker), version(worker, None))).collect();
    testbed.create_run(name, &files)
}

/// Returns the calls that replace one version by the other and back, with the expected hashes.
pub(crate) fn script(run: &RunHandle, worker: usize, changed: usize) -> anyhow::Result<Script> {
    let [first, other] = [None, Some(changed)].map(|changed| version(worker, changed));
    let replace = |from: &str, to: &str| {
        let expected = sha256(from.as_bytes());
        let path = path(worker);
        let input = json!({ "path": path, "content": to, "mode": "REPLACE_EXISTING", "expectedSha256": expected, "reason": "bench" });
        run.prepare("write_file", &input)
    };
    Ok(Script::new(vec![replace(&first, &other)?, replace(&other, &first)?]))
}

/// Restores the first version of every file for the next figure.
fn restore_files(testbed: &Testbed, runs: &[RunHandle], connections: usize, changed: usize) -> anyhow::Result<()> {
    for (worker, run) in runs.iter().take(connections).enumerate() {
        let is = testbed.tool(run, "read_file", &json!({ "path": path(worker), "format": "raw" }))?;
        let (first, other) = (version(worker, None), version(worker, Some(changed)));
        let content = is["content"].as_str().unwrap_or_default();
        anyhow::ensure!(content == first || content == other, "{} has neither version after the writes", path(worker));
        if content == other {
            let expected = sha256(other.as_bytes());
            let input =
                json!({ "path": path(worker), "content": first, "expectedSha256": expected, "reason": "bench" });
            testbed.tool(run, "write_file", &input)?;
        }
    }
    Ok(())
}
