//! A server of SSH, with keys and a configuration of its own.

use std::fmt::Write as _;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use super::{found_on_path, free_port, until_blocking};

/// How often a port is tried that another process may have taken meanwhile.
const ATTEMPTS: usize = 5;

/// An `sshd` on a port of this machine, which ends with its test.
pub(crate) struct SshServer {
    daemon: Child,
    /// Has keys of the user, which the configuration forwards.
    agent: Child,
    /// The variables with which `ssh` finds it as the host `box`.
    pub(crate) variables: Vec<(&'static str, String)>,
    _folder: tempfile::TempDir,
}

impl SshServer {
    /// Starts one; `None`, with the reason on the output, where there is none, or none that lets the user in.
    pub(crate) fn start() -> Option<Self> {
        let folder = tempfile::tempdir_in("/tmp").unwrap();
        let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        // It has to be started by its path, since it starts itself again.
        let places = ["/usr/sbin/sshd", "/usr/bin/sshd", "/usr/local/sbin/sshd"];
        let Some(program) = places.into_iter().find(|place| Path::new(place).exists()) else {
            println!("SKIPPED: there is no sshd");
            return None;
        };
        for key in ["host", "user"] {
            printed("ssh-keygen", &["-q", "-t", "ed25519", "-N", "", "-f", &path(key)]).unwrap();
        }
        let Ok(user) = printed("id", &["-un"]) else {
            println!("SKIPPED: the user of the tests has no name");
            return None;
        };
        if user == "root" {
            // Where it gives up its rights, which it has only as root.
            std::fs::create_dir_all("/run/sshd").unwrap();
        }
        for _ in 0..ATTEMPTS {
            let port = free_port();
            let mut settings = format!("ListenAddress 127.0.0.1:{port}\nPidFile none\nUsePAM no\nStrictModes no\n");
            settings.push_str("PasswordAuthentication no\nPermitRootLogin prohibit-password\n");
            writeln!(settings, "HostKey {}\nAuthorizedKeysFile {}", path("host"), path("user.pub")).unwrap();
            std::fs::write(path("sshd_config"), settings).unwrap();
            let log = std::fs::File::create(path("log")).unwrap();
            let mut daemon = Command::new(program)
                .args(["-D", "-e", "-f", &path("sshd_config")])
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(log)
                .spawn()
                .unwrap();
            if !is_started(&mut daemon, port) {
                continue;
            }
            let host_key = std::fs::read_to_string(path("host.pub")).unwrap();
            std::fs::write(path("known_hosts"), format!("[127.0.0.1]:{port} {host_key}")).unwrap();
            let host = format!(
                "Host box\nHostName 127.0.0.1\nPort {port}\nUser {user}\nIdentityFile {}\nIdentitiesOnly yes\n\
                 ForwardAgent yes\nUserKnownHostsFile {}\n",
                path("user"),
                path("known_hosts")
            );
            std::fs::write(path("config"), host).unwrap();
            // `ssh` takes the user's own configuration from where the system says that the user's folder is, and from no variable.
            std::fs::create_dir(path("bin")).unwrap();
            let real = found_on_path("ssh").expect("ssh").display().to_string();
            std::fs::write(path("bin/ssh"), format!("#!/bin/sh\nexec {real} -F {} \"$@\"\n", path("config"))).unwrap();
            std::fs::set_permissions(path("bin/ssh"), PermissionsExt::from_mode(0o755)).unwrap();
            let search = format!("{}:{}", path("bin"), std::env::var("PATH").unwrap());
            let agent = Command::new("ssh-agent").args(["-D", "-a", &path("agent")]).stdout(Stdio::null()).spawn();
            let variables = vec![("PATH", search), ("SSH_AUTH_SOCK", path("agent"))];
            let entered = printed(&path("bin/ssh"), &["-o", "BatchMode=yes", "box", "true"]);
            let started = Self { daemon, agent: agent.unwrap(), variables, _folder: folder };
            // An account may be locked, or have no shell.
            if let Err(why) = entered {
                println!("SKIPPED: sshd does not let {user} in: {why}");
                return None;
            }
            return Some(started);
        }
        let log = std::fs::read_to_string(path("log")).unwrap();
        panic!("sshd does not start: {log}");
    }

    /// Kills what serves each connection.
    pub(crate) fn cut(&self) {
        let id = self.daemon.id();
        let children = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap();
        assert!(!children.is_empty(), "there is no connection");
        for child in children.split_whitespace() {
            kill_process(Pid::from_raw(child.parse().unwrap()).unwrap(), Signal::KILL).unwrap();
        }
    }
}

impl Drop for SshServer {
    fn drop(&mut self) {
        for process in [&mut self.daemon, &mut self.agent] {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

/// Waits until the port is open, or the server has ended.
fn is_started(daemon: &mut Child, port: u16) -> bool {
    until_blocking("sshd opens its port", || {
        let is_open = TcpStream::connect(("127.0.0.1", port)).is_ok();
        (is_open || daemon.try_wait().unwrap().is_some()).then_some(is_open)
    })
}

/// Runs a program, and returns its line, or what it complains about.
fn printed(program: &str, args: &[&str]) -> Result<String, String> {
    let done = Command::new(program).args(args).output().map_err(|error| format!("{program}: {error}"))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if done.status.success() { Ok(text(&done.stdout)) } else { Err(text(&done.stderr)) }
}
