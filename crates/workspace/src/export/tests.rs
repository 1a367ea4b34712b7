use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use model::{LogicalPath, PolicyOverrides, Profiles, RunId, Sha256, Step, StepBytes, StepContent};

use crate::test_support::{TestWorkspaces, git, rules, tree_of};
use crate::{Bundle, EntryTime, EntryTimes, ImportSource, Workspace, WorkspaceError};

fn export(workspace: &Arc<Workspace>) -> Vec<u8> {
    let mut out = Vec::new();
    workspace.begin_export(&rules(), &AtomicBool::new(false)).unwrap().write(&rules(), &times(), &mut out).unwrap();
    out
}

fn times() -> EntryTimes {
    EntryTimes { changed: BTreeMap::new(), created: EntryTime(1_700_000_000_000_000) }
}

fn names(bytes: &[u8]) -> Vec<String> {
    let mut tar = tar::Archive::new(flate2::read::GzDecoder::new(bytes));
    tar.entries().unwrap().map(|entry| entry.unwrap().path().unwrap().to_str().unwrap().to_owned()).collect()
}

#[test]
fn what_is_exported_imports_as_the_same_tree() {
    let rig = TestWorkspaces::new();
    let long = format!("{}/{}", "d".repeat(120), "ü".repeat(90));
    let workspace =
        rig.with_files("r", &[("a/b", "text\n"), ("a.b", "x"), ("run.sh", "#!"), (&long, "long"), ("empty", "")]);
    let repo = rig.repo("r");
    fs::set_permissions(repo.join("run.sh"), fs::Permissions::from_mode(0o755)).unwrap();
    symlink("../run.sh", repo.join("a/link")).unwrap();
    // Targets are exported as they are.
    symlink("..//./run.sh", repo.join("a/unclean")).unwrap();
    symlink(format!("{}a/b", "./".repeat(60)), repo.join("far")).unwrap();
    fs::write(repo.join("large"), "bytes ".repeat(300_000)).unwrap();
    let bytes = export(&workspace);
    assert_eq!(export(&workspace), bytes, "the same tree gives the same bytes");
    let again = rig.import("again", ImportSource::Archive(&mut &bytes[..])).unwrap();
    assert!(again.left_out.is_empty());
    assert!(tree_of(&rig.imported("again")) == tree_of(&repo));
    let names = names(&bytes);
    assert_eq!(names.iter().filter(|name| name.ends_with("link")).count(), 1);
}

#[test]
fn what_is_hidden_is_not_exported() {
    let rig = TestWorkspaces::new();
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
    workspace.begin_export(&rules, &AtomicBool::new(false)).unwrap().write(&rules, &times(), &mut bytes).unwrap();
    let files: Vec<_> = names(&bytes).into_iter().filter(|name| !name.ends_with('/')).collect();
    assert_eq!(files, [".gitignore", "kept/a", "node_modules/m/index.js"]);
    assert!(!names(&bytes).iter().any(|name| name.starts_with("denied")), "{:?}", names(&bytes));
}

#[test]
fn the_archive_has_no_owners_and_the_times_that_it_is_given() {
    let rig = TestWorkspaces::new();
    let workspace = rig.with_files("r", &[("a", "x")]);
    let bytes = export(&workspace);
    let mut tar = tar::Archive::new(flate2::read::GzDecoder::new(&bytes[..]));
    for entry in tar.entries().unwrap() {
        let entry = entry.unwrap();
        let header = entry.header();
        assert_eq!((header.uid().unwrap(), header.gid().unwrap()), (0, 0));
        assert_eq!(header.mtime().unwrap(), 1_700_000_000);
    }
}

fn sample() -> Bundle {
    Bundle {
        branch: "workspaced/run-1".to_owned(),
        author_name: "An <Agent>\n".to_owned(),
        author_email: "agent@localhost".to_owned(),
        seconds: 1_700_000_000,
        message: "Change things\n\nfor a \"reason\"\n".to_owned(),
    }
}

fn bundle(rig: &TestWorkspaces, workspace: &Workspace) -> std::path::PathBuf {
    let mut out = Vec::new();
    let cancel = AtomicBool::new(false);
    workspace.prepare_bundle(&rules(), &sample(), &cancel).unwrap().write(&mut out, &cancel).unwrap();
    let file = rig.outside().join("run.bundle");
    fs::write(&file, out).unwrap();
    file
}

#[test]
fn a_bundle_of_a_git_run_is_one_commit_on_its_base() {
    let rig = TestWorkspaces::new();
    let source = rig.root("source");
    git(&source, &["init", "-q"]);
    for (path, text) in [("a", "1\n"), ("gone", "2\n"), ("folder/x", "3\n"), (".env", "A=1\n"), ("kept", "4\n")] {
        fs::create_dir_all(source.join(path).parent().unwrap()).unwrap();
        fs::write(source.join(path), text).unwrap();
        git(&source, &["add", "."]);
        git(&source, &["commit", "-qm", path]);
    }
    let workspace =
        rig.import("r", ImportSource::GitLocal { path: source.clone(), reference: None }).unwrap().workspace;
    rig.write_all("r");
    let repo = rig.repo("r");
    fs::write(repo.join("a"), "changed\n").unwrap();
    fs::set_permissions(repo.join("kept"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::remove_file(repo.join("gone")).unwrap();
    fs::remove_dir_all(repo.join("folder")).unwrap();
    fs::write(repo.join("folder"), "a file now\n").unwrap();
    fs::write(repo.join("new \"name\" ü"), "n\n").unwrap();
    symlink("a", repo.join("link")).unwrap();
    fs::write(repo.join(".env"), "A=secret\n").unwrap();
    rig.hide_missing("r", &workspace);

    let file = bundle(&rig, &workspace);
    git(&source, &["bundle", "verify", "-q", file.to_str().unwrap()]);
    git(&source, &["fetch", "-q", file.to_str().unwrap(), "workspaced/run-1:fetched"]);
    assert_eq!(git(&source, &["rev-parse", "fetched^"]).trim(), workspace.base_commit());
    assert_eq!(
        git(&source, &["log", "-1", "--format=%an|%ae|%at|%B", "fetched"]).trim_end(),
        "An Agent|agent@localhost|1700000000|Change things\n\nfor a \"reason\""
    );
    let changed = git(&source, &["diff", "--name-status", "--no-renames", "-z", "fetched^", "fetched"]);
    let changed: Vec<_> = changed.split_terminator('\0').collect();
    let expected = [
        ["M", "a"],
        ["A", "folder"],
        ["D", "folder/x"],
        ["D", "gone"],
        ["M", "kept"],
        ["A", "link"],
        ["A", "new \"name\" ü"],
    ];
    assert_eq!(changed, expected.concat());
    assert_eq!(fs::read_dir(rig.run("r").join("tmp")).unwrap().count(), 0);
}

#[test]
fn a_run_that_does_not_come_from_git_has_no_bundle() {
    let rig = TestWorkspaces::new();
    let workspace = rig.with_files("r", &[("a", "1\n")]);
    let Err(WorkspaceError::Refused(refusal)) = workspace.prepare_bundle(&rules(), &sample(), &AtomicBool::new(false))
    else {
        panic!("not refused");
    };
    assert_eq!(refusal.code, model::Code::InvalidRequest);
    assert!(refusal.hint.contains("patch") && refusal.hint.contains("archive"), "{}", refusal.hint);
}

#[test]
fn a_branch_that_git_could_take_for_something_else_is_refused() {
    let rig = TestWorkspaces::new();
    let workspace = rig.with_files("r", &[("a", "1\n")]);
    for branch in ["", "-a", "a/-b", "a..b", "a b", "a\nb", "/a", "a/", "a.lock", ".a", "a:b", "ü", "a."] {
        let bundle = Bundle { branch: branch.to_owned(), ..sample() };
        let refused = workspace.prepare_bundle(&rules(), &bundle, &AtomicBool::new(false));
        assert!(matches!(refused, Err(WorkspaceError::Refused(_))), "{branch:?}");
    }
}

#[test]
fn the_base_is_listed_and_read_after_the_tree_has_changed() {
    let rig = TestWorkspaces::new();
    let workspace = rig
        .with_files("r", &[("a", "1\n"), ("b/c", "2\n"), ("run.sh", "#!"), ("x.log", "x"), (".gitignore", "*.log\n")]);
    fs::remove_dir_all(rig.repo("r").join("b")).unwrap();
    rig.hide_missing("r", &workspace);
    fs::write(rig.repo("r").join("a"), "changed").unwrap();
    let files = workspace.base().files().unwrap();
    let paths: Vec<_> = files.iter().map(|file| file.path.as_str()).collect();
    assert_eq!(paths, [".gitignore", "a", "b/c", "run.sh", "x.log"]);
    assert_eq!((files[1].sha256, files[1].size_bytes, files[1].mode), (model::Sha256::of(b"1\n"), 2, 0o644));
    let read =
        |path: &str, max_bytes| workspace.base_file(&rules(), &model::LogicalPath::parse(path).unwrap(), max_bytes);
    let (state, bytes) = read("b/c", 2).unwrap().unwrap();
    assert_eq!((bytes.as_slice(), state.sha256), (&b"2\n"[..], model::Sha256::of(b"2\n")));
    assert!(
        matches!(read("b/c", 1), Err(WorkspaceError::Io(error)) if error.kind() == std::io::ErrorKind::FileTooLarge)
    );
    for path in ["b", "none"] {
        assert!(read(path, 100).unwrap().is_none(), "{path}");
    }
}

#[test]
fn an_export_shows_the_tree_as_it_was_when_it_began() {
    let rig = TestWorkspaces::new();
    let large = "old ".repeat(400_000);
    let files = [("a", "old a"), ("d/b", "old b"), ("d/c", "old c"), ("e/only", "old e"), ("large", &*large)];
    let workspace = rig.with_files("r", &files);
    let before = export(&workspace);
    let (cancel, begun) = (AtomicBool::new(false), rules());
    let export_of = || workspace.begin_export(&begun, &cancel).unwrap();
    let (first, second) = (export_of(), export_of());
    let change = |path: &str, before: Option<&str>, after: Option<&str>| {
        let after = after.map(|text| StepContent {
            bytes: StepBytes::Inline(text.as_bytes().to_vec()),
            sha256: Sha256::of(text.as_bytes()),
            mode: 0o644,
        });
        let before = before.map(|text| Sha256::of(text.as_bytes()));
        let step = Step { path: crate::test_support::path(path), before, after };
        let staged = workspace.stage(std::slice::from_ref(&step), &BTreeMap::new()).unwrap();
        assert!(staged.changed_outside().is_empty());
        workspace.apply(staged).unwrap().sync().unwrap();
    };
    change("a", Some("old a"), Some("new a"));
    change("a", Some("new a"), Some("newest a"));
    change("d/b", Some("old b"), None);
    change("e/only", Some("old e"), None);
    change("large", Some(&large), Some("small"));
    change("new/file", None, Some("new"));
    change("d/c", Some("old c"), None);
    change("d/c", None, Some("new c"));
    let written = |export: &crate::TreeExport| {
        let mut out = Vec::new();
        export.write(&begun, &times(), &mut out).unwrap();
        out
    };
    assert_eq!(written(&first), before);
    drop(first);
    assert_eq!(written(&second), before);
    let tmp = rig.run("r").join("tmp");
    assert!(fs::read_dir(&tmp).unwrap().count() >= 5);
    drop(second);
    assert_eq!(fs::read_dir(&tmp).unwrap().count(), 0, "kept files remain after the last export");
    change("a", Some("newest a"), Some("last a"));
    assert_eq!(fs::read_dir(&tmp).unwrap().count(), 0);
    assert_ne!(export(&workspace), before);
}

/// Numbers that depend on the seed alone.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, most: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % most
    }

    fn lines(&mut self, end: &str) -> String {
        let count = self.below(40);
        let lines: Vec<_> = (0..count).map(|_| format!("line {}{end}", self.below(30))).collect();
        lines.concat()
    }

    fn content(&mut self) -> Vec<u8> {
        match self.below(8) {
            0 => Vec::new(),
            1 => self.lines("\n").trim_end().to_owned().into_bytes(),
            2 => self.lines("\r\n").into_bytes(),
            3 => {
                let wide = self.lines("\n");
                [0xff, 0xfe].into_iter().chain(wide.encode_utf16().flat_map(u16::to_le_bytes)).collect()
            }
            4 => (0..self.below(5000)).map(|_| self.below(256).to_le_bytes()[0]).collect(),
            5 => [&b"caf\xe9 \xa4\xa4\n"[..], self.lines("\n").as_bytes()].concat(),
            6 => vec![0; self.below(70_000)],
            _ => self.lines("\n").into_bytes(),
        }
    }

    fn mode(&mut self) -> u32 {
        if self.below(4) == 0 { 0o755 } else { 0o644 }
    }

    /// Writes some of [`NAMES`] into an empty folder.
    fn fill(&mut self, root: &Path) {
        write_file(root, "keep", b"k\n", 0o644);
        for name in NAMES {
            if self.below(2) == 0 {
                let content = if name == ".gitattributes" { b"* binary\n".to_vec() } else { self.content() };
                write_file(root, name, &content, self.mode());
            }
        }
    }

    /// Removes, writes, moves and changes the modes of some files.
    fn change(&mut self, repo: &Path) {
        for name in NAMES {
            let path = repo.join(name);
            match (self.below(6), path.exists()) {
                (0, true) => fs::remove_file(path).unwrap(),
                (1 | 2, _) if name != ".gitattributes" => {
                    let content = self.content();
                    write_file(repo, name, &content, self.mode());
                }
                (3, true) => {
                    // Moved, with or without a change.
                    let mut content = fs::read(&path).unwrap();
                    content.extend(&b"more\n"[..self.below(2) * 5]);
                    fs::remove_file(path).unwrap();
                    write_file(repo, &format!("moved/{name}"), &content, 0o644);
                }
                (4, true) => fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap(),
                _ => {}
            }
        }
    }
}

/// Names that git quotes, and others.
const NAMES: [&str; 16] = [
    "a",
    "b b",
    "c\"q",
    "d\\e",
    "ü/ö",
    "tab\tname",
    "-dash",
    "sub/deep/er",
    "sub/x.bin",
    "exe.sh",
    "line\nname",
    "@{x}",
    " lead",
    "sub/trail ",
    "*.glob",
    ".gitattributes",
];

fn write_file(root: &Path, name: &str, content: &[u8], mode: u32) {
    let path = root.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, content).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn git_applies_every_patch() {
    for seed in 0..40 {
        let mut numbers = Numbers(seed);
        let rig = TestWorkspaces::new();
        let start = rig.root("start");
        numbers.fill(&start);
        let workspace = rig.import("s", ImportSource::Directory(start.clone())).unwrap().workspace;
        let repo = rig.repo("s");
        rig.write_all("s");
        numbers.change(&repo);
        rig.hide_missing("s", &workspace);
        let cancel = AtomicBool::new(false);
        let mut patch = Vec::new();
        workspace.prepare_patch(&rules(), &cancel).unwrap().write(&mut patch, &cancel).unwrap();
        if patch.is_empty() {
            assert!(tree_of(&repo) == tree_of(&start), "seed {seed}");
            continue;
        }
        fs::write(rig.outside().join("patch"), &patch).unwrap();
        let clone = rig.outside().join("clone");
        git(rig.outside(), &["clone", "-q", "-b", "base", rig.base_repository("s").to_str().unwrap(), "clone"]);
        git(&clone, &["apply", "--check", "../patch"]);
        git(&clone, &["apply", "../patch"]);
        fs::remove_dir_all(clone.join(".git")).unwrap();
        assert!(tree_of(&clone) == tree_of(&repo), "seed {seed}");
    }
}

/// A commit with keys and files, and a run from it.
fn run_of(rig: &TestWorkspaces, files: &[(&str, &str)]) -> (std::path::PathBuf, Arc<Workspace>) {
    let source = rig.root("source");
    git(&source, &["init", "-q"]);
    for (path, text) in files {
        write_file(&source, path, text.as_bytes(), 0o644);
    }
    git(&source, &["add", "."]);
    git(&source, &["commit", "-qm", "one"]);
    let imported = rig.import("r", ImportSource::GitLocal { path: source.clone(), reference: None }).unwrap();
    (source, imported.workspace)
}

fn patch_of(workspace: &Workspace) -> String {
    let (mut patch, cancel) = (Vec::new(), AtomicBool::new(false));
    workspace.prepare_patch(&rules(), &cancel).unwrap().write(&mut patch, &cancel).unwrap();
    String::from_utf8(patch).unwrap()
}

#[test]
fn a_patch_shows_no_key_that_the_base_has() {
    const KEY: &str = "-----BEGIN PRIVATE KEY-----\nMIIEmarked0123456789\n-----END PRIVATE KEY-----\n";
    let rig = TestWorkspaces::new();
    let large = format!("{KEY}{}", "more\n".repeat(4 << 20));
    let (source, workspace) = run_of(&rig, &[("notes", KEY), ("gone", KEY), ("large", &large), ("a", "1\n")]);
    for path in ["notes", "a", "large"] {
        fs::write(rig.repo("r").join(path), "other\n").unwrap();
    }
    workspace.hide_removed(&[LogicalPath::parse("gone").unwrap()]).unwrap();
    let patch = patch_of(&workspace);
    assert!(patch.contains("-1\n+other\n") && !patch.contains("MIIE"), "{patch}");
    fs::write(rig.outside().join("patch"), &patch).unwrap();
    git(&source, &["apply", rig.outside().join("patch").to_str().unwrap()]);
    assert_eq!(git(&source, &["status", "--porcelain"]), " M a\n");
}

#[test]
fn the_target_of_a_link_that_leads_out_of_the_tree_is_in_no_patch_and_no_bundle() {
    let rig = TestWorkspaces::new();
    let (source, workspace) = run_of(&rig, &[("a", "1\n"), ("kept", "2\n")]);
    let repo = rig.repo("r");
    fs::write(repo.join("a"), "one\n").unwrap();
    symlink("/srv/secret-place", repo.join("new \"link\"")).unwrap();
    symlink("../../secret-place", repo.join("kept")).unwrap();
    symlink("a", repo.join("inside")).unwrap();
    let patch = patch_of(&workspace);
    assert!(!patch.contains("secret-place"), "{patch}");
    let named: Vec<_> = patch.lines().filter(|line| line.starts_with('#')).collect();
    let reason = "is left out: it is a symbolic link that leads out of the tree.";
    assert_eq!(named, [format!("# kept {reason}"), format!("# \"new \\\"link\\\"\" {reason}")]);
    fs::write(rig.outside().join("patch"), &patch).unwrap();
    git(&source, &["apply", rig.outside().join("patch").to_str().unwrap()]);
    assert_eq!(git(&source, &["status", "--porcelain"]), " M a\n?? inside\n");
    let file = bundle(&rig, &workspace);
    git(&source, &["fetch", "-q", file.to_str().unwrap(), "workspaced/run-1:fetched"]);
    let changed = git(&source, &["diff", "--name-status", "fetched^", "fetched"]);
    assert_eq!(changed, "M\ta\nA\tinside\n");
}

#[test]
fn the_archive_of_a_run_has_its_base_and_its_tree() {
    let rig = TestWorkspaces::new();
    let source = rig.root("source");
    for (name, text) in [("a", "a"), ("b", "b"), ("d/c", "c")] {
        fs::create_dir_all(source.join(name).parent().unwrap()).unwrap();
        fs::write(source.join(name), text).unwrap();
    }
    let workspace = rig.import("r", ImportSource::Directory(source)).unwrap().workspace;
    workspace.hide_removed(&[LogicalPath::parse("b").unwrap()]).unwrap();
    fs::write(rig.repo("r").join("a"), "new").unwrap();
    let mut whole = Vec::new();
    let run = RunId::parse("r").unwrap();
    rig.workspaces.write_archive(&run, &workspace, &mut whole, &AtomicBool::new(false)).unwrap();
    let mut found = BTreeMap::new();
    for entry in tar::Archive::new(&*whole).entries().unwrap() {
        let mut entry = entry.unwrap();
        let path = entry.path().unwrap().to_str().unwrap().to_owned();
        let mut text = Vec::new();
        std::io::Read::read_to_end(&mut entry, &mut text).unwrap();
        found.insert(path, text);
    }
    let tree: Vec<_> = found.iter().filter(|(path, _)| path.starts_with("repo/") && !path.ends_with('/')).collect();
    let expected = [("repo/a", "new"), ("repo/d/c", "c")];
    assert_eq!(tree.len(), 2, "{tree:?}");
    for ((path, text), (name, content)) in tree.into_iter().zip(expected) {
        assert_eq!((path.as_str(), text.as_slice()), (name, content.as_bytes()));
    }
    let base = ["a", "b", "d/c"].map(|path| found.get(&format!("base/{path}")).map(Vec::as_slice));
    assert_eq!(base, [Some(&b"a"[..]), Some(b"b"), Some(b"c")]);
    assert!(found.contains_key("base.manifest") && !found.contains_key("base.git/HEAD"));
}
