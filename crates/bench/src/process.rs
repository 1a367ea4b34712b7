//! Server processes: started, watched, ended.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use rustix::process::{Pid, Signal, kill_process};

/// A server process that was started here; it ends with this value.
pub(crate) struct Server {
    child: Child,
    /// Where it listens.
    pub(crate) address: SocketAddr,
}

/// How long a server may take to end by itself.
const DRAIN: Duration = Duration::from_secs(20);

impl Server {
    /// Starts `command` and waits until it says where it listens. What it logs goes to `log`.
    ///
    /// # Errors
    ///
    /// When it cannot be started or ends before it listens.
    pub(crate) fn start(command: &mut Command, log: &Path) -> anyhow::Result<Self> {
        let log_file = File::options().create(true).append(true).open(log)?;
        let named = command.get_program().display().to_string();
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log_file)
            .spawn()
            .with_context(|| format!("cannot start {named}"))?;
        let output = child.stdout.take().context("no standard output")?;
        let mut lines = BufReader::new(output).lines();
        for line in lines.by_ref() {
            // It begins the line with some servers, and stands in its midst with others.
            if let Some((_, address)) = line?.split_once("istening on http://") {
                let address = address.trim().trim_end_matches('/').parse()?;
                // What it prints later is of no interest, but must not block it.
                std::thread::spawn(move || lines.for_each(drop));
                return Ok(Self { child, address });
            }
        }
        let status = child.wait()?;
        anyhow::bail!("{named} ended with {status} before it listened:\n{}", std::fs::read_to_string(log)?)
    }

    /// Its process ID.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Asks it to end and waits until it has.
    pub(crate) fn stop(&mut self) -> anyhow::Result<()> {
        if self.child.try_wait()?.is_some() {
            return Ok(());
        }
        let id = Pid::from_child(&self.child);
        kill_process(id, Signal::TERM)?;
        let since = Instant::now();
        while self.child.try_wait()?.is_none() {
            if since.elapsed() > DRAIN {
                self.child.kill()?;
                self.child.wait()?;
                anyhow::bail!("the server did not end within {} s", DRAIN.as_secs());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Err(error) = self.stop() {
            eprintln!("warning: {error}");
        }
    }
}

/// Runs a program to its end, its output read and thrown away; gives back how many lines it wrote.
///
/// # Errors
///
/// When it cannot be started or its exit code is not among `fine`.
pub(crate) fn count_lines(command: &mut Command, fine: &[i32]) -> anyhow::Result<usize> {
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
    let output = child.stdout.take().context("no standard output")?;
    let mut reader = BufReader::with_capacity(64 << 10, output);
    let mut lines = 0;
    loop {
        let read = reader.fill_buf()?;
        if read.is_empty() {
            break;
        }
        lines += read.split(|byte| *byte == b'\n').count() - 1;
        let length = read.len();
        reader.consume(length);
    }
    let status = child.wait()?;
    anyhow::ensure!(status.code().is_some_and(|code| fine.contains(&code)), "{command:?} ended with {status}");
    Ok(lines)
}

/// Runs a program that has to succeed, in `folder`.
///
/// # Errors
///
/// When it does not; with what it wrote.
pub(crate) fn must(
    program: &str,
    args: impl IntoIterator<Item = impl AsRef<OsStr>>,
    folder: &Path,
) -> anyhow::Result<()> {
    let output = Command::new(program)
        .args(args)
        .current_dir(folder)
        .output()
        .with_context(|| format!("cannot start {program}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    anyhow::ensure!(output.status.success(), "{program} ended with {}: {said}", output.status);
    Ok(())
}

/// Processor time that a process used so far.
pub(crate) fn processor_of(id: u32) -> Option<Duration> {
    times(&format!("/proc/{id}/stat"), 13)
}

/// Processor time that the ended children of this process used so far.
pub(crate) fn processor_of_children() -> Option<Duration> {
    times("/proc/self/stat", 15)
}

/// The sum of two neighbouring times in a `stat` file, the first at `field`, counted from 0.
fn times(file: &str, field: usize) -> Option<Duration> {
    let stat = std::fs::read_to_string(file).ok()?;
    // The second field is a name in brackets that may hold blanks; after it the third field follows.
    let (_, rest) = stat.rsplit_once(") ")?;
    let ticks: u64 = rest.split(' ').skip(field - 2).take(2).filter_map(|value| value.parse::<u64>().ok()).sum();
    // The kernel tells these times in hundredths of a second, whatever its own clock.
    Some(Duration::from_millis(ticks * 10))
}

/// A figure of `/proc/ID/status`, such as `VmRSS` in bytes or `Threads`.
pub(crate) fn status_of(id: u32, name: &str) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    let mut words = line.split_whitespace();
    let value: u64 = words.next()?.parse().ok()?;
    Some(if words.next() == Some("kB") { value * 1024 } else { value })
}

/// How many handles a process holds open.
pub(crate) fn handles_of(id: u32) -> Option<usize> {
    Some(std::fs::read_dir(format!("/proc/{id}/fd")).ok()?.count())
}
