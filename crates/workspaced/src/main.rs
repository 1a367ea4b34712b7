//! Arguments → settings → service.

use std::process::ExitCode;

use clap::Parser as _;
use workspaced::config::{Args, Command};

fn main() -> ExitCode {
    let args = Args::parse();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return end(&error.to_string(), 1),
    };
    match args.command {
        Command::Serve(args) => {
            let config = match args.check(&|name| std::env::var(name).ok()) {
                Ok(config) => config,
                Err(error) => return end(&error.to_string(), 2),
            };
            match runtime.block_on(workspaced::serve(config, async {
                let _ = tokio::signal::ctrl_c().await;
            })) {
                Ok(()) => ExitCode::SUCCESS,
                Err(error) => end(&error.to_string(), 1),
            }
        }
        Command::Openapi | Command::Verify(_) => end("not yet", 1),
    }
}

fn end(message: &str, code: u8) -> ExitCode {
    eprintln!("workspaced: {message}");
    ExitCode::from(code)
}
