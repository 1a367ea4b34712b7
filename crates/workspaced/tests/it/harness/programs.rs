//! Programs of others: agents, clients, generators and package managers, which look around on the machine that they run on.

use std::ffi::{OsStr, OsString};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use super::cleanup;

/// What such a program, and a command that it runs, finds on its PATH. With `rg` beside them, an agent has one tool more.
const FOUND: &str = "bash basename cat chmod cmp cp cut date dd diff dirname echo env expr false find git grep head id kill ln ls mkdir \
    mkfifo mktemp mv node npm od printf ps pwd python3 readlink realpath rm rmdir sed seq setsid sh sleep sort stat tail tar tee test \
    touch tr true truncate uname uniq wc which xargs";

/// Returns a command for a program of others, with the environment that it has on every machine.
pub(crate) fn third_party(program: impl AsRef<OsStr>) -> Command {
    let (path, home) = folders();
    let mut command = Command::new(program);
    command.env_clear().env("PATH", path).env("HOME", home).env("LC_ALL", "C.UTF-8").env("TZ", "UTC");
    command
}

/// Returns the PATH of such a program, with a folder before it.
pub(crate) fn path_after(folder: &Path) -> OsString {
    std::env::join_paths([folder, &folders().0]).unwrap()
}

/// Returns a folder with [`FOUND`], and a home.
fn folders() -> &'static (PathBuf, PathBuf) {
    static FOLDERS: OnceLock<(PathBuf, PathBuf)> = OnceLock::new();
    FOLDERS.get_or_init(|| {
        let path = cleanup::new_folder("programs");
        // A version manager's program runs another, which it finds by the user's environment.
        let node = printed("node", &["-p", "process.execPath"]);
        for name in FOUND.split_whitespace() {
            let found = match name {
                "node" => node.clone(),
                "npm" => node.as_ref().map(|node| node.with_file_name(name)).filter(|npm| npm.exists()),
                "python3" => printed(name, &["-c", "import sys; print(sys.executable)"]),
                _ => None,
            };
            if let Some(found) = found.or_else(|| found_on_path(name)) {
                symlink(found, path.join(name)).unwrap();
            }
        }
        (path, cleanup::new_folder("home"))
    })
}

/// Returns the path that a program prints.
fn printed(program: &str, args: &[&str]) -> Option<PathBuf> {
    let done = Command::new(program).args(args).output().ok().filter(|done| done.status.success())?;
    Some(PathBuf::from(String::from_utf8(done.stdout).ok()?.trim_end()))
}

/// Returns the path of a program on the PATH of the tests.
pub(crate) fn found_on_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|path| path.is_file())
}

/// The folder in which `.ci/test` has installed clients, generators and agents.
pub(crate) fn clients() -> PathBuf {
    let folder = std::env::var_os("WORKSPACED_TEST_CLIENTS");
    folder.expect("WORKSPACED_TEST_CLIENTS is not set. Run `.ci/test`, which installs the clients.").into()
}

/// Returns the interpreter of Python with the clients.
pub(crate) fn client_python() -> Command {
    let mut python = third_party(clients().join("python/bin/python"));
    // It leaves no compiled files in the repository.
    python.arg("-B");
    python
}

/// Returns the path of a script that drives a client.
pub(crate) fn client_script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients").join(name)
}
