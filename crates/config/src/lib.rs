//! Settings: flags, environment variables and one TOML file, in this order of precedence, checked once; why a command of the program
//! fails; clients of the servers that settings name.
//!
//! The law of this crate: nothing is started here, and of the service's data nothing is opened.

#![expect(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "settings contain paths and come from files; files of the service itself are not opened here"
)]

mod archive_command;
mod backup;
mod checkpoints;
mod cors;
mod database_url;
mod error;
mod features;
mod git_credentials;
pub mod http_client;
pub mod http_limits;
mod issuer;
mod keys;
mod limits;
mod nodes;
mod offline;
mod operators;
mod range;
mod secret;
mod serve;
mod settings;
mod sign_in;
mod start_error;
mod stores;
mod transport;
mod webhooks;

use std::net::SocketAddr;
use std::path::PathBuf;

use axum::http::HeaderValue;
use engine::Limits;
use engine::operators::ConfiguredTokens;
use model::Profiles;
use workspace::GitCredential;

pub use self::archive_command::{ArchiveAction, ArchiveArgs, ArchiveCommandConfig};
pub use self::backup::{BackupArgs, BackupConfig, RestoreArgs, RestoreConfig};
pub use self::error::ConfigError;
pub use self::features::{NO_OBJECT_STORE, NO_OTLP};
pub use self::keys::{KeyAction, KeyStep};
pub use self::keys::{KeyArgs, KeyConfig};
pub use self::offline::{
    AcceptedSide, DataArgs, RepairArgs, RepairConfig, ReplayArgs, ReplayConfig, VerifyArgs, VerifyConfig,
};
pub use self::operators::reload::Sources;
pub use self::serve::ServeArgs;
pub use self::settings::{LogFormat, SandboxMode};
pub use self::start_error::StartError;

pub use self::checkpoints::CheckpointConfig;
pub use self::database_url::DatabaseUrl;
use self::http_limits::HttpLimits;
pub use self::issuer::IssuerConfig;
pub use self::nodes::{ClusterSecret, NodeConfig};
use self::operators::reload::LoadedOperators;
use self::settings::Settings;
pub use self::sign_in::SignInConfig;
pub use self::stores::{ArchiveConfig, ObjectStoreConfig, StoreTarget};
pub use self::transport::{OtlpConfig, TlsFiles};
pub use self::webhooks::WebhookConfig;

/// The checked settings of `serve`.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where the service listens.
    pub listen: SocketAddr,
    /// Where the metrics are served if not on `listen`.
    pub metrics_listen: Option<SocketAddr>,
    /// The certificate; `None` for plain HTTP.
    pub tls: Option<TlsFiles>,
    /// Where spans are sent; `None` for nowhere.
    pub otlp: Option<OtlpConfig>,
    /// The data folder.
    pub data_dir: PathBuf,
    /// The database.
    pub database_url: DatabaseUrl,
    /// How the service shares its database with other nodes; `None` if it is the only one.
    pub node: Option<NodeConfig>,
    /// The folders under which local sources may be.
    pub import_roots: Vec<PathBuf>,
    /// Hosts that git sources may name although their addresses are not public.
    pub git_allow_hosts: Vec<String>,
    /// Credentials that git sources may name.
    pub git_credentials: Vec<GitCredential>,
    /// Where messages about events are sent.
    pub webhooks: Vec<WebhookConfig>,
    /// Origins of web pages whose scripts may call the service.
    pub cors_origins: Vec<HeaderValue>,
    /// The issuer whose access tokens are accepted; `None` if there is none.
    pub issuer: Option<IssuerConfig>,
    /// The profiles of policies that runs may name.
    pub profiles: Profiles,
    /// The operators of the configuration.
    pub tokens: ConfiguredTokens,
    /// What is read again while the service runs.
    pub sources: Sources,
    /// Whether the metrics require a token.
    pub protect_metrics: bool,
    /// The format of the log.
    pub log_format: LogFormat,
    /// The filter of the log.
    pub log: String,
    /// The key and the file of checkpoints.
    pub checkpoints: CheckpointConfig,
    /// When and where closed runs are archived; `None` if they stay.
    pub archives: Option<ArchiveConfig>,
    /// Where bases and large contents are put; `None` if they stay in the data folder.
    pub object_store: Option<ObjectStoreConfig>,
    /// Whether the kernel confines the process.
    pub sandbox: SandboxMode,
    /// What the sandbox allows beside the settings.
    pub external_paths: ExternalPaths,
    /// The limits of HTTP.
    pub http_limits: HttpLimits,
    /// The limits of calls.
    pub limits: Limits,
}

/// Paths outside the settings that programs and libraries take from the environment. The sandbox allows them.
#[derive(Clone, Debug, Default)]
pub struct ExternalPaths {
    /// Folders of programs.
    pub programs: Vec<PathBuf>,
    /// Certificates that git trusts.
    pub certificates: Vec<PathBuf>,
    /// Certificates and the password file of the database client.
    pub database: Vec<PathBuf>,
}

impl Config {
    /// Checks the settings, of which those of `file` are a part.
    fn check(
        mut settings: Settings,
        file: Option<PathBuf>,
        env: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, ConfigError> {
        let data_dir = settings.data_dir();
        let sources = Sources::find(file, env)?;
        let LoadedOperators { tokens, profiles } = sources.load(settings.operator.take(), settings.profiles.take())?;
        let http_limits = limits::http_limits(&settings)?;
        let database_url = DatabaseUrl::check(&settings, &data_dir)?;
        Ok(Self {
            limits: limits::limits(&settings, &http_limits)?,
            http_limits,
            checkpoints: CheckpointConfig::check(&settings, &data_dir, env)?,
            archives: ArchiveConfig::check(&settings)?,
            object_store: ObjectStoreConfig::check(&settings)?,
            listen: transport::address("listen", settings.listen.as_deref().unwrap_or("127.0.0.1:8080"))?,
            metrics_listen: settings
                .metrics_listen
                .as_deref()
                .filter(|raw| !raw.is_empty())
                .map(|raw| transport::address("metrics-listen", raw))
                .transpose()?,
            tls: TlsFiles::check(&settings)?,
            issuer: IssuerConfig::check(&settings, env)?,
            otlp: OtlpConfig::from_env(env)?,
            sandbox: settings.sandbox.unwrap_or(SandboxMode::Auto),
            external_paths: ExternalPaths::of(&database_url, env),
            node: NodeConfig::check(&settings, &database_url, env)?,
            database_url,
            data_dir,
            import_roots: import_roots(settings.import_roots.unwrap_or_default())?,
            git_allow_hosts: git_allow_hosts(settings.git_allow_hosts.unwrap_or_default())?,
            git_credentials: git_credentials::check(settings.git_credential.unwrap_or_default(), env)?,
            webhooks: webhooks::check(settings.webhook.unwrap_or_default(), env)?,
            cors_origins: cors::origins(settings.cors_origins.unwrap_or_default())?,
            profiles,
            tokens,
            sources,
            protect_metrics: settings.protect_metrics.unwrap_or(false),
            log_format: settings.log_format.unwrap_or(LogFormat::Text),
            log: settings.log.unwrap_or_else(|| "info".to_owned()),
        })
    }

    /// Returns the maximum number of calls that may block a thread at the same time.
    pub fn blocking_threads(&self) -> usize {
        let limits = &self.limits;
        let reads = limits.read_concurrency + limits.search_concurrency + limits.export_concurrency;
        // Mutations and imports have as many permits again for uploads.
        reads + 2 * (limits.write_concurrency + limits.import_concurrency)
    }
}

impl ExternalPaths {
    fn of(database_url: &DatabaseUrl, env: &dyn Fn(&str) -> Option<String>) -> Self {
        let paths = |name: &str| -> Vec<PathBuf> {
            let value = env(name).unwrap_or_default();
            value.split(':').map(PathBuf::from).filter(|path| path.is_absolute()).collect()
        };
        let certificates = ["SSL_CERT_FILE", "SSL_CERT_DIR", "GIT_SSL_CAINFO"].into_iter().flat_map(paths).collect();
        let mut database = Vec::new();
        if database_url.sqlite_file().is_none() {
            // The folders: the files are read again after the password was changed, and are often replaced by others.
            let homes = paths("HOME");
            let replaced = database_url.file.clone().into_iter().chain(paths("PGPASSFILE"));
            database.extend(replaced.map(|file| match file.parent() {
                Some(folder) if folder.as_os_str().is_empty() => PathBuf::from("."),
                Some(folder) if folder.parent().is_some() && !homes.iter().any(|home| home == folder) => {
                    folder.to_owned()
                }
                // Never the root folder or all of the home: such a file must be written in place.
                _ => file,
            }));
            database.extend(["PGSSLROOTCERT", "PGSSLCERT", "PGSSLKEY"].into_iter().flat_map(paths));
            database.extend(homes.iter().map(|home| home.join(".pgpass")));
            database.push(PathBuf::from("/etc/passwd"));
            let parameters = database_url.url.split_once('?').map_or("", |(_, parameters)| parameters).split('&');
            let named = parameters.filter_map(|pair| pair.split_once('=')).filter(|(name, _)| name.starts_with("ssl"));
            database.extend(named.map(|(_, value)| PathBuf::from(value)).filter(|path| path.is_absolute()));
        }
        Self { programs: paths("PATH"), certificates, database }
    }
}

fn import_roots(given: Vec<PathBuf>) -> Result<Vec<PathBuf>, ConfigError> {
    let roots: Vec<_> = given.into_iter().filter(|root| !root.as_os_str().is_empty()).collect();
    for root in &roots {
        let bad = |why: String| ConfigError(format!("--import-root `{}`: {why}", root.display()));
        let found = std::fs::metadata(root).map_err(|error| bad(error.to_string()))?;
        if !found.is_dir() {
            return Err(bad("not a folder".to_owned()));
        }
    }
    Ok(roots)
}

fn git_allow_hosts(given: Vec<String>) -> Result<Vec<String>, ConfigError> {
    let hosts: Vec<_> = given.into_iter().filter(|host| !host.is_empty()).collect();
    let is_host = |host: &String| {
        let byte_fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
        let address = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        host.bytes().all(byte_fits) || address.parse::<std::net::Ipv6Addr>().is_ok()
    };
    match hosts.iter().find(|host| !is_host(host)) {
        Some(host) => {
            let problem = "expected a host name or address, without scheme, port or path";
            Err(ConfigError(format!("--git-allow-host `{host}`: {problem}")))
        }
        None => Ok(hosts),
    }
}

#[cfg(test)]
mod tests;
