//! Reads while others write: `read_file` in one run beside writers of another, next to the same reads alone.

use serde_json::json;

use crate::compare::compare;
use crate::load::Script;
use crate::measures::{plan, writes};
use crate::report::{Report, Target};
use crate::stage::Stage;
use crate::text::lines_of;

/// Writers of the storm, each as fast as it can.
const WRITERS: usize = 16;

/// Measures reads in a storm of writes.
pub(super) fn measure(stage: &Stage, report: &mut Report) -> anyhow::Result<()> {
    let file = ("src/harbor.rs".to_owned(), lines_of(1, 400, 51).concat());
    let run = stage.run_of("calm", &[file])?;
    for &connections in &stage.options.connections {
        let script = |_| Ok(Script::new(vec![run.prepare("read_file", &json!({ "path": "src/harbor.rs" }))?]));
        let scripts = || (0..connections).map(script).collect::<anyhow::Result<Vec<_>>>();
        // A run of its own for each: a script begins with the files' first versions.
        let stormy = writes::run_of_writes(stage, &format!("storm-{connections}"), WRITERS)?;
        let storm = (0..WRITERS).map(|worker| writes::script(&stormy, worker, 8)).collect::<anyhow::Result<_>>()?;
        let name = format!("read 200 lines of 20 KB while {WRITERS} others write");
        let mut reads = stage.service(name, scripts()?).beside(storm);
        let mut alone = stage.service("the same without them", scripts()?);
        let mut limits = [(&mut alone as _, Some(Target::TimesTheTail(3.0)))];
        report.rows.push(compare(plan(&stage.options, connections), &mut reads, &mut limits)?);
    }
    Ok(())
}
