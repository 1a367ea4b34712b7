//! `list_dir`: 350 entries at depth 2, beside a plain axum server that lists the same folder.

use serde_json::json;

use crate::compare::compare;
use crate::load::Script;
use crate::measures::plan_within;
use crate::report::Report;
use crate::stage::Stage;
use crate::text::lines_of;

const FOLDERS: usize = 14;
const FILES_IN_EACH: usize = 24;

/// Measures listings.
pub(super) fn measure(stage: &Stage, report: &mut Report) -> anyhow::Result<()> {
    let file = |index: usize| {
        let path = format!("list/part_{:02}/harbor_{index:03}.rs", index / FILES_IN_EACH);
        (path, lines_of(index as u64, 4, 40).concat())
    };
    let files: Vec<_> = (0..FOLDERS * FILES_IN_EACH).map(file).collect();
    let run = stage.run_of("lists", &files)?;
    let input = json!({ "path": "list", "maxDepth": 2, "maxEntries": 1000 });
    let plain_input = json!({ "path": "lists/list" });
    for answer in [stage.tool(&run, "list_dir", &input)?, stage.ask_plain("/list", &plain_input)?] {
        let entries = answer["entries"].as_array().map_or(0, Vec::len);
        anyhow::ensure!(entries == FOLDERS * (FILES_IN_EACH + 1), "{entries} entries: {answer}");
    }
    for &connections in &stage.options.connections {
        let script = |_| Ok(Script::new(vec![run.prepare("list_dir", &input)?]));
        let scripts = (0..connections).map(script).collect::<anyhow::Result<_>>()?;
        let mut lists = stage.service("list 350 entries at depth 2", scripts);
        let mut plain = stage.plain("plain axum: `read_dir` and `lstat`", "/list", &plain_input)?;
        let how = plan_within(&stage.options, connections, 1.5);
        report.rows.push(compare(how, &mut lists, &mut [(&mut plain as _, None)])?);
    }
    Ok(())
}
