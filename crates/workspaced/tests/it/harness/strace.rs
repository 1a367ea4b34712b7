//! Injects failures and kills into system calls of a running server.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::Server;

/// An strace process, detached on drop.
pub(crate) struct Strace(Child);

impl Strace {
    /// Attaches to `server` and injects `action` into `syscalls`, such as `signal=KILL:when=3` (counted by thread) or
    /// `error=ENOSPC`.
    pub(crate) fn attach(server: &Server, syscalls: &str, action: &str) -> Self {
        let strace = Command::new("strace")
            .args(["-f", "-qq", "-p", &server.process_id().to_string(), "-o"])
            .arg(server.home.join("strace"))
            .args(["-e", &format!("trace={syscalls}"), "-e", &format!("inject={syscalls}:{action}")])
            .stderr(Stdio::null())
            .spawn()
            .expect("strace, which `.ci/test` installs");
        let strace = Self(strace);
        let deadline = Instant::now() + Duration::from_secs(10);
        while !strace.traces(server) {
            assert!(Instant::now() < deadline, "strace cannot attach to the server");
            std::thread::sleep(Duration::from_millis(2));
        }
        strace
    }

    /// Returns whether every thread of the server is traced.
    fn traces(&self, server: &Server) -> bool {
        let tracer = format!("TracerPid:\t{}\n", self.0.id());
        let tasks = std::fs::read_dir(format!("/proc/{}/task", server.process_id())).unwrap();
        tasks.flatten().all(|task| {
            std::fs::read_to_string(task.path().join("status")).is_ok_and(|status| status.contains(&tracer))
        })
    }
}

impl Drop for Strace {
    fn drop(&mut self) {
        // On SIGINT, strace detaches from the server before it ends.
        let _ = kill_process(Pid::from_child(&self.0), Signal::INT);
        let deadline = Instant::now() + Duration::from_secs(3);
        while matches!(self.0.try_wait(), Ok(None)) {
            if Instant::now() > deadline {
                // strace waits for a thread that never stops.
                let _ = self.0.kill();
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}
