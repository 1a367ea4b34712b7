//! What of the machine the process may reach, and every git that it starts: held by the kernel (Landlock), whatever a
//! fault in here would allow. Nothing beneath the data folder or an import root is ever executed.

#![expect(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "this is where the places that the process may reach are told to the kernel"
)]

use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access as _, AccessFs, BitFlags, CompatLevel, Compatible as _, Ruleset, RulesetAttr as _,
    RulesetCreatedAttr as _, RulesetError, RulesetStatus, Scope, path_beneath_rules,
};
use rustix::fs::Mode;

use crate::config::{BadSetting, Config, SandboxMode};

/// The newest rights that are known here; a kernel that has fewer holds those that it has.
const RIGHTS: ABI = ABI::V6;

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

/// What has become of the sandbox; told in the log once there is one.
#[derive(Debug)]
pub struct Confinement(State);

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
        return Ok(Confinement(State::Off));
    }
    let places = Places::of(config)?;
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
        state => Ok(Confinement(state)),
    }
}

impl Confinement {
    /// Says in the log how the process is bounded.
    pub(crate) fn tell(&self) {
        match &self.0 {
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
        read.extend(config.surroundings.read.iter().cloned());
        let mut programs: Vec<_> = PROGRAMS.map(PathBuf::from).into();
        for folder in &config.surroundings.programs {
            // Where git is installed on its own, its helpers stand beside the folder of its program.
            let installed = folder.join("git").canonicalize().ok();
            programs.extend(installed.as_deref().and_then(Path::parent).and_then(Path::parent).map(Path::to_owned));
            programs.push(folder.clone());
        }
        // The whole machine is no place.
        programs.retain(|folder| folder.is_absolute() && folder.parent().is_some());
        Ok(Self { own, read, programs })
    }

    fn enforce(&self) -> Result<RulesetStatus, RulesetError> {
        let read = AccessFs::ReadFile | AccessFs::ReadDir;
        let special = AccessFs::MakeChar | AccessFs::MakeBlock | AccessFs::MakeFifo | AccessFs::MakeSock;
        let own: BitFlags<AccessFs> = AccessFs::from_all(RIGHTS) & !(AccessFs::Execute | AccessFs::IoctlDev | special);
        let status = Ruleset::default()
            // Without it, a file could not be renamed from one folder to another.
            .set_compatibility(CompatLevel::HardRequirement)
            .handle_access(AccessFs::Refer)?
            .set_compatibility(CompatLevel::BestEffort)
            .handle_access(AccessFs::from_all(RIGHTS))?
            .scope(Scope::Signal | Scope::AbstractUnixSocket)?
            .create()?
            .add_rules(path_beneath_rules(&self.own, own))?
            .add_rules(path_beneath_rules(&self.read, read))?
            .add_rules(path_beneath_rules(&self.programs, read | AccessFs::Execute))?
            .add_rules(path_beneath_rules(["/dev/null"], AccessFs::ReadFile | AccessFs::WriteFile))?
            .restrict_self()?;
        Ok(status.ruleset)
    }
}
