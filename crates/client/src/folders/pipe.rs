//! The pipe to a sandbox: a program that runs a command there, such as `docker exec -i`, starts the shim.

#![expect(clippy::disallowed_types, clippy::disallowed_methods, reason = "the client starts its user's programs")]

use std::fs::File;
use std::io::{BufReader, BufWriter, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use model::Sha256;
use rustix::process::{Pid, Signal, kill_process_group};
use shim::{RemoteFolder, ShimError};

use crate::folders::address::SandboxAddress;
use crate::folders::error::FolderError;

/// The name of the program that is copied into sandboxes.
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

/// A folder behind a pipe.
pub(crate) type PipeFolder = RemoteFolder<BufReader<ChildStdout>, BufWriter<ChildStdin>>;

/// The program that holds the pipe. Its end is waited for when this is dropped.
pub(crate) struct PipeProcess(PipeHandle);

/// Ends the program that holds the pipe.
#[derive(Clone)]
pub(crate) struct PipeHandle(Arc<Mutex<Child>>);

/// Starts the shim in a sandbox, and copies it there before if it is not there.
pub(crate) fn connect(
    address: &SandboxAddress,
    folder: &str,
    mode: &str,
    shim: Option<&Path>,
) -> Result<(PipeFolder, PipeProcess), FolderError> {
    let program = read_shim(shim)?;
    let name = format!("{SHIM_NAME}-{}", &Sha256::of(&program).to_string()[..16]);
    if let Some(started) = start(address, folder, &name, mode)? {
        return Ok(started);
    }
    install(address, folder, &name, &program)?;
    start(address, folder, &name, mode)?.ok_or_else(|| FolderError::NotCopied { sandbox: address.to_string() })
}

/// Starts the shim. `None` if the sandbox does not have it.
fn start(
    address: &SandboxAddress,
    folder: &str,
    name: &str,
    mode: &str,
) -> Result<Option<(PipeFolder, PipeProcess)>, FolderError> {
    let mut command = address.shell(START, &[folder, name, mode]);
    let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut child = child.map_err(|error| FolderError::io(&address.program[0], error))?;
    let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
    let process = PipeProcess(PipeHandle(Arc::new(Mutex::new(child))));
    let (Some(stdin), Some(stdout)) = (stdin, stdout) else {
        return Err(FolderError::Address(format!("{address} has no pipe")));
    };
    match RemoteFolder::connect(BufReader::with_capacity(256 << 10, stdout), BufWriter::new(stdin)) {
        Ok(remote) => Ok(Some((remote, process))),
        Err(error @ ShimError::Lost(_)) => match process.0.lock().wait().ok().and_then(|status| status.code()) {
            Some(MISSING) => Ok(None),
            _ => Err(FolderError::NotStarted {
                sandbox: address.to_string(),
                check: format!("{} true", address.program.join(" ")),
                why: error.to_string(),
            }),
        },
        Err(error) => Err(error.into()),
    }
}

fn install(address: &SandboxAddress, folder: &str, name: &str, program: &[u8]) -> Result<(), FolderError> {
    let mut command = address.shell(INSTALL, &[folder, name]);
    let failed = |error: std::io::Error| FolderError::io(&address.program[0], error);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().map_err(failed)?;
    // A sandbox that does not read it says why when it ends.
    let written = child.stdin.take().map(|mut stdin| stdin.write_all(program));
    let status = child.wait().map_err(failed)?;
    match written {
        Some(Ok(())) if status.success() => Ok(()),
        _ => Err(FolderError::NotCopied { sandbox: address.to_string() }),
    }
}

fn read_shim(given: Option<&Path>) -> Result<Vec<u8>, FolderError> {
    let path = match given {
        Some(path) => path.to_owned(),
        None => beside_this_program(),
    };
    let mut program = Vec::new();
    let read = File::open(&path).and_then(|file| file.take(MAX_SHIM_BYTES).read_to_end(&mut program));
    match read {
        Ok(_) => Ok(program),
        Err(cause) => Err(FolderError::NoShim { file: path.display().to_string(), cause }),
    }
}

/// A program without a path finds the shim in the folder where it runs, or says that it is not there.
fn beside_this_program() -> PathBuf {
    std::env::current_exe().unwrap_or_default().with_file_name(SHIM_NAME)
}

impl PipeProcess {
    pub(crate) fn handle(&self) -> PipeHandle {
        self.0.clone()
    }
}

impl PipeHandle {
    fn lock(&self) -> MutexGuard<'_, Child> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Cuts the pipe.
    pub(crate) fn kill(&self) {
        let mut child = self.lock();
        // Not waited for yet, so that the number is still its group's.
        if matches!(child.try_wait(), Ok(None)) {
            // It may have ended just now.
            let _ = kill_process_group(Pid::from_child(&child), Signal::KILL);
        }
    }
}

impl Drop for PipeProcess {
    fn drop(&mut self) {
        let began = Instant::now();
        while matches!(self.0.lock().try_wait(), Ok(None)) {
            if began.elapsed() > END {
                // It holds nothing any more; the shim in the sandbox has ended with its pipe.
                self.0.kill();
                let _ = self.0.lock().wait();
                return;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}
