//! Server processes and other programs.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use rustix::process::{Pid, Signal, kill_process};

/// A server process. It is stopped on drop.
pub(crate) struct Server {
    child: Child,
    /// The address on which it listens.
    pub(crate) address: SocketAddr,
}

/// How long a server is idle before its memory is read.
pub(crate) const SETTLE_TIME: Duration = Duration::from_secs(2);

/// How long a server may take to stop after SIGTERM.
const STOP_TIMEOUT: Duration = Duration::from_mins(2);

impl Server {
    /// Starts `command` and waits until it prints its address. Its standard error is appended to `log`.
    ///
    /// # Errors
    ///
    /// When it cannot be started, or exits before it listens.
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
            // Some servers print it at the start of the line, others in the middle.
            if let Some((_, address)) = line?.split_once("istening on http://") {
                let address = address.trim().trim_end_matches('/').parse()?;
                // The rest of the output is read so that the process does not block on a full pipe.
                std::thread::spawn(move || lines.for_each(drop));
                return Ok(Self { child, address });
            }
        }
        let status = child.wait()?;
        anyhow::bail!("{named} exited with {status} before it listened:\n{}", std::fs::read_to_string(log)?)
    }

    /// Returns the process ID.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns the resident memory in bytes after a pause of [`SETTLE_TIME`].
    ///
    /// # Errors
    ///
    /// When it cannot be read.
    pub(crate) fn resident_bytes(&self) -> anyhow::Result<f64> {
        std::thread::sleep(SETTLE_TIME);
        #[expect(clippy::cast_precision_loss, reason = "memory is far below 2^52 bytes")]
        Ok(status_of(self.id(), "VmRSS").context("cannot read the server's memory")? as f64)
    }

    /// Stops the process with SIGTERM and waits for it.
    pub(crate) fn stop(&mut self) -> anyhow::Result<()> {
        if self.child.try_wait()?.is_some() {
            return Ok(());
        }
        let id = Pid::from_child(&self.child);
        kill_process(id, Signal::TERM)?;
        let since = Instant::now();
        while self.child.try_wait()?.is_none() {
            if since.elapsed() > STOP_TIMEOUT {
                self.child.kill()?;
                self.child.wait()?;
                anyhow::bail!("the server did not stop within {} s", STOP_TIMEOUT.as_secs());
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

/// Runs a program and returns the number of lines of its output.
///
/// # Errors
///
/// When it cannot be started, or its exit code is not in `accepted`.
pub(crate) fn count_lines(command: &mut Command, accepted: &[i32]) -> anyhow::Result<usize> {
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
    anyhow::ensure!(status.code().is_some_and(|code| accepted.contains(&code)), "{command:?} exited with {status}");
    Ok(lines)
}

/// Runs a program in `folder`.
///
/// # Errors
///
/// When it fails; with its standard error.
pub(crate) fn run_checked(
    program: &str,
    args: impl IntoIterator<Item = impl AsRef<OsStr>>,
    folder: &Path,
) -> anyhow::Result<()> {
    let output = Command::new(program)
        .args(args)
        .current_dir(folder)
        .output()
        .with_context(|| format!("cannot start {program}"))?;
    let errors = String::from_utf8_lossy(&output.stderr);
    anyhow::ensure!(output.status.success(), "{program} exited with {}: {errors}", output.status);
    Ok(())
}

/// Returns the processor time of a process.
pub(crate) fn cpu_time_of(id: u32) -> Option<Duration> {
    times(&format!("/proc/{id}/stat"), 13)
}

/// Returns the processor time of this process's ended children.
pub(crate) fn cpu_time_of_children() -> Option<Duration> {
    times("/proc/self/stat", 15)
}

/// Returns the sum of the times in `field` and the next field of a `stat` file, counted from 0.
fn times(file: &str, field: usize) -> Option<Duration> {
    let stat = std::fs::read_to_string(file).ok()?;
    // The second field is a name in parentheses, which may contain spaces. The third field follows it.
    let (_, rest) = stat.rsplit_once(") ")?;
    let ticks: u64 = rest.split(' ').skip(field - 2).take(2).filter_map(|value| value.parse::<u64>().ok()).sum();
    // The kernel reports these times in hundredths of a second, independent of its own clock.
    Some(Duration::from_millis(ticks * 10))
}

/// Returns a value of `/proc/ID/status`, such as `VmRSS` in bytes or `Threads`.
pub(crate) fn status_of(id: u32, name: &str) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    let mut words = line.split_whitespace();
    let value: u64 = words.next()?.parse().ok()?;
    Some(if words.next() == Some("kB") { value * 1024 } else { value })
}

/// Returns the number of open file descriptors of a process.
pub(crate) fn open_files_of(id: u32) -> Option<usize> {
    Some(std::fs::read_dir(format!("/proc/{id}/fd")).ok()?.count())
}
