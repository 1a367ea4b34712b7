//! `read_file` in one run while other connections write in another run. Baseline: the same reads alone.

use serde_json::json;

use crate::compare::compare;
use crate::load::Script;
use crate::measures::{plan, writes};
use crate::report::{Report, Target};
use crate::testbed::Testbed;
use crate::text::lines_of;

/// Background writers, without a limit of their rate.
const WRITERS: usize = 16;

/// Measures reads under a background load of writes.
pub(super) fn measure(testbed: &Testbed, report: &mut Report) -> anyhow::Result<()> {
    let file = ("src/harbor.rs".to_owned(), lines_of(1, 400, 51).concat());
    let run = testbed.create_run("mixed-load-reads", &[file])?;
    for &connections in &testbed.options.connections {
        let script = |_| Ok(Script::new(vec![run.prepare("read_file", &json!({ "path": "src/harbor.rs" }))?]));
        let scripts = || (0..connections).map(script).collect::<anyhow::Result<Vec<_>>>();
        // A new run per figure, because a script starts with the first versions of its files.
        let writer_run = writes::create_write_run(testbed, &format!("mixed-load-{connections}"), WRITERS)?;
        let writers =
            (0..WRITERS).map(|worker| writes::script(&writer_run, worker, 8)).collect::<anyhow::Result<_>>()?;
        let name = format!("read 200 lines of 20 KB while {WRITERS} others write");
        let mut reads = testbed.service(name, scripts()?).with_background(writers);
        let mut alone = testbed.service("the same reads alone", scripts()?);
        let mut baselines = [(&mut alone as _, Some(Target::TimesTheTail(3.0)))];
        report.rows.push(compare(plan(&testbed.options, connections), &mut reads, &mut baselines)?);
    }
    Ok(())
}
