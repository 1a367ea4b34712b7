//! The time from the start of the process to its first response. Baseline: the plain server.

use std::time::{Duration, Instant};

use hyper::Method;
use serde_json::Value;

use crate::args::Options;
use crate::client::{Connection, prepare};
use crate::compare::{Plan, Subject, compare};
use crate::measures::plan;
use crate::process::Server;
use crate::report::{Report, Target};
use crate::sample::Sample;
use crate::testbed::{Scratch, client_runtime};

/// Measures the first start, with an empty data folder, and later ones.
pub(super) fn measure(scratch: &Scratch, options: &Options, report: &mut Report) -> anyhow::Result<()> {
    let (data, sources) = (scratch.data().join("later"), scratch.sources());
    let mut count = 0;
    let mut first = Starts {
        name: "first start to first response, with migrations",
        start: Box::new(|| {
            count += 1;
            scratch.start(options, &scratch.data().join(format!("first-{count}")))
        }),
    };
    let mut later = Starts { name: "start to first response", start: Box::new(|| scratch.start(options, &data)) };
    let plain = || Starts { name: "plain axum", start: Box::new(|| scratch.start_plain(&sources)) };
    let how = Plan { target: Some(Target::Millis(50.0)), ..plan(options, 1) };
    later.round(1, Duration::ZERO)?;
    for subject in [&mut first, &mut later] {
        report.rows.push(compare(how, subject, &mut [(&mut plain() as _, None)])?);
    }
    Ok(())
}

/// Sequential starts of a server. Stopping it is not measured.
struct Starts<'a> {
    name: &'static str,
    start: Box<dyn FnMut() -> anyhow::Result<Server> + 'a>,
}

impl Subject for Starts<'_> {
    fn name(&self) -> &str {
        self.name
    }

    fn round(&mut self, _: usize, time: Duration) -> anyhow::Result<Sample> {
        let (mut sample, until) = (Sample { weight: 1, ..Sample::default() }, Instant::now() + time);
        while sample.latencies.is_empty() || Instant::now() < until {
            let started = Instant::now();
            let mut server = (self.start)()?;
            wait_for_response(&server)?;
            sample.latencies.push(started.elapsed());
            server.stop()?;
        }
        sample.elapsed = sample.latencies.iter().sum();
        Ok(sample)
    }
}

/// Calls the health check until it succeeds.
fn wait_for_response(server: &Server) -> anyhow::Result<()> {
    let request = prepare(Method::GET, "/healthz", "", Value::Null.to_string())?;
    client_runtime()?.block_on(async {
        let mut connection = Connection::open(server.address).await?;
        while !connection.send(&request).await?.0.is_success() {}
        Ok(())
    })
}
