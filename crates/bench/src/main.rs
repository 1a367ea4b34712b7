//! Drives a real server over HTTP on loopback and prints figures.
//!
//! Each figure stands beside a limit that is measured in the same run, round by round in turn, because machines are noisy:
//! the ratio is what can be compared between two machines or two days, the figure alone is not.
#![expect(clippy::print_stdout, reason = "printing figures is what this program is for")]

mod api;
mod args;
mod client;
mod compare;
mod environment;
mod limits;
mod load;
mod measures;
mod process;
mod report;
mod sample;
mod stage;
mod text;
mod tree;

use clap::Parser as _;

use crate::args::{Args, Command};

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    match &args.command {
        Command::Plain { root } => limits::plain::serve(root),
        Command::Tree { folder, files, megabytes } => {
            let made = tree::make(folder, *files, *megabytes * 1_000_000)?;
            println!("{}: {} files, {} folders, {} bytes", folder.display(), made.files, made.folders, made.bytes);
            Ok(())
        }
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
