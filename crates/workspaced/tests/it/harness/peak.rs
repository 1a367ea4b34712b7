//! Measures how much the peak memory of the server grows during an action.

use super::Server;

/// The memory of a server process since [`Peak::begin`].
#[derive(Debug)]
pub(crate) struct Peak {
    process: u32,
    /// Resident bytes at the start.
    start: u64,
}

impl Peak {
    /// Resets the kernel's peak counter of the process. Call the route once before, so that the measurement excludes what
    /// the first call loads.
    pub(crate) fn begin(server: &Server) -> Self {
        let process = server.process_id();
        std::fs::write(format!("/proc/{process}/clear_refs"), "5").unwrap();
        Self { process, start: peak_bytes(process) }
    }

    /// Returns how many bytes the peak exceeds the resident memory at the start.
    pub(crate) fn growth(&self) -> u64 {
        peak_bytes(self.process).saturating_sub(self.start)
    }
}

impl Server {
    /// Runs `action`. Returns its output and the growth of the server's peak memory in bytes.
    ///
    /// Choose sizes at which a fault would cost some hundred MiB, not all memory of the machine.
    pub(crate) async fn peak_growth<T>(&self, action: impl Future<Output = T>) -> (T, u64) {
        let peak = Peak::begin(self);
        let output = action.await;
        (output, peak.growth())
    }
}

/// Asserts that peak memory grew by at most `most_mib`.
#[track_caller]
pub(crate) fn assert_growth(what: &str, growth: u64, most_mib: u64) {
    assert!(growth <= most_mib << 20, "{what}: the peak grew by {} MiB; at most {most_mib} MiB", growth >> 20);
}

/// Returns the peak resident bytes since the last reset.
fn peak_bytes(process: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let value = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    value.split_whitespace().next().unwrap().parse::<u64>().unwrap() << 10
}
