//! Restricts, by Landlock, what this process and every git that it starts can access, even if the code has a fault. Nothing
//! under the data folder or an import root is ever executed.

#![expect(clippy::disallowed_types, clippy::disallowed_methods, reason = "Landlock rules are made from paths")]

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible as _, NetPort, Ruleset, RulesetAttr as _,
    RulesetCreatedAttr as _, RulesetError, RulesetStatus, Scope, make_bitflags, path_beneath_rules,
};
use rustix::fs::Mode;
use workspace::{ConfineGit, GitAccess, GitCredential};

use crate::telemetry;
use config::{ArchiveConfig, Config, ConfigError, ObjectStoreConfig, SandboxMode, StoreTarget, TlsFiles};

/// The newest supported Landlock version. An older kernel enforces the rights that it knows.
const RIGHTS: ABI = ABI::V6;

/// Rights to read.
const READ: BitFlags<AccessFs> = make_bitflags!(AccessFs::{ReadFile | ReadDir});

/// Returns the rights to read and write, but not to execute or to create pipes, sockets and devices.
fn own_rights() -> BitFlags<AccessFs> {
    let special = AccessFs::MakeChar | AccessFs::MakeBlock | AccessFs::MakeFifo | AccessFs::MakeSock;
    AccessFs::from_all(RIGHTS) & !(AccessFs::Execute | AccessFs::IoctlDev | special)
}

/// Folders of programs and libraries, for git and its helpers.
const PROGRAMS: [&str; 9] = ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/opt", "/nix/store", "/gnu/store"];

/// Configuration of the loader, of name resolution, and of trusted certificates.
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

/// The outcome of [`confine`], to be logged once logging has started.
#[derive(Debug)]
pub struct Confinement {
    state: SandboxState,
    /// Confines git; `None` if there is no sandbox.
    git: Option<Arc<GitSandbox>>,
}

#[derive(Debug)]
enum SandboxState {
    Off,
    /// The kernel enforces all rules.
    Full,
    /// The kernel enforces the rules that it knows.
    Partial,
    Unavailable(String),
}

/// Restricts what this process can access from now on. Must be called before a second thread is started: the kernel
/// restricts the calling thread and its descendants.
///
/// # Errors
///
/// Fails if the settings require a sandbox that the kernel does not support, or if the data folder cannot be created.
pub fn confine(config: &Config) -> Result<Confinement, ConfigError> {
    // New files are accessible to this user only: workspaces, database, lock.
    rustix::process::umask(Mode::from_raw_mode(0o077));
    telemetry::process::open();
    if config.sandbox == SandboxMode::Off {
        return Ok(Confinement { state: SandboxState::Off, git: None });
    }
    let paths = AllowedPaths::of(config)?;
    let git = Arc::new(paths.of_git(config));
    let state = match paths.enforce() {
        Ok(RulesetStatus::FullyEnforced) => SandboxState::Full,
        Ok(RulesetStatus::PartiallyEnforced) => SandboxState::Partial,
        Ok(RulesetStatus::NotEnforced) => {
            SandboxState::Unavailable("the kernel does not support Landlock, or it is disabled".to_owned())
        }
        Err(error) => SandboxState::Unavailable(error.to_string()),
    };
    match state {
        SandboxState::Unavailable(why) if config.sandbox == SandboxMode::Require => {
            Err(ConfigError(format!("--sandbox require: {why}")))
        }
        SandboxState::Off | SandboxState::Unavailable(_) => Ok(Confinement { state, git: None }),
        SandboxState::Full | SandboxState::Partial => Ok(Confinement { state, git: Some(git) }),
    }
}

impl Confinement {
    /// Returns what confines each git process.
    pub(crate) fn git(&self) -> Option<Arc<dyn ConfineGit>> {
        self.git.clone().map(|git| git as Arc<dyn ConfineGit>)
    }

    /// Logs the state of the sandbox.
    pub(crate) fn log(&self) {
        match &self.state {
            SandboxState::Off => tracing::info!(sandbox = "off", "the sandbox is off"),
            SandboxState::Full => {
                tracing::info!(sandbox = "landlock", "sandboxed: access is restricted to the required paths");
            }
            SandboxState::Partial => {
                tracing::info!(sandbox = "landlock", "sandboxed as far as the Landlock version of this kernel allows");
            }
            SandboxState::Unavailable(why) => {
                tracing::warn!(
                    sandbox = "none",
                    why,
                    "not sandboxed: the process can access everything that its user can"
                );
            }
        }
    }
}

/// The paths that the process needs. Every setting that is a path belongs here.
#[derive(Debug)]
struct AllowedPaths {
    /// Read and written, never executed.
    read_write: Vec<PathBuf>,
    /// Read.
    read: Vec<PathBuf>,
    /// Read and executed.
    programs: Vec<PathBuf>,
}

/// The paths that every git process needs, in addition to the folders that it works on.
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

/// Replaces the empty path, the parent of a bare file name, by the current directory.
fn or_current_dir(folder: &mut PathBuf) {
    if folder.as_os_str().is_empty() {
        *folder = PathBuf::from(".");
    }
}

impl AllowedPaths {
    fn of(config: &Config) -> Result<Self, ConfigError> {
        let mut read_write = vec![config.data_dir.clone()];
        if let Some(file) = config.database_url.sqlite_file() {
            read_write.extend(Path::new(file).parent().map(Path::to_owned));
        }
        for folder in &mut read_write {
            or_current_dir(folder);
            // A rule needs an existing folder.
            std::fs::create_dir_all(&*folder)
                .map_err(|error| ConfigError(format!("the folder {}: {error}", folder.display())))?;
        }
        // Not created: if it is missing a disk may not be mounted, which startup reports.
        read_write.extend(config.checkpoints.file.parent().map(Path::to_owned).map(|mut folder| {
            or_current_dir(&mut folder);
            folder
        }));
        if let Some(ArchiveConfig { to: StoreTarget::Folder(folder), .. }) = &config.archives {
            read_write.push(folder.clone());
        }
        if let Some(ObjectStoreConfig { to: StoreTarget::Folder(folder), .. }) = &config.object_store {
            read_write.push(folder.clone());
        }
        let key_file = &config.checkpoints.key_file;
        let mut read = config.import_roots.clone();
        // The folder: a token file is often replaced by another one.
        let token_files = config.git_credentials.iter().filter_map(GitCredential::token_file);
        read.extend(token_files.filter_map(Path::parent).map(Path::to_owned));
        if key_file.is_file() {
            read.push(key_file.clone());
        } else {
            // The first start creates it.
            read_write.extend(key_file.parent().map(Path::to_owned).map(|mut folder| {
                or_current_dir(&mut folder);
                folder
            }));
        }
        let is_in_root =
            |file: &&Path| file.parent().is_some_and(|folder| folder.has_root() && folder.parent().is_none());
        let (alone, in_folders): (Vec<_>, Vec<_>) = config.sources.files().partition(is_in_root);
        read.extend(alone.into_iter().map(Path::to_owned));
        for file in config.tls.iter().flat_map(TlsFiles::all).map(PathBuf::as_path).chain(in_folders) {
            // The folders, since a renewal replaces the files; also that of the file that a link leads to.
            let real = file.canonicalize().ok();
            for mut folder in
                [Some(file), real.as_deref()].into_iter().flatten().filter_map(|file| file.parent()).map(Path::to_owned)
            {
                or_current_dir(&mut folder);
                read.push(folder);
            }
        }
        read.extend(CONFIGURATION.map(PathBuf::from));
        read.extend(config.external_paths.database.iter().chain(&config.external_paths.certificates).cloned());
        let mut programs: Vec<_> = PROGRAMS.map(PathBuf::from).into();
        for folder in &config.external_paths.programs {
            // If git has an installation prefix of its own, its helpers are next to the folder of its program.
            let installed = folder.join("git").canonicalize().ok();
            programs.extend(installed.as_deref().and_then(Path::parent).and_then(Path::parent).map(Path::to_owned));
            programs.push(folder.clone());
        }
        // Never the root folder.
        programs.retain(|folder| folder.is_absolute() && folder.parent().is_some());
        let paths = Self { read_write, read, programs };
        paths.check()?;
        Ok(paths)
    }

    /// Returns the paths that git needs: neither the database nor keys, and no run but the one that it works on.
    fn of_git(&self, config: &Config) -> GitSandbox {
        let mut read: Vec<_> = CONFIGURATION.map(PathBuf::from).into();
        read.extend(config.external_paths.certificates.iter().cloned());
        GitSandbox { read, programs: self.programs.clone() }
    }

    /// Refuses a path that would allow access to the whole file system.
    fn check(&self) -> Result<(), ConfigError> {
        let is_root = |folder: &PathBuf| folder.canonicalize().is_ok_and(|real| real.parent().is_none());
        if self.read_write.iter().chain(&self.read).any(is_root) {
            return Err(ConfigError(
                "the root folder `/` cannot be a data folder, an import root, or the folder of the database, of the \
                 checkpoint file or of the certificate: use a folder of its own, or start with --sandbox off"
                    .to_owned(),
            ));
        }
        Ok(())
    }

    fn enforce(&self) -> Result<RulesetStatus, RulesetError> {
        let status = Ruleset::default()
            // Required to rename files across folders.
            .set_compatibility(CompatLevel::HardRequirement)
            .handle_access(AccessFs::Refer)?
            .set_compatibility(CompatLevel::BestEffort)
            .handle_access(AccessFs::from_all(RIGHTS))?
            .scope(Scope::Signal | Scope::AbstractUnixSocket)?
            .create()?
            .add_rules(path_beneath_rules(&self.read_write, own_rights()))?
            .add_rules(path_beneath_rules(&self.read, READ))?
            .add_rules(path_beneath_rules(&self.programs, READ | AccessFs::Execute))?
            .add_rules(path_beneath_rules(["/dev/null"], AccessFs::ReadFile | AccessFs::WriteFile))?
            .restrict_self()?;
        Ok(status.ruleset)
    }
}
