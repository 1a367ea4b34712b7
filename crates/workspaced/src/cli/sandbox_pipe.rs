//! Sandboxes in which commands run: a program that runs a command there with a pipe, such as `docker exec -i`, starts the shim.

#![expect(clippy::disallowed_types, clippy::disallowed_methods, reason = "the client starts its user's programs")]

use std::fs::File;
use std::io::{BufReader, BufWriter, Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};
use shim::{CommandFolder, FreshFolder, LocalFolder, RemoteFolder, ShimError};
use workspaced_client::Sha256;

use crate::cli::error::CliError;

/// The folder in a sandbox, unless another one is given.
const DEFAULT_FOLDER: &str = "/workspace";
/// Where a new folder is made, unless a folder is given.
const FRESH_PARENT: &str = "/tmp";
/// The name of the program that is copied into sandboxes, beside this one.
const SHIM_NAME: &str = "workspaced-shim";
/// The most bytes of it.
const MAX_SHIM_BYTES: u64 = 64 << 20;
/// How a sandbox says that it does not have the shim yet.
const MISSING: i32 = 77;
/// How long the program that holds the pipe may take to end.
const END: Duration = Duration::from_secs(5);

/// Starts the shim, if the sandbox has it: `FOLDER NAME MODE`. A file of another user is not started.
const START: &str = r#"for f in "$0/.workspaced/$1" "/tmp/$1" "/dev/shm/$1"; do
if [ -f "$f" ] && [ ! -L "$f" ] && [ -O "$f" ] && [ -x "$f" ]; then exec "$f" "$2" "$0"; fi
done
exit 77"#;

/// Writes the shim to the first place from which it can be started: `FOLDER NAME`.
const INSTALL: &str = r#"t="$1.$$"; from=
for d in "$0/.workspaced" /tmp /dev/shm; do
mkdir -p "$d" 2>/dev/null; (: > "$d/$t") 2>/dev/null || continue
cat ${from:+"$from"} > "$d/$t" && chmod 700 "$d/$t" || exit 1
if [ -x "$d/$t" ]; then mv -f "$d/$t" "$d/$1" && rm -f ${from:+"$from"}; exit; fi
from="$d/$t"
done
echo "no folder here can be written and has programs: tried $0, /tmp and /dev/shm" >&2
exit 1"#;

/// Where a command runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SandboxAddress {
    /// `docker`, `podman`, `kubectl`, `ssh` or `pipe`.
    kind: String,
    /// What the user calls it.
    name: String,
    /// The program that runs a command in it, with its arguments.
    program: Vec<String>,
    /// The folder in it, if the address has one.
    folder: Option<String>,
}

/// A folder that is open, here or in a sandbox.
pub(crate) struct OpenFolder {
    // In this order: the pipe is closed before its program is waited for, and the lock is given back before the folder is removed.
    pub(crate) folder: Box<dyn CommandFolder>,
    _process: Option<PipeProcess>,
    _fresh: Option<FreshFolder>,
    /// Its path, for people.
    pub(crate) shown: String,
    /// What the record says of where the command ran.
    pub(crate) environment: Map<String, Value>,
}

/// The program that holds the pipe.
struct PipeProcess(Child);

impl SandboxAddress {
    /// Parses an address, for clap.
    pub(crate) fn parse(raw: &str) -> Result<Self, String> {
        let (kind, name) = raw.split_once(':').ok_or("expected docker:, podman:, kubectl:, ssh: or pipe:")?;
        if name.is_empty() || name.starts_with('-') {
            return Err(format!("`{name}` is no name of a sandbox"));
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
                    _ => return Err("expected kubectl:NAMESPACE/POD or kubectl:NAMESPACE/POD/CONTAINER".to_owned()),
                }
            }
            "ssh" => {
                let (host, path) = name.rsplit_once(':').ok_or("expected ssh:HOST:FOLDER")?;
                folder = Some(path.to_owned()).filter(|path| !path.is_empty());
                // A password cannot be asked for: the program has no terminal.
                vec![kind, "-T", "-o", "BatchMode=yes", host, "--"]
            }
            "pipe" => name.split_whitespace().collect(),
            _ => return Err(format!("`{kind}` is none of docker, podman, kubectl, ssh and pipe")),
        };
        let program: Vec<String> = program.into_iter().map(str::to_owned).collect();
        if program.is_empty() {
            return Err("expected pipe:PROGRAM".to_owned());
        }
        Ok(Self { kind: kind.to_owned(), name: name.to_owned(), program, folder })
    }

    /// Returns the program that runs a script of the shell in the sandbox.
    fn shell(&self, script: &str, arguments: &[&str]) -> Command {
        let words = ["sh", "-c", script].into_iter().chain(arguments.iter().copied());
        let mut command = Command::new(&self.program[0]);
        command.args(&self.program[1..]);
        // A shell on the other side reads what ssh sends; the others pass arguments as they are.
        if self.kind == "ssh" {
            command.args(words.map(quoted))
        } else {
            command.args(words)
        };
        without_token(&mut command);
        // An interrupt of the terminal is for the command, which gets it by the pipe.
        command.process_group(0);
        command
    }

    fn environment(&self) -> Map<String, Value> {
        let mut environment = Map::new();
        environment.insert("kind".to_owned(), json!(self.kind));
        environment.insert("name".to_owned(), json!(self.name));
        if matches!(self.kind.as_str(), "docker" | "podman") {
            let mut inspect = Command::new(&self.kind);
            inspect.args(["inspect", "--type", "container", "--format", "{{.Image}}", &self.name]);
            without_token(&mut inspect);
            // Without an answer, the record does not say which image it was.
            let image = inspect.stderr(Stdio::null()).output().ok().filter(|done| done.status.success());
            let image = image.map(|done| String::from_utf8_lossy(&done.stdout).trim().to_owned());
            environment.extend(image.map(|image| ("image".to_owned(), json!(image))));
        }
        environment
    }
}

impl OpenFolder {
    /// Opens a folder of this machine, and creates it if it is missing.
    pub(crate) fn here(path: &Path) -> Result<Self, CliError> {
        Ok(Self::local(LocalFolder::create(path)?, None))
    }

    /// Opens a folder of this machine that must exist.
    pub(crate) fn existing(path: &Path) -> Result<Self, CliError> {
        Ok(Self::local(LocalFolder::open(path)?, None))
    }

    /// Makes a new folder, which is removed afterwards, in `parent`.
    pub(crate) fn fresh(parent: Option<&Path>) -> Result<Self, CliError> {
        let parent = parent.map_or_else(std::env::temp_dir, Path::to_owned);
        let fresh = FreshFolder::create(&parent)?;
        Ok(Self::local(LocalFolder::open(fresh.path())?, Some(fresh)))
    }

    fn local(folder: LocalFolder, fresh: Option<FreshFolder>) -> Self {
        let shown = folder.path().display().to_string();
        let environment = Map::from_iter([("kind".to_owned(), json!("local"))]);
        Self { folder: Box::new(folder), _process: None, _fresh: fresh, shown, environment }
    }

    /// Opens a folder in a sandbox, where the shim is started, and copied before if it is not there.
    pub(crate) fn inside(
        address: &SandboxAddress,
        folder: Option<&str>,
        is_fresh: bool,
        shim: Option<&Path>,
    ) -> Result<Self, CliError> {
        let default = if is_fresh { FRESH_PARENT } else { DEFAULT_FOLDER };
        let folder = folder.or(address.folder.as_deref()).unwrap_or(default);
        let program = read_shim(shim)?;
        let name = format!("{SHIM_NAME}-{}", &Sha256::of(&program).to_string()[..16]);
        let mode = if is_fresh { "fresh" } else { "folder" };
        // Asked for while the shim starts, which takes as long.
        let asked = std::thread::spawn({
            let address = address.clone();
            move || address.environment()
        });
        let mut started = start(address, folder, &name, mode)?;
        if started.is_none() {
            install(address, folder, &name, &program)?;
            started = start(address, folder, &name, mode)?;
        }
        let missing = || CliError::Failed("the shim was copied into the sandbox and is not there".to_owned());
        let (remote, process) = started.ok_or_else(missing)?;
        let shown = format!("{}:{} {}", address.kind, address.name, remote.path());
        let environment = asked.join().unwrap_or_default();
        Ok(Self { folder: Box::new(remote), _process: Some(process), _fresh: None, shown, environment })
    }
}

type Pipe = RemoteFolder<BufReader<ChildStdout>, BufWriter<ChildStdin>>;

/// Starts the shim. `None` if the sandbox does not have it.
fn start(
    address: &SandboxAddress,
    folder: &str,
    name: &str,
    mode: &str,
) -> Result<Option<(Pipe, PipeProcess)>, CliError> {
    let mut command = address.shell(START, &[folder, name, mode]);
    let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut process = PipeProcess(child.map_err(|error| CliError::file(&address.program[0], &error))?);
    let (Some(stdin), Some(stdout)) = (process.0.stdin.take(), process.0.stdout.take()) else {
        return Err(CliError::Failed("the sandbox has no pipe".to_owned()));
    };
    match RemoteFolder::connect(BufReader::with_capacity(256 << 10, stdout), BufWriter::new(stdin)) {
        Ok(remote) => Ok(Some((remote, process))),
        Err(error @ ShimError::Lost(_)) => match process.0.wait().ok().and_then(|status| status.code()) {
            Some(MISSING) => Ok(None),
            _ => Err(CliError::Failed(format!(
                "no shell and no shim started in {}:{}: {error}\nCheck that `{} true` works and that its processor is the one \
                 of this machine.",
                address.kind,
                address.name,
                address.program.join(" ")
            ))),
        },
        Err(error) => Err(error.into()),
    }
}

fn install(address: &SandboxAddress, folder: &str, name: &str, program: &[u8]) -> Result<(), CliError> {
    let mut command = address.shell(INSTALL, &[folder, name]);
    let failed = |error: std::io::Error| CliError::file(&address.program[0], &error);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().map_err(failed)?;
    // A sandbox that does not read it says why when it ends.
    let written = child.stdin.take().map(|mut stdin| stdin.write_all(program));
    let status = child.wait().map_err(failed)?;
    match written {
        Some(Ok(())) if status.success() => Ok(()),
        _ => Err(CliError::Failed(format!("the shim could not be copied into {}:{}", address.kind, address.name))),
    }
}

fn read_shim(given: Option<&Path>) -> Result<Vec<u8>, CliError> {
    let path = match given {
        Some(path) => path.to_owned(),
        None => beside_this_program().ok_or_else(|| CliError::Failed("this program has no path".to_owned()))?,
    };
    let mut program = Vec::new();
    let read = File::open(&path).and_then(|file| file.take(MAX_SHIM_BYTES).read_to_end(&mut program));
    match read {
        Ok(_) => Ok(program),
        Err(error) => Err(CliError::Failed(format!(
            "{}: {error}\nIt is the program that is copied into the sandbox: install it beside this one, or name it with \
             --shim.",
            path.display()
        ))),
    }
}

fn beside_this_program() -> Option<PathBuf> {
    std::env::current_exe().ok().map(|path| path.with_file_name(SHIM_NAME))
}

/// The token stays with this program.
fn without_token(command: &mut Command) {
    command.env_remove("WORKSPACED_TOKEN").env_remove("WORKSPACED_TOKEN_FILE");
}

fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

impl Drop for PipeProcess {
    fn drop(&mut self) {
        let began = Instant::now();
        while matches!(self.0.try_wait(), Ok(None)) {
            if began.elapsed() > END {
                // It holds nothing any more; the shim in the sandbox has ended with its pipe.
                let _ = self.0.kill();
                let _ = self.0.wait();
                return;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

impl From<ShimError> for CliError {
    fn from(error: ShimError) -> Self {
        Self::Failed(error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_program_that_runs_a_command() {
        let program = |raw: &str| SandboxAddress::parse(raw).unwrap().program.join(" ");
        assert_eq!(program("docker:web"), "docker exec -i web");
        assert_eq!(program("podman:web"), "podman exec -i web");
        assert_eq!(program("kubectl:ns/pod"), "kubectl exec -i -n ns pod --");
        assert_eq!(program("kubectl:ns/pod/c"), "kubectl exec -i -n ns pod -c c --");
        assert_eq!(program("ssh:me@host:/srv/w"), "ssh -T -o BatchMode=yes me@host --");
        assert_eq!(SandboxAddress::parse("ssh:me@host:/srv/w").unwrap().folder.as_deref(), Some("/srv/w"));
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
            assert!(SandboxAddress::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_remote_shell_reads_a_word_as_it_was() {
        assert_eq!(quoted("it's $HOME"), r"'it'\''s $HOME'");
    }
}
