//! Addresses of sandboxes.

use std::process::{Command, Stdio};
use std::str::FromStr;

use model::quote_word;
use serde_json::{Map, Value, json};

use crate::folders::error::FolderError;

/// What the user's configuration of `ssh` forwards, such as keys, is not for the commands of a sandbox.
const NO_FORWARDING: &[&str] = &["-a", "-x", "-o", "ClearAllForwardings=yes"];

/// A sandbox: `docker:NAME`, `podman:NAME`, `kubectl:NAMESPACE/POD[/CONTAINER]`, `ssh:HOST:FOLDER`, or `pipe:PROGRAM ARGUMENTS` for a
/// program that runs a command with a pipe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SandboxAddress {
    /// `docker`, `podman`, `kubectl`, `ssh` or `pipe`.
    kind: String,
    /// What the user calls it.
    name: String,
    /// The program that runs a command in it, with its arguments.
    pub(crate) program: Vec<String>,
    /// The folder in it, if the address has one.
    pub(crate) folder: Option<String>,
}

impl FromStr for SandboxAddress {
    type Err = FolderError;

    fn from_str(raw: &str) -> Result<Self, FolderError> {
        let bad = |why: &str| FolderError::Address(why.to_owned());
        let (kind, name) =
            raw.split_once(':').ok_or_else(|| bad("expected docker:, podman:, kubectl:, ssh: or pipe:"))?;
        if name.is_empty() || name.starts_with('-') {
            return Err(bad(&format!("`{name}` is no name of a sandbox")));
        }
        let mut folder = None;
        let program: Vec<&str> = match kind {
            "docker" | "podman" => vec![kind, "exec", "-i", name],
            "kubectl" => {
                let mut parts = name.split('/');
                match (parts.next(), parts.next(), parts.next(), parts.next()) {
                    (Some(space), Some(pod), None, _) if !pod.starts_with('-') => {
                        vec![kind, "exec", "-i", "-n", space, pod, "--"]
                    }
                    (Some(space), Some(pod), Some(container), None) if !pod.starts_with('-') => {
                        vec![kind, "exec", "-i", "-n", space, pod, "-c", container, "--"]
                    }
                    _ => return Err(bad("expected kubectl:NAMESPACE/POD or kubectl:NAMESPACE/POD/CONTAINER")),
                }
            }
            "ssh" => {
                let (host, path) = name.rsplit_once(':').ok_or_else(|| bad("expected ssh:HOST:FOLDER"))?;
                // A command begins in the user's folder, whose short name no shell replaces in quotes.
                let path = path.strip_prefix("~/").unwrap_or(if path == "~" { "." } else { path });
                folder = Some(path.to_owned()).filter(|path| !path.is_empty());
                // A password cannot be asked for: the program has no terminal.
                [&[kind, "-T", "-o", "BatchMode=yes"], NO_FORWARDING, &[host, "--"]].concat()
            }
            "pipe" => name.split_whitespace().collect(),
            _ => return Err(bad(&format!("`{kind}` is none of docker, podman, kubectl, ssh and pipe"))),
        };
        let program: Vec<String> = program.into_iter().map(str::to_owned).collect();
        if program.is_empty() {
            return Err(bad("expected pipe:PROGRAM"));
        }
        Ok(Self { kind: kind.to_owned(), name: name.to_owned(), program, folder })
    }
}

impl std::fmt::Display for SandboxAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.kind, self.name)
    }
}

impl SandboxAddress {
    /// Returns the program that runs a script of the shell in the sandbox.
    pub(crate) fn shell(&self, script: &str, arguments: &[&str]) -> Command {
        let words = ["sh", "-c", script].into_iter().chain(arguments.iter().copied());
        let mut command = without_token(&self.program[0]);
        command.args(&self.program[1..]);
        // A shell on the other side reads what ssh sends; the others pass arguments as they are.
        if self.kind == "ssh" {
            command.args(words.map(quote_word))
        } else {
            command.args(words)
        };
        // An interrupt of the terminal is for the command, which gets it by the pipe.
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        command
    }

    /// Returns what is known of where a command ran without asking.
    pub(crate) fn name_alone(&self) -> Map<String, Value> {
        Map::from_iter([("kind".to_owned(), json!(self.kind)), ("name".to_owned(), json!(self.name))])
    }

    /// Returns what the record of a command says of where it ran. Asks the container engine which image it is.
    pub(crate) fn environment(&self) -> Map<String, Value> {
        let mut environment = self.name_alone();
        if matches!(self.kind.as_str(), "docker" | "podman") {
            let mut inspect = without_token(&self.kind);
            inspect.args(["inspect", "--type", "container", "--format", "{{.Image}}", &self.name]);
            // Without an answer, the record does not say which image it was.
            let image = inspect.stderr(Stdio::null()).output().ok().filter(|done| done.status.success());
            let image = image.map(|done| String::from_utf8_lossy(&done.stdout).trim().to_owned());
            environment.extend(image.map(|image| ("image".to_owned(), json!(image))));
        }
        environment
    }
}

/// Returns a program of the user, which does not get the token.
#[expect(clippy::disallowed_methods, reason = "the client starts its user's programs")]
fn without_token(program: &str) -> Command {
    let mut command = Command::new(program);
    command.env_remove("WORKSPACED_TOKEN").env_remove("WORKSPACED_TOKEN_FILE");
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_program_that_runs_a_command() {
        let program = |raw: &str| raw.parse::<SandboxAddress>().unwrap().program.join(" ");
        assert_eq!(program("docker:web"), "docker exec -i web");
        assert_eq!(program("podman:web"), "podman exec -i web");
        assert_eq!(program("kubectl:ns/pod"), "kubectl exec -i -n ns pod --");
        assert_eq!(program("kubectl:ns/pod/c"), "kubectl exec -i -n ns pod -c c --");
        assert_eq!(
            program("ssh:me@host:/srv/w"),
            "ssh -T -o BatchMode=yes -a -x -o ClearAllForwardings=yes me@host --"
        );
        assert_eq!("ssh:me@host:/srv/w".parse::<SandboxAddress>().unwrap().folder.as_deref(), Some("/srv/w"));
        for (raw, folder) in [("ssh:h:a b", "a b"), ("ssh:h:~/w", "w"), ("ssh:h:~", "."), ("ssh:h:~a/w", "~a/w")] {
            assert_eq!(raw.parse::<SandboxAddress>().unwrap().folder.as_deref(), Some(folder), "{raw}");
        }
        assert_eq!(program("pipe:nsenter -t 1  -m"), "nsenter -t 1 -m");
        for bad in [
            "web",
            "docker:",
            "docker:-v",
            "kubectl:pod",
            "kubectl:a/-b",
            "kubectl:a/b/c/d",
            "ssh:host",
            "lxc:a",
            "pipe: ",
        ] {
            assert!(bad.parse::<SandboxAddress>().is_err(), "{bad}");
        }
    }
}
