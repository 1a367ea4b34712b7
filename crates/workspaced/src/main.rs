//! The command line: parses the arguments and runs a subcommand.

use std::io::{self, Write as _};
use std::process::ExitCode;

use admin::ArchivesFound;
use clap::FromArgMatches as _;
use clap::error::ErrorKind;
use config::StartError;
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{SignalKind, signal};
use workspaced::{Args, Command};

/// Every call makes many small allocations that other threads free, which mimalloc does well.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Blocking threads in addition to those for calls: for the ledger, for opening runs, for name resolution.
const EXTRA_BLOCKING_THREADS: usize = 16;

/// The variable of the token with which a client command calls a service.
const TOKEN: &str = "WORKSPACED_TOKEN";

/// Minimum number of threads of the runtime, so that blocking code of one call does not delay all others on a small machine.
const MIN_WORKERS: usize = 3;

fn main() -> ExitCode {
    let parsed = workspaced::command().try_get_matches().and_then(|matches| Args::from_arg_matches(&matches));
    let args = match parsed {
        Ok(args) => args,
        Err(error) => return usage_error(&error),
    };
    match run(args.command) {
        Ok(code) => code,
        Err(error @ StartError::Setting(_)) => fail(&error.to_string(), 2),
        Err(error @ StartError::Failed { .. }) => fail(&error.to_string(), 1),
    }
}

fn run(command: Command) -> Result<ExitCode, StartError> {
    match command {
        Command::Serve(args) => {
            #[expect(clippy::disallowed_methods, reason = "settings are read from the environment here")]
            let config = args.check(&|name| std::env::var(name).ok())?;
            // Before a second thread is started, which would not be confined.
            let confinement = workspaced::confine(&config)?;
            let runtime = runtime(config.blocking_threads() + EXTRA_BLOCKING_THREADS)?;
            let shutdown = {
                let _context = runtime.enter();
                Box::pin(termination()?)
            };
            runtime.block_on(workspaced::serve(config, confinement, shutdown))?;
            // Does not wait for threads that still block: no caller depends on their work.
            runtime.shutdown_background();
            Ok(ExitCode::SUCCESS)
        }
        Command::Openapi(args) => {
            Ok(success_if(io::stdout().write_all(workspaced::openapi(args.version).as_bytes()).is_ok()))
        }
        // Exit code 1 means a broken chain; 2, that the chains could not be verified.
        Command::Verify(args) => Ok(match block_on(admin::verify(args.check()?))? {
            Ok(is_intact) => success_if(is_intact),
            Err(error) => fail(&error.to_string(), 2),
        }),
        Command::Replay(args) => Ok(success_if(block_on(admin::replay(args.check()?))??)),
        Command::Repair(args) => Ok(success_if(block_on(admin::repair(args.check()?))??)),
        Command::Backup(args) => Ok(success_if(block_on(admin::backup(args.check()?))??)),
        Command::Restore(args) => Ok(success_if(block_on(admin::restore(args.check()?))??)),
        // Exit code 1 means an invalid archive; 2, that the archives could not be verified; 3, that no checkpoint was.
        Command::Archive(args) => Ok(match block_on(admin::archive(args.check()?))? {
            Ok(ArchivesFound::Valid) => ExitCode::SUCCESS,
            Ok(ArchivesFound::Invalid) => ExitCode::FAILURE,
            Ok(ArchivesFound::WithoutCheckpoint) => ExitCode::from(3),
            Err(error) => fail(&error.to_string(), 2),
        }),
        Command::Key(args) => {
            #[expect(clippy::disallowed_methods, reason = "settings are read from the environment here")]
            let config = args.check(&|name| std::env::var(name).ok())?;
            block_on(admin::key(config))??;
            Ok(ExitCode::SUCCESS)
        }
        Command::Client(command) => {
            let token = hide_token();
            #[expect(clippy::disallowed_methods, reason = "settings are read from the environment here")]
            let env = |name: &str| if name == TOKEN { token.clone() } else { std::env::var(name).ok() };
            let runtime = runtime(EXTRA_BLOCKING_THREADS)?;
            Ok(runtime.block_on(cli::run(command, workspaced::command(), &env)))
        }
    }
}

/// Takes the token out of the environment, and this process out of the reach of others of the same user: the commands that it starts in a folder
/// of this machine could read both. To be called before a second thread is started.
#[expect(clippy::disallowed_methods, reason = "settings are read from the environment here")]
#[expect(unsafe_code, reason = "the environment can be changed as long as there is one thread")]
fn hide_token() -> Option<String> {
    let token = std::env::var(TOKEN).ok();
    // SAFETY: no other thread has been started.
    unsafe { std::env::remove_var(TOKEN) };
    #[cfg(target_os = "linux")]
    {
        // Where it is refused, the token is as safe as the user's files.
        let _ = rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable);
    }
    token
}

fn success_if(is_success: bool) -> ExitCode {
    if is_success { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs an offline command.
fn block_on<T>(command: impl Future<Output = T>) -> Result<T, StartError> {
    Ok(runtime(EXTRA_BLOCKING_THREADS)?.block_on(command))
}

fn runtime(blocking_threads: usize) -> Result<Runtime, StartError> {
    let mut runtime = Builder::new_multi_thread();
    runtime.worker_threads(std::thread::available_parallelism().map_or(2, usize::from).max(MIN_WORKERS));
    let built = runtime.enable_all().max_blocking_threads(blocking_threads).build();
    built.map_err(|error| StartError::Failed { what: "the runtime".to_owned(), cause: error.to_string() })
}

/// Returns a future that completes at the first SIGTERM or SIGINT.
fn termination() -> Result<impl Future<Output = ()>, StartError> {
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

/// Prints help as a whole, and an error of usage on one line.
fn usage_error(error: &clap::Error) -> ExitCode {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => success_if(error.print().is_ok()),
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => fail("missing subcommand (see --help)", 2),
        _ => {
            let text = error.to_string();
            let mut parts = text.split("\n\n").map(|part| part.split_whitespace().collect::<Vec<_>>().join(" "));
            let first = parts.next().unwrap_or_default();
            let tip =
                parts.next().filter(|part| part.starts_with("tip:")).map(|tip| format!(" ({tip})")).unwrap_or_default();
            let line = format!("{}{tip}", first.trim_start_matches("error:").trim_start());
            fail(&line, 2)
        }
    }
}

fn fail(message: &str, code: u8) -> ExitCode {
    // If standard error is closed the exit code remains.
    let _ = writeln!(io::stderr(), "workspaced: {message}");
    ExitCode::from(code)
}
