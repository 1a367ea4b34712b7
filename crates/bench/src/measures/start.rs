//! From the start of the process to its first answer, beside the plain server.

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
use crate::stage::{Place, client_runtime};

/// Measures the first start, with nothing there yet, and the second.
pub(super) fn measure(place: &Place, options: &Options, report: &mut Report) -> anyhow::Result<()> {
    eprintln!("measuring: Start");
    let (again_data, sources) = (place.data().join("again"), place.sources());
    let mut count = 0;
    let mut first = Starts {
        name: "first start to first answer, migrations included",
        start: Box::new(|| {
            count += 1;
            place.start(options, &place.data().join(format!("first-{count}")))
        }),
    };
    let mut again = Starts { name: "start to first answer", start: Box::new(|| place.start(options, &again_data)) };
    let plain = || Starts { name: "plain axum", start: Box::new(|| place.start_plain(&sources)) };
    let how = Plan { target: Some(Target::Millis(50.0)), ..plan(options, 1) };
    again.round(1, Duration::ZERO)?;
    for subject in [&mut first, &mut again] {
        report.rows.push(compare(how, subject, &mut [(&mut plain() as _, None)])?);
    }
    Ok(())
}

/// Starts of a server, one after another; stopping it does not count.
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
            first_answer(&server)?;
            sample.latencies.push(started.elapsed());
            server.stop()?;
        }
        sample.elapsed = sample.latencies.iter().sum();
        Ok(sample)
    }
}

/// Asks until the server says that it is well.
fn first_answer(server: &Server) -> anyhow::Result<()> {
    let request = prepare(Method::GET, "/healthz", "", Value::Null.to_string())?;
    client_runtime()?.block_on(async {
        let mut connection = Connection::open(server.address).await?;
        while !connection.send(&request).await?.0.is_success() {}
        Ok(())
    })
}
