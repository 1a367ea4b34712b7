//! `read_file` of 200 lines of a 20 KB file. Baseline: a plain axum server that reads, hashes and returns the same.

use serde_json::{Value, json};

use crate::compare::compare;
use crate::load::Script;
use crate::measures::plan;
use crate::report::{Report, Target};
use crate::testbed::Testbed;
use crate::text::lines_of;

/// Measures reads.
pub(super) fn measure(testbed: &Testbed, report: &mut Report) -> anyhow::Result<()> {
    let file = ("src/harbor.rs".to_owned(), lines_of(1, 400, 51).concat());
    let run = testbed.create_run("reads", &[file])?;
    let input = json!({ "path": "src/harbor.rs" });
    let plain_input = json!({ "path": "reads/src/harbor.rs" });
    ensure_equal_answers(&testbed.tool(&run, "read_file", &input)?, &testbed.call_plain("/read", &plain_input)?)?;
    for &connections in &testbed.options.connections {
        let script = |_| Ok(Script::new(vec![run.prepare("read_file", &input)?]));
        let scripts = (0..connections).map(script).collect::<anyhow::Result<_>>()?;
        let mut reads = testbed.service("read 200 lines of 20 KB", scripts);
        let mut plain = testbed.plain("plain axum: `fs::read` on a blocking thread", "/read", &plain_input)?;
        let mut inline =
            testbed.plain("plain axum: `fs::read` on the runtime's thread", "/read-inline", &plain_input)?;
        let target = (connections == 64).then_some(Target::TimesTheRate(1.0));
        let mut baselines = [(&mut plain as _, target), (&mut inline as _, None)];
        report.rows.push(compare(plan(&testbed.options, connections), &mut reads, &mut baselines)?);
    }
    Ok(())
}

/// Checks that both servers do the same work.
fn ensure_equal_answers(own: &Value, plain: &Value) -> anyhow::Result<()> {
    for member in ["startLine", "endLine", "totalLines", "sha256", "content"] {
        anyhow::ensure!(own[member] == plain[member], "`{member}` differs:\n{}\n{}", own[member], plain[member]);
    }
    anyhow::ensure!(own["endLine"] == 200, "not 200 lines: {}", own["endLine"]);
    Ok(())
}
