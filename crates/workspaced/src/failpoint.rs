//! Places at which a test may kill the process, or have it panic.

/// Kills the process by SIGKILL where `WORKSPACED_FAILPOINT` names this place: `NAME` at the first pass, `NAME:N` at the
/// N-th; panics there instead for `NAME:N:panic`. In debug builds only; in others it is nothing.
#[cfg(debug_assertions)]
#[expect(clippy::disallowed_methods, reason = "a test sets it for one process, and no release build reads it")]
pub(crate) fn hit(name: &str) {
    use std::sync::atomic::{AtomicU64, Ordering};
    static PASSES: AtomicU64 = AtomicU64::new(0);

    let Ok(wanted) = std::env::var("WORKSPACED_FAILPOINT") else { return };
    let mut parts = wanted.split(':');
    let (place, pass, action) = (parts.next(), parts.next().unwrap_or("1"), parts.next());
    if place == Some(name) && PASSES.fetch_add(1, Ordering::Relaxed) + 1 == pass.parse().unwrap_or(1) {
        assert!(action != Some("panic"), "failpoint {name}");
        // Whether it succeeds shows at once.
        let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    }
}

/// Nothing.
#[cfg(not(debug_assertions))]
pub(crate) fn hit(_name: &str) {}
