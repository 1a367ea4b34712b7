//! The command line.

use std::path::PathBuf;
use std::time::Duration;

/// Drives a server over HTTP on loopback and prints figures, each beside a limit measured in the same run.
#[derive(Debug, clap::Parser)]
#[command(name = "bench", version)]
pub(crate) struct Args {
    /// What to measure.
    #[command(subcommand)]
    pub(crate) command: Command,
    /// How.
    #[command(flatten)]
    pub(crate) options: Options,
}

/// What to measure.
#[derive(Clone, Debug, PartialEq, Eq, clap::Subcommand)]
pub(crate) enum Command {
    /// 200 lines of a 20 KB file by `read_file`, beside a plain axum server
    Reads,
    /// Durable, audited 4 KB replacements by `write_file`, beside a bare loop of file, fsync, rename, fsync
    Writes,
    /// Reads in one run while 16 connections write in another, beside the same reads alone
    Storm,
    /// A patch of three files by `apply_patch`, beside `git apply`
    Patch,
    /// 350 entries at depth 2 by `list_dir`
    List,
    /// The import of the tree, and `search_text` over the whole of it, beside `rg`
    Search,
    /// `diff_workspace` of 20 changed files in the tree, beside `git diff`
    Diff,
    /// The limits alone: plain servers, bare files, single and grouped commits, `git apply`
    Limits,
    /// From the start of the process to its first answer
    Start,
    /// Idle memory after the start, and after 1,000 runs that were created and closed
    Memory,
    /// All of the above
    All,
    /// Mixed traffic for a long time; memory and handles stay flat, the chains intact
    Soak {
        /// How long
        #[arg(long, default_value_t = 60)]
        minutes: u64,
    },
    /// Many open runs: memory for each, and the start with them
    Many {
        /// How many
        #[arg(long, default_value_t = 10_000)]
        runs: usize,
    },
    /// Writes a synthetic source tree into an empty folder
    Tree {
        /// Where
        folder: PathBuf,
        /// How many files
        #[arg(long, default_value_t = 20_000)]
        files: usize,
        /// How many million bytes in all
        #[arg(long, default_value_t = 400)]
        megabytes: u64,
    },
    /// The plain server that reads are compared with
    #[command(hide = true)]
    Plain {
        /// What it serves
        root: PathBuf,
    },
}

/// How to measure.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Options {
    /// How many connections call at a time, one figure for each
    #[arg(long, global = true, value_delimiter = ',', default_value = "1,16,64")]
    pub(crate) connections: Vec<usize>,
    /// How long each round takes
    #[arg(long, global = true, value_name = "N", default_value_t = 3.0)]
    seconds: f64,
    /// How many rounds; figures are their medians
    #[arg(long, global = true, value_name = "N", default_value_t = 5)]
    pub(crate) rounds: usize,
    /// Where the ledger is: `sqlite`, or a `postgres://…` URL
    #[arg(long, global = true, value_name = "sqlite|URL", default_value = "sqlite")]
    pub(crate) backend: String,
    /// The source tree: `medium`, `big`, or a folder
    #[arg(long, global = true, value_name = "medium|big|FOLDER", default_value = "big")]
    pub(crate) tree: String,
    /// A folder that holds the trees `medium` and `big`; without it they are made up, in the same sizes
    #[arg(long, global = true, value_name = "FOLDER")]
    pub(crate) corpus: Option<PathBuf>,
    /// The server's binary [default: `workspaced` beside this one]
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) server: Option<PathBuf>,
    /// A further setting for the started server, such as `--server-arg=--read-concurrency=16`; may be repeated
    #[arg(long, global = true, value_name = "SETTING")]
    pub(crate) server_arg: Vec<String>,
    /// A server that already runs, by `http://ADDRESS`; its import roots must hold `--scratch`
    #[arg(long, global = true, requires = "token", requires = "scratch")]
    pub(crate) url: Option<String>,
    /// The operator token of that server
    #[arg(long, global = true)]
    pub(crate) token: Option<String>,
    /// The folder for everything temporary [default: the system's]
    #[arg(long, global = true, value_name = "FOLDER")]
    pub(crate) scratch: Option<PathBuf>,
    /// Leaves the limits out: for a profiler that watches the server
    #[arg(long, global = true)]
    pub(crate) alone: bool,
    /// Ripgrep's binary
    #[arg(long, global = true, value_name = "FILE", default_value = "rg")]
    pub(crate) rg: PathBuf,
    /// The binary of dufs, a file server, to measure writes beside it too
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) dufs: Option<PathBuf>,
    /// A file that the report is written to as JSON
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
}

impl Options {
    /// How long each round takes.
    pub(crate) fn round(&self) -> Duration {
        Duration::from_secs_f64(self.seconds.clamp(0.05, 600.0))
    }
}
