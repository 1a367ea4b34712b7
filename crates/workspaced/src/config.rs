//! Settings: flags over environment over one TOML file, checked once.

#![expect(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "settings name places on disk, and come from a file; what is in the service's folders is not touched here"
)]

mod checkpoints;
mod offline;
mod settings;

use engine::limits::Limits;
use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use model::{IdInvalid, Profiles, RunId, Sha256};
use serde::Deserialize;

pub(crate) use self::checkpoints::CheckpointConfig;
use self::settings::Settings;

pub use self::offline::{Accept, RepairArgs, RepairConfig, ReplayArgs, ReplayConfig, VerifyArgs, VerifyConfig};

/// The command line.
#[derive(Debug, clap::Parser)]
#[command(name = "workspaced", version, about = "Hosts remote workspaces for coding agents over HTTP.")]
pub struct Args {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Serve the API.
    ///
    /// Every setting is taken from its flag, else from the environment, else from the file of `--config`.
    ///
    /// Secrets come from the environment alone. The key that signs checkpoints: `WORKSPACED_CHECKPOINT_KEY` (else it is made
    /// at the first start, in the data folder). Tokens of operators: `WORKSPACED_OPERATOR_TOKEN` (scope `orchestrate`; where it is
    /// missing, one is made at the first start and printed once) and `WORKSPACED_AUDIT_TOKEN` (scope `audit`).
    Serve(Box<ServeArgs>),
    /// Print the OpenAPI document.
    Openapi,
    /// Check the audit chains in the database; exit code 1 if one is broken.
    Verify(VerifyArgs),
    /// Make a run's files anew from its base and its ledger alone; exit code 1 where they, or the workspace, differ.
    Replay(ReplayArgs),
    /// Settle a run that answers `RUN_NEEDS_REPAIR`; without `--accept` it only shows what differs, with exit code 1, and
    /// without `--run` it lists what needs repair, and the folders in lost+found.
    Repair(RepairArgs),
}

/// Arguments of `serve`.
#[derive(Debug, clap::Args)]
pub struct ServeArgs {
    /// A TOML file of settings, named as the flags are.
    #[arg(long, env = "WORKSPACED_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    settings: Settings,
}

fn parse_run_id(raw: &str) -> Result<RunId, IdInvalid> {
    RunId::parse(raw)
}

/// How log lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// Whether the process bounds what it may reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SandboxMode {
    /// Where the kernel can.
    Auto,
    /// Not at all.
    Off,
    /// Or it does not start.
    Require,
}

/// A setting that cannot be used; the message is one line for the operator.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct BadSetting(pub(crate) String);

/// A secret from the environment. Never shown.
#[derive(Clone)]
pub(crate) struct Secret(Sha256);

/// Every setting, checked.
#[derive(Clone, Debug)]
pub struct Config {
    pub(crate) listen: SocketAddr,
    pub(crate) data_dir: PathBuf,
    pub(crate) database_url: DatabaseUrl,
    pub(crate) import_roots: Vec<PathBuf>,
    /// Hosts of git sources whose addresses need not be public.
    pub(crate) git_allow_hosts: Vec<String>,
    pub(crate) profiles: Profiles,
    pub(crate) operator_token: Option<Secret>,
    pub(crate) audit_token: Option<Secret>,
    pub(crate) log_format: LogFormat,
    pub(crate) log: String,
    pub(crate) checkpoints: CheckpointConfig,
    pub(crate) sandbox: SandboxMode,
    pub(crate) surroundings: Surroundings,
    pub(crate) limits: Limits,
}

/// Places outside the settings that programs and libraries take from the environment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Surroundings {
    /// Folders of programs.
    pub(crate) programs: Vec<PathBuf>,
    /// Certificates that git trusts.
    pub(crate) certificates: Vec<PathBuf>,
    /// The database's certificates and its password file.
    pub(crate) read: Vec<PathBuf>,
}

/// Where the ledger is. Its password is never shown.
#[derive(Clone)]
pub(crate) struct DatabaseUrl(pub(crate) String);

impl ServeArgs {
    /// Checks the settings; `env` answers for the variables that are no flags.
    ///
    /// # Errors
    ///
    /// The first setting that cannot be used.
    pub fn check(self, env: &dyn Fn(&str) -> Option<String>) -> Result<Config, BadSetting> {
        let Self { config, mut settings } = self;
        settings.import_roots = settings.import_roots.or_else(|| {
            let several = env("WORKSPACED_IMPORT_ROOTS")?;
            Some(several.split(':').map(PathBuf::from).collect())
        });
        settings.git_allow_hosts = settings.git_allow_hosts.or_else(|| {
            let several = env("WORKSPACED_GIT_ALLOW_HOSTS")?;
            Some(several.split(',').map(|host| host.trim().to_owned()).collect())
        });
        match config {
            Some(file) => settings.over(Settings::read(&file)?),
            None => settings,
        }
        .check(env)
    }
}

impl Settings {
    fn check(self, env: &dyn Fn(&str) -> Option<String>) -> Result<Config, BadSetting> {
        let limits = self.limits()?;
        let data_dir = data_dir(self.data_dir.clone());
        let operator_token = Secret::from_env("WORKSPACED_OPERATOR_TOKEN", env)?;
        let audit_token = Secret::from_env("WORKSPACED_AUDIT_TOKEN", env)?;
        if let (Some(operator), Some(audit)) = (&operator_token, &audit_token)
            && operator.0 == audit.0
        {
            return Err(BadSetting("WORKSPACED_OPERATOR_TOKEN and WORKSPACED_AUDIT_TOKEN must differ".to_owned()));
        }
        let checkpoints = CheckpointConfig::check(&self, &data_dir, env)?;
        let database_url = DatabaseUrl::check(self.database_url, &data_dir)?;
        Ok(Config {
            checkpoints,
            listen: listen(self.listen.as_deref().unwrap_or("127.0.0.1:8080"))?,
            sandbox: self.sandbox.unwrap_or(SandboxMode::Auto),
            surroundings: Surroundings::of(&database_url, env),
            database_url,
            data_dir,
            import_roots: import_roots(self.import_roots.unwrap_or_default())?,
            git_allow_hosts: git_allow_hosts(self.git_allow_hosts.unwrap_or_default())?,
            profiles: profiles(self.profiles.as_deref())?,
            operator_token,
            audit_token,
            log_format: self.log_format.unwrap_or(LogFormat::Text),
            log: self.log.unwrap_or_else(|| "info".to_owned()),
            limits,
        })
    }

    fn limits(&self) -> Result<Limits, BadSetting> {
        let cores = std::thread::available_parallelism().map_or(2, |cores| cores.get() as u64);
        let rate = self.rate_limit_per_second.unwrap_or(0);
        let burst = self.rate_limit_burst.unwrap_or(rate.saturating_mul(2));
        if rate > 0 && burst == 0 {
            return Err(BadSetting("--rate-limit-burst: at least 1".to_owned()));
        }
        let max_body_bytes = within("max-body-bytes", self.max_body_bytes, 4 << 20, 1 << 30)?;
        Ok(Limits {
            max_connections: number("max-connections", self.max_connections, 4096, 1_000_000)?,
            header_timeout: seconds("header-timeout-seconds", self.header_timeout_seconds, 10)?,
            body_timeout: seconds("body-timeout-seconds", self.body_timeout_seconds, 30)?,
            min_bytes_per_second: within("min-bytes-per-second", self.min_bytes_per_second, 1024, 1 << 30)?,
            idle_timeout: seconds("idle-timeout-seconds", self.idle_timeout_seconds, 75)?,
            request_timeout: seconds("request-timeout-seconds", self.request_timeout_seconds, 60)?,
            max_body_bytes,
            max_body_memory_bytes: body_memory(self.max_body_memory_bytes, max_body_bytes)?,
            max_answer_memory_bytes: within(
                "max-answer-memory-bytes",
                self.max_answer_memory_bytes,
                256 << 20,
                4 << 30,
            )?,
            max_archive_bytes: within("max-archive-bytes", self.max_archive_bytes, 1 << 30, 1 << 40)?,
            rate: (rate > 0).then_some((rate, burst)),
            auth_failures_per_minute: self.auth_failures_per_minute.unwrap_or(6000),
            token_concurrency: number("token-concurrency", self.token_concurrency, 256, 1_000_000)?,
            read_threads: number("read-threads", self.read_threads, 4 * cores, 1024)?,
            search_threads: number("search-threads", self.search_threads, cores, 1024)?,
            export_threads: number("export-threads", self.export_threads, (4 * cores).max(8), 1024)?,
            write_threads: number("write-threads", self.write_threads, 4 * cores, 1024)?,
            import_threads: number("import-threads", self.import_threads, 2, 1024)?,
            max_live_runs: number("max-live-runs", self.max_live_runs, 1024, 1_000_000)?,
            max_runs: self.max_runs.filter(|runs| *runs > 0),
            max_disk_bytes: self.max_disk_bytes.filter(|bytes| *bytes > 0),
            drain: seconds("drain-seconds", self.drain_seconds, 20)?,
        })
    }
}

impl Surroundings {
    fn of(database_url: &DatabaseUrl, env: &dyn Fn(&str) -> Option<String>) -> Self {
        let places = |name: &str| -> Vec<PathBuf> {
            let several = env(name).unwrap_or_default();
            several.split(':').map(PathBuf::from).filter(|place| place.is_absolute()).collect()
        };
        let of_git = ["SSL_CERT_FILE", "SSL_CERT_DIR", "GIT_SSL_CAINFO"];
        let of_database = ["PGPASSFILE", "PGSSLROOTCERT", "PGSSLCERT", "PGSSLKEY"];
        let certificates = of_git.into_iter().flat_map(places).collect();
        let mut read = Vec::new();
        if database_url.sqlite_file().is_none() {
            read.extend(of_database.into_iter().flat_map(places));
            read.extend(places("HOME").into_iter().map(|home| home.join(".pgpass")));
            read.push(PathBuf::from("/etc/passwd"));
            let parameters = database_url.0.split_once('?').map_or("", |(_, parameters)| parameters).split('&');
            let named = parameters.filter_map(|pair| pair.split_once('=')).filter(|(name, _)| name.starts_with("ssl"));
            read.extend(named.map(|(_, value)| PathBuf::from(value)).filter(|place| place.is_absolute()));
        }
        Self { programs: places("PATH"), certificates, read }
    }
}

impl Config {
    /// How many threads calls may block at a time.
    pub fn blocking_threads(&self) -> usize {
        let limits = &self.limits;
        let looks = limits.read_threads + limits.search_threads + limits.export_threads;
        // What writes has its places twice: for what is here, and for what is sent.
        looks + 2 * (limits.write_threads + limits.import_threads)
    }
}

/// The fewest characters of an operator's token.
const MIN_SECRET_CHARS: usize = 24;
/// The least that an operator's token may hold, as its characters' frequencies tell: what is random in any alphabet from
/// hexadecimal on has more.
const MIN_SECRET_BITS: f64 = 64.0;

/// How much a text holds at most if each character were drawn by itself, with the frequencies that it has.
fn entropy_bits(text: &str) -> f64 {
    let mut counts = [0_u16; 128];
    for byte in text.bytes().take(usize::from(u16::MAX)) {
        counts[usize::from(byte & 0x7f)] += 1;
    }
    let length = f64::from(counts.iter().sum::<u16>());
    let bits = |count: &u16| f64::from(*count) * (length / f64::from(*count)).log2();
    counts.iter().filter(|count| **count > 0).map(bits).sum()
}

impl Secret {
    fn from_env(name: &str, env: &dyn Fn(&str) -> Option<String>) -> Result<Option<Self>, BadSetting> {
        match env(name) {
            None => Ok(None),
            // What compose files make of a variable that is not set.
            Some(secret) if secret.is_empty() => Ok(None),
            Some(secret) if !secret.bytes().all(|byte| byte.is_ascii_graphic()) => {
                Err(BadSetting(format!("{name}: a token is printable ASCII without spaces")))
            }
            Some(secret) if secret.len() < MIN_SECRET_CHARS || entropy_bits(&secret) < MIN_SECRET_BITS => {
                Err(BadSetting(format!(
                    "{name}: too easy to guess: at least {MIN_SECRET_CHARS} random characters are needed, such as 64 of hex"
                )))
            }
            Some(secret) => Ok(Some(Self(Sha256::of(secret.as_bytes())))),
        }
    }

    /// What is stored and compared: the secret itself is not kept.
    pub(crate) fn sha256(&self) -> Sha256 {
        self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

impl DatabaseUrl {
    fn check(given: Option<String>, data_dir: &Path) -> Result<Self, BadSetting> {
        let Some(url) = given.filter(|url| !url.is_empty()) else {
            return Ok(Self(format!("sqlite://{}", data_dir.join("workspaced.db").display())));
        };
        if ["sqlite://", "postgres://", "postgresql://"].iter().any(|scheme| url.starts_with(scheme)) {
            Ok(Self(url))
        } else {
            // The value may hold a password.
            Err(BadSetting("--database-url: it begins with `sqlite://` or `postgres://`".to_owned()))
        }
    }
}

impl DatabaseUrl {
    /// The file of an SQLite database.
    pub(crate) fn sqlite_file(&self) -> Option<&str> {
        self.0.strip_prefix("sqlite://").map(|rest| rest.split('?').next().unwrap_or(rest))
    }
}

impl fmt::Debug for DatabaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.split_once("://").map_or("…", |(scheme, _)| scheme))
    }
}

fn data_dir(given: Option<PathBuf>) -> PathBuf {
    given.unwrap_or_else(|| PathBuf::from("./data"))
}

fn listen(raw: &str) -> Result<SocketAddr, BadSetting> {
    let bad = |why: String| BadSetting(format!("--listen `{raw}`: {why}"));
    let mut found = raw.to_socket_addrs().map_err(|error| bad(error.to_string()))?;
    found.next().ok_or_else(|| bad("no such address".to_owned()))
}

fn import_roots(given: Vec<PathBuf>) -> Result<Vec<PathBuf>, BadSetting> {
    let roots: Vec<_> = given.into_iter().filter(|root| !root.as_os_str().is_empty()).collect();
    for root in &roots {
        let bad = |why: String| BadSetting(format!("--import-root `{}`: {why}", root.display()));
        let found = std::fs::metadata(root).map_err(|error| bad(error.to_string()))?;
        if !found.is_dir() {
            return Err(bad("it is no folder".to_owned()));
        }
    }
    Ok(roots)
}

fn git_allow_hosts(given: Vec<String>) -> Result<Vec<String>, BadSetting> {
    let hosts: Vec<_> = given.into_iter().filter(|host| !host.is_empty()).collect();
    let is_host = |host: &String| {
        let byte_fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
        let address = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        host.bytes().all(byte_fits) || address.parse::<std::net::Ipv6Addr>().is_ok()
    };
    match hosts.iter().find(|host| !is_host(host)) {
        Some(host) => {
            let problem = "it takes a host's name or address, without scheme, port or path";
            Err(BadSetting(format!("--git-allow-host `{host}`: {problem}")))
        }
        None => Ok(hosts),
    }
}

fn profiles(file: Option<&Path>) -> Result<Profiles, BadSetting> {
    let Some(file) = file else { return Ok(Profiles::built_in()) };
    let bad = |why: String| BadSetting(format!("--profiles {}: {why}", file.display()));
    let text = std::fs::read_to_string(file).map_err(|error| bad(error.to_string()))?;
    Profiles::with_toml(&text).map_err(|error| bad(error.to_string()))
}

fn seconds(name: &str, given: Option<u64>, default: u64) -> Result<Duration, BadSetting> {
    within(name, given, default, 86_400).map(Duration::from_secs)
}

fn number(name: &str, given: Option<u64>, default: u64, most: u64) -> Result<usize, BadSetting> {
    within(name, given, default, most).map(|number| usize::try_from(number).unwrap_or(usize::MAX))
}

/// The memory for bodies: by default 256 MiB, and never less than two of the largest bodies need.
fn body_memory(given: Option<u64>, max_body_bytes: u64) -> Result<u64, BadSetting> {
    let least = 2 * max_body_bytes;
    let bytes = within("max-body-memory-bytes", given, least.max(256 << 20), 1 << 40)?;
    if bytes < least {
        return Err(BadSetting(format!("--max-body-memory-bytes: at least twice --max-body-bytes, which is {least}")));
    }
    Ok(bytes)
}

fn within(name: &str, given: Option<u64>, default: u64, most: u64) -> Result<u64, BadSetting> {
    match given.unwrap_or(default) {
        number if (1..=most).contains(&number) => Ok(number),
        number => Err(BadSetting(format!("--{name} {number}: it takes 1 to {most}"))),
    }
}

#[cfg(test)]
mod tests;
