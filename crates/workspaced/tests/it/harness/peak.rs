//! What an action costs the server's process in memory at its peak.

use super::Server;

/// The memory of one server process from a moment on.
#[derive(Debug)]
pub(crate) struct Peak {
    process: u32,
    /// Resident bytes at that moment.
    start: u64,
}

impl Peak {
    /// Resets the kernel's record of the process's peak. Call the route once before, so that what is measured is not what
    /// its first call loads.
    pub(crate) fn begin(server: &Server) -> Self {
        let process = server.process_id();
        std::fs::write(format!("/proc/{process}/clear_refs"), "5").unwrap();
        Self { process, start: peak_bytes(process) }
    }

    /// By how many bytes the peak since then exceeds what was resident at the beginning.
    pub(crate) fn growth(&self) -> u64 {
        peak_bytes(self.process).saturating_sub(self.start)
    }
}

impl Server {
    /// Runs `action` and returns its output, and by how many bytes this server's peak memory grew meanwhile.
    ///
    /// A test of a fault chooses sizes at which the fault costs some hundred MiB, and not all memory of the machine.
    pub(crate) async fn peak_growth<T>(&self, action: impl Future<Output = T>) -> (T, u64) {
        let peak = Peak::begin(self);
        let output = action.await;
        (output, peak.growth())
    }
}

/// Checks that a growth of peak memory is within `most_mib`.
#[track_caller]
pub(crate) fn assert_growth(what: &str, growth: u64, most_mib: u64) {
    assert!(growth <= most_mib << 20, "{what}: the peak grew by {} MiB; at most {most_mib} MiB", growth >> 20);
}

/// The most bytes that were ever resident since the last reset.
fn peak_bytes(process: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let value = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    value.split_whitespace().next().unwrap().parse::<u64>().unwrap() << 10
}
