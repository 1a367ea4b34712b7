//! A server of SSH, with keys and a configuration of its own.

use std::fmt::Write as _;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

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
    /// Starts one; `None`, with the reason on the output, where there is none.
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
            printed("ssh-keygen", &["-q", "-t", "ed25519", "-N", "", "-f", &path(key)]);
        }
        let user = printed("id", &["-un"]);
        if user == "root" {
            // Where it gives up its rights, which it has only as root.
            std::fs::create_dir_all("/run/sshd").unwrap();
        }
        for _ in 0..ATTEMPTS {
            let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
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
            let real = printed("sh", &["-c", "command -v ssh"]);
            std::fs::write(path("bin/ssh"), format!("#!/bin/sh\nexec {real} -F {} \"$@\"\n", path("config"))).unwrap();
            std::fs::set_permissions(path("bin/ssh"), PermissionsExt::from_mode(0o755)).unwrap();
            let search = format!("{}:{}", path("bin"), std::env::var("PATH").unwrap());
            let agent = Command::new("ssh-agent").args(["-D", "-a", &path("agent")]).stdout(Stdio::null()).spawn();
            let variables = vec![("PATH", search), ("SSH_AUTH_SOCK", path("agent"))];
            return Some(Self { daemon, agent: agent.unwrap(), variables, _folder: folder });
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
    let deadline = Instant::now() + Duration::from_mins(1);
    while daemon.try_wait().unwrap().is_none() {
        if TcpStream::connect(("127.0.0.1", port)).is_ok() {
            return true;
        }
        assert!(Instant::now() < deadline, "sshd does not open its port");
        std::thread::sleep(Duration::from_millis(20));
    }
    false
}

/// Runs a program, and returns its line.
fn printed(program: &str, args: &[&str]) -> String {
    let done = Command::new(program).args(args).output().unwrap();
    assert!(done.status.success(), "{program}: {done:?}");
    String::from_utf8(done.stdout).unwrap().trim().to_owned()
}
