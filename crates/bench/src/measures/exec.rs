//! Commands beside a run: a checkout of 25,000 files, what is pulled into it and pushed from it, and `exec`. Baseline of the checkout:
//! `cp -r`; of a command: the same without `exec`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use hyper::Method;
use serde_json::{Value, json};
use shim::{CommandFolder as _, LocalFolder};
use tokio::runtime::Runtime;

use crate::api::{Api, RunHandle};
use crate::args::Options;
use crate::client::{Connection, prepare};
use crate::measures::import::{Baseline, row};
use crate::process::run_checked;
use crate::report::{Report, Row, Target};
use crate::sample::Spread;
use crate::testbed::{Scratch, client_runtime};
use crate::tree;

const FILES: usize = 25_000;
const BYTES: u64 = 100_000_000;
/// How often a figure of milliseconds is taken in a round.
const TIMES: usize = 5;
/// A command that reads every file.
const READ_ALL: &str = "find . -name .workspaced -prune -o -type f -print0 | xargs -0 cat | cksum";

/// A run, a folder with its checkout, and the program that works with both.
struct Bench {
    runtime: Runtime,
    api: Api,
    run: RunHandle,
    program: PathBuf,
    folder: PathBuf,
    home: PathBuf,
    token: String,
    /// The next number for a file that no other has.
    next: usize,
}

/// Measures each step of `exec`.
pub(super) fn measure(scratch: &Scratch, options: &Options, report: &mut Report) -> anyhow::Result<()> {
    let source = scratch.sources().join("tree");
    tree::generate(&source, FILES, BYTES)?;
    let server = scratch.start(options, &scratch.data())?;
    let (runtime, api) = (client_runtime()?, scratch.api(&server));
    let run = runtime.block_on(api.create_run(&json!({ "type": "directory", "path": source })))?;
    let home = scratch.baseline_folder("exec")?;
    let folder = home.join("checkout");
    let (program, token) = (Scratch::program(options)?, scratch.token().to_owned());
    let mut bench = Bench { runtime, api, run, program, folder, home, token, next: 0 };
    let rounds = options.rounds.max(1);
    bench.checkouts(&source, rounds, report)?;
    let times = rounds * TIMES;
    let rows = [
        bench.row("what has changed since a record, one file", times, 5.0, Bench::layer)?,
        bench.row("pull of 1 file", times, 20.0, |bench| bench.pull(1))?,
        bench.row("pull of 20 files", times, 20.0, |bench| bench.pull(20))?,
        bench.row("scan of 25,000 files, 6 of them changed", times, 60.0, Bench::scan)?,
        bench.row("push of 6 files", times, 30.0, Bench::push)?,
        bench.row("`exec -- true`", times, 150.0, Bench::exec)?,
    ];
    report.rows.extend(rows);
    bench.commands(rounds, report)
}

impl Bench {
    /// Measures `step`, which returns what of it counts, in milliseconds.
    fn row(
        &mut self,
        name: &str,
        times: usize,
        target: f64,
        step: impl Fn(&mut Self) -> anyhow::Result<Duration>,
    ) -> anyhow::Result<Row> {
        // Once before, so that everything is in memory.
        step(self)?;
        let millis = (0..times).map(|_| Ok(step(self)?.as_secs_f64() * 1e3)).collect::<anyhow::Result<Vec<_>>>()?;
        let value = Spread::of(millis).context("no round")?;
        Ok(Row::value(name, " ms", value).with_target(Target::Millis(target)))
    }

    /// Measures the first checkout beside `cp -r`.
    fn checkouts(&self, source: &Path, rounds: usize, report: &mut Report) -> anyhow::Result<()> {
        let (mut checkouts, mut copies) = (Vec::new(), Vec::new());
        let copy = self.home.join("copy");
        for _ in 0..rounds {
            remove(&self.folder)?;
            checkouts.push(self.program(&["checkout", &self.run.id, &shown(&self.folder)])?.as_secs_f64());
            remove(&copy)?;
            let started = Instant::now();
            run_checked("cp", ["-r".as_ref(), source.as_os_str(), copy.as_os_str()], &self.home)?;
            copies.push(started.elapsed().as_secs_f64());
        }
        let baselines: &[Baseline<'_>] = &[("`cp -r`", &copies, Some(1.2))];
        report.rows.push(row("first checkout of 25,000 files, 100 MB", &checkouts, baselines).context("no checkout")?);
        Ok(())
    }

    fn layer(&mut self) -> anyhow::Result<Duration> {
        let since = self.write(1)?;
        self.write(1)?;
        let path = format!("/v1/runs/{}/archive?since={since}", self.run.id);
        let request = prepare(Method::GET, &path, &self.token, String::new())?;
        self.runtime.block_on(async {
            let mut connection = Connection::open(self.api.address).await?;
            let started = Instant::now();
            let (status, _) = connection.send(&request).await?;
            anyhow::ensure!(status.is_success(), "the layer was answered {status}");
            Ok(started.elapsed())
        })
    }

    fn pull(&mut self, files: usize) -> anyhow::Result<Duration> {
        self.write(files)?;
        self.program(&["pull", &shown(&self.folder)])
    }

    /// Looks for what has changed, in this process.
    fn scan(&mut self) -> anyhow::Result<Duration> {
        self.change(6)?;
        let mut folder = LocalFolder::open(&self.folder)?;
        let started = Instant::now();
        let report = folder.scan(&[])?;
        anyhow::ensure!(report.changes.len() >= 6, "{} changes were found", report.changes.len());
        Ok(started.elapsed())
    }

    fn push(&mut self) -> anyhow::Result<Duration> {
        self.change(6)?;
        self.program(&["push", &shown(&self.folder), "--reason", "bench"])
    }

    fn exec(&mut self) -> anyhow::Result<Duration> {
        self.program(&["exec", &self.run.id, "--dir", &shown(&self.folder), "--", "true"])
    }

    /// Measures a command beside the same command without `exec`.
    fn commands(&self, rounds: usize, report: &mut Report) -> anyhow::Result<()> {
        let (mut own, mut plain) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            let folder = shown(&self.folder);
            let args = ["exec", &self.run.id, "--dir", &folder, "--json", "--", "sh", "-c", READ_ALL];
            let answer: Value = serde_json::from_slice(&self.output(&args)?)?;
            let micros = answer["durationMicros"].as_u64().context("no durationMicros")?;
            own.push(Duration::from_micros(micros).as_secs_f64());
            let started = Instant::now();
            run_checked("sh", ["-c", READ_ALL], &self.folder)?;
            plain.push(started.elapsed().as_secs_f64());
        }
        let baselines: &[Baseline<'_>] = &[("the same without `exec`", &plain, Some(1.1))];
        report.rows.push(row("a command that reads every file", &own, baselines).context("no command")?);
        Ok(())
    }

    /// Writes new files into the run. Returns the last record.
    fn write(&mut self, files: usize) -> anyhow::Result<u64> {
        let mut seq = 0;
        for _ in 0..files {
            self.next += 1;
            let path = format!("written/w{}.txt", self.next);
            let input = json!({ "path": path, "content": "a line\n".repeat(500), "reason": "bench" });
            let answer = self.runtime.block_on(self.api.tool(&self.run, "write_file", &input))?;
            seq = answer["seq"].as_u64().context("no seq")?;
        }
        Ok(seq)
    }

    /// Writes new files into the folder.
    fn change(&mut self, files: usize) -> anyhow::Result<()> {
        std::fs::create_dir_all(self.folder.join("changed"))?;
        for _ in 0..files {
            self.next += 1;
            std::fs::write(self.folder.join(format!("changed/c{}.txt", self.next)), "a line\n".repeat(500))?;
        }
        Ok(())
    }

    /// Runs the program, and returns how long all of it took.
    fn program(&self, args: &[&str]) -> anyhow::Result<Duration> {
        let started = Instant::now();
        self.output(args)?;
        Ok(started.elapsed())
    }

    fn output(&self, args: &[&str]) -> anyhow::Result<Vec<u8>> {
        let mut command = Command::new(&self.program);
        command.args(args).env("WORKSPACED_URL", format!("http://{}", self.api.address));
        command.env("WORKSPACED_TOKEN", &self.token).env("XDG_STATE_HOME", self.home.join("state"));
        let done = command.output()?;
        anyhow::ensure!(done.status.success(), "{args:?}: {}", String::from_utf8_lossy(&done.stderr));
        Ok(done.stdout)
    }
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

fn remove(folder: &Path) -> std::io::Result<()> {
    match std::fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
