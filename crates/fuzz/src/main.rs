//! Drives targets for as long as it is told to.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::Parser;
use fuzz::{Driver, Failure, TARGETS, Target, attempt, target};

/// Bends inputs and sees what withstands them.
#[derive(Debug, Parser)]
struct Args {
    /// A target, or `all`.
    target: String,
    /// How long, each.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Which sequence of mutations.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// One input alone, from a file.
    #[arg(long)]
    input: Option<std::path::PathBuf>,
}

fn main() -> anyhow::Result<ExitCode> {
    let args = Args::parse();
    let targets: Vec<&Target> = match args.target.as_str() {
        "all" => TARGETS.into(),
        name => vec![target(name).with_context(|| format!("there is no target `{name}`"))?],
    };
    let mut code = ExitCode::SUCCESS;
    for target in targets {
        let failure = match &args.input {
            Some(place) => attempt(target, std::fs::read(place)?).err(),
            None => drive(target, args.seed, Duration::from_secs(args.seconds))?,
        };
        if let Some(failure) = failure {
            keep(target, &failure)?;
            code = ExitCode::FAILURE;
        }
    }
    Ok(code)
}

fn drive(target: &Target, seed: u64, time: Duration) -> anyhow::Result<Option<Failure>> {
    let mut driver = Driver::new(target, seed)?;
    let (until, mut tried) = (Instant::now() + time, 0u64);
    while Instant::now() < until {
        if let Err(failure) = driver.attempt_next() {
            return Ok(Some(failure));
        }
        tried += 1;
    }
    eprintln!("{}: withstood {tried} inputs", target.name);
    Ok(None)
}

fn keep(target: &Target, failure: &Failure) -> anyhow::Result<()> {
    let place = std::env::temp_dir().join(format!("fuzz-{}-{}", target.name, model::Sha256::of(&failure.input)));
    std::fs::write(&place, &failure.input)?;
    eprintln!("{}: {}\n  the input is in {}", target.name, failure.message, place.display());
    Ok(())
}
