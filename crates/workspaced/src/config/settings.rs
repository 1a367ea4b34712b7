//! Settings as written: by flag, in the environment or in the file.

#![expect(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "settings contain paths and come from a file; files of the service itself are not opened here"
)]

use std::path::{Path, PathBuf};

use model::{Scope, WebhookEvent};
use serde::Deserialize;
use toml::Spanned;
use toml::de::{DeTable, Deserializer};

use crate::config::error::ConfigError;

/// The format of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object per line.
    Json,
}

/// Whether the kernel restricts what the process may access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SandboxMode {
    /// If the kernel supports it.
    Auto,
    /// Never.
    Off,
    /// Always; without support the service does not start.
    Require,
}

/// A setting that was renamed. Its old name still works, but is not documented: as a flag (clap's `alias`), in the
/// environment and in the file.
struct Renamed {
    old: &'static str,
    new: &'static str,
    value: fn(&mut Settings) -> &mut Option<u64>,
}

const RENAMED: [Renamed; 5] = [
    Renamed { old: "read-threads", new: "read-concurrency", value: |settings| &mut settings.read_concurrency },
    Renamed { old: "search-threads", new: "search-concurrency", value: |settings| &mut settings.search_concurrency },
    Renamed { old: "export-threads", new: "export-concurrency", value: |settings| &mut settings.export_concurrency },
    Renamed { old: "write-threads", new: "write-concurrency", value: |settings| &mut settings.write_concurrency },
    Renamed { old: "import-threads", new: "import-concurrency", value: |settings| &mut settings.import_concurrency },
];

/// One `[[operator]]` of the file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct OperatorSetting {
    pub(crate) name: String,
    /// SHA-256 of the token, in hexadecimal, or a list of two while the token is replaced.
    #[serde(alias = "token-sha256", deserialize_with = "one_or_more")]
    pub(crate) token_sha256: Vec<String>,
    pub(crate) scopes: Vec<Scope>,
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
pub(crate) struct GitCredentialSetting {
    pub(crate) name: String,
    #[serde(alias = "url-prefix")]
    pub(crate) url_prefix: String,
    pub(crate) username: Option<String>,
    /// A file with the token.
    #[serde(alias = "token-file")]
    pub(crate) token_file: Option<PathBuf>,
    /// The name of an environment variable with the token.
    #[serde(alias = "token-env")]
    pub(crate) token_env: Option<String>,
}

/// One `[[webhook]]` of the file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WebhookSetting {
    pub(crate) name: String,
    pub(crate) url: String,
    /// A file with one or two secrets.
    #[serde(alias = "secret-file")]
    pub(crate) secret_file: Option<PathBuf>,
    /// The name of an environment variable with one or two secrets.
    #[serde(alias = "secret-env")]
    pub(crate) secret_env: Option<String>,
    /// Default: all.
    pub(crate) events: Option<Vec<WebhookEvent>>,
}

/// Settings as written. A missing one has a default.
#[derive(Clone, Debug, Default, clap::Args, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub(crate) struct Settings {
    /// Address to listen on; port 0 selects a free port [default: 127.0.0.1:8080]
    #[arg(long, env = "WORKSPACED_LISTEN", value_name = "ADDRESS")]
    pub(crate) listen: Option<String>,
    /// Address of a listener of its own for `/metrics`, `/healthz` and `/readyz` [default: none, on --listen]
    #[arg(long, env = "WORKSPACED_METRICS_LISTEN", value_name = "ADDRESS")]
    pub(crate) metrics_listen: Option<String>,
    /// File of the certificate for TLS, followed by those of its issuers, in PEM [default: none, plain HTTP]
    #[arg(long, env = "WORKSPACED_TLS_CERT", value_name = "FILE")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// File of the private key of the certificate, in PEM [default: none, plain HTTP]
    #[arg(long, env = "WORKSPACED_TLS_KEY", value_name = "FILE")]
    pub(crate) tls_key: Option<PathBuf>,
    /// Data folder: `workspaces/` and the SQLite database [default: ./data]
    #[arg(long, env = "WORKSPACED_DATA_DIR", value_name = "FOLDER")]
    pub(crate) data_dir: Option<PathBuf>,
    /// Database, `sqlite://FILE` or `postgres://…` [default: a file in the data folder]
    #[arg(long, env = "WORKSPACED_DATABASE_URL", hide_env_values = true, value_name = "URL")]
    pub(crate) database_url: Option<String>,
    /// File with the address of the database, instead of --database-url [default: none]
    #[arg(long, env = "WORKSPACED_DATABASE_URL_FILE", value_name = "FILE")]
    pub(crate) database_url_file: Option<PathBuf>,
    /// Address at which other nodes reach this one, `http://HOST:PORT` or `https://…`. With it, the service shares its database
    /// with other nodes, which forward requests to the owner of their run. Needs PostgreSQL [default: none, one service]
    #[arg(long, env = "WORKSPACED_NODE_URL", value_name = "URL")]
    pub(crate) node_url: Option<String>,
    /// Name of this node, which no other one has [default: generated in the data folder at the first start]
    #[arg(long, env = "WORKSPACED_NODE_ID", value_name = "NAME")]
    pub(crate) node_id: Option<String>,
    /// File with the secret by which nodes recognise each other's requests, the same for all [default: none]
    #[arg(long, env = "WORKSPACED_CLUSTER_SECRET_FILE", value_name = "FILE")]
    pub(crate) cluster_secret_file: Option<PathBuf>,
    /// Folder that sources and mounts of runs may lie in; may be repeated [default: none]
    ///
    /// [env: `WORKSPACED_IMPORT_ROOTS`, with `:` between folders]
    #[arg(long = "import-root", value_name = "FOLDER")]
    #[serde(alias = "import-root")]
    pub(crate) import_roots: Option<Vec<PathBuf>>,
    /// Host that git sources may name even if its addresses are private, loopback or link-local; may be repeated
    /// [default: none]
    ///
    /// [env: `WORKSPACED_GIT_ALLOW_HOSTS`, with `,` between hosts]
    #[arg(long = "git-allow-host", value_name = "HOST")]
    #[serde(alias = "git-allow-host")]
    pub(crate) git_allow_hosts: Option<Vec<String>>,
    /// Origin of web pages whose scripts may call the service, such as `https://console.example`; may be repeated
    /// [default: none]
    ///
    /// [env: `WORKSPACED_CORS_ORIGINS`, with `,` between origins]
    #[arg(long = "cors-origin", value_name = "ORIGIN")]
    #[serde(alias = "cors-origin")]
    pub(crate) cors_origins: Option<Vec<String>>,
    /// Issuer of OAuth access tokens that are accepted besides the service's own tokens, such as `https://login.example.org`
    /// [default: none]
    #[arg(long, env = "WORKSPACED_OAUTH_ISSUER", value_name = "URL")]
    pub(crate) oauth_issuer: Option<String>,
    /// What the issuer's tokens for this service name as their audience: the URL of this service, or another name [default: none]
    #[arg(long, env = "WORKSPACED_OAUTH_AUDIENCE", value_name = "URL or NAME")]
    pub(crate) oauth_audience: Option<String>,
    /// Claim of the issuer's tokens that names the run which they are for; without the claim they are an operator's [default: none]
    #[arg(long, env = "WORKSPACED_OAUTH_RUN_CLAIM", value_name = "NAME")]
    pub(crate) oauth_run_claim: Option<String>,
    /// TOML file of policy profiles, in addition to the built-in ones [default: none]
    #[arg(long, env = "WORKSPACED_PROFILES", value_name = "FILE")]
    pub(crate) profiles: Option<PathBuf>,
    /// Whether `/metrics` requires an operator token with the scope `metrics` [default: false]
    #[arg(long, env = "WORKSPACED_PROTECT_METRICS", value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    pub(crate) protect_metrics: Option<bool>,
    /// Operators, only in the file: `[[operator]]` with `name`, `token_sha256` and `scopes`.
    #[arg(skip)]
    pub(crate) operator: Option<Vec<OperatorSetting>>,
    /// Credentials of git sources, only in the file: `[[git_credential]]` with `name`, `url_prefix`, `username`, and
    /// `token_file` or `token_env`.
    #[arg(skip)]
    pub(crate) git_credential: Option<Vec<GitCredentialSetting>>,
    /// Webhooks, only in the file: `[[webhook]]` with `name`, `url`, `secret_file` or `secret_env`, and `events`.
    #[arg(skip)]
    pub(crate) webhook: Option<Vec<WebhookSetting>>,
    /// Format of the log on standard error [default: text]
    #[arg(long, env = "WORKSPACED_LOG_FORMAT", value_name = "FORMAT")]
    pub(crate) log_format: Option<LogFormat>,
    /// Address of an OpenTelemetry collector that spans are sent to, over OTLP/HTTP; `/v1/traces` is added
    /// [default: that of `OTEL_EXPORTER_OTLP_ENDPOINT`, else none]
    #[arg(long, env = "WORKSPACED_OTLP_ENDPOINT", value_name = "URL")]
    pub(crate) otlp_endpoint: Option<String>,
    /// Part of the traces that are sent, from 0 to 1. A caller's `traceparent` decides about its own [default: 1.0]
    #[arg(long, env = "WORKSPACED_OTLP_SAMPLE_RATIO", value_name = "RATIO")]
    pub(crate) otlp_sample_ratio: Option<f64>,
    /// Log filter, such as `warn` or `info,workspaced=debug` [default: info]
    #[arg(long, env = "WORKSPACED_LOG", value_name = "FILTER")]
    pub(crate) log: Option<String>,
    /// Whether the kernel restricts the process to the paths that it needs [default: auto, if the kernel supports it]
    #[arg(long, env = "WORKSPACED_SANDBOX", value_name = "WHEN")]
    pub(crate) sandbox: Option<SandboxMode>,
    /// Maximum concurrent connections [default: 4096]
    #[arg(long, env = "WORKSPACED_MAX_CONNECTIONS", value_name = "N")]
    pub(crate) max_connections: Option<u64>,
    /// Maximum time to receive a request head, and to its first byte on a new connection [default: 10]
    #[arg(long, env = "WORKSPACED_HEADER_TIMEOUT_SECONDS", value_name = "SECONDS")]
    pub(crate) header_timeout_seconds: Option<u64>,
    /// Maximum time to receive a JSON body, and maximum stall of an upload or a download [default: 30]
    #[arg(long, env = "WORKSPACED_BODY_TIMEOUT_SECONDS", value_name = "SECONDS")]
    pub(crate) body_timeout_seconds: Option<u64>,
    /// Minimum rate of an upload or a download, averaged over four times --body-timeout-seconds of waiting for the client
    /// [default: 1024]
    #[arg(long, env = "WORKSPACED_MIN_BYTES_PER_SECOND", value_name = "BYTES")]
    pub(crate) min_bytes_per_second: Option<u64>,
    /// Maximum idle time of a connection between two requests [default: 75]
    #[arg(long, env = "WORKSPACED_IDLE_TIMEOUT_SECONDS", value_name = "SECONDS")]
    pub(crate) idle_timeout_seconds: Option<u64>,
    /// Maximum duration of a read, and maximum queueing time of other requests; mutations, imports and exports that have
    /// started are not interrupted [default: 60]
    #[arg(long, env = "WORKSPACED_REQUEST_TIMEOUT_SECONDS", value_name = "SECONDS")]
    pub(crate) request_timeout_seconds: Option<u64>,
    /// Maximum size of a JSON body [default: 4194304]
    #[arg(long, env = "WORKSPACED_MAX_BODY_BYTES", value_name = "BYTES")]
    pub(crate) max_body_bytes: Option<u64>,
    /// Memory for JSON bodies of all requests, a quarter of it for bodies of at most 64 KiB. Others queue until the body
    /// timeout [default: 268435456, at least twice the largest body]
    #[arg(long, env = "WORKSPACED_MAX_BODY_MEMORY_BYTES", value_name = "BYTES")]
    pub(crate) max_body_memory_bytes: Option<u64>,
    /// Memory for large responses, until their clients have received them. Others queue until the body timeout, and are
    /// then refused [default: 268435456]
    #[arg(long, env = "WORKSPACED_MAX_ANSWER_MEMORY_BYTES", value_name = "BYTES")]
    pub(crate) max_answer_memory_bytes: Option<u64>,
    /// Maximum size of an uploaded archive, as sent [default: 1073741824]
    #[arg(long, env = "WORKSPACED_MAX_ARCHIVE_BYTES", value_name = "BYTES")]
    pub(crate) max_archive_bytes: Option<u64>,
    /// Maximum requests per second of one token; 0 means no limit [default: 0]
    #[arg(long, env = "WORKSPACED_RATE_LIMIT_PER_SECOND", value_name = "N")]
    pub(crate) rate_limit_per_second: Option<u32>,
    /// Maximum burst of requests of one token [default: twice the rate]
    #[arg(long, env = "WORKSPACED_RATE_LIMIT_BURST", value_name = "N")]
    pub(crate) rate_limit_burst: Option<u32>,
    /// Maximum requests per minute without a valid token from one address; further ones are answered with 429. Requests
    /// with a valid token are not affected. Behind a proxy all clients share one address. 0 means no limit [default: 6000]
    #[arg(long, env = "WORKSPACED_AUTH_FAILURES_PER_MINUTE", value_name = "N")]
    pub(crate) auth_failures_per_minute: Option<u32>,
    /// Maximum concurrent requests of one token; at most half of them may be streams [default: 256]
    #[arg(long, env = "WORKSPACED_TOKEN_CONCURRENCY", value_name = "N")]
    pub(crate) token_concurrency: Option<u64>,
    /// Maximum concurrent reads. Others queue until the request timeout [default: 4 per core]
    #[arg(long, env = "WORKSPACED_READ_CONCURRENCY", alias = "read-threads", value_name = "N")]
    pub(crate) read_concurrency: Option<u64>,
    /// Maximum concurrent searches and diffs. Others queue until the request timeout [default: 4 per core]
    #[arg(long, env = "WORKSPACED_SEARCH_CONCURRENCY", alias = "search-threads", value_name = "N")]
    pub(crate) search_concurrency: Option<u64>,
    /// Maximum concurrent exports (archives, patches, bundles); one run may use a quarter of them
    /// [default: 4 per core, at least 8]
    #[arg(long, env = "WORKSPACED_EXPORT_CONCURRENCY", alias = "export-threads", value_name = "N")]
    pub(crate) export_concurrency: Option<u64>,
    /// Maximum concurrent mutations, and separately uploads of large files [default: 8 per core]
    #[arg(long, env = "WORKSPACED_WRITE_CONCURRENCY", alias = "write-threads", value_name = "N")]
    pub(crate) write_concurrency: Option<u64>,
    /// Maximum concurrent imports, and separately archive uploads. Others queue until the request timeout [default: 8]
    #[arg(long, env = "WORKSPACED_IMPORT_CONCURRENCY", alias = "import-threads", value_name = "N")]
    pub(crate) import_concurrency: Option<u64>,
    /// Maximum open runs; others are opened on demand [default: 1024]
    #[arg(long, env = "WORKSPACED_MAX_LIVE_RUNS", value_name = "N")]
    pub(crate) max_live_runs: Option<u64>,
    /// Maximum number of runs that are not deleted; 0 means no limit [default: 0]
    #[arg(long, env = "WORKSPACED_MAX_RUNS", value_name = "N")]
    pub(crate) max_runs: Option<u64>,
    /// Maximum size of the files of all runs, including imports and uploads in progress; 0 means no limit [default: 0]
    #[arg(long, env = "WORKSPACED_MAX_DISK_BYTES", value_name = "BYTES")]
    pub(crate) max_disk_bytes: Option<u64>,
    /// Free bytes of the data folder's disk below which `/readyz` and the metrics warn; 0 disables [default: 1073741824]
    #[arg(long, env = "WORKSPACED_DISK_RESERVE_BYTES", value_name = "BYTES")]
    pub(crate) disk_reserve_bytes: Option<u64>,
    /// Time after which closed runs are archived, such as `90d`, `12h` or `30m` [default: none, they stay]
    #[arg(long, env = "WORKSPACED_ARCHIVE_AFTER", value_name = "DURATION")]
    pub(crate) archive_after: Option<String>,
    /// Archives of closed runs: an existing folder, or `s3://BUCKET/PREFIX` [default: none]
    #[arg(long, env = "WORKSPACED_ARCHIVE_TO", value_name = "FOLDER or URL")]
    pub(crate) archive_to: Option<String>,
    /// Store of bases and large contents, from which a run is opened if its files are not in the data folder: `file:///FOLDER` or
    /// `s3://BUCKET/PREFIX` [default: none]
    #[arg(long, env = "WORKSPACED_OBJECT_STORE_URL", value_name = "URL")]
    pub(crate) object_store_url: Option<String>,
    /// Minimum age of an object that no run refers to before it is deleted, such as `1d` or `12h` [default: 1d]
    #[arg(long, env = "WORKSPACED_OBJECT_STORE_GRACE", value_name = "DURATION")]
    pub(crate) object_store_grace: Option<String>,
    /// Maximum size of the bases that were fetched from the object store and are kept in the data folder; 0 keeps none [default: 4294967296]
    #[arg(long, env = "WORKSPACED_BASE_CACHE_BYTES", value_name = "BYTES")]
    pub(crate) base_cache_bytes: Option<u64>,
    /// Maximum time to drain requests at shutdown [default: 20]
    #[arg(long, env = "WORKSPACED_DRAIN_SECONDS", value_name = "SECONDS")]
    pub(crate) drain_seconds: Option<u64>,
    /// Maximum seconds until a checkpoint covers a record [default: 5]
    #[arg(long, env = "WORKSPACED_CHECKPOINT_SECONDS", value_name = "SECONDS")]
    pub(crate) checkpoint_seconds: Option<u64>,
    /// Maximum number of records that no checkpoint covers yet [default: 1000]
    #[arg(long, env = "WORKSPACED_CHECKPOINT_RECORDS", value_name = "N")]
    pub(crate) checkpoint_records: Option<u64>,
    /// File that signed checkpoints are appended to [default: checkpoints.log in the data folder]
    #[arg(long, env = "WORKSPACED_CHECKPOINT_FILE", value_name = "FILE")]
    pub(crate) checkpoint_file: Option<PathBuf>,
    /// File of the key that signs checkpoints, created at the first start [default: checkpoint.key in the data folder]
    #[arg(long, env = "WORKSPACED_CHECKPOINT_KEY_FILE", value_name = "FILE")]
    pub(crate) checkpoint_key_file: Option<PathBuf>,
    /// Name of the log in its checkpoints [default: generated with the key at the first start]
    #[arg(long, env = "WORKSPACED_CHECKPOINT_ORIGIN", value_name = "NAME")]
    pub(crate) checkpoint_origin: Option<String>,
    /// Restore checkpoints that are missing from the checkpoint file; otherwise nothing is signed then [default: false]
    #[arg(long, env = "WORKSPACED_RENEW_CHECKPOINT_FILE", value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    pub(crate) renew_checkpoint_file: Option<bool>,
}

impl Settings {
    /// Reads the file of `--config`.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be read or has an unknown or invalid setting.
    pub(crate) fn read(file: &Path) -> Result<Self, ConfigError> {
        let bad = |why: String| ConfigError(format!("--config {}: {why}", file.display()));
        let text = std::fs::read_to_string(file).map_err(|error| bad(error.to_string()))?;
        Self::parse(&text).map_err(|error| bad(on_one_line(&text, &error)))
    }

    /// Parses TOML. Keys may be written with `-` or `_`.
    fn parse(text: &str) -> Result<Self, toml::de::Error> {
        let table = DeTable::parse(text)?;
        let span = table.span();
        let mut settings = DeTable::new();
        for (key, value) in table.into_inner() {
            let name = key.get_ref().replace('_', "-");
            let renamed = RENAMED.iter().find(|renamed| renamed.old == name);
            let name = renamed.map_or(name, |renamed| renamed.new.to_owned());
            if settings.insert(Spanned::new(key.span(), name.clone().into()), value).is_some() {
                return Err(serde::de::Error::custom(format!("duplicate key `{name}`")));
            }
        }
        Self::deserialize(Deserializer::from(Spanned::new(span, settings)))
    }

    /// Adds the settings of environment variables that clap does not read: lists, and old names.
    ///
    /// # Errors
    ///
    /// Fails if a value cannot be parsed.
    pub(crate) fn with_env(mut self, env: &dyn Fn(&str) -> Option<String>) -> Result<Self, ConfigError> {
        self.import_roots = self.import_roots.or_else(|| {
            let roots = env("WORKSPACED_IMPORT_ROOTS")?;
            Some(roots.split(':').map(PathBuf::from).collect())
        });
        let list = |name: &str| Some(env(name)?.split(',').map(|item| item.trim().to_owned()).collect());
        self.git_allow_hosts = self.git_allow_hosts.or_else(|| list("WORKSPACED_GIT_ALLOW_HOSTS"));
        self.cors_origins = self.cors_origins.or_else(|| list("WORKSPACED_CORS_ORIGINS"));
        for renamed in RENAMED {
            let name = format!("WORKSPACED_{}", renamed.old.replace('-', "_").to_uppercase());
            let value = (renamed.value)(&mut self);
            if let (None, Some(raw)) = (&value, env(&name)) {
                *value = Some(raw.parse().map_err(|error| ConfigError(format!("{name} `{raw}`: {error}")))?);
            }
        }
        Ok(self)
    }

    /// Returns the data folder.
    pub(crate) fn data_dir(&self) -> PathBuf {
        self.data_dir.clone().unwrap_or_else(|| PathBuf::from("./data"))
    }

    /// Returns these settings, completed by `other`.
    pub(crate) fn or(self, other: Self) -> Self {
        macro_rules! or {
            ($($field:ident)*) => {
                Self { $($field: self.$field.or(other.$field)),* }
            };
        }
        or! {
            listen metrics_listen tls_cert tls_key data_dir database_url database_url_file
            node_url node_id cluster_secret_file import_roots git_allow_hosts cors_origins oauth_issuer oauth_audience oauth_run_claim profiles protect_metrics operator
            git_credential webhook
            log_format log otlp_endpoint otlp_sample_ratio sandbox max_connections
            header_timeout_seconds body_timeout_seconds min_bytes_per_second idle_timeout_seconds
            request_timeout_seconds max_body_bytes max_body_memory_bytes max_answer_memory_bytes max_archive_bytes
            rate_limit_per_second rate_limit_burst auth_failures_per_minute token_concurrency read_concurrency
            search_concurrency export_concurrency write_concurrency import_concurrency max_live_runs max_runs
            max_disk_bytes disk_reserve_bytes archive_after archive_to object_store_url object_store_grace base_cache_bytes drain_seconds checkpoint_seconds checkpoint_records checkpoint_file checkpoint_key_file
            checkpoint_origin
            renew_checkpoint_file
        }
    }
}

/// Returns a TOML error on one line, with its position.
fn on_one_line(text: &str, error: &toml::de::Error) -> String {
    let message = error.message().split_whitespace().collect::<Vec<_>>().join(" ");
    // The list of alternatives is long, and --help has it too.
    let message = message.split(", expected one of").next().unwrap_or_default();
    let Some(before) = error.span().and_then(|span| text.get(..span.start)) else { return message.to_owned() };
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    // Only the name: the value may be a secret.
    let key = text.lines().nth(line - 1).and_then(|line| line.split_once('=')).map(|(key, _)| key.trim());
    let named = key.filter(|key| !message.contains(*key)).map(|key| format!(" (at `{key}`)")).unwrap_or_default();
    format!("line {line}, column {column}: {message}{named}")
}
