//! Places at which a test may kill the process, or have it panic.
//!
//! The law of this crate: in release builds it is nothing.

/// Kills the process by SIGKILL where `WORKSPACED_FAILPOINT` names this place: `NAME` at the first pass, `NAME:N` at the
/// N-th; panics there instead for `NAME:N:panic`. `@FILE` has such a text in a file, so that a test can arm a process that
/// runs; for `NAME:N:hold` the thread makes `FILE.held` and waits there until the file says something else. In debug builds
/// only.
#[cfg(debug_assertions)]
pub fn hit(name: &str) {
    armed::hit(name);
}

/// Nothing.
#[cfg(not(debug_assertions))]
pub fn hit(_name: &str) {}

#[cfg(debug_assertions)]
mod armed {
    #![expect(clippy::disallowed_methods, reason = "a test sets it for one process, and no release build reads it")]

    use std::sync::{LazyLock, Mutex, PoisonError};

    static SPEC: LazyLock<Option<String>> = LazyLock::new(|| std::env::var("WORKSPACED_FAILPOINT").ok());
    /// What is armed, and how often its place was passed.
    static PASSES: Mutex<(String, u64)> = Mutex::new((String::new(), 0));

    pub(super) fn hit(name: &str) {
        let Some(spec) = &*SPEC else { return };
        let wanted = match spec.strip_prefix('@') {
            // Nothing there: nothing is armed yet.
            Some(file) => std::fs::read_to_string(file).unwrap_or_default(),
            None => spec.clone(),
        };
        let mut parts = wanted.trim().split(':');
        let (place, pass, action) = (parts.next(), parts.next().unwrap_or("1"), parts.next());
        if place != Some(name) || !is_pass(&wanted, pass.parse().unwrap_or(1)) {
            return;
        }
        assert!(action != Some("panic"), "failpoint {name}");
        if action == Some("hold") {
            hold(spec, &wanted);
            return;
        }
        // Whether it succeeds shows at once.
        let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    }

    /// Waits as long as the file of `spec` says `wanted`.
    fn hold(spec: &str, wanted: &str) {
        let file = spec.trim_start_matches('@');
        // A test that cannot see it fails by itself.
        let _ = std::fs::write(format!("{file}.held"), wanted);
        while std::fs::read_to_string(file).is_ok_and(|now| now == wanted) {
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
    }

    /// Counts a pass of the armed place; whether it is the wanted one.
    fn is_pass(wanted: &str, pass: u64) -> bool {
        let mut passes = PASSES.lock().unwrap_or_else(PoisonError::into_inner);
        if passes.0 != wanted {
            *passes = (wanted.to_owned(), 0);
        }
        passes.1 += 1;
        passes.1 == pass
    }
}
