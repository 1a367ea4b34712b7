//! The commands that call a service, and the client crate that they use.

mod bridge;
mod checkouts;
mod client;
mod commands;
mod folders;
mod follow;
mod hostile_commands;
mod hostile_texts;
mod relay;
mod round_trips;
mod settings;

use std::process::{Command, Output};

use crate::harness::workspaced;

/// What a command has printed, and its exit code.
#[derive(Debug)]
struct Printed {
    code: i32,
    out: String,
    err: String,
}

/// Returns a client command for the service at `url`, with a token from the environment.
fn command(url: &str, token: &str, args: &[&str]) -> Command {
    let mut command = workspaced();
    command.args(args).env("WORKSPACED_URL", url).env("WORKSPACED_TOKEN", token);
    command
}

/// Runs a command to its end.
fn run(mut command: Command) -> Printed {
    let Output { status, stdout, stderr } = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Printed { code: status.code().unwrap(), out: text(stdout), err: text(stderr) }
}

impl Printed {
    /// Asserts success without a complaint, and returns the output.
    #[track_caller]
    fn ok(self) -> String {
        assert!(self.code == 0 && self.err.is_empty(), "{self:?}");
        self.out
    }

    /// Asserts success, and returns the only line of the output as JSON.
    #[track_caller]
    fn json(self) -> serde_json::Value {
        serde_json::from_str(&self.ok()).unwrap()
    }

    /// Asserts that the command failed with an exit code and a message.
    #[track_caller]
    fn failed(self, code: i32, message: &str) {
        assert!(self.code == code && self.err.contains(message), "{self:?}");
    }
}
