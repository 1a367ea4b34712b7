//! Commands that call a service over HTTP: each parses its arguments, calls the client and prints.

mod approvals;
mod audit;
mod call;
mod connection;
mod error;
mod exports;
mod manual;
mod mcp;
mod output;
mod runs;
mod transfer;
mod webhooks;

use std::process::ExitCode;

use self::error::CliError;

/// Commands that call a service, and documentation of the command line.
///
/// The service and the token are those of `~/.config/workspaced/client.toml`, or of the environment.
#[derive(Debug, clap::Subcommand)]
pub enum ClientCommand {
    /// Create, list, show, close or delete runs of a service.
    Run(runs::RunArgs),
    /// Call a tool of a run, and print what a model would read.
    Call(call::CallArgs),
    /// Print the audit records of a run, or of all runs.
    Audit(audit::AuditArgs),
    /// List, show, approve or deny calls that wait for approval.
    Approvals(approvals::ApprovalsArgs),
    /// List webhooks and their deliveries, or send a message again.
    Webhook(webhooks::WebhookArgs),
    /// Print what a run has changed.
    Diff(exports::DiffArgs),
    /// Download a run's files as tar.gz.
    Export(exports::ExportArgs),
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
/// The exit code is 0 for success, 1 for a refusal or a failure, 2 for wrong usage, and 3 if the service cannot be reached.
pub async fn run(
    command: ClientCommand,
    program: clap::Command,
    env: &(dyn Fn(&str) -> Option<String> + Sync),
) -> ExitCode {
    let (wants_json, done) = match command {
        ClientCommand::Run(args) => (args.connection.json, runs::run(args, env).await),
        ClientCommand::Call(args) => (args.connection.json, call::run(args, env).await),
        ClientCommand::Audit(args) => (args.connection.json, audit::run(args, env).await),
        ClientCommand::Approvals(args) => (args.connection.json, approvals::run(args, env).await),
        ClientCommand::Webhook(args) => (args.connection.json, webhooks::run(args, env).await),
        ClientCommand::Diff(args) => (args.connection.json, exports::diff(args, env).await),
        ClientCommand::Export(args) => (args.connection.json, exports::export(args, env).await),
        ClientCommand::Report(args) => (args.connection.json, exports::report(args, env).await),
        ClientCommand::Mcp(args) => (false, mcp::run(args, env).await),
        ClientCommand::Completions(args) => (false, manual::completions(&args, program)),
        ClientCommand::Man(args) => (false, manual::man(&args, program)),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => CliError::report(&error, wants_json),
    }
}
