//! The measurements: one file per figure.

mod baselines;
mod diff;
mod exec;
mod fetch;
mod import;
mod list;
mod memory;
mod mixed_load;
mod nodes;
mod open_runs;
pub(crate) mod patch;
mod reads;
mod search;
mod soak;
mod start;
pub(crate) mod writes;

use crate::args::{Command, Options};
use crate::compare::Plan;
use crate::environment;
use crate::report::{Report, Target};
use crate::testbed::{Scratch, Testbed};

/// Measures what `command` names.
///
/// # Errors
///
/// When the testbed cannot be started or a call fails.
pub(crate) fn run(command: &Command, options: &Options) -> anyhow::Result<Report> {
    let folder = options.scratch.clone().unwrap_or_else(std::env::temp_dir);
    let environment = format!("{}, ledger: {}", environment::describe(&folder), backend(options));
    let mut report = Report { environment, ..Report::default() };
    measure(command, options, &mut report)?;
    Ok(report)
}

fn measure(command: &Command, options: &Options, report: &mut Report) -> anyhow::Result<()> {
    type Measure = fn(&Testbed, &mut Report) -> anyhow::Result<()>;
    type Standalone = fn(&Scratch, &Options, &mut Report) -> anyhow::Result<()>;
    const ON_TESTBED: [(Command, Measure); 7] = [
        (Command::Reads, reads::measure),
        (Command::Writes, writes::measure),
        (Command::MixedLoad, mixed_load::measure),
        (Command::Patch, patch::measure),
        (Command::List, list::measure),
        (Command::Search, search::measure),
        (Command::Diff, diff::measure),
    ];
    const STANDALONE: [(Command, Standalone); 3] = [
        (Command::Baselines, baselines::measure),
        (Command::Start, start::measure),
        (Command::Memory, memory::measure),
    ];
    let is_selected = |name: &Command| *command == Command::All || name == command;
    let selected: Vec<_> = ON_TESTBED.iter().filter(|(name, _)| is_selected(name)).collect();
    if !selected.is_empty() {
        let testbed = Testbed::start(options)?;
        for (name, measure) in selected {
            eprintln!("measuring: {name:?}");
            measure(&testbed, report)?;
        }
    }
    for (name, measure) in STANDALONE.iter().filter(|(name, _)| is_selected(name)) {
        eprintln!("measuring: {name:?}");
        measure(&Scratch::new(options)?, options, report)?;
    }
    match command {
        Command::Soak { minutes } => soak::measure(&Testbed::start(options)?, *minutes, report),
        Command::Exec => exec::measure(&Scratch::new(options)?, options, report),
        Command::Fetch => fetch::measure(&Scratch::new(options)?, options, report),
        Command::Nodes => nodes::measure(&Scratch::new(options)?, options, report),
        Command::OpenRuns { runs } => open_runs::measure(&Scratch::new(options)?, options, *runs, report),
        _ => Ok(()),
    }
}

/// Returns the plan of a figure with `concurrency` concurrent calls.
fn plan(options: &Options, concurrency: usize) -> Plan {
    Plan { rounds: options.rounds, time: options.round(), concurrency, alone: options.alone, target: None }
}

/// Returns the same plan with a target for the time of a call, which applies to sequential calls only.
fn plan_with_target(options: &Options, concurrency: usize, millis: f64) -> Plan {
    Plan { target: (concurrency == 1).then_some(Target::Millis(millis)), ..plan(options, concurrency) }
}

fn backend(options: &Options) -> &str {
    // A URL may contain a password.
    options.backend.split_once("://").map_or(options.backend.as_str(), |(scheme, _)| scheme)
}
