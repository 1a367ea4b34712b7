//! The contract as callers see it: a real process, a real socket, both databases. One folder per subject.

#![cfg_attr(
    test,
    expect(
        clippy::disallowed_methods,
        clippy::disallowed_types,
        reason = "tests prepare and inspect state that no caller can reach"
    )
)]

#[cfg(test)]
mod audit;
#[cfg(test)]
mod cli;
#[cfg(test)]
mod files;
#[cfg(test)]
mod harness;
#[cfg(test)]
mod http;
#[cfg(test)]
mod operation;
#[cfg(test)]
mod policy;
#[cfg(test)]
mod runs;
#[cfg(test)]
mod tools;

/// Cargo compiles no file that no module declares.
#[test]
fn every_test_file_is_declared_as_a_module() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it");
    let mut folders = vec![(root.clone(), root.join("main.rs"))];
    while let Some((folder, parent)) = folders.pop() {
        let declared = std::fs::read_to_string(&parent).unwrap_or_else(|error| panic!("{}: {error}", parent.display()));
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push((path.clone(), path.with_extension("rs")));
                continue;
            }
            if path.extension().is_none_or(|extension| extension != "rs") {
                continue;
            }
            let module = path.file_stem().unwrap().to_str().unwrap();
            let is_declared = declared.lines().any(|line| line.ends_with(&format!("mod {module};")));
            assert!(is_declared || path == parent, "{} is declared by no module", path.display());
        }
    }
}
