//! `list_dir` of 350 entries at depth 2. Baseline: a plain axum server that lists the same folder.

use serde_json::json;

use crate::compare::compare;
use crate::load::Script;
use crate::measures::plan_with_target;
use crate::report::Report;
use crate::testbed::Testbed;
use crate::text::lines_of;

const FOLDERS: usize = 14;
const FILES_PER_FOLDER: usize = 24;

/// Measures listings.
pub(super) fn measure(testbed: &Testbed, report: &mut Report) -> anyhow::Result<()> {
    let file = |index: usize| {
        let path = format!("list/part_{:02}/harbor_{index:03}.rs", index / FILES_PER_FOLDER);
        (path, lines_of(index as u64, 4, 40).concat())
    };
    let files: Vec<_> = (0..FOLDERS * FILES_PER_FOLDER).map(file).collect();
    let run = testbed.create_run("lists", &files)?;
    let input = json!({ "path": "list", "maxDepth": 2, "maxEntries": 1000 });
    let plain_input = json!({ "path": "lists/list" });
    for answer in [testbed.tool(&run, "list_dir", &input)?, testbed.call_plain("/list", &plain_input)?] {
        let entries = answer["entries"].as_array().map_or(0, Vec::len);
        anyhow::ensure!(entries == FOLDERS * (FILES_PER_FOLDER + 1), "{entries} entries: {answer}");
    }
    for &connections in &testbed.options.connections {
        let script = |_| Ok(Script::new(vec![run.prepare("list_dir", &input)?]));
        let scripts = (0..connections).map(script).collect::<anyhow::Result<_>>()?;
        let mut lists = testbed.service("list 350 entries at depth 2", scripts);
        let mut plain = testbed.plain("plain axum: `read_dir` and `lstat`", "/list", &plain_input)?;
        let how = plan_with_target(&testbed.options, connections, 1.5);
        report.rows.push(compare(how, &mut lists, &mut [(&mut plain as _, None)])?);
    }
    Ok(())
}
