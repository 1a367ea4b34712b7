//! Places at which a test may kill the process.

/// Ends the process by SIGKILL where `WORKSPACED_FAILPOINT` names this place. In debug builds only: in others it is
/// nothing.
#[macro_export]
#[doc(hidden)]
macro_rules! failpoint {
    ($name:literal) => {
        #[cfg(debug_assertions)]
        $crate::failpoint::hit($name);
    };
}

/// Kills the process where `name` is the place that the test asks for: `NAME` at the first pass, `NAME:N` at the N-th.
#[cfg(debug_assertions)]
pub(crate) fn hit(name: &str) {
    use std::sync::atomic::{AtomicU64, Ordering};
    static PASSES: AtomicU64 = AtomicU64::new(0);

    let Ok(wanted) = std::env::var("WORKSPACED_FAILPOINT") else { return };
    let (place, pass) = wanted.split_once(':').unwrap_or((&wanted, "1"));
    if place == name && PASSES.fetch_add(1, Ordering::Relaxed) + 1 == pass.parse().unwrap_or(1) {
        let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    }
}
