//! Measures a real server over HTTP on loopback.
//!
//! Each figure has baselines, such as a plain server that does the same work, measured in alternating rounds of the same
//! process. Machines are noisy: the ratio to a baseline can be compared between machines and days, the figure alone cannot.
#![expect(clippy::print_stdout, reason = "printing figures is what this program is for")]

mod api;
mod args;
mod baselines;
mod client;
mod compare;
mod environment;
mod instructions;
mod load;
mod measures;
mod process;
mod report;
mod sample;
mod testbed;
mod text;
mod tree;

use clap::Parser as _;

use crate::args::{Args, Command};

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    match &args.command {
        Command::Plain { root } => baselines::plain::serve(root),
        Command::Tree { folder, files, megabytes } => {
            let size = tree::generate(folder, *files, *megabytes * 1_000_000)?;
            println!("{}: {} files, {} folders, {} bytes", folder.display(), size.files, size.folders, size.bytes);
            Ok(())
        }
        Command::Instructions { table, write } => instructions::compare(&args.options, table, *write),
        command => {
            let report = measures::run(command, &args.options)?;
            print!("{}", report.markdown());
            if let Some(file) = &args.options.json {
                std::fs::write(file, serde_json::to_vec_pretty(&report)?)?;
            }
            Ok(())
        }
    }
}
