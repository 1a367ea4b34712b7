//! Metrics of the process, under the names that Prometheus has for them.

#![expect(clippy::disallowed_types, clippy::disallowed_methods, reason = "files of the kernel about this process")]

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::sync::OnceLock;
use std::time::{SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use rustix::fs::Dir;
use rustix::process::{Resource, getrlimit};

/// The number of the fields of `/proc/self/stat` after the name of the program, counted from its state: time in user mode.
const USER_TICKS: usize = 11;
/// Time in the kernel.
const SYSTEM_TICKS: usize = 12;

/// Linux shows times to programs in this unit on every architecture.
const TICKS_PER_SECOND: f64 = 100.0;

/// Files of the kernel. The sandbox keeps the process from opening them later.
struct KernelFiles {
    stat: File,
    status: File,
    descriptors: Mutex<Dir>,
    started_seconds: f64,
}

static FILES: OnceLock<Option<KernelFiles>> = OnceLock::new();

/// Opens what the metrics are read from. Without it, there are none of the process.
pub(crate) fn open() {
    FILES.get_or_init(|| {
        let folder = File::open("/proc/self/fd").ok()?;
        Some(KernelFiles {
            stat: File::open("/proc/self/stat").ok()?,
            status: File::open("/proc/self/status").ok()?,
            descriptors: Mutex::new(Dir::new(folder).ok()?),
            started_seconds: SystemTime::now().duration_since(UNIX_EPOCH).ok()?.as_secs_f64(),
        })
    });
}

/// Sets the gauges.
pub(crate) fn record() {
    let Some(Some(files)) = FILES.get() else { return };
    metrics::gauge!("process_start_time_seconds").set(files.started_seconds);
    if let Some(ticks) = cpu_ticks(&read(&files.stat)) {
        metrics::gauge!("process_cpu_seconds_total").set(ticks / TICKS_PER_SECOND);
    }
    if let Some(kib) = resident_kib(&read(&files.status)) {
        metrics::gauge!("process_resident_memory_bytes").set(f64::from(kib) * 1024.0);
    }
    let mut folder = files.descriptors.lock();
    folder.rewind();
    let open = folder.by_ref().flatten().count();
    // Without `.` and `..`.
    metrics::gauge!("process_open_fds").set(f64::from(u32::try_from(open.saturating_sub(2)).unwrap_or(u32::MAX)));
    if let Some(most) = getrlimit(Resource::Nofile).current {
        metrics::gauge!("process_max_fds").set(f64::from(u32::try_from(most).unwrap_or(u32::MAX)));
    }
}

fn read(file: &File) -> String {
    let mut text = vec![0; 4096];
    let count = file.read_at(&mut text, 0).unwrap_or(0);
    String::from_utf8_lossy(&text[..count]).into_owned()
}

/// Returns the processor time of the process in ticks. The name of the program may contain spaces and parentheses.
fn cpu_ticks(stat: &str) -> Option<f64> {
    let (_, fields) = stat.rsplit_once(") ")?;
    let fields: Vec<_> = fields.split(' ').collect();
    let ticks = |at: usize| fields.get(at)?.parse::<u32>().ok();
    Some(f64::from(ticks(USER_TICKS)?) + f64::from(ticks(SYSTEM_TICKS)?))
}

/// Returns the memory in RAM in KiB.
fn resident_kib(status: &str) -> Option<u32> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix("kB")?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_is_read_after_the_name_of_the_program() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194560 1 0 0 0 250 50 0 0 20 0 1 0 100 1 1";
        assert_eq!(cpu_ticks(stat), Some(300.0));
        assert_eq!(cpu_ticks("7"), None);
        assert_eq!(resident_kib("Name:\ta\nVmRSS:\t    6512 kB\n"), Some(6512));
    }
}
