//! Injects failures and kills into system calls of a running server.

use std::ffi::OsStr;
use std::fs::File;
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::{Server, until_blocking};

/// An strace process, detached on drop.
pub(crate) struct Strace(Child);

impl Strace {
    /// Attaches to `server` and injects `action` into `syscalls`, such as `signal=KILL:when=3` (counted by thread) or
    /// `error=ENOSPC`.
    ///
    /// `None`, with the reason on the output, where a process may not be traced.
    pub(crate) fn attach(server: &Server, syscalls: &str, action: &str) -> Option<Self> {
        Self::attach_with(server, syscalls, action, &[])
    }

    /// As [`attach`](Self::attach), for the system calls that use the file or folder at `path` only.
    pub(crate) fn attach_at(server: &Server, path: &Path, syscalls: &str, action: &str) -> Option<Self> {
        Self::attach_with(server, syscalls, action, &[OsStr::new("-P"), path.as_os_str()])
    }

    fn attach_with(server: &Server, syscalls: &str, action: &str, more: &[&OsStr]) -> Option<Self> {
        let errors = server.home.join("strace.errors");
        let strace = Command::new("strace")
            .args(["-f", "-qq", "-p", &server.process_id().to_string(), "-o"])
            .arg(server.home.join("strace"))
            .args(more)
            .args(["-e", &format!("trace={syscalls}"), "-e", &format!("inject={syscalls}:{action}")])
            .stderr(File::create(&errors).unwrap())
            .spawn()
            .expect("strace, which `.ci/test` installs");
        let mut strace = Self(strace);
        let is_attached = until_blocking("strace traces every thread of the server", || {
            let traces = strace.traces(server);
            (traces || strace.0.try_wait().unwrap().is_some()).then_some(traces)
        });
        if is_attached {
            return Some(strace);
        }
        let errors = std::fs::read_to_string(errors).unwrap();
        assert!(errors.contains("Operation not permitted"), "{errors}");
        println!("SKIPPED: no process may be traced here: {errors}");
        None
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
