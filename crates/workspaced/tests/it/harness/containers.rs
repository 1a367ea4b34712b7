//! Container engines of the tests, with an image of a few programs of this machine: no registry is asked.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::shim;

/// What the commands of the tests, and the copying of the shim, need in a container.
const PROGRAMS: [&str; 8] = ["sh", "cat", "chmod", "ls", "mkdir", "mv", "rm", "sleep"];
const IMAGE: &str = "workspaced-test";
const LIMITS: [&str; 4] = ["--network", "none", "--security-opt", "no-new-privileges"];

/// A container engine with a folder of its own, which ends with its test.
pub(crate) struct ContainerEngine {
    /// Its client.
    program: &'static str,
    /// The variables by which the client finds it.
    pub(crate) variables: Vec<(&'static str, String)>,
    /// Podman has none.
    daemon: Option<Child>,
    folder: tempfile::TempDir,
}

impl ContainerEngine {
    /// Starts a Docker; `None`, with the reason on the output, where none can be started.
    pub(crate) fn docker() -> Option<Self> {
        let folder = tempfile::tempdir_in("/tmp").unwrap();
        let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        let address = format!("unix://{}", path("socket"));
        let name = format!("workspaced-test-{}", std::process::id());
        let log = std::fs::File::create(path("log")).unwrap();
        let daemon = Command::new("dockerd")
            .args(["--exec-opt", "native.cgroupdriver=cgroupfs", "--bridge=none", "--iptables=false"])
            .args(["--storage-driver=vfs", "--host", &address, "--pidfile", &path("pid")])
            // It may share the containerd of a Docker of this machine, whose containers it would take for its own.
            .args(["--containerd-namespace", &name, "--containerd-plugins-namespace", &format!("{name}-plugins")])
            .args(["--data-root", &path("data"), "--exec-root", &path("exec")])
            .stdout(Stdio::null())
            .stderr(log)
            .spawn();
        let daemon = match daemon {
            Ok(daemon) => Some(daemon),
            Err(error) => {
                println!("SKIPPED: dockerd cannot be started: {error}");
                return None;
            }
        };
        let mut docker = Self { program: "docker", variables: vec![("DOCKER_HOST", address)], daemon, folder };
        let deadline = Instant::now() + Duration::from_mins(1);
        while !docker.command(&["info"]).output().is_ok_and(|asked| asked.status.success()) {
            let has_ended = docker.daemon.as_mut().is_some_and(|daemon| daemon.try_wait().unwrap().is_some());
            if has_ended || Instant::now() > deadline {
                let log = std::fs::read_to_string(docker.folder.path().join("log")).unwrap();
                println!("SKIPPED: dockerd does not run here: {}", log.lines().last().unwrap_or_default());
                return None;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        docker.tried()
    }

    /// Returns a Podman, with `runc` and without a cgroup of systemd; `None`, with the reason on the output, where it does not run.
    pub(crate) fn podman() -> Option<Self> {
        let folder = tempfile::tempdir_in("/tmp").unwrap();
        let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        let storage =
            format!("[storage]\ndriver = \"vfs\"\ngraphroot = {:?}\nrunroot = {:?}\n", path("root"), path("run"));
        let containers = format!(
            "[containers]\ndefault_ulimits = [\"nofile=1024:1024\", \"nproc=1000:1000\"]\n\
             [engine]\ncgroup_manager = \"cgroupfs\"\nevents_logger = \"file\"\nruntime = \"runc\"\ntmp_dir = {:?}\n",
            path("tmp")
        );
        std::fs::write(path("storage.conf"), storage).unwrap();
        std::fs::write(path("containers.conf"), containers).unwrap();
        let variables =
            vec![("CONTAINERS_STORAGE_CONF", path("storage.conf")), ("CONTAINERS_CONF", path("containers.conf"))];
        let podman = Self { program: "podman", variables, daemon: None, folder };
        let why = match podman.command(&["info"]).output() {
            Ok(asked) if asked.status.success() => return podman.tried(),
            Ok(asked) => String::from_utf8_lossy(&asked.stderr).into_owned(),
            Err(error) => error.to_string(),
        };
        println!("SKIPPED: podman does not run here: {why}");
        None
    }

    /// Returns the engine with the image; `None`, with the reason on the output, where it starts no container.
    fn tried(self) -> Option<Self> {
        let started = self.import().and_then(|()| {
            let tried = self.command(&[&["run", "--rm"], &LIMITS[..], &[IMAGE, "ls"]].concat()).output().unwrap();
            if tried.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&tried.stderr).into_owned()) }
        });
        if let Err(why) = started {
            println!("SKIPPED: {} starts no container here: {why}", self.program);
            return None;
        }
        Some(self)
    }

    /// Starts a container without a network and without more rights, and returns its name.
    pub(crate) fn container(&self) -> String {
        self.run(&[&["run", "--detach"], &LIMITS[..], &[IMAGE, "sleep", "3600"]].concat()).trim().to_owned()
    }

    /// Runs a command of the client, and returns what it prints.
    pub(crate) fn run(&self, args: &[&str]) -> String {
        let done = self.command(args).output().unwrap();
        assert!(done.status.success(), "{args:?}: {}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8(done.stdout).unwrap()
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(self.program);
        command.envs(self.variables.iter().map(|(name, value)| (*name, value))).args(args);
        command
    }

    /// Makes an image of programs of this machine, with the libraries that they need.
    fn import(&self) -> Result<(), String> {
        let found = |program: &str| {
            let places = ["/bin", "/usr/bin"].map(|folder| PathBuf::from(folder).join(program));
            places.into_iter().find(|path| path.exists()).unwrap()
        };
        let mut files: Vec<_> = PROGRAMS.into_iter().map(found).collect();
        // The shim of the tests is not static, as that of a release is.
        for program in [files.clone(), vec![shim().into()]].concat() {
            let linked = Command::new("ldd").arg(&program).output().unwrap();
            let libraries = String::from_utf8(linked.stdout).unwrap();
            files.extend(libraries.split_whitespace().filter(|word| word.starts_with('/')).map(PathBuf::from));
        }
        files.sort();
        files.dedup();
        let names = files.iter().fold(String::new(), |mut names, file| {
            writeln!(names, "{}", file.strip_prefix("/").unwrap().display()).unwrap();
            names
        });
        let list = self.folder.path().join("files");
        std::fs::write(&list, names).unwrap();
        let mut pack = Command::new("tar")
            .args(["--create", "--dereference", "--directory", "/", "--files-from"])
            .arg(&list)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let imported = self
            .command(&["import", "--change", "ENV PATH=/bin", "-", IMAGE])
            .stdin(pack.stdout.take().unwrap())
            .output()
            .unwrap();
        assert!(pack.wait().unwrap().success());
        if imported.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&imported.stderr).into_owned()) }
    }
}

impl Drop for ContainerEngine {
    fn drop(&mut self) {
        let containers = self.command(&["ps", "--quiet", "--all"]).output().map(|listed| listed.stdout);
        for id in String::from_utf8(containers.unwrap_or_default()).unwrap_or_default().split_whitespace() {
            // Otherwise Podman waits until the processes have ended by themselves.
            let _ = self.command(&["kill", id]).output();
            let _ = self.command(&["rm", "--force", id]).output();
        }
        if let Some(daemon) = &mut self.daemon {
            let pid = rustix::process::Pid::from_child(daemon);
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
            let _ = daemon.wait();
        }
    }
}
