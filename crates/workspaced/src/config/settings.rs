//! Settings as they are written: each by flag, by environment or in the file.

#![expect(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "settings name places on disk, and come from a file; what is in the service's folders is not touched here"
)]

use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::{BadSetting, LogFormat, SandboxMode};

/// Settings as they are written: by flag, in the environment or in the file. What is missing has a default.
#[derive(Clone, Debug, Default, clap::Args, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub(super) struct Settings {
    /// Address to listen on; port 0 takes a free one [default: 127.0.0.1:8080]
    #[arg(long, env = "WORKSPACED_LISTEN", value_name = "ADDRESS")]
    pub(super) listen: Option<String>,
    /// The folder of everything that is kept: `workspaces/` and the SQLite database [default: ./data]
    #[arg(long, env = "WORKSPACED_DATA_DIR", value_name = "FOLDER")]
    #[serde(alias = "data_dir")]
    pub(super) data_dir: Option<PathBuf>,
    /// The database, `sqlite://FILE` or `postgres://…` [default: a file in the data folder]
    #[arg(long, env = "WORKSPACED_DATABASE_URL", hide_env_values = true, value_name = "URL")]
    #[serde(alias = "database_url")]
    pub(super) database_url: Option<String>,
    /// A folder from which runs may be made and mounts taken; may be repeated [default: none]
    ///
    /// [env: `WORKSPACED_IMPORT_ROOTS`, with `:` between folders]
    #[arg(long = "import-root", value_name = "FOLDER")]
    #[serde(alias = "import_roots", alias = "import-root", alias = "import_root")]
    pub(super) import_roots: Option<Vec<PathBuf>>,
    /// A host that git sources may name although its addresses are private, loopback or link-local; may be repeated
    /// [default: none]
    ///
    /// [env: `WORKSPACED_GIT_ALLOW_HOSTS`, with `,` between hosts]
    #[arg(long = "git-allow-host", value_name = "HOST")]
    #[serde(alias = "git_allow_hosts", alias = "git-allow-host", alias = "git_allow_host")]
    pub(super) git_allow_hosts: Option<Vec<String>>,
    /// A TOML file of policy profiles beside the built-in ones [default: none]
    #[arg(long, env = "WORKSPACED_PROFILES", value_name = "FILE")]
    pub(super) profiles: Option<PathBuf>,
    /// How log lines on standard error look [default: text]
    #[arg(long, env = "WORKSPACED_LOG_FORMAT", value_name = "FORMAT")]
    #[serde(alias = "log_format")]
    pub(super) log_format: Option<LogFormat>,
    /// What is logged, such as `warn` or `info,workspaced=debug` [default: info]
    #[arg(long, env = "WORKSPACED_LOG", value_name = "FILTER")]
    pub(super) log: Option<String>,
    /// Whether the kernel confines the process to the places that it needs [default: auto, where the kernel can]
    #[arg(long, env = "WORKSPACED_SANDBOX", value_name = "WHEN")]
    pub(super) sandbox: Option<SandboxMode>,
    /// The most connections at a time [default: 4096]
    #[arg(long, env = "WORKSPACED_MAX_CONNECTIONS", value_name = "N")]
    #[serde(alias = "max_connections")]
    pub(super) max_connections: Option<u64>,
    /// How long a request's head may take from its first byte, and the first byte from the connection [default: 10]
    #[arg(long, env = "WORKSPACED_HEADER_TIMEOUT_SECONDS", value_name = "SECONDS")]
    #[serde(alias = "header_timeout_seconds")]
    pub(super) header_timeout_seconds: Option<u64>,
    /// How long a JSON body may take, and an upload or a download may stand still [default: 30]
    #[arg(long, env = "WORKSPACED_BODY_TIMEOUT_SECONDS", value_name = "SECONDS")]
    #[serde(alias = "body_timeout_seconds")]
    pub(super) body_timeout_seconds: Option<u64>,
    /// The least rate of an upload or a download, over four times --body-timeout-seconds of waiting for it [default: 1024]
    #[arg(long, env = "WORKSPACED_MIN_BYTES_PER_SECOND", value_name = "BYTES")]
    #[serde(alias = "min_bytes_per_second")]
    pub(super) min_bytes_per_second: Option<u64>,
    /// How long a connection may be idle between two requests [default: 75]
    #[arg(long, env = "WORKSPACED_IDLE_TIMEOUT_SECONDS", value_name = "SECONDS")]
    #[serde(alias = "idle_timeout_seconds")]
    pub(super) idle_timeout_seconds: Option<u64>,
    /// How long an answer may take; mutations, imports and exports are not cut short [default: 60]
    #[arg(long, env = "WORKSPACED_REQUEST_TIMEOUT_SECONDS", value_name = "SECONDS")]
    #[serde(alias = "request_timeout_seconds")]
    pub(super) request_timeout_seconds: Option<u64>,
    /// The largest body of a call, in bytes [default: 4194304]
    #[arg(long, env = "WORKSPACED_MAX_BODY_BYTES", value_name = "BYTES")]
    #[serde(alias = "max_body_bytes")]
    pub(super) max_body_bytes: Option<u64>,
    /// Bytes of calls' bodies in memory at a time, of which a quarter is for bodies of at most 64 KiB; others wait for it,
    /// but no longer than a body may take [default: 268435456, at least twice the largest body]
    #[arg(long, env = "WORKSPACED_MAX_BODY_MEMORY_BYTES", value_name = "BYTES")]
    #[serde(alias = "max_body_memory_bytes")]
    pub(super) max_body_memory_bytes: Option<u64>,
    /// Bytes of large answers in memory at a time, until their callers have taken them; others wait, but no longer than a
    /// body may take, and are then refused [default: 268435456]
    #[arg(long, env = "WORKSPACED_MAX_ANSWER_MEMORY_BYTES", value_name = "BYTES")]
    #[serde(alias = "max_answer_memory_bytes")]
    pub(super) max_answer_memory_bytes: Option<u64>,
    /// The largest archive that a run may be made from, in bytes as sent [default: 1073741824]
    #[arg(long, env = "WORKSPACED_MAX_ARCHIVE_BYTES", value_name = "BYTES")]
    #[serde(alias = "max_archive_bytes")]
    pub(super) max_archive_bytes: Option<u64>,
    /// Requests a second that one token may make; 0 for no limit [default: 0]
    #[arg(long, env = "WORKSPACED_RATE_LIMIT_PER_SECOND", value_name = "N")]
    #[serde(alias = "rate_limit_per_second")]
    pub(super) rate_limit_per_second: Option<u32>,
    /// Requests that one token may make at once before the rate counts [default: twice the rate]
    #[arg(long, env = "WORKSPACED_RATE_LIMIT_BURST", value_name = "N")]
    #[serde(alias = "rate_limit_burst")]
    pub(super) rate_limit_burst: Option<u32>,
    /// Requests a minute without a valid token that are answered to one address; more are answered 429, while valid tokens
    /// are served from there as ever. Behind a proxy all callers have one address. 0: no limit [default: 6000]
    #[arg(long, env = "WORKSPACED_AUTH_FAILURES_PER_MINUTE", value_name = "N")]
    #[serde(alias = "auth_failures_per_minute")]
    pub(super) auth_failures_per_minute: Option<u32>,
    /// Requests of one token that may be under way at a time [default: 256]
    #[arg(long, env = "WORKSPACED_TOKEN_CONCURRENCY", value_name = "N")]
    #[serde(alias = "token_concurrency")]
    pub(super) token_concurrency: Option<u64>,
    /// Reads that may use the disk at a time [default: 4 for each core]
    #[arg(long, env = "WORKSPACED_READ_THREADS", value_name = "N")]
    #[serde(alias = "read_threads")]
    pub(super) read_threads: Option<u64>,
    /// Searches and diffs that may run at a time [default: 1 for each core]
    #[arg(long, env = "WORKSPACED_SEARCH_THREADS", value_name = "N")]
    #[serde(alias = "search_threads")]
    pub(super) search_threads: Option<u64>,
    /// Exports that may be sent at a time: archives, patches, bundles; of one run a quarter of them
    /// [default: 4 for each core, at least 8]
    #[arg(long, env = "WORKSPACED_EXPORT_THREADS", value_name = "N")]
    #[serde(alias = "export_threads")]
    pub(super) export_threads: Option<u64>,
    /// Mutations that may use the disk at a time, and large files that may come in beside them, of one run a quarter of
    /// those [default: 4 for each core]
    #[arg(long, env = "WORKSPACED_WRITE_THREADS", value_name = "N")]
    #[serde(alias = "write_threads")]
    pub(super) write_threads: Option<u64>,
    /// Imports that may run at a time, and archives that may come in beside them; others wait, but no longer than for an
    /// answer [default: 2]
    #[arg(long, env = "WORKSPACED_IMPORT_THREADS", value_name = "N")]
    #[serde(alias = "import_threads")]
    pub(super) import_threads: Option<u64>,
    /// Runs whose folders are held open at a time; others are opened when they are called [default: 1024]
    #[arg(long, env = "WORKSPACED_MAX_LIVE_RUNS", value_name = "N")]
    #[serde(alias = "max_live_runs")]
    pub(super) max_live_runs: Option<u64>,
    /// Runs that are not deleted, at most; 0 for no limit [default: 0]
    #[arg(long, env = "WORKSPACED_MAX_RUNS", value_name = "N")]
    #[serde(alias = "max_runs")]
    pub(super) max_runs: Option<u64>,
    /// Bytes of all runs' files together, with imports and uploads that are coming in, at most; 0 for no limit [default: 0]
    #[arg(long, env = "WORKSPACED_MAX_DISK_BYTES", value_name = "BYTES")]
    #[serde(alias = "max_disk_bytes")]
    pub(super) max_disk_bytes: Option<u64>,
    /// How long requests under way may take when the service ends [default: 20]
    #[arg(long, env = "WORKSPACED_DRAIN_SECONDS", value_name = "SECONDS")]
    #[serde(alias = "drain_seconds")]
    pub(super) drain_seconds: Option<u64>,
    /// How long a record waits at most until a checkpoint covers it [default: 5]
    #[arg(long, env = "WORKSPACED_CHECKPOINT_SECONDS", value_name = "SECONDS")]
    #[serde(alias = "checkpoint_seconds")]
    pub(super) checkpoint_seconds: Option<u64>,
    /// How many records wait at most until a checkpoint covers them [default: 1000]
    #[arg(long, env = "WORKSPACED_CHECKPOINT_RECORDS", value_name = "N")]
    #[serde(alias = "checkpoint_records")]
    pub(super) checkpoint_records: Option<u64>,
    /// The file that signed checkpoints are appended to [default: checkpoints.log in the data folder]
    #[arg(long, env = "WORKSPACED_CHECKPOINT_FILE", value_name = "FILE")]
    #[serde(alias = "checkpoint_file")]
    pub(super) checkpoint_file: Option<PathBuf>,
    /// The name of the log in its checkpoints [default: made with the key at the first start]
    #[arg(long, env = "WORKSPACED_CHECKPOINT_ORIGIN", value_name = "NAME")]
    #[serde(alias = "checkpoint_origin")]
    pub(super) checkpoint_origin: Option<String>,
    /// Whether checkpoints that the file has lost are written to it anew; without it nothing is signed then [default: false]
    #[arg(long, env = "WORKSPACED_RENEW_CHECKPOINT_FILE", value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    #[serde(alias = "renew_checkpoint_file")]
    pub(super) renew_checkpoint_file: Option<bool>,
}

impl Settings {
    /// Reads the file of `--config`.
    ///
    /// # Errors
    ///
    /// Where it cannot be read, or holds what is no setting.
    pub(super) fn read(file: &Path) -> Result<Self, BadSetting> {
        let shown = file.display();
        let text = std::fs::read_to_string(file).map_err(|error| BadSetting(format!("--config {shown}: {error}")))?;
        toml::from_str(&text).map_err(|error| BadSetting(format!("--config {shown}: {}", in_one_line(&text, &error))))
    }

    /// These settings, and those of `under` where these have none.
    pub(super) fn over(self, under: Self) -> Self {
        Self {
            listen: self.listen.or(under.listen),
            data_dir: self.data_dir.or(under.data_dir),
            database_url: self.database_url.or(under.database_url),
            import_roots: self.import_roots.or(under.import_roots),
            git_allow_hosts: self.git_allow_hosts.or(under.git_allow_hosts),
            profiles: self.profiles.or(under.profiles),
            log_format: self.log_format.or(under.log_format),
            log: self.log.or(under.log),
            sandbox: self.sandbox.or(under.sandbox),
            max_connections: self.max_connections.or(under.max_connections),
            header_timeout_seconds: self.header_timeout_seconds.or(under.header_timeout_seconds),
            body_timeout_seconds: self.body_timeout_seconds.or(under.body_timeout_seconds),
            min_bytes_per_second: self.min_bytes_per_second.or(under.min_bytes_per_second),
            idle_timeout_seconds: self.idle_timeout_seconds.or(under.idle_timeout_seconds),
            request_timeout_seconds: self.request_timeout_seconds.or(under.request_timeout_seconds),
            max_body_bytes: self.max_body_bytes.or(under.max_body_bytes),
            max_body_memory_bytes: self.max_body_memory_bytes.or(under.max_body_memory_bytes),
            max_answer_memory_bytes: self.max_answer_memory_bytes.or(under.max_answer_memory_bytes),
            max_archive_bytes: self.max_archive_bytes.or(under.max_archive_bytes),
            rate_limit_per_second: self.rate_limit_per_second.or(under.rate_limit_per_second),
            rate_limit_burst: self.rate_limit_burst.or(under.rate_limit_burst),
            auth_failures_per_minute: self.auth_failures_per_minute.or(under.auth_failures_per_minute),
            token_concurrency: self.token_concurrency.or(under.token_concurrency),
            read_threads: self.read_threads.or(under.read_threads),
            search_threads: self.search_threads.or(under.search_threads),
            export_threads: self.export_threads.or(under.export_threads),
            write_threads: self.write_threads.or(under.write_threads),
            import_threads: self.import_threads.or(under.import_threads),
            max_live_runs: self.max_live_runs.or(under.max_live_runs),
            max_runs: self.max_runs.or(under.max_runs),
            max_disk_bytes: self.max_disk_bytes.or(under.max_disk_bytes),
            drain_seconds: self.drain_seconds.or(under.drain_seconds),
            checkpoint_seconds: self.checkpoint_seconds.or(under.checkpoint_seconds),
            checkpoint_records: self.checkpoint_records.or(under.checkpoint_records),
            checkpoint_file: self.checkpoint_file.or(under.checkpoint_file),
            checkpoint_origin: self.checkpoint_origin.or(under.checkpoint_origin),
            renew_checkpoint_file: self.renew_checkpoint_file.or(under.renew_checkpoint_file),
        }
    }
}

/// A TOML error on one line, with the place.
fn in_one_line(text: &str, error: &toml::de::Error) -> String {
    let message = error.message().split_whitespace().collect::<Vec<_>>().join(" ");
    // What would have been right is a list of every setting, twice: --help tells it better.
    let message = message.split(", expected one of").next().unwrap_or_default();
    let Some(before) = error.span().and_then(|span| text.get(..span.start)) else { return message.to_owned() };
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    // The name alone: the value may be a secret.
    let key = text.lines().nth(line - 1).and_then(|line| line.split_once('=')).map(|(key, _)| key.trim());
    let named = key.filter(|key| !message.contains(*key)).map(|key| format!(" (at `{key}`)")).unwrap_or_default();
    format!("line {line}, column {column}: {message}{named}")
}
