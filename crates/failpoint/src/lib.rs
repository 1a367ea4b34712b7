//! Failpoints, at which a test kills or pauses the process or causes a panic.
//!
//! The law of this crate: release builds contain no failpoints.

/// Triggers the failpoint `name` if the environment variable `WORKSPACED_FAILPOINT` arms it. Debug builds only.
///
/// The value `NAME:N` kills the process with SIGKILL at the N-th pass, by default at the first. `NAME:N:panic` panics instead.
/// `@FILE` reads the value from a file, so that a test can arm a running process. The file must be in the data folder: the sandbox hides
/// others, and one that cannot be read arms nothing. With `NAME:N:pause`, the thread creates
/// `FILE.paused` and waits until the content of the file changes.
#[cfg(debug_assertions)]
pub fn hit(name: &str) {
    armed::hit(name);
}

/// Does nothing in release builds.
#[cfg(not(debug_assertions))]
pub fn hit(_name: &str) {}

#[cfg(debug_assertions)]
mod armed {
    #![expect(clippy::disallowed_methods, reason = "a test sets the variable, and release builds do not read it")]

    use std::sync::{LazyLock, Mutex, PoisonError};

    use tokio::runtime::{Handle, RuntimeFlavor};

    static SPEC: LazyLock<Option<String>> = LazyLock::new(|| std::env::var("WORKSPACED_FAILPOINT").ok());
    /// The armed value and its number of passes.
    static PASSES: Mutex<(String, u64)> = Mutex::new((String::new(), 0));

    pub(super) fn hit(name: &str) {
        let Some(spec) = &*SPEC else { return };
        let value = match spec.strip_prefix('@') {
            // A missing file arms nothing.
            Some(file) => std::fs::read_to_string(file).unwrap_or_default(),
            None => spec.clone(),
        };
        let mut parts = value.trim().split(':');
        let (armed, pass, action) = (parts.next(), parts.next().unwrap_or("1"), parts.next());
        if armed != Some(name) || !is_pass(&value, pass.parse().unwrap_or(1)) {
            return;
        }
        assert!(action != Some("panic"), "failpoint {name}");
        if action == Some("pause") {
            pause(spec, &value);
            return;
        }
        // A failure is visible: the process continues.
        let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    }

    /// Waits while the file of `spec` contains `value`.
    fn pause(spec: &str, value: &str) {
        let file = spec.trim_start_matches('@');
        // If the write fails, the test that waits for the file fails.
        let _ = std::fs::write(format!("{file}.paused"), value);
        let wait = || {
            while std::fs::read_to_string(file).is_ok_and(|current| current == value) {
                std::thread::sleep(std::time::Duration::from_millis(2));
            }
        };
        match Handle::try_current().map(|runtime| runtime.runtime_flavor()) {
            // A worker of the runtime hands its other tasks over: the process must answer while one call is paused.
            Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(wait),
            _ => wait(),
        }
    }

    /// Counts a pass of the armed failpoint. Returns whether it is number `pass`.
    fn is_pass(value: &str, pass: u64) -> bool {
        let mut passes = PASSES.lock().unwrap_or_else(PoisonError::into_inner);
        if passes.0 != value {
            *passes = (value.to_owned(), 0);
        }
        passes.1 += 1;
        passes.1 == pass
    }
}
