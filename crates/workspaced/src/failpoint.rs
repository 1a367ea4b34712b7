//! Places at which a test may kill the process.

/// Kills the process by SIGKILL where `WORKSPACED_FAILPOINT` names this place: `NAME` at the first pass, `NAME:N` at the
/// N-th. In debug builds only; in others it is nothing.
#[cfg(debug_assertions)]
pub(crate) fn hit(name: &str) {
    use std::sync::atomic::{AtomicU64, Ordering};
    static PASSES: AtomicU64 = AtomicU64::new(0);

    let Ok(wanted) = std::env::var("WORKSPACED_FAILPOINT") else { return };
    let (place, pass) = wanted.split_once(':').unwrap_or((&wanted, "1"));
    if place == name && PASSES.fetch_add(1, Ordering::Relaxed) + 1 == pass.parse().unwrap_or(1) {
        // Whether it succeeds shows at once.
        let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    }
}

/// Nothing.
#[cfg(not(debug_assertions))]
pub(crate) fn hit(_name: &str) {}
