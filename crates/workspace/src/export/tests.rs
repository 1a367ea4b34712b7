use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};

use model::{PolicyOverrides, Profiles};

use crate::testkit::{Rig, rules, tree_of};
use crate::{ImportSource, Workspace};

fn export(workspace: &Workspace) -> Vec<u8> {
    let mut out = Vec::new();
    workspace.export(&rules(), &mut out).unwrap();
    out
}

fn names(bytes: &[u8]) -> Vec<String> {
    let mut tar = tar::Archive::new(flate2::read::GzDecoder::new(bytes));
    tar.entries().unwrap().map(|entry| entry.unwrap().path().unwrap().to_str().unwrap().to_owned()).collect()
}

#[test]
fn what_is_exported_imports_as_the_same_tree() {
    let rig = Rig::new();
    let long = format!("{}/{}", "d".repeat(120), "ü".repeat(90));
    let workspace =
        rig.with_files("r", &[("a/b", "text\n"), ("a.b", "x"), ("run.sh", "#!"), (&long, "long"), ("empty", "")]);
    let repo = rig.repo("r");
    fs::set_permissions(repo.join("run.sh"), fs::Permissions::from_mode(0o755)).unwrap();
    symlink("../run.sh", repo.join("a/link")).unwrap();
    fs::write(repo.join("large"), "bytes ".repeat(300_000)).unwrap();
    let bytes = export(&workspace);
    assert_eq!(export(&workspace), bytes, "the same tree gives the same bytes");
    let again = rig.import("again", ImportSource::Archive(&mut &bytes[..])).unwrap();
    assert!(again.left_out.is_empty());
    assert!(tree_of(&rig.repo("again")) == tree_of(&repo));
    let names = names(&bytes);
    assert_eq!(names.iter().filter(|name| name.ends_with("link")).count(), 1);
}

#[test]
fn what_is_hidden_is_not_exported() {
    let rig = Rig::new();
    let files = [
        (".env", "A=1"),
        ("deploy/id_rsa", "x"),
        (".gitignore", "*.log\n/out/\n"),
        ("a.log", "x"),
        ("out/a", "x"),
        ("kept/a", "x"),
        ("denied/a", "x"),
        ("node_modules/m/index.js", "x"),
    ];
    let workspace = rig.with_files("r", &files);
    let repo = rig.repo("r");
    fs::hard_link(repo.join(".env"), repo.join("alias")).unwrap();
    symlink("/etc/passwd", repo.join("absolute")).unwrap();
    symlink("../..", repo.join("up")).unwrap();
    fs::create_dir_all(repo.join(".git/hooks")).unwrap();
    fs::write(repo.join(".git/config"), "x").unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, repo.join("pipe"), rustix::fs::Mode::RWXU).unwrap();
    let overrides = PolicyOverrides { deny: Some(vec!["denied/**".to_owned()]), ..PolicyOverrides::default() };
    let rules = Profiles::built_in().resolve(&overrides).unwrap();
    let mut bytes = Vec::new();
    workspace.export(&rules, &mut bytes).unwrap();
    let files: Vec<_> = names(&bytes).into_iter().filter(|name| !name.ends_with('/')).collect();
    assert_eq!(files, [".gitignore", "kept/a", "node_modules/m/index.js"]);
}

#[test]
fn owners_and_times_are_not_told() {
    let rig = Rig::new();
    let workspace = rig.with_files("r", &[("a", "x")]);
    let bytes = export(&workspace);
    let mut tar = tar::Archive::new(flate2::read::GzDecoder::new(&bytes[..]));
    for entry in tar.entries().unwrap() {
        let entry = entry.unwrap();
        let header = entry.header();
        let told: BTreeMap<_, _> =
            [("uid", header.uid().unwrap()), ("gid", header.gid().unwrap()), ("mtime", header.mtime().unwrap())].into();
        assert!(told.values().all(|value| *value == 0), "{told:?}");
    }
}
