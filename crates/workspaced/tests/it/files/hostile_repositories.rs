//! Hostile repositories: the service executes nothing of them, reads none of their configuration and follows no link.

use std::path::{Path, PathBuf};

use rstest::rstest;
use serde_json::json;

use crate::harness::{Backend, Server, commit_all, git, git_command, put, sha256};

/// A repository whose hooks and drivers create the file `mark`.
struct Trap {
    repository: PathBuf,
    mark: PathBuf,
}

impl Trap {
    fn is_triggered(&self) -> bool {
        self.mark.exists()
    }
}

/// Adds every configuration that makes git execute a command.
fn arm(folder: &Path, script: &Path) {
    let script = script.to_str().unwrap();
    for (key, value) in [
        ("core.fsmonitor", script),
        ("core.hooksPath", "hooks"),
        ("core.sshCommand", script),
        ("core.pager", script),
        ("core.editor", script),
        ("diff.external", script),
        ("diff.evil.command", script),
        ("diff.evil.textconv", script),
        ("filter.evil.clean", script),
        ("filter.evil.smudge", script),
        ("filter.evil.process", script),
        ("filter.evil.required", "true"),
        ("merge.evil.driver", script),
        ("credential.helper", script),
        ("uploadpack.packObjectsHook", script),
        ("remote.origin.uploadpack", script),
        ("alias.status", &format!("!{script}")),
        ("gpg.program", script),
        ("include.path", "../evil.config"),
    ] {
        git(folder, &["config", key, value]);
    }
    let evil = [
        "post-checkout",
        "pre-commit",
        "post-index-change",
        "reference-transaction",
        "post-merge",
        "fsmonitor-watchman",
    ];
    for hook in evil {
        for hooks in [".git/hooks", "hooks"] {
            put(folder, &format!("{hooks}/{hook}"), format!("#!/bin/sh\nexec {script}\n"));
            executable(&folder.join(hooks).join(hook));
        }
    }
    put(folder, ".git/info/attributes", "* filter=evil diff=evil merge=evil\n");
}

fn executable(folder: &Path) {
    std::fs::set_permissions(folder, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
}

fn trap(server: &Server) -> Trap {
    let attributes = "* filter=evil diff=evil merge=evil text eol=crlf ident\n*.md export-subst\n";
    let files = [
        ("a.txt", "needle $Id$\n"),
        ("b.md", "needle $Format:%H$\n"),
        (".gitattributes", attributes),
        (".gitmodules", "[submodule \"x\"]\n\tpath = x\n\turl = ext::sh -c id\n"),
    ];
    let (repository, _) = server.repository(&files);
    let mark = server.home.join(format!("mark-{}", repository.file_name().unwrap().to_str().unwrap()));
    let script = repository.join("evil.sh");
    put(&repository, "evil.sh", format!("#!/bin/sh\necho sprung >> {}\ncat\n", mark.display()));
    executable(&script);
    // A nested repository, committed as a submodule, with its own traps.
    let nested = repository.join("nested");
    put(&nested, "n.txt", "needle\n");
    git(&nested, &["init", "-q"]);
    commit_all(&nested, "nested");
    arm(&nested, &script);
    put(&repository, "bare/HEAD", "ref: refs/heads/main\n");
    put(&repository, "bare/config", format!("[core]\n\tbare = true\n\tfsmonitor = {}\n", script.display()));
    put(&repository, "bare/objects/.keep", "");
    put(&repository, "bare/refs/.keep", "");
    commit_all(&repository, "everything");
    arm(&repository, &script);
    Trap { repository, mark }
}

#[rstest]
#[tokio::test]
async fn nothing_of_a_hostile_repository_is_executed(
    #[values(Backend::Sqlite)] backend: Backend,
    #[values("git", "directory")] source: &str,
) {
    let server = Server::shared(backend).await;
    let trap = trap(&server);
    assert!(!trap.is_triggered());
    let body = match source {
        "git" => json!({"source": {"type": "git", "url": trap.repository}}),
        _ => json!({"source": {"type": "directory", "path": trap.repository}}),
    };
    let mut run = server.run(body).await;
    run.agent.files_contain_local_paths = true;
    assert!(!trap.is_triggered(), "the import executed a command");
    assert_eq!(run.on_disk("a.txt"), "needle $Id$\n", "a filter or a conversion was applied");
    assert_eq!(run.on_disk("b.md"), "needle $Format:%H$\n");
    assert!(run.snapshot().keys().all(|path| !path.split('/').any(|name| name == ".git")));

    // Files that an agent could add after the import.
    for (path, content) in
        [(".git/config", "[core]\n\tworktree = /etc\n"), ("sub/.git", "gitdir: /etc\n"), ("sub/.git2/x", "x")]
    {
        run.put(path, content);
    }
    arm_in_place(&run.repo, &trap.repository.join("evil.sh"));
    run.ok("diff_workspace", json!({})).await;
    run.ok("search_text", json!({"query": "needle"})).await;
    run.ok("list_dir", json!({"includeHidden": true, "includeIgnored": true})).await;
    run.replace("a.txt", "changed\n", &sha256("needle $Id$\n")).await.ok();
    run.patch("--- a/b.md\n+++ b/b.md\n@@ -1 +1 @@\n-needle $Format:%H$\n+x\n").await.ok();
    let diff = run.ok("diff_workspace", json!({})).await;
    assert!(diff["diff"].as_str().unwrap().contains("+changed"));
    assert!(!diff.to_string().contains("passwd"), "core.worktree was applied");
    run.agent.get(&format!("/v1/runs/{}/archive", run.id)).await;
    run.operator.delete(&format!("/v1/runs/{}", run.id)).await;
    assert!(!trap.is_triggered(), "a command of the repository was executed");

    // The trap is effective: git itself triggers it.
    git_command(&trap.repository).args(["diff", "HEAD", "--stat"]).output().unwrap();
    assert!(trap.is_triggered(), "the trap has no effect, so the test proves nothing");
}

/// Creates a repository with traps inside a run's tree.
fn arm_in_place(repo: &Path, script: &Path) {
    let folder = repo.join("planted");
    put(&folder, "p.txt", "needle\n");
    git(&folder, &["init", "-q"]);
    arm(&folder, script);
}

#[rstest]
#[tokio::test]
async fn a_repository_with_external_references_imports_nothing_external(#[values(Backend::Sqlite)] backend: Backend) {
    let server = Server::shared(backend).await;
    let outside = server.home.join(format!("outside-{backend:?}"));
    put(&outside, "secret.txt", "outside bytes\n");
    git(&outside, &["init", "-q"]);
    let stolen = commit_all(&outside, "outside");
    let (folder, _) = server.repository(&[("a.txt", "x\n")]);
    put(&folder, ".git/objects/info/alternates", format!("{}\n", outside.join(".git/objects").display()));
    put(&folder, ".git/refs/heads/stolen", format!("{stolen}\n"));
    let body = json!({"source": {"type": "git", "url": folder, "ref": "stolen"}});
    let answer = server.operator().post("/v1/runs", body).await;
    if answer.status == 201 {
        let run = server.run_from(&answer.json()).await;
        assert!(!run.repo.join("secret.txt").exists(), "alternates imported a repository outside the import root");
    } else {
        answer.refused("INVALID_REQUEST");
    }

    let linked = server.template(&[]);
    std::os::unix::fs::symlink(outside.join(".git"), linked.join(".git")).unwrap();
    let body = json!({"source": {"type": "git", "url": linked}});
    server.operator().post("/v1/runs", body).await.refused("INVALID_REQUEST");
    let pointed = server.template(&[]);
    put(&pointed, ".git", format!("gitdir: {}\n", outside.join(".git").display()));
    let body = json!({"source": {"type": "git", "url": pointed}});
    server.operator().post("/v1/runs", body).await.refused("INVALID_REQUEST");
}

#[rstest]
#[tokio::test]
async fn forbidden_names_in_a_git_tree_are_not_imported(#[values(Backend::Sqlite)] backend: Backend) {
    // A separate server, because the test compares the folders of all runs.
    let server = Server::start(backend).await;
    let (folder, _) = server.repository(&[("a.txt", "x\n"), ("d/b.txt", "y\n")]);
    let blob = git(&folder, &["rev-parse", "HEAD:a.txt"]);
    std::os::unix::fs::symlink("/etc/passwd", folder.join("link")).unwrap();
    commit_all(&folder, "a link");
    // A tree object that git itself would not write.
    let mut tree = Vec::new();
    for name in ["..", ".GIT", ".git", "ok.txt"] {
        tree.extend(format!("100644 {name}\0").as_bytes());
        tree.extend((0..20).map(|at| u8::from_str_radix(&blob[at * 2..at * 2 + 2], 16).unwrap()));
    }
    std::fs::write(folder.join("tree"), tree).unwrap();
    let tree = git(&folder, &["hash-object", "-t", "tree", "-w", "--literally", "tree"]);
    let commit = git(&folder, &["commit-tree", "-m", "hostile", &tree]);
    git(&folder, &["update-ref", "refs/heads/hostile", &commit]);
    let before = crate::harness::snapshot(&server.data_dir().join("workspaces")).len();
    let body = json!({"source": {"type": "git", "url": folder, "ref": "hostile"}});
    let answer = server.operator().post("/v1/runs", body).await;
    if answer.status == 201 {
        let run = server.run_from(&answer.json()).await;
        assert_eq!(run.snapshot().into_keys().collect::<Vec<_>>(), ["ok.txt"]);
    } else {
        answer.refused("INVALID_REQUEST");
        assert_eq!(crate::harness::snapshot(&server.data_dir().join("workspaces")).len(), before);
    }
    let run = server.run(json!({"source": {"type": "git", "url": folder}})).await;
    assert_eq!(run.snapshot()["link"], "-> /etc/passwd", "imported as a link");
    run.call("read_file", json!({"path": "link"})).await.refused("PATH_REJECTED");
}
