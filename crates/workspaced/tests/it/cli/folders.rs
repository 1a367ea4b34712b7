//! `checkout`, `pull` and `exec`: a run's files in a folder, here or in a sandbox.

use std::os::unix::fs::{MetadataExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use rstest::rstest;
use serde_json::{Value, json};

use super::{Printed, command, run};
use crate::harness::{Backend, Run, Server, SshServer, files_in, shim, until};

/// A run with a folder for its checkout, and the tokens of its agent and of its runner.
struct Used {
    server: Server,
    run: Run,
    folder: PathBuf,
    runner: String,
}

impl Used {
    async fn new(backend: Backend, files: &[(&str, &str)]) -> Self {
        let server = Server::start(backend).await;
        let run = server.run_with_files(files, json!({})).await;
        let permissions = json!(["file:read", "event:append", "changeset:apply"]);
        let path = format!("/v1/runs/{}/tokens", run.id);
        let token = run.operator.post(&path, json!({ "permissions": permissions })).await.is(201);
        let folder = server.home.join("checkout");
        let runner = token["token"].as_str().unwrap().to_owned();
        Self { server, run, folder, runner }
    }

    /// Runs a command of the runner.
    fn runner(&self, args: &[&str]) -> Printed {
        run(self.client(&self.runner, args))
    }

    /// Returns a command with the notes of a user of its own.
    fn client(&self, token: &str, args: &[&str]) -> Command {
        let mut command = command(&self.server.base, token, args);
        command.env("XDG_STATE_HOME", self.server.home.join("state"));
        command
    }

    fn folder(&self) -> &str {
        self.folder.to_str().unwrap()
    }

    fn exec(&self, options: &[&str], script: &str) -> Printed {
        run(self.exec_command(options, script))
    }

    fn exec_command(&self, options: &[&str], script: &str) -> Command {
        let args = ["exec", &self.run.id].into_iter().chain(options.iter().copied());
        self.client(&self.runner, &args.chain(["--", "sh", "-c", script]).collect::<Vec<_>>())
    }

    async fn write(&self, path: &str, content: &str) {
        if self.run.call("read_file", json!({"path": path})).await.status == 404 {
            self.run.create(path, content).await;
        } else {
            self.run.replace(path, content, "seen").await.ok();
        }
    }

    fn read(&self, path: &str) -> String {
        std::fs::read_to_string(self.folder.join(path)).unwrap()
    }

    async fn records(&self, tool: &str) -> Vec<Value> {
        let path = format!("/v1/runs/{}/audit?tool={tool}", self.run.id);
        self.run.operator.get(&path).await.is(200)["items"].as_array().unwrap().clone()
    }
}

/// The last line on standard error, with what differs from run to run replaced.
fn last(printed: &Printed) -> String {
    let line = printed.err.lines().last().unwrap_or_default();
    let seconds = regex_lite::Regex::new(r"in \d+\.\d s").unwrap();
    seconds.replace(line, "in T s").into_owned()
}

#[rstest]
#[tokio::test]
async fn a_checkout_has_the_runs_files_and_a_pull_what_changed_since(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let used = Used::new(backend, &[("a.txt", "one\n"), ("d/b.txt", "b\n"), ("gone.txt", "x\n")]).await;
    let printed = used.runner(&["checkout", &used.run.id, used.folder(), "--json"]).json();
    assert_eq!(
        (&printed["written"], &printed["fromSeq"], &printed["run"]),
        (&json!(3), &json!(null), &json!(used.run.id))
    );
    assert_eq!((used.read("a.txt"), used.read("d/b.txt")), ("one\n".to_owned(), "b\n".to_owned()));
    let first = printed["seq"].as_u64().unwrap();

    let same = used.runner(&["pull", used.folder()]).ok();
    assert!(same.starts_with(used.folder()) && same.contains(": up to date (record "), "{same}");

    used.write("a.txt", "two\n").await;
    used.write("new/deep.txt", "new\n").await;
    used.run.ok("read_file", json!({"path": "gone.txt"})).await;
    used.run.ok("delete_file", json!({"path": "gone.txt", "reason": "a test", "expectedSha256": "seen"})).await;
    let printed = used.runner(&["pull", used.folder(), "--json"]).json();
    assert_eq!((&printed["written"], &printed["deleted"]), (&json!(2), &json!(1)), "{printed}");
    assert!(printed["seq"].as_u64().unwrap() > printed["fromSeq"].as_u64().unwrap());
    assert!(printed["fromSeq"].as_u64().unwrap() >= first);
    assert_eq!((used.read("a.txt"), used.read("new/deep.txt")), ("two\n".to_owned(), "new\n".to_owned()));
    assert!(!used.folder.join("gone.txt").exists());
    // A build sees that the file is newer than what was made of it.
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    assert!(used.folder.join("a.txt").metadata().unwrap().mtime().unsigned_abs() + 600 > now);
}

#[rstest]
#[tokio::test]
async fn a_pull_overwrites_nothing_that_was_changed_here(#[values(Backend::Sqlite)] backend: Backend) {
    let used = Used::new(backend, &[("a.txt", "one\n"), ("b.txt", "one\n")]).await;
    used.runner(&["checkout", &used.run.id, used.folder()]).ok();
    std::fs::write(used.folder.join("a.txt"), "mine\n").unwrap();
    used.write("a.txt", "theirs\n").await;
    used.write("b.txt", "theirs\n").await;
    let printed = used.runner(&["pull", used.folder()]);
    assert!(printed.err.contains("\n  a.txt (changed here)\n"), "{printed:?}");
    printed.failed(1, "1 file changed here and in the run; nothing was overwritten");
    assert_eq!(
        (used.read("a.txt"), used.read("b.txt")),
        ("mine\n".to_owned(), "theirs\n".to_owned()),
        "the rest is pulled"
    );
    // A command runs all the same, and is told what is not as in the run.
    let printed = used.exec(&["--dir", used.folder(), "--push"], "cat a.txt; echo more >> b.txt");
    assert_eq!((printed.code, printed.out.as_str()), (0, "mine\n"), "{printed:?}");
    assert!(printed.err.contains("not pulled: a.txt: changed here\n"), "{printed:?}");
    assert_eq!(
        (used.run.on_disk("a.txt"), used.run.on_disk("b.txt")),
        ("theirs\n".to_owned(), "theirs\nmore\n".to_owned())
    );
    let printed = used.runner(&["pull", used.folder(), "--theirs", "b.txt"]);
    printed.failed(1, "b.txt did not change both here and in the run");
    assert_eq!(used.read("a.txt"), "mine\n");
    let printed = used.runner(&["pull", used.folder(), "--theirs", "a.txt", "--json"]).json();
    // What was pulled beside it comes again, and is not written again.
    assert_eq!((&printed["written"], &printed["conflicts"]), (&json!(1), &json!([])), "{printed}");
    assert_eq!(used.read("a.txt"), "theirs\n");
    used.runner(&["push", used.folder(), "--reason", "r"]).ok();
    assert_eq!(used.run.on_disk("a.txt"), "theirs\n");

    let other = used.server.run_with_files(&[("c", "1")], json!({})).await;
    let printed = run(command(&used.server.base, &used.server.operator_token, &["checkout", &other.id, used.folder()]));
    printed.failed(1, &format!("is a checkout of the run {}", used.run.id));
    let nowhere = used.server.home.join("empty");
    std::fs::create_dir(&nowhere).unwrap();
    used.runner(&["pull", nowhere.to_str().unwrap()])
        .failed(1, "is no checkout of a run: begin with `workspaced checkout");
}

/// A file that was pulled beside one that was left is changed from the version that was pulled, whatever the record of the folder is.
#[rstest]
#[tokio::test]
async fn what_is_removed_from_a_file_that_was_pulled_beside_a_conflict_is_not_kept_by_a_merge(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
    #[values(false, true)] is_exec: bool,
) {
    let lines = "1\n2\n3\n4\n5\n";
    let used = Used::new(backend, &[("a.txt", lines), ("b.txt", lines), ("gone.txt", lines)]).await;
    used.runner(&["checkout", &used.run.id, used.folder()]).ok();
    std::fs::write(used.folder.join("a.txt"), "1 here\n2\n3\n4\n5\n").unwrap();
    used.write("a.txt", "1\n2\n3\n4\n5 there\n").await;
    used.write("b.txt", "1\n2\n3\nadded\n4\n5\n").await;
    used.run.ok("read_file", json!({"path": "gone.txt"})).await;
    used.run.ok("delete_file", json!({"path": "gone.txt", "reason": "r", "expectedSha256": "seen"})).await;
    used.runner(&["pull", used.folder()]).failed(1, "1 file changed here and in the run");
    assert!(used.read("b.txt").contains("added") && !used.folder.join("gone.txt").exists());
    let script = "sed -i s/here/again/ a.txt; sed -i /added/d b.txt; echo new > gone.txt";
    if is_exec {
        let printed = used.exec(&["--dir", used.folder(), "--push", "--merge"], script);
        assert_eq!(printed.code, 0, "{printed:?}");
    } else {
        let edited = Command::new("sh").args(["-c", script]).current_dir(&used.folder).status().unwrap();
        assert!(edited.success());
        let printed = used.runner(&["push", used.folder(), "--merge", "--reason", "r"]);
        assert_eq!(printed.code, 0, "{printed:?}");
    }
    let merged = "1 again\n2\n3\n4\n5 there\n";
    for (path, expected) in [("a.txt", merged), ("b.txt", lines), ("gone.txt", "new\n")] {
        assert_eq!((used.run.on_disk(path).as_str(), used.read(path).as_str()), (expected, expected), "{path}");
    }
}

#[rstest]
#[tokio::test]
async fn a_changed_index_leads_to_no_other_run(#[values(Backend::Sqlite)] backend: Backend) {
    let used = Used::new(backend, &[("a.txt", "a\n")]).await;
    let other = used.server.run_with_files(&[("private.txt", "p\n")], json!({})).await;
    let operator = |args: &[&str]| run(used.client(&used.server.operator_token, args));
    operator(&["checkout", &used.run.id, used.folder()]).ok();
    // As a command in a sandbox can, which has the folder and no token.
    let index = used.folder.join(".workspaced/state");
    let text = std::fs::read(&index).unwrap();
    let changed = String::from_utf8_lossy(&text).replace(&used.run.id, &other.id);
    assert_ne!(changed.as_bytes(), text, "the index names the run");
    std::fs::write(&index, changed).unwrap();
    std::fs::write(used.folder.join("evil.txt"), "e\n").unwrap();
    let files = other.files();
    for args in [&["pull", used.folder()][..], &["push", used.folder(), "--reason", "r"]] {
        operator(args).failed(1, "a command may have changed its index");
        operator(&[args, &["--run", &used.run.id]].concat()).failed(1, "a command may have changed its index");
    }
    assert!(!used.folder.join("private.txt").exists() && other.files() == files);

    // Without a note, the run is named.
    std::fs::write(&index, text).unwrap();
    std::fs::remove_dir_all(used.server.home.join("state")).unwrap();
    operator(&["pull", used.folder()]).failed(1, "name its run with --run");
    operator(&["pull", used.folder(), "--run", &used.run.id]).ok();
}

#[rstest]
#[tokio::test]
async fn what_a_command_has_changed_goes_back_as_one_set(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let lines = "1\n2\n3\n4\n5\n6\n7\n";
    let used = Used::new(backend, &[("a.txt", lines), ("gone/g.txt", "g\n"), (".gitignore", "*.log\n")]).await;
    let here = ["--dir", used.folder(), "--push"];
    let script =
        "sed -i s/7/seven/ a.txt; rm -r gone; echo n > new.txt; echo l > x.log; mkdir -p target; echo t > target/o";
    let printed = used.exec(&here, script);
    assert!(last(&printed).contains("3 applied, 1 generated not taken as record "), "{printed:?}");
    assert_eq!(printed.code, 0);
    assert_eq!(used.run.on_disk("a.txt"), lines.replace('7', "seven"));
    let files: Vec<_> = used.run.present_files().await.into_keys().collect();
    assert_eq!(files, [".gitignore", "a.txt", "new.txt"]);
    let (sets, events) = (used.records("apply_changeset").await, used.records("event.command").await);
    assert_eq!((sets.len(), events.len()), (1, 1));
    assert_eq!(sets[0]["seq"].as_u64().unwrap(), events[0]["seq"].as_u64().unwrap() + 1, "one after the other");

    // Somebody else changes the file while the command runs: refused, then merged, and the merge comes back.
    used.write("a.txt", &lines.replace('7', "seven").replace('1', "one")).await;
    std::fs::write(used.folder.join("a.txt"), lines.replace('7', "SEVEN")).unwrap();
    let refused = used.runner(&["push", used.folder(), "--reason", "by hand"]);
    refused.failed(1, "WRITE_CONFLICT");
    let printed = used.runner(&["push", used.folder(), "--reason", "by hand", "--merge"]);
    assert_eq!(printed.code, 0, "{printed:?}");
    let merged = lines.replace('7', "SEVEN").replace('1', "one");
    assert_eq!((used.run.on_disk("a.txt"), used.read("a.txt")), (merged.clone(), merged));

    // What policy denies refuses the set, or stays here.
    let denied = used.exec(&here, "echo A=1 > .env; echo more >> new.txt; exit 3");
    denied.failed(1, "POLICY_DENIED_SECRET");
    assert_eq!(used.run.on_disk("new.txt"), "n\n", "a refused set changes nothing");
    let left = used.exec(&["--dir", used.folder(), "--push", "--leave-denied"], "touch .env new.txt; exit 3");
    assert!(left.err.contains("left: .env: kind:SECRET_LIKE"), "{left:?}");
    left.failed(3, "exit 3");
    assert_eq!(used.run.on_disk("new.txt"), "n\nmore\n");
    assert!(!used.run.files().contains_key(".env"));
    assert_eq!(used.run.verify().await["intact"], true);
}

#[rstest]
#[tokio::test]
async fn a_set_has_only_what_its_own_command_changed(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let used = Used::new(backend, &[("a.txt", "one\n")]).await;
    let dir = ["--dir", used.folder()];
    used.exec(&[dir[0], dir[1], "--test"], "echo t > tested.txt; mkfifo pipe");
    used.exec(&[dir[0], dir[1], "--push"], "echo k > killed.txt; kill -9 $$");
    std::fs::write(used.folder.join("by-hand.txt"), "h\n").unwrap();
    let printed = used.exec(&[dir[0], dir[1], "--push"], "echo two > a.txt");
    assert!(printed.code == 0 && last(&printed).contains(" · 1 changed · 1 applied as record "), "{printed:?}");
    let note = "changed before this command, and no part of it: by-hand.txt and 2 more\n";
    assert!(printed.err.contains(note) && !printed.err.contains("pipe"), "{printed:?}");
    assert_eq!((used.run.on_disk("a.txt"), used.run.files().len()), ("two\n".to_owned(), 1));
    let printed = used.exec(&[dir[0], dir[1], "--push", "--json"], "true");
    let nothing: Value = serde_json::from_str(&printed.out).unwrap();
    let earlier = nothing["earlier"].as_array().unwrap().iter().map(|change| change["path"].as_str().unwrap());
    assert_eq!(earlier.collect::<Vec<_>>(), ["by-hand.txt", "killed.txt", "tested.txt"]);
    // One that goes on with such a file has changed it.
    used.exec(&[dir[0], dir[1], "--push"], "echo more >> killed.txt");
    assert_eq!(used.run.on_disk("killed.txt"), "k\nmore\n");
    assert_eq!(used.runner(&["push", used.folder(), "--reason", "the rest"]).code, 0);
    assert_eq!((used.run.on_disk("tested.txt"), used.run.on_disk("by-hand.txt")), ("t\n".to_owned(), "h\n".to_owned()));
}

#[tokio::test]
async fn a_command_that_changed_only_what_no_set_takes_is_told_why() {
    let used = Used::new(Backend::Sqlite, &[("a.txt", "one\n")]).await;
    let printed = used.exec(&["--dir", used.folder(), "--push"], "truncate -s 2G big.bin; truncate -s 2G a.txt");
    for path in ["a.txt", "big.bin"] {
        assert!(printed.err.contains(&format!("not sent: {path}: it has more than 1073741824 bytes\n")), "{printed:?}");
    }
    assert!(printed.code == 0 && last(&printed).contains(" · nothing changed · recorded as "), "{printed:?}");
    let pushed = used.runner(&["push", used.folder(), "--reason", "r"]);
    assert!(pushed.err.contains("not sent: big.bin: it has more than 1073741824 bytes\n"), "{pushed:?}");
}

#[rstest]
#[tokio::test]
async fn large_files_of_a_command_are_applied_with_its_small_ones(#[values(true, false)] is_here: bool) {
    let used = Used::new(Backend::Sqlite, &[("a.txt", "one\n")]).await;
    let place = if is_here { vec!["--dir", used.folder()] } else { vec!["--in", "pipe:env", "--dir", used.folder()] };
    // Packed, it is too large to be in memory.
    let script = "head -c 20M /dev/urandom > random.bin; truncate -s 9M zeros.bin; echo two > a.txt";
    let printed = used.exec(&[place.as_slice(), &["--push"]].concat(), script);
    assert!(printed.code == 0 && last(&printed).contains(" · 3 changed · 3 applied as record "), "{printed:?}");
    let bytes = |path: &str| std::fs::read(used.run.file(path)).unwrap();
    assert!(bytes("random.bin") == std::fs::read(used.folder.join("random.bin")).unwrap());
    assert_eq!((bytes("random.bin").len(), bytes("zeros.bin")), (20 << 20, vec![0; 9 << 20]));
    if is_here {
        let pushed = used.runner(&["push", used.folder(), "--reason", "r"]);
        assert_eq!(pushed.out, "nothing to push\n", "{pushed:?}");
    }
}

#[rstest]
#[tokio::test]
async fn an_applied_set_is_told_as_applied_although_the_folder_cannot_be_brought_up_to_date(
    #[values(Backend::Sqlite)] backend: Backend,
    #[values(true, false)] by_exec: bool,
) {
    let used = Used::new(backend, &[("a.txt", "one\n"), ("big.txt", "x\n")]).await;
    used.runner(&["checkout", &used.run.id, used.folder()]).ok();
    std::fs::write(used.folder.join("a.txt"), "two\n").unwrap();
    // A link that leads out is not sent, so that it is changed here while others change it.
    let change = "echo two > a.txt; ln -sf /nowhere big.txt";
    let printed = if by_exec {
        // Others change it after the pull: the command waits for that.
        let wait = format!("{change}; echo > ready; while [ ! -e go ]; do sleep 0.1; done; rm ready go");
        let args = ["exec", &used.run.id, "--dir", used.folder(), "--push", "--", "sh", "-c", &wait];
        let mut started = command(&used.server.base, &used.runner, &args);
        started.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
        let child = started.spawn().unwrap();
        until("the command has begun", async || used.folder.join("ready").exists()).await;
        used.write("big.txt", "theirs\n").await;
        std::fs::write(used.folder.join("go"), "").unwrap();
        let output = child.wait_with_output().unwrap();
        (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
    } else {
        std::fs::remove_file(used.folder.join("big.txt")).unwrap();
        std::os::unix::fs::symlink("/nowhere", used.folder.join("big.txt")).unwrap();
        used.write("big.txt", "theirs\n").await;
        let printed = used.runner(&["push", used.folder(), "--reason", "by hand"]);
        (printed.code, printed.out + &printed.err)
    };
    assert_eq!(used.run.on_disk("a.txt"), "two\n");
    assert_eq!(used.records("apply_changeset").await.len(), 1);
    let (code, text) = printed;
    assert!(text.contains("1 applied as record ") && !text.contains("not applied"), "{text}");
    assert!(code == 1 && text.contains("  big.txt (changed here)\n"), "{text}");
    assert_eq!(std::fs::read_link(used.folder.join("big.txt")).unwrap().to_str(), Some("/nowhere"));
}

#[rstest]
#[tokio::test]
async fn a_command_runs_in_the_newest_state_and_is_recorded_with_its_output(
    #[values(Backend::Sqlite)] backend: Backend,
) {
    let used = Used::new(backend, &[("a.txt", "one\n"), ("d/b.txt", "b\n")]).await;
    let dir = ["--dir", used.folder()];
    let printed = used.exec(&dir, "cat a.txt; echo problem >&2; echo $WORKSPACED_TOKEN; exit 5");
    assert_eq!((printed.code, printed.out.as_str()), (5, "one\n\n"), "{printed:?}");
    assert!(printed.err.starts_with("problem\n"), "{printed:?}");
    let line = last(&printed);
    assert!(
        line.starts_with("checked out 2 files (record ")
            && line.contains(") · exit 5 in T s · nothing changed · recorded as ")
    );
    let record = &used.records("event.command").await[0];
    let data = &record["input"]["data"];
    assert_eq!(
        (&data["exitCode"], &data["environment"]["kind"], &data["cwd"]),
        (&json!(5), &json!("local"), &json!("."))
    );
    assert_eq!(
        record["input"]["summary"],
        "sh -c 'cat a.txt; echo problem >&2; echo $WORKSPACED_TOKEN; exit 5': exit code 5"
    );
    let digest = data["outputSha256"].as_str().unwrap();
    let kept = used.run.operator.get(&format!("/v1/runs/{}/artifacts/sha256/{digest}", used.run.id)).await;
    assert_eq!((kept.status, kept.text().replace("problem\n", "")), (200, "one\n\n".to_owned()));

    used.write("a.txt", "two\n").await;
    let script =
        "cat ../a.txt; echo changed > b.txt; mkdir -p ../target/x; echo > ../target/x/y; rm ../a.txt; ln -s /etc out";
    let printed = used.exec(&["--dir", used.folder(), "--test", "--cwd", "d"], script);
    assert_eq!((printed.code, printed.out.as_str()), (0, "two\n"), "{printed:?}");
    assert!(
        printed.err.contains("D a.txt\nM d/b.txt\nnot sent: d/out: the link leads out of the folder\n"),
        "{printed:?}"
    );
    let line = last(&printed);
    assert!(line.starts_with("pulled 1 file (record "), "{line}");
    assert!(line.contains(" · exit 0 in T s · 2 changed, target/ not taken · not applied, recorded as "), "{line}");
    let record = &used.records("event.test").await[0];
    assert_eq!(record["input"]["data"]["changed"], json!(["D a.txt", "M d/b.txt"]));
    assert_eq!(used.run.on_disk("d/b.txt"), "b\n");
}

#[rstest]
#[tokio::test]
async fn a_fresh_folder_has_the_hash_of_its_tree_in_the_record_and_is_removed(
    #[values(Backend::Sqlite)] backend: Backend,
) {
    let used = Used::new(backend, &[("a.txt", "one\n")]).await;
    std::fs::create_dir(&used.folder).unwrap();
    let options = ["--dir", used.folder(), "--fresh", "--test", "--json"];
    let mut hashes = Vec::new();
    for _ in 0..2 {
        let printed = used.exec(&options, "ls");
        let answer: Value = serde_json::from_str(&printed.out).unwrap();
        assert_eq!((printed.code, &answer["exitCode"], &answer["changes"]), (0, &json!(0), &json!([])), "{printed:?}");
        assert!(printed.err.contains("a.txt\n"), "{printed:?}");
        let record = &used.records("event.test").await[hashes.len()];
        hashes.push(record["input"]["data"]["environment"]["treeSha256"].as_str().unwrap().to_owned());
    }
    assert_eq!((hashes[0].len(), &hashes[0]), (64, &hashes[1]));
    assert_eq!(std::fs::read_dir(&used.folder).unwrap().count(), 0);
}

#[rstest]
#[tokio::test]
async fn a_sandbox_needs_only_a_shell_and_a_pipe(#[values(Backend::Sqlite)] backend: Backend) {
    let used = Used::new(backend, &[("a.txt", "one\n"), ("it's", "quoted\n")]).await;
    // One of its own: another test may have copied that of all tests to a folder that sandboxes share, from where it is started.
    let own = used.server.home.join(format!("shim-{}", used.run.id));
    let program = [std::fs::read(shim()).unwrap(), used.run.id.clone().into_bytes()].concat();
    std::fs::write(&own, program).unwrap();
    let shim = own.to_str().unwrap().to_owned();
    // A program that runs a command with nothing of this program's environment.
    let sandbox = ["--in", "pipe:env -i PATH=/usr/bin:/bin", "--shim", &shim, "--dir", used.folder()];
    let printed = used.exec(&sandbox, "cat a.txt; env; echo new > new.txt; exit 3");
    assert!(
        printed.code == 3 && printed.out.starts_with("one\n") && !printed.out.contains("WORKSPACED"),
        "{printed:?}"
    );
    assert!(printed.err.contains("A new.txt\n"), "{printed:?}");
    let copied = |folder: &Path| {
        let names = std::fs::read_dir(folder.join(".workspaced")).unwrap().map(|entry| entry.unwrap().file_name());
        names.filter(|name| name.to_str().unwrap().starts_with("workspaced-shim-")).count()
    };
    assert_eq!(copied(&used.folder), 1);
    // The next command finds the program, and the files where they were.
    used.write("a.txt", "two\n").await;
    let printed = used.exec(&sandbox, "cat a.txt new.txt");
    assert_eq!((printed.code, printed.out.as_str()), (0, "two\nnew\n"), "{printed:?}");
    assert!(last(&printed).starts_with("pulled 1 file (record "), "{printed:?}");
    let record = &used.records("event.command").await[1];
    assert_eq!(record["input"]["data"]["environment"]["kind"], "pipe");

    let fresh = ["--in", "pipe:env", "--shim", &shim, "--fresh", "--dir", used.server.home.to_str().unwrap(), "--test"];
    let printed = used.exec(&fresh, "ls; pwd");
    assert!(printed.out.starts_with("a.txt\nit's\n"), "{printed:?}");
    assert!(!Path::new(printed.out.lines().last().unwrap()).exists());

    let broken = ["--in", "pipe:false", "--shim", &shim, "--dir", used.folder()];
    used.exec(&broken, "true").failed(1, "no shell and no shim started in pipe:false");
    let talks = ["--in", "pipe:ls --nothing", "--shim", &shim, "--dir", used.folder()];
    used.exec(&talks, "true").failed(1, "started in pipe:ls --nothing: ls: unrecognized option");
    let missing = ["--in", "pipe:env", "--shim", "/nowhere/shim", "--dir", used.folder()];
    used.exec(&missing, "true").failed(1, "It is the program that is copied into the sandbox");
}

#[rstest]
#[tokio::test]
async fn a_command_runs_over_ssh_as_it_does_here(#[values(Backend::Sqlite)] backend: Backend) {
    let Some(ssh) = SshServer::start() else { return };
    let used = Used::new(backend, &[("a.txt", "one\n"), ("it's", "quoted\n")]).await;
    // The record has its path, as the user has named it.
    let elsewhere = tempfile::tempdir_in("/tmp").unwrap();
    let (shim, folder) = (shim(), elsewhere.path().join("it's a \"folder\" with $HOME"));
    let exec = |place: &str, options: &[&str], script: &str| {
        let options = [&["--in", place, "--shim", &shim], options].concat();
        let mut command = used.exec_command(&options, script);
        command.envs(ssh.variables.iter().map(|(name, value)| (*name, value)));
        run(command)
    };
    let place = format!("ssh:box:{}", folder.display());
    let printed = exec(&place, &["--push"], "pwd; cat a.txt \"it's\"; env; echo new > new.txt; exit 3");
    let expected = format!("{}\none\nquoted\n", folder.display());
    assert!(
        printed.code == 3 && printed.out.starts_with(&expected) && !printed.out.contains("WORKSPACED"),
        "{printed:?}"
    );
    assert!(!printed.out.contains("SSH_AUTH_SOCK"), "the keys of the user are not for the sandbox: {printed:?}");
    assert_eq!(used.run.on_disk("new.txt"), "new\n");
    used.write("a.txt", "two\n").await;
    let printed = exec(&place, &[], "cat a.txt new.txt");
    assert_eq!((printed.code, printed.out.as_str()), (0, "two\nnew\n"), "{printed:?}");
    assert!(last(&printed).starts_with("pulled 1 file (record "), "{printed:?}");
    let environment = &used.records("event.command").await[1]["input"]["data"]["environment"];
    assert_eq!((&environment["kind"], environment["name"].as_str()), (&json!("ssh"), place.strip_prefix("ssh:")));
    let fresh = exec("ssh:box:/tmp", &["--fresh", "--test"], "ls; pwd");
    assert!(fresh.out.starts_with("a.txt\nit's\nnew.txt\n"), "{fresh:?}");
    assert!(!Path::new(fresh.out.lines().last().unwrap()).exists());
    exec("ssh:nowhere.invalid:/tmp", &[], "true").failed(1, "started in ssh:nowhere.invalid:/tmp: ssh: ");
}

#[rstest]
#[tokio::test]
async fn an_interrupt_reaches_the_command_and_is_recorded(
    #[values(Backend::Sqlite)] backend: Backend,
    #[values(false, true)] is_over_ssh: bool,
) {
    let ssh = if is_over_ssh { SshServer::start() } else { None };
    let used = Used::new(backend, &[("a.txt", "one\n")]).await;
    let script = "trap 'echo interrupted; exit 9' INT; echo ready > ready; while :; do sleep 0.1; done";
    let shim = shim();
    let mut options = vec!["--dir", used.folder()];
    options.extend(ssh.as_ref().map(|_| ["--in", "ssh:box:/", "--shim", &shim]).into_iter().flatten());
    let mut started = used.exec_command(&options, script);
    started.envs(ssh.iter().flat_map(|ssh| &ssh.variables).map(|(name, value)| (*name, value)));
    started.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let child = started.spawn().unwrap();
    until("the command has begun", async || used.folder.join("ready").exists()).await;
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(9), b"interrupted\n".as_slice()));
    assert_eq!(used.records("event.command").await[0]["input"]["data"]["exitCode"], 9);
}

#[rstest]
#[tokio::test]
async fn a_link_in_the_place_of_a_folder_is_not_followed(#[values(Backend::Sqlite)] backend: Backend) {
    let used = Used::new(backend, &[("d/a.txt", "one\n")]).await;
    used.runner(&["checkout", &used.run.id, used.folder()]).ok();
    let outside = used.server.home.join("outside");
    std::fs::create_dir(&outside).unwrap();
    std::fs::remove_dir_all(used.folder.join("d")).unwrap();
    symlink(&outside, used.folder.join("d")).unwrap();
    used.write("d/a.txt", "two\n").await;
    used.runner(&["pull", used.folder()]).failed(1, "nothing was overwritten");
    assert_eq!(std::fs::read_dir(outside).unwrap().count(), 0);
}

#[rstest]
#[tokio::test]
async fn a_link_that_stays_inside_goes_both_ways(#[values(Backend::Sqlite)] backend: Backend) {
    let used = Used::new(backend, &[("a.txt", "a\n"), ("d/b.txt", "b\n"), ("e/c.txt", "c\n")]).await;
    let other = used.server.home.join("other");
    used.runner(&["checkout", &used.run.id, other.to_str().unwrap()]).ok();
    let script =
        "ln -s a.txt newest; ln -s ../a.txt d/up; rm d/b.txt; ln -s up d/b.txt; rm -r e; ln -s d e; ln -s /etc out";
    let printed = used.exec(&["--dir", used.folder(), "--push"], script);
    assert_eq!(printed.code, 0, "{printed:?}");
    assert!(printed.err.contains("not sent: out: the link leads out of the folder"), "{printed:?}");
    let linked = used.run.present_files().await;
    let targets: Vec<_> = linked.iter().map(|(path, entry)| (path.as_str(), entry.strip_prefix("-> "))).collect();
    let expected = [
        ("a.txt", None),
        ("d/b.txt", Some("up")),
        ("d/up", Some("../a.txt")),
        ("e", Some("d")),
        ("newest", Some("a.txt")),
    ];
    assert_eq!(targets, expected);

    let in_other = |path: &str| std::fs::read_link(other.join(path)).ok().map(|to| to.display().to_string());
    used.runner(&["pull", other.to_str().unwrap()]).ok();
    for (path, target) in expected {
        assert_eq!(in_other(path).as_deref(), target, "{path}");
    }
    // The other way round, with a folder and a file in the place of links.
    let script = "rm e newest; mkdir e; echo new > e/c.txt; echo file > newest; ln -sfn ../newest d/up";
    let printed = used.exec(&["--dir", other.to_str().unwrap(), "--push"], script);
    assert_eq!(printed.code, 0, "{printed:?}");
    std::fs::remove_file(used.folder.join("out")).unwrap();
    used.runner(&["pull", used.folder()]).ok();
    let tree = used.run.present_files().await;
    assert_eq!(tree["d/up"], "-> ../newest");
    for folder in [&used.folder, &other] {
        let mut found = files_in(folder);
        found.retain(|path, _| !path.starts_with(".workspaced/"));
        assert_eq!(found, tree, "{}", folder.display());
    }
}

/// A test on files that are not the run's, by hand or of its own making, is none of the run.
#[rstest]
#[tokio::test]
async fn a_test_on_other_files_than_the_runs_names_them(#[values(Backend::Sqlite)] backend: Backend) {
    let files = [("a.txt", "one\n"), (".gitignore", "*.log\n")];
    let used = Used::new(backend, &files).await;
    let dir = ["--dir", used.folder(), "--test"];
    used.exec(&dir, "echo l > x.log");
    std::fs::write(used.folder.join("a.txt"), "by hand\n").unwrap();
    used.exec(&dir, "true");
    let differs: Vec<_> =
        used.records("event.test").await.iter().map(|event| event["input"]["data"]["differs"].clone()).collect();
    assert_eq!(differs, [json!(null), json!(["a.txt"])]);
    let set = used.exec(&["--dir", used.folder(), "--push"], "echo b > b.txt");
    assert_eq!(set.code, 0, "{set:?}");
    assert_eq!(used.records("event.command").await[0]["input"]["data"]["differs"], json!(["a.txt"]));
}

#[rstest]
#[tokio::test]
async fn what_a_failed_command_left_is_applied_only_if_that_is_wanted(#[values(Backend::Sqlite)] backend: Backend) {
    let used = Used::new(backend, &[("a.txt", "one\n")]).await;
    let any = used.exec(&["--dir", used.folder(), "--push"], "echo half > half.txt; exit 3");
    assert!(any.code == 3 && last(&any).ends_with(" · applied although the command failed"), "{any:?}");
    assert_eq!(used.run.on_disk("half.txt"), "half\n");
    let ok = used.exec(&["--dir", used.folder(), "--push=ok"], "echo more > half.txt; exit 4");
    assert!(ok.code == 4 && last(&ok).ends_with(" · not applied, because the command failed"), "{ok:?}");
    assert_eq!(used.run.on_disk("half.txt"), "half\n");
    let good = used.exec(&["--dir", used.folder(), "--push=ok"], "echo good > good.txt");
    assert!(good.code == 0 && used.run.files().contains_key("good.txt"), "{good:?}");
}

/// What was changed and could not be sent is no success.
#[tokio::test]
async fn a_file_that_grows_all_the_time_fails_a_push() {
    let used = Used::new(Backend::Sqlite, &[("a.txt", "one\n")]).await;
    let writer = "while [ -e ../go ]; do echo more >> busy.txt; done";
    std::fs::write(used.server.home.join("go"), "").unwrap();
    let script = format!("setsid sh -c '{writer}' >/dev/null 2>&1 & while [ ! -s busy.txt ]; do :; done");
    let printed = used.exec(&["--dir", used.folder(), "--push"], &script);
    std::fs::remove_file(used.server.home.join("go")).unwrap();
    if !used.run.files().contains_key("busy.txt") {
        assert!(printed.code == 1 && printed.err.contains("busy.txt (it changes while it is read)"), "{printed:?}");
        let event = &used.records("event.command").await[0];
        assert!(event["input"]["data"]["notApplied"].as_str().unwrap().contains("busy.txt"), "{event:#}");
    }
}

#[tokio::test]
async fn exec_ends_at_its_time_and_at_sigterm() {
    let used = Used::new(Backend::Sqlite, &[("a.txt", "one\n")]).await;
    let limited = used.exec(&["--dir", used.folder(), "--push", "--timeout", "1"], "echo x > x.txt; exec sleep 600");
    assert!(limited.code == 124 && last(&limited).contains(" · ended by --timeout after "), "{limited:?}");
    assert!(!used.run.files().contains_key("x.txt"));
    for heeds in [true, false] {
        let trap = if heeds { "" } else { "trap '' TERM; " };
        let script = format!("{trap}echo ready > ready; while :; do sleep 0.1; done");
        let mut started = used.exec_command(&["--dir", used.folder()], &script);
        let mut child =
            started.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null()).spawn().unwrap();
        until("the command has begun", async || used.folder.join("ready").exists()).await;
        std::fs::remove_file(used.folder.join("ready")).unwrap();
        let pid = rustix::process::Pid::from_child(&child);
        let mut ended = None;
        // The first asks the command, the second does not wait for it.
        for _ in 0..if heeds { 1 } else { 2 } {
            rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
            tokio::time::sleep(std::time::Duration::from_millis(200)).await;
            ended = child.try_wait().unwrap();
        }
        let status = match ended {
            Some(status) => status,
            None => child.wait().unwrap(),
        };
        assert_eq!(status.code(), Some(143), "{heeds}");
    }
}

/// A command in a folder of this machine runs as the user of the program that has the token.
#[tokio::test]
async fn a_command_cannot_read_the_token_of_the_program_that_runs_it() {
    let used = Used::new(Backend::Sqlite, &[("a.txt", "one\n")]).await;
    let folder = tempfile::tempdir_in("/tmp").unwrap();
    std::fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    let dir = folder.path().join("checkout");
    let mut command = used.exec_command(&["--dir", dir.to_str().unwrap()], "cat /proc/$PPID/environ; env");
    command.env("XDG_STATE_HOME", folder.path().join("state")).current_dir("/");
    if rustix::process::geteuid().is_root() {
        // From root, nothing is hidden.
        std::os::unix::process::CommandExt::uid(&mut command, 65534);
    }
    let printed = run(command);
    assert!(printed.code == 0 && printed.out.contains("PATH="), "{printed:?}");
    assert!(!printed.out.contains(&used.runner) && printed.err.contains("ermission denied"), "{printed:?}");
}

#[tokio::test]
async fn a_checkout_says_what_it_lacks() {
    let used = Used::new(Backend::Sqlite, &[("a.txt", "one\n")]).await;
    used.run.put("notes.txt", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n");
    used.run.put("d/.env", "A=1\n");
    let printed = used.runner(&["checkout", &used.run.id, used.folder(), "--json"]).json();
    assert_eq!(
        (&printed["leftOut"], &printed["leftOutPaths"]),
        (&json!(2), &json!(["d/.env", "notes.txt"])),
        "{printed}"
    );
}
