//! Settings as written: by flag, in the environment or in the file.

#![expect(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "settings contain paths and come from a file; files of the service itself are not opened here"
)]

use std::any::TypeId;
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use clap::builder::Resettable;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{ArgMatches, Args as _, FromArgMatches};
use model::{Profiles, Scope, WebhookEvent};
use serde::Deserialize;
use toml::Spanned;
use toml::de::{DeTable, DeValue, Deserializer};

use crate::error::ConfigError;

/// The format of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object per line.
    Json,
}

/// Whether the kernel restricts what the process may access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum SandboxMode {
    /// If the kernel supports it.
    Auto,
    /// Never.
    Off,
    /// Always; without support the service does not start.
    Require,
}

/// How many requests one token may make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimit {
    /// Requests per second; 0 for no limit.
    pub per_second: u32,
    /// Requests that may exceed the rate at once, at least 1.
    pub burst: u32,
}

impl FromStr for RateLimit {
    type Err = &'static str;

    fn from_str(raw: &str) -> Result<Self, Self::Err> {
        const EXPECTED: &str = "expected requests per second, such as 50, or with a burst, 50:200";
        let (rate, burst) = raw.split_once(':').map_or((raw, None), |(rate, burst)| (rate, Some(burst)));
        let per_second: u32 = rate.parse().map_err(|_| EXPECTED)?;
        let burst = match burst {
            None => per_second.saturating_mul(2).max(1),
            Some(burst) => burst.parse().ok().filter(|burst| *burst > 0).ok_or(EXPECTED)?,
        };
        Ok(Self { per_second, burst })
    }
}

/// One `[[operator]]` of the file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OperatorSetting {
    pub name: String,
    /// SHA-256 of the token, in hexadecimal, or a list of two while the token is replaced.
    #[serde(alias = "token-sha256", deserialize_with = "one_or_more")]
    pub token_sha256: Vec<String>,
    pub scopes: Vec<Scope>,
}

/// Reads a string or a list of strings.
fn one_or_more<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum OneOrMore {
        One(String),
        More(Vec<String>),
    }
    Ok(match OneOrMore::deserialize(deserializer)? {
        OneOrMore::One(one) => vec![one],
        OneOrMore::More(more) => more,
    })
}

/// One `[[git_credential]]` of the file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GitCredentialSetting {
    pub name: String,
    #[serde(alias = "url-prefix")]
    pub url_prefix: String,
    pub username: Option<String>,
    /// A file with the token.
    #[serde(alias = "token-file")]
    pub token_file: Option<PathBuf>,
    /// The name of an environment variable with the token.
    #[serde(alias = "token-env")]
    pub token_env: Option<String>,
}

/// The `[sign_in]` of the file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SignInSetting {
    #[serde(alias = "client-id")]
    pub client_id: String,
    /// A file with the client's secret. Default: a public client.
    #[serde(alias = "client-secret-file")]
    pub client_secret_file: Option<PathBuf>,
    /// The name of an environment variable with the client's secret.
    #[serde(alias = "client-secret-env")]
    pub client_secret_env: Option<String>,
    /// Default: `groups`.
    #[serde(alias = "groups-claim")]
    pub groups_claim: Option<String>,
    /// The groups that have each scope.
    pub scopes: BTreeMap<Scope, Vec<String>>,
}

/// One `[[webhook]]` of the file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WebhookSetting {
    pub name: String,
    pub url: String,
    /// A file with one or two secrets.
    #[serde(alias = "secret-file")]
    pub secret_file: Option<PathBuf>,
    /// The name of an environment variable with one or two secrets.
    #[serde(alias = "secret-env")]
    pub secret_env: Option<String>,
    /// Default: all.
    pub events: Option<Vec<WebhookEvent>>,
}

/// Settings as written. A missing one has a default.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Settings {
    /// Address to listen on; port 0 selects a free port [default: 127.0.0.1:8080]
    #[arg(long, env = "WORKSPACED_LISTEN", value_name = "ADDRESS")]
    pub listen: Option<String>,
    /// Address of a listener of its own for `/metrics`, `/healthz` and `/readyz` [default: none, on --listen]
    #[arg(long, env = "WORKSPACED_METRICS_LISTEN", value_name = "ADDRESS")]
    pub metrics_listen: Option<String>,
    /// File of the certificate for TLS, followed by those of its issuers, in PEM [default: none, plain HTTP]
    #[arg(long, env = "WORKSPACED_TLS_CERT", value_name = "FILE")]
    pub tls_cert: Option<PathBuf>,
    /// File of the private key of the certificate, in PEM [default: none, plain HTTP]
    #[arg(long, env = "WORKSPACED_TLS_KEY", value_name = "FILE")]
    pub tls_key: Option<PathBuf>,
    /// Data folder: `workspaces/` and the SQLite database [default: ./data]
    #[arg(long, env = "WORKSPACED_DATA_DIR", value_name = "FOLDER")]
    pub data_dir: Option<PathBuf>,
    /// Database, `sqlite://FILE` or `postgres://…` [default: a file in the data folder]
    #[arg(long, env = "WORKSPACED_DATABASE_URL", hide_env_values = true, value_name = "URL")]
    pub database_url: Option<String>,
    /// File with the address of the database, instead of --database-url [default: none]
    #[arg(long, env = "WORKSPACED_DATABASE_URL_FILE", value_name = "FILE")]
    pub database_url_file: Option<PathBuf>,
    /// Address at which other nodes reach this one, `http://HOST:PORT` or `https://…`. With it, the service shares its database
    /// with other nodes, which forward requests to the owner of their run. Needs PostgreSQL [default: none, one service]
    #[arg(long, env = "WORKSPACED_NODE_URL", value_name = "URL")]
    pub node_url: Option<String>,
    /// Name of this node, which no other one has [default: generated in the data folder at the first start]
    #[arg(long, env = "WORKSPACED_NODE_ID", value_name = "NAME")]
    pub node_id: Option<String>,
    /// File with the secret by which nodes recognise each other's requests, the same for all [default: none]
    #[arg(long, env = "WORKSPACED_CLUSTER_SECRET_FILE", value_name = "FILE")]
    pub cluster_secret_file: Option<PathBuf>,
    /// Folder that sources and mounts of runs may lie in; may be repeated [default: none]
    ///
    /// [env: `WORKSPACED_IMPORT_ROOTS`, with `:` between folders]
    #[arg(long = "import-root", alias = "import-roots", value_name = "FOLDER")]
    pub import_roots: Option<Vec<PathBuf>>,
    /// Host that git sources may name even if its addresses are private, loopback or link-local; may be repeated
    /// [default: none]
    ///
    /// [env: `WORKSPACED_GIT_ALLOW_HOSTS`, with `,` between hosts]
    #[arg(long = "git-allow-host", alias = "git-allow-hosts", value_name = "HOST")]
    pub git_allow_hosts: Option<Vec<String>>,
    /// Origin of web pages whose scripts may call the service, such as `https://console.example`; may be repeated
    /// [default: none]
    ///
    /// [env: `WORKSPACED_CORS_ORIGINS`, with `,` between origins]
    #[arg(long = "cors-origin", alias = "cors-origins", value_name = "ORIGIN")]
    pub cors_origins: Option<Vec<String>>,
    /// Issuer of OAuth access tokens that are accepted besides the service's own tokens, such as `https://login.example.org`
    /// [default: none]
    #[arg(long, env = "WORKSPACED_OAUTH_ISSUER", value_name = "URL")]
    pub oauth_issuer: Option<String>,
    /// What the issuer's tokens for this service name as their audience: the URL of this service, or another name [default: none]
    #[arg(long, env = "WORKSPACED_OAUTH_AUDIENCE", value_name = "URL or NAME")]
    pub oauth_audience: Option<String>,
    /// Claim of the issuer's tokens that names the run which they are for; without the claim they are an operator's [default: none]
    #[arg(long, env = "WORKSPACED_OAUTH_RUN_CLAIM", value_name = "NAME")]
    pub oauth_run_claim: Option<String>,
    /// Whether `/metrics` requires an operator token with the scope `metrics` [default: false]
    #[arg(long, env = "WORKSPACED_PROTECT_METRICS", value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    pub protect_metrics: Option<bool>,
    /// Operators, only in the file: `[[operator]]` with `name`, `token_sha256` and `scopes`.
    #[arg(skip)]
    pub operator: Option<Vec<OperatorSetting>>,
    /// Credentials of git sources, only in the file: `[[git_credential]]` with `name`, `url_prefix`, `username`, and
    /// `token_file` or `token_env`.
    #[arg(skip)]
    pub git_credential: Option<Vec<GitCredentialSetting>>,
    /// Sign-in of people at the issuer, only in the file: `[sign_in]` with `client_id`, `client_secret_file` or `client_secret_env`,
    /// `groups_claim` and `scopes`.
    #[arg(skip)]
    pub sign_in: Option<SignInSetting>,
    /// The built-in policy profiles and those of the file: `[profiles.NAME]`.
    #[arg(skip)]
    pub profiles: Option<Profiles>,
    /// Webhooks, only in the file: `[[webhook]]` with `name`, `url`, `secret_file` or `secret_env`, and `events`.
    #[arg(skip)]
    pub webhook: Option<Vec<WebhookSetting>>,
    /// Format of the log on standard error [default: text]
    #[arg(long, env = "WORKSPACED_LOG_FORMAT", value_name = "FORMAT")]
    pub log_format: Option<LogFormat>,
    /// Log filter, such as `warn` or `info,workspaced=debug` [default: info]
    #[arg(long, env = "WORKSPACED_LOG", value_name = "FILTER")]
    pub log: Option<String>,
    /// Whether the kernel restricts the process to the paths that it needs [default: auto, if the kernel supports it]
    #[arg(long, env = "WORKSPACED_SANDBOX", value_name = "WHEN")]
    pub sandbox: Option<SandboxMode>,
    /// Maximum concurrent connections; a quarter of them is the maximum of concurrent requests of one token, of which at most half may
    /// be streams [default: 4096]
    #[arg(long, env = "WORKSPACED_MAX_CONNECTIONS", value_name = "N")]
    pub max_connections: Option<u64>,
    /// Maximum time that a client may stall an upload or a download, or take to send a JSON body. A third of it, at least a second,
    /// for a request head, and to the first byte of a connection; two and a half times as long between two requests [default: 30]
    #[arg(long, env = "WORKSPACED_CLIENT_TIMEOUT_SECONDS", value_name = "SECONDS")]
    pub client_timeout_seconds: Option<u64>,
    /// Maximum duration of a read, and maximum queueing time of other requests; mutations, imports and exports that have
    /// started are not interrupted [default: 60]
    #[arg(long, env = "WORKSPACED_REQUEST_TIMEOUT_SECONDS", value_name = "SECONDS")]
    pub request_timeout_seconds: Option<u64>,
    /// Maximum size of a JSON body [default: 4194304]
    #[arg(long, env = "WORKSPACED_MAX_BODY_BYTES", value_name = "BYTES")]
    pub max_body_bytes: Option<u64>,
    /// Memory for requests: half for JSON bodies, a quarter of that for bodies of at most 64 KiB; half for large responses, until
    /// their clients have received them. Others queue until the client timeout, and are then refused
    /// [default: 536870912, at least four times the largest body]
    #[arg(long, env = "WORKSPACED_MAX_MEMORY_BYTES", value_name = "BYTES")]
    pub max_memory_bytes: Option<u64>,
    /// Maximum size of an uploaded archive, as sent [default: 1073741824]
    #[arg(long, env = "WORKSPACED_MAX_ARCHIVE_BYTES", value_name = "BYTES")]
    pub max_archive_bytes: Option<u64>,
    /// Maximum requests per second of one token, and after a colon how many may exceed the rate at once, by default as many as in
    /// two seconds: `50` or `50:200`; 0 means no limit [default: 0]
    #[arg(long, env = "WORKSPACED_RATE_LIMIT", value_name = "N[:BURST]")]
    pub rate_limit: Option<RateLimit>,
    /// Maximum requests per minute without a valid token from one address; further ones are answered with 429. Requests
    /// with a valid token are not affected. Behind a proxy all clients share one address. 0 means no limit [default: 6000]
    #[arg(long, env = "WORKSPACED_AUTH_FAILURES_PER_MINUTE", value_name = "N")]
    pub auth_failures_per_minute: Option<u32>,
    /// Maximum concurrent reads; as many searches and diffs, and exports; twice as many mutations; as many imports, at most 8.
    /// Others queue until the request timeout [default: 4 per core]
    #[arg(long, env = "WORKSPACED_CONCURRENCY", value_name = "N")]
    pub concurrency: Option<u64>,
    /// Maximum number of runs that are not deleted; 0 means no limit [default: 0]
    #[arg(long, env = "WORKSPACED_MAX_RUNS", value_name = "N")]
    pub max_runs: Option<u64>,
    /// Maximum size of the files of all runs, including imports and uploads in progress; 0 means no limit [default: 0]
    #[arg(long, env = "WORKSPACED_MAX_DISK_BYTES", value_name = "BYTES")]
    pub max_disk_bytes: Option<u64>,
    /// Time after which closed runs are archived, such as `90d`, `12h` or `30m` [default: none, they stay]
    #[arg(long, env = "WORKSPACED_ARCHIVE_AFTER", value_name = "DURATION")]
    pub archive_after: Option<String>,
    /// Archives of closed runs: an existing folder, or `s3://BUCKET/PREFIX` [default: none]
    #[arg(long, env = "WORKSPACED_ARCHIVE_TO", value_name = "FOLDER or URL")]
    pub archive_to: Option<String>,
    /// Store of bases and large contents, from which a run is opened if its files are not in the data folder: `file:///FOLDER` or
    /// `s3://BUCKET/PREFIX` [default: none]
    #[arg(long, env = "WORKSPACED_OBJECT_STORE_URL", value_name = "URL")]
    pub object_store_url: Option<String>,
    /// Minimum age of an object that no run refers to before it is deleted, such as `1d` or `12h` [default: 1d]
    #[arg(long, env = "WORKSPACED_OBJECT_STORE_GRACE", value_name = "DURATION")]
    pub object_store_grace: Option<String>,
    /// Maximum time to drain requests at shutdown [default: 20]
    #[arg(long, env = "WORKSPACED_DRAIN_SECONDS", value_name = "SECONDS")]
    pub drain_seconds: Option<u64>,
    /// Maximum seconds until a checkpoint covers a record [default: 5]
    #[arg(long, env = "WORKSPACED_CHECKPOINT_SECONDS", value_name = "SECONDS")]
    pub checkpoint_seconds: Option<u64>,
    /// File that signed checkpoints are appended to [default: checkpoints.log in the data folder]
    #[arg(long, env = "WORKSPACED_CHECKPOINT_FILE", value_name = "FILE")]
    pub checkpoint_file: Option<PathBuf>,
    /// File of the key that signs checkpoints, created at the first start [default: checkpoint.key in the data folder]
    #[arg(long, env = "WORKSPACED_CHECKPOINT_KEY_FILE", value_name = "FILE")]
    pub checkpoint_key_file: Option<PathBuf>,
}

impl Settings {
    /// Reads the file of `--config`.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be read or has an unknown or invalid setting.
    pub fn read(file: &Path) -> Result<Self, ConfigError> {
        let bad = |why: String| ConfigError(format!("--config {}: {why}", file.display()));
        let text = std::fs::read_to_string(file).map_err(|error| bad(error.to_string()))?;
        Self::parse(&text).map_err(bad)
    }

    /// Parses TOML. Keys are the names of flags, and may be written with `-` or `_`; values are parsed as those of flags are.
    pub fn parse(text: &str) -> Result<Self, String> {
        let table = DeTable::parse(text).map_err(|error| on_one_line(text, &error))?;
        let span = table.span();
        let (mut settings, mut tables, mut known) = (Self::default(), DeTable::new(), Vec::new());
        // As on the command line, but without its environment, which counts more than the file.
        let command = Self::augment_args(clap::Command::new("settings").no_binary_name(true).disable_help_flag(true));
        let command = command.mut_args(|arg| arg.env(Resettable::Reset));
        for (key, value) in table.into_inner() {
            let name = key.get_ref().replace('_', "-");
            let at = |why: String| format!("{}: {why}", position(text, key.span().start));
            if known.contains(&name) {
                return Err(at(format!("duplicate key `{name}`")));
            }
            if name == PROFILES {
                settings.profiles = Some(Profiles::with_toml(text).map_err(|error| error.to_string())?);
            } else if TABLES.contains(&name.as_str()) {
                tables.insert(Spanned::new(key.span(), name.clone().into()), value);
            } else {
                let is_known = command.get_arguments().any(|arg| is_named(arg, &name));
                let start = if is_known { value.span().start } else { key.span().start };
                let at = |why: String| format!("{}: {why}", position(text, start));
                settings.set(&command, &name, value.get_ref()).map_err(at)?;
            }
            known.push(name);
        }
        let tables = FileTables::deserialize(Deserializer::from(Spanned::new(span, tables)));
        let tables = tables.map_err(|error| on_one_line(text, &error))?;
        settings.operator = tables.operator;
        settings.git_credential = tables.git_credential;
        settings.webhook = tables.webhook;
        settings.sign_in = tables.sign_in;
        Ok(settings)
    }

    /// Sets the setting `name` of a file.
    fn set(&mut self, command: &clap::Command, name: &str, value: &DeValue<'_>) -> Result<(), String> {
        let arg = command.get_arguments().find(|arg| is_named(arg, name));
        let values = match value {
            // Whatever its value is: clap says that there is no such flag, and which is like it.
            _ if arg.is_none() => Some(vec![String::new()]),
            DeValue::Array(items) => items.iter().map(|item| plain(item.get_ref())).collect(),
            one => plain(one).map(|one| vec![one]),
        };
        let values =
            values.ok_or_else(|| format!("`{name}`: expected a text, a number, a Boolean or a list of texts"))?;
        // A number that stands for an address or a path is a mistake in the file, which the parser of the flag would take as a text.
        let is_text = |arg: &clap::Arg| {
            [TypeId::of::<String>(), TypeId::of::<PathBuf>()]
                .iter()
                .any(|text| arg.get_value_parser().type_id() == *text)
        };
        if arg.is_some_and(is_text) && !matches!(value, DeValue::String(_) | DeValue::Array(_)) {
            return Err(format!("`{name}`: expected a text, in quotes"));
        }
        let arguments = values.iter().map(|value| format!("--{name}={value}"));
        let matches = command.clone().try_get_matches_from(arguments).map_err(|error| why(name, &error))?;
        self.update_from_arg_matches(&matches).map_err(|error| why(name, &error))
    }

    /// Returns the data folder.
    pub fn data_dir(&self) -> PathBuf {
        self.data_dir.clone().unwrap_or_else(|| PathBuf::from("./data"))
    }
}

/// The key of a file that has the tables of profiles.
const PROFILES: &str = "profiles";
/// The other keys of a file that have tables.
const TABLES: [&str; 4] = ["operator", "git-credential", "webhook", "sign-in"];

/// The tables of a file.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct FileTables {
    operator: Option<Vec<OperatorSetting>>,
    git_credential: Option<Vec<GitCredentialSetting>>,
    webhook: Option<Vec<WebhookSetting>>,
    sign_in: Option<SignInSetting>,
}

/// Whether `arg` is the flag `name`, or has that name too.
fn is_named(arg: &clap::Arg, name: &str) -> bool {
    arg.get_long() == Some(name) || arg.get_all_aliases().is_some_and(|names| names.contains(&name))
}

/// Returns the text of a value that is neither a list nor a table.
fn plain(value: &DeValue<'_>) -> Option<String> {
    match value {
        DeValue::String(text) => Some(text.clone().into_owned()),
        DeValue::Integer(number) => Some(number.to_string()),
        DeValue::Float(number) => Some(number.to_string()),
        DeValue::Boolean(value) => Some(value.to_string()),
        DeValue::Datetime(_) | DeValue::Array(_) | DeValue::Table(_) => None,
    }
}

/// Says why the setting `name` of a file is refused.
fn why(name: &str, error: &clap::Error) -> String {
    if error.kind() == ErrorKind::UnknownArgument {
        let similar = match error.get(ContextKind::SuggestedArg) {
            Some(ContextValue::String(flag)) => format!(": did you mean `{}`?", flag.trim_start_matches('-')),
            _ => String::new(),
        };
        return format!("unknown setting `{name}`{similar}");
    }
    let text = error.to_string();
    let first = text.split("\n\n").next().unwrap_or_default().trim_start_matches("error:");
    first.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The settings of a command line, in which the environment completes the flags.
#[derive(Clone)]
pub(crate) struct CommandLine(ArgMatches);

impl CommandLine {
    /// Returns these settings, completed by those of `file`.
    ///
    /// # Errors
    ///
    /// Fails if a value cannot be used.
    pub(crate) fn over(
        &self,
        mut file: Settings,
        env: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Settings, ConfigError> {
        file.update_from_arg_matches(&self.0).map_err(|error| ConfigError(error.to_string()))?;
        // Lists have separators in the environment alone, which clap cannot express.
        let list = |id: &str, name: &str, separator: char| {
            let value = env(name).filter(|_| !self.0.contains_id(id))?;
            Some(value.split(separator).map(|item| item.trim().to_owned()).collect::<Vec<_>>())
        };
        if let Some(roots) = list("import_roots", "WORKSPACED_IMPORT_ROOTS", ':') {
            file.import_roots = Some(roots.into_iter().map(PathBuf::from).collect());
        }
        if let Some(hosts) = list("git_allow_hosts", "WORKSPACED_GIT_ALLOW_HOSTS", ',') {
            file.git_allow_hosts = Some(hosts);
        }
        if let Some(origins) = list("cors_origins", "WORKSPACED_CORS_ORIGINS", ',') {
            file.cors_origins = Some(origins);
        }
        Ok(file)
    }
}

impl fmt::Debug for CommandLine {
    /// Shows nothing: the address of the database may have a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CommandLine")
    }
}

impl FromArgMatches for CommandLine {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        Ok(Self(matches.clone()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.0 = matches.clone();
        Ok(())
    }
}

impl clap::Args for CommandLine {
    fn augment_args(command: clap::Command) -> clap::Command {
        Settings::augment_args(command)
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        Settings::augment_args_for_update(command)
    }
}

/// Returns the line and the column of a place in a text.
fn position(text: &str, start: usize) -> String {
    let before = text.get(..start).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    format!("line {line}, column {column}")
}

/// Returns a TOML error on one line, with its position.
fn on_one_line(text: &str, error: &toml::de::Error) -> String {
    let message = error.message().split_whitespace().collect::<Vec<_>>().join(" ");
    // The list of alternatives is long, and the documentation has it too.
    let message = message.split(", expected one of").next().unwrap_or_default().to_owned();
    let Some(span) = error.span().filter(|span| text.get(..span.start).is_some()) else { return message };
    // Only the name: the value may be a secret.
    let line = text[..span.start].matches('\n').count();
    let key = text.lines().nth(line).and_then(|line| line.split_once('=')).map(|(key, _)| key.trim());
    let named = key.filter(|key| !message.contains(*key)).map(|key| format!(" (at `{key}`)")).unwrap_or_default();
    format!("{}: {message}{named}", position(text, span.start))
}
