//! Support for the tests of this crate. Git runs without configuration and outside any repository.

#![expect(clippy::disallowed_methods, reason = "tests run git; the crate itself does no IO")]

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::LogicalPath;

pub(crate) fn path(raw: &str) -> LogicalPath {
    LogicalPath::parse(raw).unwrap()
}

/// A folder in which git runs.
pub(crate) struct Git {
    folder: tempfile::TempDir,
}

impl Git {
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn write(&self, name: &str, bytes: &[u8]) {
        let path = self.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }

    pub(crate) fn read(&self, name: &str) -> Option<Vec<u8>> {
        std::fs::read(self.path().join(name)).ok()
    }

    pub(crate) fn run(&self, arguments: &[&str], input: &[u8]) -> Output {
        let mut child = Command::new("git")
            .args(["-c", "core.autocrlf=false", "-c", "core.safecrlf=false"])
            .args(arguments)
            .current_dir(self.path())
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap())
            .env("HOME", self.path())
            .env("LC_ALL", "C")
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_CEILING_DIRECTORIES", self.path().parent().unwrap())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // If git refuses the input early, it does not read all of it.
        let _ = child.stdin.take().unwrap().write_all(input);
        child.wait_with_output().unwrap()
    }

    /// Applies a patch with git. Returns its error output if it refuses.
    pub(crate) fn apply(&self, patch: &[u8]) -> Result<(), String> {
        let output = self.run(&["apply", "--whitespace=nowarn", "-"], patch);
        if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
    }
}
