//! What of the machine the process may reach, and every git that it starts: held by the kernel (Landlock), whatever a
//! fault in here would allow. Nothing beneath the data folder or an import root is ever executed.

#![expect(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "this is where the places that the process may reach are told to the kernel"
)]

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible as _, NetPort, Ruleset, RulesetAttr as _,
    RulesetCreatedAttr as _, RulesetError, RulesetStatus, Scope, make_bitflags, path_beneath_rules,
};
use rustix::fs::Mode;
use workspace::{ConfineGit, GitAccess};

use crate::config::{BadSetting, Config, SandboxMode};

/// The newest rights that are known here; a kernel that has fewer holds those that it has.
const RIGHTS: ABI = ABI::V6;

/// What is read and never written.
const READ: BitFlags<AccessFs> = make_bitflags!(AccessFs::{ReadFile | ReadDir});

/// What is read and written, and never executed; without pipes, sockets and devices.
fn own_rights() -> BitFlags<AccessFs> {
    let special = AccessFs::MakeChar | AccessFs::MakeBlock | AccessFs::MakeFifo | AccessFs::MakeSock;
    AccessFs::from_all(RIGHTS) & !(AccessFs::Execute | AccessFs::IoctlDev | special)
}

/// Programs and what they load: git and its helpers.
const PROGRAMS: [&str; 9] = ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/opt", "/nix/store", "/gnu/store"];

/// What programs read to find libraries, names on the network, and whom to trust there.
const CONFIGURATION: [&str; 22] = [
    "/etc/alternatives",
    "/etc/ca-certificates",
    "/etc/crypto-policies",
    "/etc/gai.conf",
    "/etc/host.conf",
    "/etc/hosts",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/ld.so.preload",
    "/etc/localtime",
    "/etc/nsswitch.conf",
    "/etc/pki",
    "/etc/protocols",
    "/etc/resolv.conf",
    "/etc/services",
    "/etc/ssl",
    "/dev/random",
    "/dev/urandom",
    "/run/NetworkManager",
    "/run/resolvconf",
    "/run/systemd/resolve",
];

/// What has become of the sandbox, which the log says once there is one.
#[derive(Debug)]
pub struct Confinement {
    state: State,
    /// What git may reach; `None` where the kernel confines nothing.
    git: Option<Arc<GitSandbox>>,
}

#[derive(Debug)]
enum State {
    Off,
    /// The kernel holds all that was asked for.
    Whole,
    /// The kernel is older and holds what it knows.
    Partly,
    Impossible(String),
}

/// Bounds what this process may reach from here on. To be called before it has a second thread, since the kernel binds
/// the calling one and whatever that starts.
///
/// # Errors
///
/// Where the settings require a sandbox and the kernel has none, or the data folder cannot be made.
pub fn confine(config: &Config) -> Result<Confinement, BadSetting> {
    // Whatever is made is for this user alone: workspaces, database, lock.
    rustix::process::umask(Mode::from_raw_mode(0o077));
    if config.sandbox == SandboxMode::Off {
        return Ok(Confinement { state: State::Off, git: None });
    }
    let places = Places::of(config)?;
    let git = Arc::new(places.of_git(config));
    let state = match places.enforce() {
        Ok(RulesetStatus::FullyEnforced) => State::Whole,
        Ok(RulesetStatus::PartiallyEnforced) => State::Partly,
        Ok(RulesetStatus::NotEnforced) => State::Impossible("the kernel has no Landlock, or it is off".to_owned()),
        Err(error) => State::Impossible(error.to_string()),
    };
    match state {
        State::Impossible(why) if config.sandbox == SandboxMode::Require => {
            Err(BadSetting(format!("--sandbox require: {why}")))
        }
        State::Off | State::Impossible(_) => Ok(Confinement { state, git: None }),
        State::Whole | State::Partly => Ok(Confinement { state, git: Some(git) }),
    }
}

impl Confinement {
    /// What bounds each call of git.
    pub(crate) fn git(&self) -> Option<Arc<dyn ConfineGit>> {
        self.git.clone().map(|git| git as Arc<dyn ConfineGit>)
    }

    /// Says in the log how the process is bounded.
    pub(crate) fn tell(&self) {
        match &self.state {
            State::Off => tracing::info!(sandbox = "off", "the sandbox is off"),
            State::Whole => tracing::info!(sandbox = "landlock", "sandboxed to the data folder and what it needs"),
            State::Partly => {
                tracing::info!(sandbox = "landlock", "sandboxed as far as this kernel's Landlock goes");
            }
            State::Impossible(why) => {
                tracing::warn!(sandbox = "none", why, "not sandboxed: anything that the user may reach is in reach");
            }
        }
    }
}

/// Everything that the process needs. A setting that names a place belongs here.
#[derive(Debug)]
struct Places {
    /// Read and written, never executed.
    own: Vec<PathBuf>,
    /// Read.
    read: Vec<PathBuf>,
    /// Read and executed.
    programs: Vec<PathBuf>,
}

/// What every call of git may reach, besides the folders that it is called for.
#[derive(Debug)]
struct GitSandbox {
    read: Vec<PathBuf>,
    programs: Vec<PathBuf>,
}

impl ConfineGit for GitSandbox {
    fn confine(&self, reach: &GitAccess) -> io::Result<()> {
        let rights = || AccessFs::from_all(RIGHTS);
        let enforce = || -> Result<(), RulesetError> {
            let mut ruleset = Ruleset::default()
                .set_compatibility(CompatLevel::BestEffort)
                .handle_access(rights())?
                .handle_access(AccessNet::BindTcp | AccessNet::ConnectTcp)?
                .scope(Scope::Signal | Scope::AbstractUnixSocket)?
                .create()?
                .add_rules(path_beneath_rules([&reach.write], own_rights()))?
                .add_rules(path_beneath_rules(self.read.iter().chain(&reach.read), READ))?
                .add_rules(path_beneath_rules(&self.programs, READ | AccessFs::Execute))?
                .add_rules(path_beneath_rules(["/dev/null"], AccessFs::ReadFile | AccessFs::WriteFile))?;
            if let Some(port) = reach.port {
                ruleset = ruleset.add_rule(NetPort::new(port, AccessNet::ConnectTcp))?;
            }
            ruleset.restrict_self().map(drop)
        };
        enforce().map_err(io::Error::other)
    }
}

/// The parent of a bare name is the folder that the process is in.
fn named(folder: &mut PathBuf) {
    if folder.as_os_str().is_empty() {
        *folder = PathBuf::from(".");
    }
}

impl Places {
    fn of(config: &Config) -> Result<Self, BadSetting> {
        let mut own = vec![config.data_dir.clone()];
        if let Some(file) = config.database_url.sqlite_file() {
            own.extend(Path::new(file).parent().map(Path::to_owned));
        }
        for folder in &mut own {
            named(folder);
            // A rule is about a folder that is there.
            std::fs::create_dir_all(&*folder)
                .map_err(|error| BadSetting(format!("the folder {}: {error}", folder.display())))?;
        }
        // Not made: where it is missing, a disk may be missing, and the start says so.
        own.extend(config.checkpoints.file.parent().map(Path::to_owned).map(|mut folder| {
            named(&mut folder);
            folder
        }));
        let mut read = config.import_roots.clone();
        read.extend(CONFIGURATION.map(PathBuf::from));
        read.extend(config.surroundings.read.iter().chain(&config.surroundings.certificates).cloned());
        let mut programs: Vec<_> = PROGRAMS.map(PathBuf::from).into();
        for folder in &config.surroundings.programs {
            // Where git is installed on its own, its helpers stand beside the folder of its program.
            let installed = folder.join("git").canonicalize().ok();
            programs.extend(installed.as_deref().and_then(Path::parent).and_then(Path::parent).map(Path::to_owned));
            programs.push(folder.clone());
        }
        // The whole machine is no place.
        programs.retain(|folder| folder.is_absolute() && folder.parent().is_some());
        let places = Self { own, read, programs };
        places.check()?;
        Ok(places)
    }

    /// What of these git needs: no database, no key, no run but the one that it is called for.
    fn of_git(&self, config: &Config) -> GitSandbox {
        let mut read: Vec<_> = CONFIGURATION.map(PathBuf::from).into();
        read.extend(config.surroundings.certificates.iter().cloned());
        GitSandbox { read, programs: self.programs.clone() }
    }

    /// Refuses what would put the whole file system into the sandbox.
    fn check(&self) -> Result<(), BadSetting> {
        let is_root = |folder: &PathBuf| folder.canonicalize().is_ok_and(|real| real.parent().is_none());
        if self.own.iter().chain(&self.read).any(is_root) {
            return Err(BadSetting(
                "the root folder `/` cannot be a data folder, an import root, or the folder of the database or of the \
                 checkpoint file: put it into a folder of its own, or start with --sandbox off"
                    .to_owned(),
            ));
        }
        Ok(())
    }

    fn enforce(&self) -> Result<RulesetStatus, RulesetError> {
        let status = Ruleset::default()
            // Without it, a file could not be renamed from one folder to another.
            .set_compatibility(CompatLevel::HardRequirement)
            .handle_access(AccessFs::Refer)?
            .set_compatibility(CompatLevel::BestEffort)
            .handle_access(AccessFs::from_all(RIGHTS))?
            .scope(Scope::Signal | Scope::AbstractUnixSocket)?
            .create()?
            .add_rules(path_beneath_rules(&self.own, own_rights()))?
            .add_rules(path_beneath_rules(&self.read, READ))?
            .add_rules(path_beneath_rules(&self.programs, READ | AccessFs::Execute))?
            .add_rules(path_beneath_rules(["/dev/null"], AccessFs::ReadFile | AccessFs::WriteFile))?
            .restrict_self()?;
        Ok(status.ruleset)
    }
}
