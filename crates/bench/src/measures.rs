//! What is measured: one file a figure.

mod diff;
mod import;
mod limits;
mod list;
mod many;
mod memory;
mod patch;
mod reads;
mod search;
mod soak;
mod start;
mod storm;
mod writes;

use crate::args::{Command, Options};
use crate::compare::Plan;
use crate::environment;
use crate::report::{Report, Target};
use crate::stage::{Place, Stage};

/// Measures what `command` names.
///
/// # Errors
///
/// When the stage cannot be set, or a call fails: figures of a server that fails say nothing.
pub(crate) fn run(command: &Command, options: &Options) -> anyhow::Result<Report> {
    let folder = options.scratch.clone().unwrap_or_else(std::env::temp_dir);
    let environment = format!("{}, ledger: {}", environment::describe(&folder), backend(options));
    let mut report = Report { environment, ..Report::default() };
    measure(command, options, &mut report)?;
    Ok(report)
}

fn measure(command: &Command, options: &Options, report: &mut Report) -> anyhow::Result<()> {
    type Measure = fn(&Stage, &mut Report) -> anyhow::Result<()>;
    const STAGED: [(Command, Measure); 7] = [
        (Command::Reads, reads::measure),
        (Command::Writes, writes::measure),
        (Command::Storm, storm::measure),
        (Command::Patch, patch::measure),
        (Command::List, list::measure),
        (Command::Search, search::measure),
        (Command::Diff, diff::measure),
    ];
    let all = *command == Command::All;
    let staged: Vec<_> = STAGED.iter().filter(|(name, _)| all || name == command).collect();
    if !staged.is_empty() {
        let stage = Stage::set(options)?;
        for (name, measure) in staged {
            eprintln!("measuring: {name:?}");
            measure(&stage, report)?;
        }
    }
    if all || *command == Command::Limits {
        limits::measure(&Place::new(options)?, options, report)?;
    }
    if all || *command == Command::Start {
        start::measure(&Place::new(options)?, options, report)?;
    }
    if all || *command == Command::Memory {
        memory::measure(&Place::new(options)?, options, report)?;
    }
    match command {
        Command::Soak { minutes } => soak::measure(&Stage::set(options)?, *minutes, report),
        Command::Many { runs } => many::measure(&Place::new(options)?, options, *runs, report),
        _ => Ok(()),
    }
}

/// A plan for `concurrency` calls at a time.
fn plan(options: &Options, concurrency: usize) -> Plan {
    Plan { rounds: options.rounds, time: options.round(), concurrency, alone: options.alone, target: None }
}

/// The same, with a target for the time of a call where one is made at a time.
fn plan_within(options: &Options, concurrency: usize, millis: f64) -> Plan {
    Plan { target: (concurrency == 1).then_some(Target::Millis(millis)), ..plan(options, concurrency) }
}

fn backend(options: &Options) -> &str {
    // A URL may hold a password.
    options.backend.split_once("://").map_or(options.backend.as_str(), |(scheme, _)| scheme)
}
