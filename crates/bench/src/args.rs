//! The command line.

use std::path::PathBuf;
use std::time::Duration;

/// Measures a server over HTTP on loopback, each figure beside baselines of the same run.
#[derive(Debug, clap::Parser)]
#[command(name = "bench", version)]
pub(crate) struct Args {
    /// What to measure.
    #[command(subcommand)]
    pub(crate) command: Command,
    /// How to measure it.
    #[command(flatten)]
    pub(crate) options: Options,
}

/// What to measure.
#[derive(Clone, Debug, PartialEq, Eq, clap::Subcommand)]
pub(crate) enum Command {
    /// `read_file` of 200 lines of a 20 KB file; baseline: a plain axum server
    Reads,
    /// Durable, audited replacements of 4 KB by `write_file`; baselines: file, fsync, rename, fsync; a plain axum server
    Writes,
    /// Reads in one run while 16 connections write in another; baseline: the same reads alone
    MixedLoad,
    /// `apply_patch` of three files; baseline: `git apply`
    Patch,
    /// `list_dir` of 350 entries at depth 2; baseline: a plain axum server
    List,
    /// The import of a tree, and `search_text` over all of it; baselines: `cp -r`, `rg`
    Search,
    /// `diff_workspace` of 20 changed files in a tree; baseline: `git diff`
    Diff,
    /// The baselines alone: plain server, files, single and grouped commits of `SQLite`
    Baselines,
    /// The time from the start of the process to its first response
    Start,
    /// Idle memory after the start, and after 1,000 runs were created and closed
    Memory,
    /// All of the above
    All,
    /// Mixed traffic for a long time: memory and open files, and a check of every chain at the end
    Soak {
        /// Duration in minutes
        #[arg(long, default_value_t = 60)]
        minutes: u64,
    },
    /// Commands beside a run: checkout, pull, push and `exec` with 25,000 files; baseline of the checkout: `cp -r`
    Exec,
    /// The first call of a run whose files are in an object store only
    Fetch,
    /// Four nodes on one `PostgreSQL` database: calls by the number of nodes, and forwarded calls beside direct ones
    Nodes,
    /// Memory per open run, and the start with many of them
    OpenRuns {
        /// Number of runs
        #[arg(long, default_value_t = 10_000)]
        runs: usize,
    },
    /// Instructions per call under valgrind, compared with those of the last commit
    Instructions {
        /// The counts of the last commit that changed them
        #[arg(long, value_name = "FILE", default_value = "crates/bench/instructions.txt")]
        table: PathBuf,
        /// Replaces them
        #[arg(long)]
        write: bool,
    },
    /// Writes a generated source tree to an empty folder
    Tree {
        /// The folder
        folder: PathBuf,
        /// Number of files
        #[arg(long, default_value_t = 20_000)]
        files: usize,
        /// Total size in million bytes
        #[arg(long, default_value_t = 400)]
        megabytes: u64,
    },
    /// Runs the plain server
    #[command(hide = true)]
    Plain {
        /// The folder it serves
        root: PathBuf,
    },
}

/// How to measure.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Options {
    /// Numbers of concurrent connections, one figure for each
    #[arg(long, global = true, value_delimiter = ',', default_value = "1,16,64")]
    pub(crate) connections: Vec<usize>,
    /// Duration of a round in seconds
    #[arg(long, global = true, value_name = "N", default_value_t = 3.0)]
    seconds: f64,
    /// Number of rounds; figures are their medians
    #[arg(long, global = true, value_name = "N", default_value_t = 5)]
    pub(crate) rounds: usize,
    /// The ledger: `sqlite`, or a `postgres://…` URL
    #[arg(long, global = true, value_name = "sqlite|URL", default_value = "sqlite")]
    pub(crate) backend: String,
    /// The source tree: `medium`, `big`, or a folder
    #[arg(long, global = true, value_name = "medium|big|FOLDER", default_value = "big")]
    pub(crate) tree: String,
    /// A folder with the trees `medium` and `big`; they are generated if it is not given
    #[arg(long, global = true, value_name = "FOLDER")]
    pub(crate) corpus: Option<PathBuf>,
    /// The server's binary [default: `workspaced` in the folder of this program]
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) server: Option<PathBuf>,
    /// An additional argument of the server, such as `--server-arg=--max-runs=100`; may be repeated
    #[arg(long, global = true, value_name = "ARGUMENT")]
    pub(crate) server_arg: Vec<String>,
    /// A running server, as `http://ADDRESS:PORT`; its import roots must contain `--scratch`
    #[arg(long, global = true, requires = "token", requires = "scratch")]
    pub(crate) url: Option<String>,
    /// The operator token of that server
    #[arg(long, global = true)]
    pub(crate) token: Option<String>,
    /// The folder for temporary files [default: the system's]
    #[arg(long, global = true, value_name = "FOLDER")]
    pub(crate) scratch: Option<PathBuf>,
    /// Leaves out the baselines, for example under a profiler
    #[arg(long, global = true)]
    pub(crate) alone: bool,
    /// Ripgrep's binary
    #[arg(long, global = true, value_name = "FILE", default_value = "rg")]
    pub(crate) rg: PathBuf,
    /// The binary of the file server dufs, as an additional baseline of writes
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) dufs: Option<PathBuf>,
    /// A file for the report as JSON
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
}

impl Options {
    /// Returns the duration of a round.
    pub(crate) fn round(&self) -> Duration {
        Duration::from_secs_f64(self.seconds.clamp(0.05, 600.0))
    }
}
