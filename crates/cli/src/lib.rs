//! Commands that call a service over HTTP: each parses its arguments, calls the client and prints.

mod approvals;
mod audit;
mod call;
mod changes;
mod checkout;
mod checkout_notes;
pub mod connection;
pub mod error;
mod escape;
mod events;
mod exec;
mod exports;
mod files;
pub mod listing;
mod manual;
mod mcp;
mod operators;
pub mod output;
mod revert;
mod runner;
mod runs;
mod stop;
mod token_file;
mod tokens;
mod transfer;
mod webhooks;

use async_recursion::async_recursion as boxed;
use std::process::ExitCode;

use self::error::CliError;

/// Commands that call a service, and documentation of the command line.
///
/// The service and the token are those of `~/.config/workspaced/client.toml`, or of the environment.
#[derive(Debug, clap::Subcommand)]
pub enum ClientCommand {
    /// Create, list, show, close or delete runs of a service.
    Run(runs::RunArgs),
    /// Stop the agent of a run: revoke all tokens of the run and end its commands.
    Stop(stop::StopArgs),
    /// Make a run that starts with the files of another run, and print its token.
    Fork(runs::forks::ForkArgs),
    /// Apply to a run what one of its forks has changed.
    Merge(runs::forks::MergeArgs),
    /// Compare the files of two runs.
    Compare(runs::forks::CompareArgs),
    /// Call a tool of a run, and print what a model would read.
    Call(call::CallArgs),
    /// List, create, rotate or revoke tokens of a run.
    Token(tokens::TokenArgs),
    /// Create, list, rotate or revoke operators.
    Operator(operators::OperatorArgs),
    /// Print the audit records of a run, or of all runs.
    Audit(audit::AuditArgs),
    /// Print the events that programs have recorded in a run, or in all runs.
    Events(events::EventsArgs),
    /// Undo changes of a run.
    Revert(revert::RevertArgs),
    /// List, show, approve or deny calls that wait for approval.
    Approvals(approvals::ApprovalsArgs),
    /// List webhooks and their deliveries, or send a message again.
    Webhook(webhooks::WebhookArgs),
    /// Print what a run has changed.
    Diff(exports::DiffArgs),
    /// Download a run's files as tar.gz.
    Export(exports::ExportArgs),
    /// Download the changes of a run from git as a git bundle.
    Bundle(exports::BundleArgs),
    /// Download a file of a run.
    Download(files::DownloadArgs),
    /// Upload a file into a run.
    Upload(files::UploadArgs),
    /// Write a run's files into a folder, and remember which version they are.
    Checkout(checkout::CheckoutArgs),
    /// Bring a checkout to the newest state of its run. Overwrites nothing that was changed here.
    Pull(checkout::PullArgs),
    /// Apply what was changed in a checkout to its run, as one set of changes.
    Push(checkout::PushArgs),
    /// Run a command in a run's files, here or in a sandbox. Its exit code is that of the command.
    Exec(exec::ExecArgs),
    /// Run the commands that agents want run by `run_command`, in a sandbox, until it is interrupted.
    Runner(runner::RunnerArgs),
    /// Print a run's report as Markdown.
    Report(exports::ReportArgs),
    /// Serve the Model Context Protocol on standard input and output, for clients that start a process.
    Mcp(mcp::McpArgs),
    /// Print the completions of a shell.
    Completions(manual::CompletionsArgs),
    /// Print the manual page of the program, or of one of its commands.
    Man(manual::ManArgs),
}

/// Runs a client command. `program` is the whole command line, and `env` looks up environment variables.
///
/// The exit code is 0 for success, 1 for a refusal or a failure, 2 for wrong usage, and 3 if the service cannot be reached. That of
/// `exec` is the command's, once it has run and been recorded.
#[boxed(?Send)]
pub async fn run(
    command: ClientCommand,
    program: clap::Command,
    env: &(dyn Fn(&str) -> Option<String> + Sync),
) -> ExitCode {
    let connection = command.connection().cloned();
    let done = match command {
        ClientCommand::Run(args) => runs::run(args, env).await,
        ClientCommand::Stop(args) => stop::run(args, env).await,
        ClientCommand::Fork(args) => runs::forks::fork(args, env).await,
        ClientCommand::Merge(args) => runs::forks::merge(args, env).await,
        ClientCommand::Compare(args) => runs::forks::compare(args, env).await,
        ClientCommand::Call(args) => call::run(args, env).await,
        ClientCommand::Token(args) => tokens::run(args, env).await,
        ClientCommand::Operator(args) => operators::run(args, env).await,
        ClientCommand::Audit(args) => audit::run(args, env).await,
        ClientCommand::Events(args) => events::run(args, env).await,
        ClientCommand::Revert(args) => revert::run(args, env).await,
        ClientCommand::Approvals(args) => approvals::run(args, env).await,
        ClientCommand::Webhook(args) => webhooks::run(args, env).await,
        ClientCommand::Diff(args) => exports::diff(args, env).await,
        ClientCommand::Export(args) => exports::export(args, env).await,
        ClientCommand::Bundle(args) => exports::bundle(args, env).await,
        ClientCommand::Download(args) => files::download(args, env).await,
        ClientCommand::Upload(args) => files::upload(args, env).await,
        ClientCommand::Checkout(args) => checkout::checkout(args, env).await,
        ClientCommand::Pull(args) => checkout::pull_into(args, env).await,
        ClientCommand::Push(args) => checkout::push_from(args, env).await,
        ClientCommand::Exec(args) => match exec::run(args, env).await {
            Ok(code) => return code,
            Err(error) => Err(error),
        },
        ClientCommand::Runner(args) => runner::run(args, env).await,
        ClientCommand::Report(args) => exports::report(args, env).await,
        ClientCommand::Mcp(args) => mcp::run(args, env).await,
        ClientCommand::Completions(args) => manual::completions(&args, program),
        ClientCommand::Man(args) => manual::man(&args, program),
    };
    ended(done, connection.as_ref(), env)
}

/// Reports an error of a command, and returns its exit code.
fn ended(
    done: Result<(), CliError>,
    connection: Option<&connection::Connection>,
    env: &connection::Env<'_>,
) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let url = connection.and_then(|connection| connection::address_of(&connection.address, env));
            let wants_json = connection.is_some_and(|connection| connection.json);
            CliError::report(&error, wants_json, url.as_deref().unwrap_or("the address of the settings"))
        }
    }
}

impl ClientCommand {
    fn connection(&self) -> Option<&connection::Connection> {
        Some(match self {
            Self::Run(args) => &args.connection,
            Self::Stop(args) => &args.connection,
            Self::Fork(args) => &args.connection,
            Self::Merge(args) => &args.connection,
            Self::Compare(args) => &args.connection,
            Self::Call(args) => &args.connection,
            Self::Token(args) => &args.connection,
            Self::Operator(args) => &args.connection,
            Self::Audit(args) => &args.connection,
            Self::Events(args) => &args.connection,
            Self::Revert(args) => &args.connection,
            Self::Approvals(args) => &args.connection,
            Self::Webhook(args) => &args.connection,
            Self::Diff(args) => &args.connection,
            Self::Export(args) => &args.connection,
            Self::Bundle(args) => &args.connection,
            Self::Download(args) => &args.connection,
            Self::Upload(args) => &args.connection,
            Self::Checkout(args) => &args.connection,
            Self::Pull(args) => &args.connection,
            Self::Push(args) => &args.connection,
            Self::Exec(args) => &args.connection,
            Self::Runner(args) => &args.connection,
            Self::Report(args) => &args.connection,
            Self::Mcp(_) | Self::Completions(_) | Self::Man(_) => return None,
        })
    }
}
