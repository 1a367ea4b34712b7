//! The contract, tested as its callers see it: a real process, a real socket, both databases; one file a section.

#![cfg_attr(
    test,
    expect(
        clippy::disallowed_methods,
        clippy::disallowed_types,
        reason = "tests set up, and look at, what no caller can"
    )
)]

#[cfg(test)]
mod approvals;
#[cfg(test)]
mod archives;
#[cfg(test)]
mod audit;
#[cfg(test)]
mod barriers;
#[cfg(test)]
mod batches;
#[cfg(test)]
mod behind;
#[cfg(test)]
mod bounds;
#[cfg(test)]
mod broken_runs;
#[cfg(test)]
mod checkpoints;
#[cfg(test)]
mod connections;
#[cfg(test)]
mod crash;
#[cfg(test)]
mod deploy;
#[cfg(test)]
mod diffing;
#[cfg(test)]
mod disclosure;
#[cfg(test)]
mod doubt;
#[cfg(test)]
mod editing;
#[cfg(test)]
mod effects;
#[cfg(test)]
mod ending;
#[cfg(test)]
mod errors;
#[cfg(test)]
mod faults;
#[cfg(test)]
mod files;
#[cfg(test)]
mod finding;
#[cfg(test)]
mod guard;
#[cfg(test)]
mod harness;
#[cfg(test)]
mod hidden_changes;
#[cfg(test)]
mod history;
#[cfg(test)]
mod hostile;
#[cfg(test)]
mod idempotency;
#[cfg(test)]
mod insight;
#[cfg(test)]
mod instances;
#[cfg(test)]
mod kinds;
#[cfg(test)]
mod limits;
#[cfg(test)]
mod listing;
#[cfg(test)]
mod memory;
#[cfg(test)]
mod mounts;
#[cfg(test)]
mod mutations;
#[cfg(test)]
mod names;
#[cfg(test)]
mod neighbours;
#[cfg(test)]
mod openapi;
#[cfg(test)]
mod outlets;
#[cfg(test)]
mod pages;
#[cfg(test)]
mod patches;
#[cfg(test)]
mod policy;
#[cfg(test)]
mod powercut;
#[cfg(test)]
mod process;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod queries;
#[cfg(test)]
mod quota;
#[cfg(test)]
mod reading;
#[cfg(test)]
mod readme;
#[cfg(test)]
mod rebuilding;
#[cfg(test)]
mod redacting;
#[cfg(test)]
mod remotes;
#[cfg(test)]
mod replaying;
#[cfg(test)]
mod restored;
#[cfg(test)]
mod reverting;
#[cfg(test)]
mod rooms;
#[cfg(test)]
mod route_memory;
#[cfg(test)]
mod runs;
#[cfg(test)]
mod sandbox;
#[cfg(test)]
mod searching;
#[cfg(test)]
mod secrets;
#[cfg(test)]
mod sources;
#[cfg(test)]
mod tampering;
#[cfg(test)]
mod tokens;
#[cfg(test)]
mod uploads;
#[cfg(test)]
mod vectors;
#[cfg(test)]
mod weak_spots;

#[test]
fn every_file_of_tests_is_listed_here() {
    let listed = include_str!("main.rs");
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it");
    for entry in std::fs::read_dir(folder).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let Some(module) = name.strip_suffix(".rs").filter(|module| *module != "main") else { continue };
        assert!(listed.contains(&format!("\nmod {module};\n")), "{name} is compiled by nobody: list it");
    }
}
