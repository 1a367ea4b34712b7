use std::collections::BTreeSet;
use std::fs;

use model::{Code, FileKind, PolicyOverrides, Sha256};
use rustix::fs::{CWD, Mode};

use crate::test_support::TestWorkspaces;
use crate::test_support::{code, path, rules, rules_with};

#[test]
fn existing_and_missing_targets_are_returned_in_the_requested_order() {
    let rig = TestWorkspaces::new();
    let workspace = rig.with_files("run", &[("b.rs", "fn b() {}\n"), ("a.md", "# a\n")]);
    let targets = workspace.targets(&rules(), &["b.rs", "new/deep.rs", "a.md"].map(path), &BTreeSet::new()).unwrap();
    let states: Vec<_> = targets.iter().map(|target| (target.path.as_str(), target.before.is_some())).collect();
    assert_eq!(states, [("b.rs", true), ("new/deep.rs", false), ("a.md", true)]);
    let (state, bytes) = targets[0].before.clone().unwrap();
    assert_eq!(bytes, b"fn b() {}\n");
    assert_eq!((state.sha256, state.size_bytes, state.mode), (Sha256::of(&bytes), 10, 0o644));
    assert_eq!(state.kind, FileKind::TextSource);
}

#[test]
fn a_mutation_is_refused_by_the_first_rule_that_any_of_its_paths_breaks() {
    let rig = TestWorkspaces::new();
    let workspace = rig.with_files("run", &[("a.rs", "fn a() {}\n"), ("folder/x", "x"), (".gitignore", "*.log\n")]);
    let repo = rig.repo("run");
    fs::write(repo.join("binary.bin"), b"\0\0").unwrap();
    fs::write(repo.join("ignored.log"), "x").unwrap();
    fs::write(repo.join("large.txt"), "x".repeat(2_000)).unwrap();
    fs::write(repo.join("one"), "x").unwrap();
    fs::hard_link(repo.join("one"), repo.join("two")).unwrap();
    rustix::fs::mkfifoat(CWD, repo.join("fifo"), Mode::RUSR | Mode::WUSR).unwrap();
    std::os::unix::fs::symlink("a.rs", repo.join("link")).unwrap();
    std::os::unix::fs::symlink("folder", repo.join("way")).unwrap();
    std::os::unix::fs::symlink("../..", repo.join("out")).unwrap();
    let rules = rules_with(&PolicyOverrides { max_file_bytes: Some(1_000), ..PolicyOverrides::default() });
    let none = BTreeSet::new();
    // In order of precedence: each refusal is returned although all later ones apply too.
    let order = [
        (&["link", "way/x", "out/y", "way/new"][..], Code::PathRejected),
        (&[".env", "new/id_rsa", "a.rs/.env"], Code::PolicyDeniedSecret),
        (&["target/x", "ignored.log", "missing.log", "one", "two", "vendor/a.rs"], Code::PolicyDenied),
        (&["a.rs/x", "a.rs/x/y"], Code::NotADirectory),
        (&["folder", "fifo", "."], Code::NotAFile),
        (&["large.txt"], Code::FileTooLarge),
        (&["binary.bin"], Code::UnsupportedBinary),
    ];
    for (at, (raws, want)) in order.iter().enumerate() {
        for raw in *raws {
            assert_eq!(code(workspace.targets(&rules, &[path(raw)], &none)), *want, "{raw}");
            let later = order[at + 1..].iter().flat_map(|(raws, _)| *raws).map(|raw| path(raw));
            let paths: Vec<_> = later.chain([path("a.rs"), path(raw), path("new.rs")]).collect();
            assert_eq!(code(workspace.targets(&rules, &paths, &none)), *want, "{raw} among others");
        }
    }
}
