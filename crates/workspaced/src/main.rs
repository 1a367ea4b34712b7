//! Arguments → settings → service.

use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::Parser as _;
use clap::error::ErrorKind;
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{SignalKind, signal};
use workspaced::StartError;
use workspaced::config::{Args, Command};

/// Small pieces are made and freed by the thousand for each call, on one thread and on another: made for that.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Threads that may block beyond the places that calls have: for the ledger, for opening runs, for addresses.
const MORE_THREADS: usize = 16;

/// Threads of the runtime at least: a mutation may keep one of them for a moment, and a commit another.
const LEAST_WORKERS: usize = 3;

fn main() -> ExitCode {
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) => return not_understood(&error),
    };
    match run(args.command) {
        Ok(code) => code,
        Err(error @ StartError::Setting(_)) => end(&error.to_string(), 2),
        Err(error @ StartError::Failed { .. }) => end(&error.to_string(), 1),
    }
}

fn run(command: Command) -> Result<ExitCode, StartError> {
    match command {
        Command::Serve(args) => {
            #[expect(clippy::disallowed_methods, reason = "this is where settings come in")]
            let config = args.check(&|name| std::env::var(name).ok())?;
            // Before there is a second thread, which would not be bound.
            let confinement = workspaced::confine(&config)?;
            let runtime = runtime(config.blocking_threads() + MORE_THREADS)?;
            runtime.block_on(async { workspaced::serve(config, confinement, end_of_process()?).await })?;
            // Threads that still block have nothing left that anybody was told of.
            runtime.shutdown_background();
            Ok(ExitCode::SUCCESS)
        }
        Command::Openapi => Ok(match io::stdout().write_all(workspaced::openapi().as_bytes()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::FAILURE,
        }),
        Command::Verify(args) => {
            // 1 says that something is broken: what could not be checked is told apart from it.
            let checked = runtime(MORE_THREADS)?.block_on(workspaced::verify(args.check()?));
            let intact = match checked {
                Err(error) => return Ok(end(&error.to_string(), 2)),
                Ok(intact) => intact,
            };
            Ok(if intact { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
        Command::Replay(args) => {
            let equal = runtime(MORE_THREADS)?.block_on(workspaced::replay(args.check()?))?;
            Ok(if equal { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
        Command::Repair(args) => {
            let settled = runtime(MORE_THREADS)?.block_on(workspaced::repair(args.check()?))?;
            Ok(if settled { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
    }
}

fn runtime(blocking_threads: usize) -> Result<Runtime, StartError> {
    let mut runtime = Builder::new_multi_thread();
    runtime.worker_threads(std::thread::available_parallelism().map_or(2, usize::from).max(LEAST_WORKERS));
    let built = runtime.enable_all().max_blocking_threads(blocking_threads).build();
    built.map_err(|error| StartError::Failed { what: "the runtime".to_owned(), cause: error.to_string() })
}

/// Done at the first SIGTERM or SIGINT.
fn end_of_process() -> Result<impl Future<Output = ()>, StartError> {
    let listen = |kind| {
        signal(kind).map_err(|error| StartError::Failed { what: "signals".to_owned(), cause: error.to_string() })
    };
    let (mut terminate, mut interrupt) = (listen(SignalKind::terminate())?, listen(SignalKind::interrupt())?);
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}

/// Help goes out whole; of a mistake one line is told.
fn not_understood(error: &clap::Error) -> ExitCode {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => match error.print() {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::FAILURE,
        },
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            end("say what to do: serve, openapi, verify, replay or repair (--help tells more)", 2)
        }
        _ => {
            let text = error.to_string();
            let first = text.split("\n\n").next().unwrap_or_default();
            let line = first.trim_start_matches("error:").split_whitespace().collect::<Vec<_>>().join(" ");
            end(&line, 2)
        }
    }
}

fn end(message: &str, code: u8) -> ExitCode {
    // Nothing is left to be done where standard error is closed.
    let _ = writeln!(io::stderr(), "workspaced: {message}");
    ExitCode::from(code)
}
