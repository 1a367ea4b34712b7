use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::Stdio;

use model::{Code, RunId};

use super::*;
use crate::ImportSource;
use crate::git::parse_oid;
use crate::test_support::{TestWorkspaces, git, git_command, tree_of};

/// Creates a repository with two commits and a tag.
fn repository(rig: &TestWorkspaces, name: &str) -> PathBuf {
    let source = rig.root(name);
    git(&source, &["init", "-q"]);
    fs::create_dir_all(source.join("src")).unwrap();
    fs::write(source.join("src/main.rs"), "fn main() {}\n").unwrap();
    fs::write(source.join("run.sh"), "#!/bin/sh\n").unwrap();
    fs::set_permissions(source.join("run.sh"), fs::Permissions::from_mode(0o755)).unwrap();
    git(&source, &["add", "."]);
    git(&source, &["commit", "-qm", "one"]);
    git(&source, &["tag", "-a", "-m", "v1", "v1"]);
    git(&source, &["branch", "old/branch"]);
    fs::write(source.join("second"), "2\n").unwrap();
    git(&source, &["add", "."]);
    git(&source, &["commit", "-qm", "two"]);
    source
}

fn local(path: &Path, reference: Option<&str>) -> ImportSource<'static> {
    ImportSource::GitLocal { path: path.to_owned(), reference: reference.map(str::to_owned) }
}

fn refused(result: Result<crate::ImportedRun, WorkspaceError>) -> Refusal {
    match result {
        Err(WorkspaceError::Refused(refusal)) => refusal,
        other => panic!("not refused: {other:?}"),
    }
}

fn files(dir: &Path) -> Vec<String> {
    tree_of(dir).into_keys().map(|path| path.to_str().unwrap().to_owned()).collect()
}

#[test]
fn head_is_taken_and_its_objects_are_kept_beside_the_tree() {
    let rig = TestWorkspaces::new();
    let source = repository(&rig, "source");
    let done = rig.import("r", local(&source, None)).unwrap();
    assert_eq!(done.base_commit, git(&source, &["rev-parse", "HEAD"]).trim());
    assert_eq!(done.files, 3);
    assert_eq!(files(&rig.imported("r")), ["run.sh", "second", "src/main.rs"]);
    assert_eq!(fs::metadata(rig.imported("r").join("run.sh")).unwrap().permissions().mode() & 0o777, 0o755);
    assert_eq!(rig.base_git("r", &["cat-file", "-p", &format!("{}:second", done.base_commit)]), "2\n");
    assert_eq!(rig.base_git("r", &["rev-list", "--count", &done.base_commit]).trim(), "1", "fetched shallow");
}

/// Returns the sizes of all segments, sorted.
fn segments(rig: &TestWorkspaces) -> Vec<u64> {
    let all = fs::read_dir(rig.data().join("bases/segments")).unwrap();
    let mut sizes: Vec<_> = all.map(|segment| segment.unwrap().metadata().unwrap().len()).collect();
    sizes.sort_unstable();
    sizes
}

#[test]
fn the_next_commit_of_a_repository_writes_only_what_is_new() {
    let rig = TestWorkspaces::new();
    let source = repository(&rig, "source");
    fs::write(source.join("big"), "x\n".repeat(10_000)).unwrap();
    git(&source, &["add", "."]);
    git(&source, &["commit", "-qm", "big"]);
    let earlier = rig.import("one", local(&source, None)).unwrap().base_commit;
    assert_eq!(segments(&rig), [20_000 + 25]);
    // A copy, a change of the mode, a new file, a link and a removed file.
    fs::copy(source.join("big"), source.join("copy")).unwrap();
    fs::set_permissions(source.join("second"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(source.join("new"), "new\n").unwrap();
    symlink("src/main.rs", source.join("link")).unwrap();
    fs::remove_file(source.join("run.sh")).unwrap();
    git(&source, &["add", "-A"]);
    git(&source, &["commit", "-qm", "next"]);
    let done = rig.import("two", local(&source, None)).unwrap();
    assert_eq!(segments(&rig), [15, 20_025], "the new file, and the target of the link");
    fs::remove_dir_all(source.join(".git/objects")).unwrap();
    // The base needs nothing of the earlier one, nor of the source.
    rig.workspaces.remove(&RunId::parse("one").unwrap()).unwrap();
    assert_eq!(rig.workspaces.remove_unused_bases(std::time::Duration::ZERO).unwrap(), 1);
    let names = ["big", "copy", "link", "new", "second", "src/main.rs"];
    let imported = rig.imported("two");
    assert_eq!(files(&imported), names);
    assert_eq!(fs::read(imported.join("copy")).unwrap().len(), 20_000);
    assert_eq!(fs::metadata(imported.join("second")).unwrap().permissions().mode() & 0o777, 0o755);
    rig.base_git("two", &["fsck", "--strict", "--no-dangling"]);
    let has_earlier = || {
        let show = git_command(&rig.base("two").join("git")).args(["cat-file", "-e", &earlier]).output().unwrap();
        show.status.success()
    };
    assert!(has_earlier(), "nothing was shared");
    rig.workspaces.base(&RunId::parse("two").unwrap()).unwrap().drop_other_objects().unwrap();
    assert!(!has_earlier());
    rig.base_git("two", &["fsck", "--strict", "--no-dangling"]);
    assert_eq!(rig.base_git("two", &["for-each-ref", "--format=%(refname)"]).trim(), FETCHED);
    assert_eq!(rig.base_git("two", &["rev-parse", FETCHED]).trim(), done.base_commit);
    rig.workspaces.remove(&RunId::parse("two").unwrap()).unwrap();
    assert_eq!(rig.workspaces.remove_unused_bases(std::time::Duration::ZERO).unwrap(), 1);
    assert!(segments(&rig).is_empty(), "no base refers to them");
}

#[test]
fn a_damaged_base_is_not_shared() {
    let rig = TestWorkspaces::new();
    let source = repository(&rig, "source");
    rig.import("one", local(&source, None)).unwrap();
    let base = rig.base("one");
    fs::write(source.join("new"), "new\n").unwrap();
    git(&source, &["add", "-A"]);
    git(&source, &["commit", "-qm", "next"]);
    for (run, part) in [("two", "contents"), ("three", "manifest")] {
        let mut bytes = fs::read(base.join(part)).unwrap();
        let at = bytes.len() - 1;
        bytes[at] ^= 1;
        fs::write(base.join(part), bytes).unwrap();
        // Nothing of it is in memory.
        let again = crate::Workspaces::open(&rig.data(), &[rig.root("")]).unwrap();
        let run = RunId::parse(run).unwrap();
        again
            .import(&run, local(&source, None), &crate::test_support::rules(), &crate::test_support::NoObserver)
            .unwrap();
        assert_eq!(files(&rig.imported(run.as_str())), ["new", "run.sh", "second", "src/main.rs"]);
        again.remove(&run).unwrap();
        drop(again);
        rig.workspaces.remove(&run).unwrap();
    }
}

#[test]
fn a_base_whose_rules_were_altered_is_not_shared() {
    let rig = TestWorkspaces::new();
    let source = repository(&rig, "source");
    fs::write(source.join(".gitignore"), "*.log\n").unwrap();
    git(&source, &["add", "-A"]);
    git(&source, &["commit", "-qm", "rules"]);
    rig.import("one", local(&source, None)).unwrap();
    let segment = fs::read_dir(rig.data().join("bases/segments")).unwrap().next().unwrap().unwrap().path();
    let mut bytes = fs::read(&segment).unwrap();
    let at = bytes.windows(6).position(|part| part == b"*.log\n").unwrap();
    bytes[at] ^= 1;
    fs::write(&segment, bytes).unwrap();
    fs::write(source.join("new"), "new\n").unwrap();
    git(&source, &["add", "-A"]);
    git(&source, &["commit", "-qm", "next"]);
    // Nothing of the base is in memory.
    let again = crate::Workspaces::open(&rig.data(), &[rig.root("")]).unwrap();
    let run = RunId::parse("two").unwrap();
    again.import(&run, local(&source, None), &crate::test_support::rules(), &crate::test_support::NoObserver).unwrap();
    assert_eq!(fs::read_to_string(rig.imported("two").join(".gitignore")).unwrap(), "*.log\n");
}

#[test]
fn a_commit_that_the_source_has_no_more_is_not_taken_from_an_earlier_base() {
    let rig = TestWorkspaces::new();
    let source = repository(&rig, "source");
    let gone = rig.import("one", local(&source, None)).unwrap().base_commit;
    git(&source, &["checkout", "-q", "old/branch"]);
    git(&source, &["branch", "-qD", "main"]);
    git(&source, &["reflog", "expire", "--expire=now", "--all"]);
    git(&source, &["gc", "-q", "--prune=now"]);
    rig.import("two", local(&source, None)).unwrap();
    for name in [&gone[..], &gone[..12]] {
        assert_eq!(refused(rig.import("three", local(&source, Some(name)))).code, Code::InvalidRequest, "{name}");
    }
}

#[test]
fn uncommitted_changes_of_the_source_are_named() {
    let rig = TestWorkspaces::new();
    let source = repository(&rig, "source");
    fs::write(source.join(".gitignore"), "*.log\n").unwrap();
    git(&source, &["add", ".gitignore"]);
    git(&source, &["commit", "-qm", "three"]);
    let mark = rig.root("mark").join("executed");
    let evil = format!("touch {}; cat", mark.display());
    git(&source, &["config", "filter.evil.clean", &evil]);
    git(&source, &["config", "core.fsmonitor", &evil]);
    let named = |run: &str, reference: Option<&str>| {
        let done = rig.import(run, local(&source, reference)).unwrap();
        assert_eq!(done.base_commit, git(&source, &["rev-parse", "HEAD"]).trim());
        let reason = "an uncommitted change of the source";
        assert!(done.left_out.iter().all(|one| one.reason == reason), "{:?}", done.left_out);
        done.left_out.into_iter().map(|one| one.path).collect::<Vec<_>>()
    };
    assert_eq!(named("clean", None), [""; 0]);
    // The same content with another time is no change.
    fs::write(source.join("second"), "2\n").unwrap();
    assert_eq!(named("touched", None), [""; 0]);
    fs::write(source.join(".gitattributes"), "* filter=evil\n").unwrap();
    fs::write(source.join("second"), "changed\n").unwrap();
    fs::write(source.join("staged"), "s\n").unwrap();
    fs::write(source.join("a.log"), "ignored\n").unwrap();
    fs::remove_file(source.join("run.sh")).unwrap();
    fs::write(source.join("src/untracked"), "u\n").unwrap();
    // What is staged alone is a change too.
    let main = fs::read(source.join("src/main.rs")).unwrap();
    fs::write(source.join("src/main.rs"), "staged\n").unwrap();
    let add = ["-c", "core.fsmonitor=false", "-c", "filter.evil.clean=cat", "add", "staged", "src/main.rs"];
    git(&source, &add);
    fs::write(source.join("src/main.rs"), main).unwrap();
    let before = fs::read(source.join(".git/index")).unwrap();
    let all = [".gitattributes", "run.sh", "second", "src/main.rs", "src/untracked", "staged"];
    for (run, reference) in [("first", None), ("again", Some("HEAD")), ("branch", Some("main"))] {
        assert_eq!(named(run, reference), all, "{run}");
        assert_eq!(files(&rig.imported(run)), [".gitignore", "run.sh", "second", "src/main.rs"]);
    }
    assert!(!mark.exists(), "a program of the source was run");
    assert!(fs::read(source.join(".git/index")).unwrap() == before && !source.join(".git/index.lock").exists());
    let tag = rig.import("tag", local(&source, Some("v1"))).unwrap();
    assert!(tag.left_out.is_empty(), "{:?}", tag.left_out);
}

#[test]
fn a_repository_with_another_object_format_is_refused_by_name() {
    let rig = TestWorkspaces::new();
    let source = rig.root("source");
    git(&source, &["init", "-q", "--object-format=sha256"]);
    fs::write(source.join("a"), "1\n").unwrap();
    git(&source, &["add", "."]);
    git(&source, &["commit", "-qm", "one"]);
    for reference in [None, Some("HEAD"), Some("deadbeef")] {
        let refusal = refused(rig.import("r", local(&source, reference)));
        assert!(refusal.message.contains("sha256"), "{refusal}");
    }
}

#[test]
fn a_ref_may_be_a_branch_a_tag_or_a_commit_however_short() {
    let rig = TestWorkspaces::new();
    let source = repository(&rig, "source");
    let first = git(&source, &["rev-parse", "HEAD~1"]).trim().to_owned();
    for (n, reference) in
        ["old/branch", "refs/heads/old/branch", "v1", "refs/tags/v1", &first, &first[..7], &first[..4].to_uppercase()]
            .into_iter()
            .enumerate()
    {
        let done = rig.import(&format!("r{n}"), local(&source, Some(reference))).unwrap();
        assert_eq!(done.base_commit, first, "{reference}");
        assert_eq!(files(&rig.imported(&format!("r{n}"))), ["run.sh", "src/main.rs"]);
    }
    for reference in ["missing", "deadbeef", &"0".repeat(40)] {
        assert_eq!(refused(rig.import("no", local(&source, Some(reference)))).code, Code::InvalidRequest);
    }
}

#[test]
fn what_git_could_take_for_something_else_is_no_ref() {
    let rig = TestWorkspaces::new();
    let source = repository(&rig, "source");
    for reference in [
        "",
        "-h",
        "--upload-pack=touch x",
        "a..b",
        "a:b",
        "+main",
        "a b",
        "a\nb",
        "^main",
        "main~1",
        "main^{}",
        "@{-1}",
        "a*",
        "/a",
        "a/",
        "a//b",
        ".a",
        "a/.b",
        "a.lock",
        "a\\b",
        "a\0b",
        &"a".repeat(300),
    ] {
        let refusal = refused(rig.import("r", local(&source, Some(reference))));
        assert!(refusal.message.contains("`ref`"), "{reference:?}: {refusal:?}");
    }
    assert_eq!(rig.names(), [".git-home"]);
}

#[test]
fn only_https_addresses_are_taken_and_none_is_shown() {
    let rig = TestWorkspaces::new();
    for url in [
        "http://localhost/secret.git",
        "ssh://secret@localhost/a.git",
        "git@localhost:secret.git",
        "file:///etc/secret",
        "ext::sh -c secret",
        "/etc/secret",
        "-u secret",
        "https://",
        "https://a b/secret",
        "",
    ] {
        let refusal = refused(
            rig.import("r", ImportSource::GitRemote { url: url.to_owned(), reference: None, credential: None }),
        );
        assert_eq!(refusal.code, Code::InvalidRequest);
        assert!(!format!("{refusal:?}").contains("secret"), "{refusal:?}");
    }
    // No server listens at this address.
    let url = "https://user:secret@127.0.0.1:1/a.git".to_owned();
    let refusal = refused(rig.import("r", ImportSource::GitRemote { url, reference: None, credential: None }));
    assert_eq!(refusal.code, Code::InvalidRequest);
    assert!(!format!("{refusal:?}").contains("secret"), "{refusal:?}");
    assert_eq!(rig.names(), [".git-home"]);
}

#[test]
fn what_is_no_repository_or_has_no_commit_is_refused() {
    let rig = TestWorkspaces::new();
    let plain = rig.root("plain");
    fs::write(plain.join("HEAD"), "x").unwrap();
    let empty = rig.root("empty");
    git(&empty, &["init", "-q"]);
    for source in [plain, empty, rig.root("").join("missing")] {
        assert_eq!(refused(rig.import("r", local(&source, None))).code, Code::InvalidRequest);
    }
    assert_eq!(rig.names(), [".git-home"]);
}

#[test]
fn bare_repositories_worktrees_and_alternates_work_where_all_of_them_is_allowed() {
    let rig = TestWorkspaces::new();
    let source = repository(&rig, "source");
    let head = git(&source, &["rev-parse", "HEAD"]).trim().to_owned();
    let root = rig.root("");
    git(&root, &["clone", "-q", "--bare", "source", "bare.git"]);
    git(&source, &["worktree", "add", "-q", "../tree", "HEAD"]);
    git(&root, &["clone", "-q", "--shared", "source", "shared"]);
    for name in ["bare.git", "tree", "shared"] {
        let done = rig.import(&name.replace('.', "-"), local(&root.join(name), None)).unwrap();
        assert_eq!(done.base_commit, head, "{name}");
    }
}

#[test]
fn a_repository_that_points_out_of_the_import_roots_is_refused() {
    let rig = TestWorkspaces::new();
    let outside = rig.outside().join("outside");
    fs::create_dir(&outside).unwrap();
    git(&outside, &["init", "-q"]);
    fs::write(outside.join("secret"), "s\n").unwrap();
    git(&outside, &["add", "."]);
    git(&outside, &["commit", "-qm", "secret"]);
    let secret = outside.join(".git");

    let file = rig.root("file");
    fs::write(file.join(".git"), format!("gitdir: {}\n", secret.display())).unwrap();
    let link = rig.root("link");
    symlink(&secret, link.join(".git")).unwrap();
    let common = repository(&rig, "common");
    fs::write(common.join(".git/commondir"), secret.to_str().unwrap()).unwrap();
    let alternates = repository(&rig, "alternates");
    fs::write(alternates.join(".git/objects/info/alternates"), format!("{}\n", secret.join("objects").display()))
        .unwrap();
    let quoted = repository(&rig, "quoted");
    fs::write(quoted.join(".git/objects/info/alternates"), format!("\"{}\"\n", secret.join("objects").display()))
        .unwrap();
    let chain = repository(&rig, "chain");
    fs::write(chain.join(".git/objects/info/alternates"), "../../../alternates/.git/objects\n").unwrap();
    let objects = repository(&rig, "objects");
    fs::remove_dir_all(objects.join(".git/objects")).unwrap();
    symlink(secret.join("objects"), objects.join(".git/objects")).unwrap();
    let inner = repository(&rig, "inner");
    fs::remove_dir_all(inner.join(".git/objects/pack")).unwrap();
    symlink(secret.join("objects/pack"), inner.join(".git/objects/pack")).unwrap();

    for source in [file, link, common, alternates, quoted, chain, objects, inner] {
        let refusal = refused(rig.import("r", local(&source, None)));
        assert_eq!(refusal.code, Code::InvalidRequest, "{}", source.display());
        assert!(!format!("{refusal:?}").contains("outside"));
    }
    assert_eq!(rig.names(), [".git-home"]);
}

#[test]
fn a_repository_with_something_that_git_would_wait_for_is_refused() {
    let rig = TestWorkspaces::new();
    let names = ["HEAD", "config", "index", "packed-refs", "shallow", "refs/heads/x", "objects/pack/x", "commondir"];
    for (at, name) in names.into_iter().chain(["objects/info/alternates"]).enumerate() {
        for target in ["../../fifo", "/dev/zero"] {
            let source = repository(&rig, &format!("source-{at}-{}", target.len()));
            let file = source.join(".git").join(name);
            let _ = fs::remove_file(&file);
            let fifo = source.join("fifo");
            rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, rustix::fs::Mode::RWXU).unwrap();
            symlink(if target == "/dev/zero" { Path::new(target) } else { &fifo }, &file).unwrap();
            let started = std::time::Instant::now();
            assert_eq!(refused(rig.import("r", local(&source, None))).code, Code::InvalidRequest, "{name} {target}");
            assert!(started.elapsed() < Duration::from_secs(20), "{name} {target}");
        }
    }
    assert_eq!(rig.names(), [".git-home"]);
}

/// Configures every setting of a repository that can name a program with one that leaves a mark.
fn arm(source: &Path, mark: &Path) {
    let driver = source.join(".git/driver.sh");
    fs::write(&driver, format!("#!/bin/sh\necho \"$0 $*\" >> '{}'\ncat\n", mark.display())).unwrap();
    fs::set_permissions(&driver, fs::Permissions::from_mode(0o755)).unwrap();
    let driver = driver.to_str().unwrap();
    let included = source.join(".git/included");
    fs::write(
        &included,
        format!("[core]\n\tfsmonitor = {driver}\n[uploadpack]\n\tpackObjectsHook = {driver}\n[filter \"evil\"]\n\tsmudge = {driver}\n"),
    )
    .unwrap();
    for (name, value) in [
        ("core.fsmonitor", driver),
        ("core.sshCommand", driver),
        ("core.gitProxy", driver),
        ("core.askPass", driver),
        ("core.editor", driver),
        ("core.pager", driver),
        ("core.alternateRefsCommand", driver),
        ("core.hooksPath", source.join(".git/hooks").to_str().unwrap()),
        ("core.attributesFile", source.join("attributes").to_str().unwrap()),
        ("core.worktree", "/etc"),
        ("credential.helper", &format!("!{driver}")),
        ("diff.external", driver),
        ("diff.evil.command", driver),
        ("diff.evil.textconv", driver),
        ("merge.evil.driver", driver),
        ("filter.evil.clean", driver),
        ("filter.evil.smudge", driver),
        ("filter.evil.process", driver),
        ("filter.evil.required", "true"),
        ("gpg.program", driver),
        ("remote.origin.uploadpack", driver),
        ("remote.origin.url", &format!("ext::{driver}")),
        ("remote.origin.promisor", "true"),
        ("protocol.ext.allow", "always"),
        ("extensions.partialClone", "origin"),
        ("uploadpack.packObjectsHook", driver),
        ("include.path", included.to_str().unwrap()),
    ] {
        git_config(source, name, value);
    }
    for hook in [
        "pre-commit",
        "post-checkout",
        "post-index-change",
        "reference-transaction",
        "post-upload-pack",
        "pre-upload-pack",
        "fsmonitor-watchman",
        "pre-auto-gc",
        "proc-receive",
    ] {
        let hook = source.join(".git/hooks").join(hook);
        fs::create_dir_all(hook.parent().unwrap()).unwrap();
        fs::copy(driver, &hook).unwrap();
        fs::set_permissions(&hook, fs::Permissions::from_mode(0o755)).unwrap();
    }
    fs::create_dir_all(source.join(".git/info")).unwrap();
    fs::write(source.join(".git/info/attributes"), "* filter=evil diff=evil merge=evil\n").unwrap();
}

/// Writes configuration without git, which would obey the existing configuration.
fn git_config(source: &Path, name: &str, value: &str) {
    let (section, key) = name.rsplit_once('.').unwrap();
    let section = match section.split_once('.') {
        Some((section, sub)) => format!("[{section} \"{sub}\"]"),
        None => format!("[{section}]"),
    };
    let mut file = fs::File::options().append(true).open(source.join(".git/config")).unwrap();
    writeln!(file, "{section}\n\t{key} = \"{value}\"").unwrap();
}

/// A repository full of programs, with a nested one and attributes that would run them.
fn hostile(rig: &TestWorkspaces, mark: &Path) -> PathBuf {
    let source = repository(rig, "hostile");
    fs::write(source.join(".gitattributes"), "* filter=evil diff=evil merge=evil text eol=crlf ident\n").unwrap();
    fs::write(source.join(".gitmodules"), "[submodule \"nested\"]\n\tpath = nested\n\turl = ext::sh\n").unwrap();
    fs::write(source.join(".lfsconfig"), "[lfs]\n\turl = https://localhost:1\n").unwrap();
    fs::create_dir(source.join("nested")).unwrap();
    git(&source.join("nested"), &["init", "-q"]);
    fs::write(source.join("nested/file"), "n\n").unwrap();
    git(&source.join("nested"), &["add", "."]);
    git(&source.join("nested"), &["commit", "-qm", "nested"]);
    git(&source, &["-c", "advice.addEmbeddedRepo=false", "add", "."]);
    git(&source, &["commit", "-qm", "hostile"]);
    arm(&source.join("nested"), mark);
    arm(&source, mark);
    source
}

#[test]
fn nothing_of_a_hostile_repository_is_executed() {
    let rig = TestWorkspaces::new();
    let mark = rig.outside().join("mark");
    let source = hostile(&rig, &mark);
    // The programs do run when git is used without the service's protection.
    let _ = git_command(&source).arg("status").output();
    assert!(mark.exists(), "the trap does not work");
    fs::remove_file(&mark).unwrap();

    let head = fs::read_to_string(source.join(".git/refs/heads/main")).unwrap().trim().to_owned();
    for (run, reference) in
        [("head", None), ("branch", Some("main")), ("full", Some(&*head)), ("short", Some(&head[..8]))]
    {
        let done = rig.import(run, local(&source, reference)).unwrap();
        assert_eq!(done.base_commit, head);
        let workspace = done.workspace;
        fs::write(rig.repo(run).join("second"), "changed\n").unwrap();
        fs::write(rig.repo(run).join(".gitattributes"), "* filter=evil diff=evil\n").unwrap();
        let query = crate::DiffQuery { path: None, stat_only: false, max_bytes: 100_000 };
        let diff =
            workspace.diff(&crate::test_support::rules(), &query, &std::sync::atomic::AtomicBool::new(false)).unwrap();
        assert_eq!(diff.files.len(), 2);
        assert!(done.left_out.iter().any(|one| one.path == "nested" && one.reason == "a submodule"));
    }
    let directory = rig.import("directory", ImportSource::Directory(source)).unwrap();
    let left_out: Vec<_> = directory.left_out.iter().map(|one| one.path.as_str()).collect();
    assert_eq!(left_out, [".git", "nested/.git"]);
    assert!(!mark.exists(), "executed: {}", fs::read_to_string(&mark).unwrap_or_default());
}

/// Adds a commit with a tree that git itself would refuse to make.
fn forge(source: &Path, entries: &[(&str, &[u8], &str)]) -> String {
    let mut tree = Vec::new();
    for (mode, name, oid) in entries {
        tree.extend_from_slice(mode.as_bytes());
        tree.push(b' ');
        tree.extend_from_slice(name);
        tree.push(0);
        tree.extend_from_slice(&parse_oid(oid).unwrap());
    }
    let mut child = git_command(source)
        .args(["hash-object", "-t", "tree", "-w", "--literally", "--stdin"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(&tree).unwrap();
    let tree = String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap();
    let commit = git(source, &["commit-tree", "-m", "forged", tree.trim()]);
    git(source, &["update-ref", "refs/heads/main", commit.trim()]);
    tree.trim().to_owned()
}

#[test]
fn a_forged_tree_writes_nothing_outside_and_nothing_of_gits_own() {
    let rig = TestWorkspaces::new();
    let source = repository(&rig, "source");
    let blob = git(&source, &["rev-parse", "HEAD:second"]).trim().to_owned();
    let tree = git(&source, &["rev-parse", "HEAD:src"]).trim().to_owned();
    fs::write(source.join("out"), "../../..").unwrap();
    let out = git(&source, &["hash-object", "-w", "out"]).trim().to_owned();
    fs::write(source.join("in"), "good").unwrap();
    let inside = git(&source, &["hash-object", "-w", "in"]).trim().to_owned();
    let commit = git(&source, &["rev-parse", "HEAD"]).trim().to_owned();
    forge(
        &source,
        &[
            ("100644", b"good", &blob),
            ("100644", b"..", &blob),
            ("40000", b"..", &tree),
            ("40000", b".git", &tree),
            ("40000", b".GIT", &tree),
            ("100644", b"git~1", &blob),
            ("100644", ".g\u{200c}it".as_bytes(), &blob),
            ("120000", b"link", &inside),
            ("40000", b"link", &tree),
            ("120000", b"escape", &out),
            ("40000", b"escape", &tree),
            ("160000", b"module", &commit),
            ("100644", &[b'x'; 300], &blob),
            ("100644", b"odd\xff", &blob),
            ("100664", b"group", &blob),
            ("100644", b"good", &inside),
        ],
    );
    let done = rig.import("r", local(&source, Some("main"))).unwrap();
    let names: Vec<_> =
        tree_of(&rig.imported("r")).into_keys().map(|path| path.to_string_lossy().into_owned()).collect();
    assert_eq!(names, ["escape", "good", "group", "link", "odd\u{fffd}"]);
    assert_eq!(fs::read_to_string(rig.imported("r").join("good")).unwrap(), "2\n", "the first of two is kept");
    let left_out: Vec<_> = done.left_out.iter().map(|one| (one.path.as_str(), one.reason.as_str())).collect();
    for path in [".git", ".GIT", "git~1", ".g\u{200c}it"] {
        assert!(left_out.contains(&(path, "a Git-internal path")), "{path:?}: {left_out:?}");
    }
    assert!(left_out.contains(&("module", "a submodule")));
    assert!(left_out.contains(&("escape/main.rs", "another entry has its name")));
    assert!(left_out.contains(&("link/main.rs", "another entry has its name")));
    assert!(!rig.run("r").join("main.rs").exists());
}

#[test]
fn a_tree_that_names_itself_again_and_again_is_refused_in_time() {
    let rig = TestWorkspaces::with_limits(ImportLimits { max_entries: 10_000, ..ImportLimits::default() });
    let source = repository(&rig, "source");
    let mut tree = git(&source, &["rev-parse", "HEAD^{tree}"]).trim().to_owned();
    for _ in 0..20 {
        let names: Vec<_> = (0..10).map(|n| format!("d{n}")).collect();
        let entries: Vec<_> = names.iter().map(|name| ("40000", name.as_bytes(), tree.as_str())).collect();
        tree = forge(&source, &entries);
    }
    let start = std::time::Instant::now();
    let refusal = refused(rig.import("r", local(&source, None)));
    assert_eq!(refusal.details.limit, Some(10_000));
    assert!(start.elapsed().as_secs() < 20);
    assert_eq!(rig.names(), [".git-home"]);
}

#[test]
fn a_blob_with_a_thousand_names_is_counted_a_thousand_times_and_written_once() {
    let rig = TestWorkspaces::with_limits(ImportLimits { max_bytes: 500_000, ..ImportLimits::default() });
    let source = rig.root("many");
    git(&source, &["init", "-q"]);
    for n in 0..1000 {
        fs::write(source.join(format!("{n}.txt")), "x".repeat(1000)).unwrap();
    }
    git(&source, &["add", "."]);
    git(&source, &["commit", "-qm", "many"]);
    assert_eq!(refused(rig.import("r", local(&source, None))).details.limit, Some(500_000));
    assert!(segments(&rig).is_empty());
    git(&source, &["rm", "-qr", "--cached", "[5-9]*.txt"]);
    git(&source, &["commit", "-qm", "fewer"]);
    let done = rig.import("r", local(&source, None)).unwrap();
    assert_eq!((done.files, done.bytes), (445, 445_000));
    assert_eq!(segments(&rig), [1000]);
}

#[test]
fn every_entry_of_a_tree_is_counted_even_if_it_is_not_imported() {
    const EMPTY: &str = "4b825dc642cb6eb9a060e54bf8d69288fbee4904";
    for (what, mode, leaf) in
        [("submodules", "160000", "1".repeat(40)), ("trees without files", "40000", EMPTY.to_owned())]
    {
        let rig = TestWorkspaces::with_limits(ImportLimits { max_entries: 5_000, ..ImportLimits::default() });
        let source = repository(&rig, "source");
        git(&source, &["hash-object", "-t", "tree", "-w", "/dev/null"]);
        let names: Vec<_> = (0..20).map(|n| format!("d{n}")).collect();
        let entries: Vec<_> = names.iter().map(|name| (mode, name.as_bytes(), leaf.as_str())).collect();
        let mut tree = forge(&source, &entries);
        for _ in 0..3 {
            let entries: Vec<_> = names.iter().map(|name| ("40000", name.as_bytes(), tree.as_str())).collect();
            tree = forge(&source, &entries);
        }
        assert_eq!(refused(rig.import("r", local(&source, None))).details.limit, Some(5_000), "{what}");
    }
}

#[test]
fn the_names_that_a_tree_lists_are_bounded_in_bytes() {
    let long = "n".repeat(3000);
    for (names, limit) in
        [((0..20).map(|n| format!("{n}{long}")).collect::<Vec<_>>(), 50_000), (vec!["n".repeat(2 << 20)], 1 << 20)]
    {
        let rig = TestWorkspaces::with_limits(ImportLimits { max_name_bytes: 50_000, ..ImportLimits::default() });
        let source = repository(&rig, "source");
        let blob = git(&source, &["rev-parse", "HEAD:run.sh"]).trim().to_owned();
        let entries: Vec<_> = names.iter().map(|name| ("100644", name.as_bytes(), &*blob)).collect();
        forge(&source, &entries);
        assert_eq!(refused(rig.import("r", local(&source, None))).details.limit, Some(limit));
    }
}
