//! `read_file`: 200 lines of a 20 KB file, beside a plain axum server that reads, hashes and answers the same.

use serde_json::{Value, json};

use crate::compare::compare;
use crate::load::Script;
use crate::measures::plan;
use crate::report::{Report, Target};
use crate::stage::Stage;
use crate::text::lines_of;

/// Measures reads.
pub(super) fn measure(stage: &Stage, report: &mut Report) -> anyhow::Result<()> {
    let file = ("src/harbor.rs".to_owned(), lines_of(1, 400, 51).concat());
    let run = stage.run_of("reads", &[file])?;
    let input = json!({ "path": "src/harbor.rs" });
    let plain_input = json!({ "path": "reads/src/harbor.rs" });
    the_answers_are_equal(&stage.tool(&run, "read_file", &input)?, &stage.ask_plain("/read", &plain_input)?)?;
    for &connections in &stage.options.connections {
        let script = |_| Ok(Script::new(vec![run.prepare("read_file", &input)?]));
        let scripts = (0..connections).map(script).collect::<anyhow::Result<_>>()?;
        let mut reads = stage.service("read 200 lines of 20 KB", scripts);
        let mut plain = stage.plain("plain axum: `fs::read` on a blocking thread", "/read", &plain_input)?;
        let mut inline = stage.plain("plain axum: without a hand-off", "/read-inline", &plain_input)?;
        let target = (connections == 64).then_some(Target::TimesTheRate(1.0));
        let mut limits = [(&mut plain as _, target), (&mut inline as _, None)];
        report.rows.push(compare(plan(&stage.options, connections), &mut reads, &mut limits)?);
    }
    Ok(())
}

/// A comparison of different answers would say nothing.
fn the_answers_are_equal(ours: &Value, plain: &Value) -> anyhow::Result<()> {
    for member in ["startLine", "endLine", "totalLines", "sha256", "content"] {
        anyhow::ensure!(ours[member] == plain[member], "`{member}` differs:\n{}\n{}", ours[member], plain[member]);
    }
    anyhow::ensure!(ours["endLine"] == 200, "not 200 lines: {}", ours["endLine"]);
    Ok(())
}
