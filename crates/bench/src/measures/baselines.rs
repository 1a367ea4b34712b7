//! The baselines alone.

use hyper::Method;
use serde_json::json;

use crate::args::Options;
use crate::baselines::commits::sqlite;
use crate::baselines::files::durable_replace;
use crate::client::prepare;
use crate::compare::{Subject, compare};
use crate::load::{Http, Script};
use crate::measures::plan;
use crate::report::Report;
use crate::testbed::{Scratch, client_runtime};
use crate::text::lines_of;

/// Measures durable file replacement, commits of `SQLite`, and the plain server.
pub(super) fn measure(scratch: &Scratch, options: &Options, report: &mut Report) -> anyhow::Result<()> {
    let (folder, root) = (scratch.baseline_folder("alone")?, scratch.sources());
    std::fs::write(root.join("harbor.rs"), lines_of(1, 400, 51).concat())?;
    let (server, runtime) = (scratch.start_plain(&root)?, client_runtime()?);
    let max_connections = options.connections.iter().copied().max().unwrap_or(1);
    let plain = |name: &str, path: &str, input: serde_json::Value| {
        let script = |_| Ok(Script::new(vec![prepare(Method::POST, path, "", input.to_string())?]));
        let scripts = (0..max_connections).map(script).collect::<anyhow::Result<_>>()?;
        anyhow::Ok(Http::new(name.to_owned(), &runtime, vec![(server.address, Some(server.id()))], scripts))
    };
    let content = lines_of(0, 64, 64).concat();
    let mut reads = plain("plain axum: reads", "/read", json!({ "path": "harbor.rs" }))?;
    let mut inline =
        plain("plain axum: reads on the runtime's thread", "/read-inline", json!({ "path": "harbor.rs" }))?;
    let mut in_place = plain(
        "plain axum: overwrites without a sync",
        "/write",
        json!({ "path": "in-scratch.rs", "content": content }),
    )?;
    let (mut files, mut single, mut grouped) = (durable_replace(&folder), sqlite(&folder, 1), sqlite(&folder, 64));
    let subjects: [(&mut dyn Subject, &[usize]); 6] = [
        (&mut files, &[1, 16]),
        (&mut single, &[1]),
        (&mut grouped, &[1]),
        (&mut reads, &options.connections),
        (&mut inline, &options.connections),
        (&mut in_place, &options.connections),
    ];
    for (subject, concurrencies) in subjects {
        for &concurrency in concurrencies {
            report.rows.push(compare(plan(options, concurrency), subject, &mut [])?);
        }
    }
    Ok(())
}
