//! `completions` and `man`.

use std::io::{self, Write as _};

use clap::Command;

use crate::error::CliError;

/// Arguments of `completions`.
#[derive(Debug, clap::Args)]
pub struct CompletionsArgs {
    /// Shell.
    #[arg(value_name = "SHELL")]
    shell: clap_complete::Shell,
}

/// Arguments of `man`.
#[derive(Debug, clap::Args)]
pub struct ManArgs {
    /// Command, such as `run create` [default: the program]
    #[arg(value_name = "COMMAND")]
    command: Vec<String>,
}

/// Prints the completions of a shell.
pub(super) fn completions(args: &CompletionsArgs, mut program: Command) -> Result<(), CliError> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut program, "workspaced", &mut text);
    Ok(io::stdout().lock().write_all(&text)?)
}

/// Prints a manual page.
pub(super) fn man(args: &ManArgs, mut program: Command) -> Result<(), CliError> {
    program.build();
    let mut command = &program;
    for name in &args.command {
        let found = command.find_subcommand(name);
        command = found.ok_or_else(|| CliError::Usage(format!("no such command: {}", args.command.join(" "))))?;
    }
    let mut text = Vec::new();
    clap_mangen::Man::new(command.clone()).render(&mut text)?;
    Ok(io::stdout().lock().write_all(&text)?)
}
