//! Commands that do what they can: nothing that was not judged gets into the run, each is bounded, and each answer says what to do.

use std::path::Path;
use std::time::{Duration, Instant};

use rstest::rstest;
use serde_json::{Value, json};

use super::{Printed, command, run};
use crate::harness::{Backend, Run, Server, Snapshot, shim};

/// A run, and a sandbox with its checkout.
struct Sandbox<'a> {
    server: &'a Server,
    run: Run,
    folder: String,
    before: Snapshot,
}

impl<'a> Sandbox<'a> {
    async fn of(server: &'a Server) -> Self {
        let files = [("a.txt", "one\n"), ("b.txt", "b\n"), ("d/c.txt", "c\n"), (".gitignore", "*.log\n")];
        let run = server.run_with_files(&files, json!({})).await;
        let folder = server.home.join(format!("sandbox-{}", run.id)).display().to_string();
        Self { server, folder, before: run.present_files().await, run }
    }

    /// Runs a script there, and applies what it has changed.
    fn exec(&self, options: &[&str], script: &str) -> Printed {
        let shim = shim();
        let sandbox = ["--in", "pipe:env -i PATH=/usr/bin:/bin", "--shim", &shim, "--dir", &self.folder, "--push"];
        let args = ["exec", &self.run.id].into_iter().chain(sandbox).chain(options.iter().copied());
        let args: Vec<_> = args.chain(["--", "sh", "-c", script]).collect();
        run(command(&self.server.base, &self.server.operator_token, &args))
    }

    /// The paths that are new or differ, each with its content; those that are gone, without.
    async fn changed(&self) -> Vec<(String, Option<String>)> {
        let after = self.run.present_files().await;
        let gone = self.before.keys().filter(|path| !after.contains_key(*path)).map(|path| (path.clone(), None));
        let new = after.iter().filter(|(path, entry)| self.before.get(*path) != Some(entry));
        gone.chain(new.map(|(path, _)| (path.clone(), Some(self.run.on_disk(path))))).collect()
    }

    async fn records(&self, tool: &str) -> Vec<Value> {
        let path = format!("/v1/runs/{}/audit?tool={tool}", self.run.id);
        self.run.operator.get(&path).await.is(200)["items"].as_array().unwrap().clone()
    }
}

/// A hostile command: its script, its exit code as `exec` gives it, what is printed, and what the run has afterwards.
struct Hostile {
    options: &'static [&'static str],
    script: &'static str,
    code: i32,
    printed: &'static [&'static str],
    changed: &'static [(&'static str, Option<&'static str>)],
}

const OK: (&str, Option<&str>) = ("ok.txt", Some("ok\n"));
const NOTHING: Hostile = Hostile { options: &[], script: "", code: 0, printed: &[], changed: &[] };

const COMMANDS: &[Hostile] = &[
    Hostile {
        script: "echo A=1 > .env; echo ok > ok.txt",
        code: 1,
        printed: &["· not applied", "POLICY_DENIED_SECRET: `.env` is a secret file", "Continue without it."],
        ..NOTHING
    },
    Hostile {
        options: &["--leave-denied"],
        script: "echo A=1 > .env; echo ok > ok.txt",
        printed: &["left: .env: kind:SECRET_LIKE"],
        changed: &[OK],
        ..NOTHING
    },
    Hostile {
        script: "mkdir -p .git/hooks d/.git .GIT/hooks; for d in .git/hooks d/.git .GIT/hooks; do echo x > $d/post-commit; done; echo ok > ok.txt",
        printed: &["not sent: .GIT/hooks/post-commit: the path is in `.git`", "· 1 changed ·"],
        changed: &[OK],
        ..NOTHING
    },
    Hostile {
        script: "ln -s /etc/passwd out; ln -s ../../../etc up; rm b.txt; ln -s /etc/shadow b.txt; echo ok > ok.txt",
        printed: &[
            "not sent: out: the link leads out of the folder",
            "not sent: up: the link leads out of the folder",
            "not sent: b.txt: the link leads out of the folder",
        ],
        changed: &[OK],
        ..NOTHING
    },
    Hostile {
        script: "ln -s .env inside; echo ok > ok.txt",
        code: 1,
        printed: &["POLICY_DENIED_SECRET: `inside` is a link to what policy hides: `.env` is a secret file"],
        ..NOTHING
    },
    Hostile {
        options: &["--leave-denied"],
        script: "ln -s .env inside; rm -r d; ln -s /tmp d; rm a.txt; ln -s b.txt a.txt; echo ok > ok.txt",
        printed: &["left: inside: kind:SECRET_LIKE", "not sent: d: the link leads out of the folder"],
        changed: &[("d/c.txt", None), ("a.txt", Some("b\n")), OK],
        ..NOTHING
    },
    Hostile {
        script: "mkfifo pipe; rm a.txt; mkfifo a.txt; echo ok > ok.txt",
        printed: &["not sent: pipe: it is a device, a FIFO or a socket", "not sent: a.txt: it is no file any more"],
        changed: &[OK],
        ..NOTHING
    },
    Hostile {
        script: "truncate -s 10G large; truncate -s 10G a.txt; truncate -s 10G large.log; echo ok > ok.txt",
        printed: &[
            "not sent: large: it has more than 1073741824 bytes",
            "not sent: a.txt: it has more than 1073741824 bytes",
        ],
        changed: &[OK],
        ..NOTHING
    },
    Hostile {
        script: "for n in 1 2 3; do truncate -s 400M zeros$n; done; echo ok > ok.txt",
        code: 1,
        printed: &["· not applied", "the changed files have more than 1073741824 bytes"],
        ..NOTHING
    },
    Hostile {
        script: r#"for name in "a\033[2Jb" "line\nbreak" "\377" "a\177"; do echo x > "$(printf "$name")"; done; echo ok > ok.txt"#,
        printed: &[
            r"not sent: a\u{1b}[2Jb: the name has control characters",
            r"not sent: line\nbreak: the name has control characters",
            "the name is not UTF-8",
        ],
        changed: &[OK],
        ..NOTHING
    },
    Hostile {
        script: r#"echo x > "$(printf 'a\342\200\256txt.exe')"; echo ok > ok.txt"#,
        code: 1,
        printed: &["PATH_REJECTED"],
        ..NOTHING
    },
    Hostile {
        script: r"touch -r a.txt ref; printf 'two\n' > a.txt; touch -r ref a.txt; rm ref",
        printed: &["M a.txt"],
        changed: &[("a.txt", Some("two\n"))],
        ..NOTHING
    },
    Hostile {
        script: "touch .wh.a.txt .wh.d d/.wh..wh..opq d/.wh.c.txt; mkdir .wh.x; echo x > .wh.x/y; echo ok > ok.txt",
        printed: &["not sent: .wh.d: the name begins with `.wh.`", "not sent: d/.wh..wh..opq: the name begins"],
        changed: &[OK],
        ..NOTHING
    },
    Hostile {
        script: "git init -q .; git -c user.name=n -c user.email=e@x commit -q --allow-empty -m m; echo ok > ok.txt",
        printed: &["not sent: .git/: the run takes the files of the sandbox and none of its commits"],
        changed: &[OK],
        ..NOTHING
    },
    Hostile {
        script: "kill -9 $PPID; echo ok > ok.txt",
        code: 1,
        printed: &["the connection to the sandbox was lost", "the run is as it was"],
        ..NOTHING
    },
    Hostile {
        script: "exec >&-; echo garbage > /proc/$PPID/fd/1; echo ok > ok.txt; sleep 2",
        code: 1,
        printed: &["the connection to the sandbox was lost", "the run is as it was"],
        ..NOTHING
    },
    Hostile {
        script: "rm -rf .workspaced; echo ok > ok.txt",
        code: 1,
        printed: &["check the run out into another folder"],
        ..NOTHING
    },
    Hostile {
        script: "echo garbage > .workspaced/index; echo ok > ok.txt",
        printed: &["1 applied"],
        changed: &[OK],
        ..NOTHING
    },
    Hostile {
        script: "echo x > .workspaced/planted; mkdir .WorkSpaced; echo x > .WorkSpaced/index; echo ok > ok.txt",
        printed: &["not sent: .WorkSpaced/index: the path is in the folder of the index"],
        changed: &[OK],
        ..NOTHING
    },
    Hostile {
        script: "rm .workspaced/clock; ln -s ../a.txt .workspaced/clock; ln -s ../b.txt .workspaced/index.new; echo ok > ok.txt",
        code: 1,
        printed: &["the clock of the index"],
        ..NOTHING
    },
    Hostile {
        options: &["--leave-denied"],
        script: "mkdir -p target/debug node_modules/m; echo x > target/debug/app; echo x > node_modules/m/i.js; echo x > x.log; echo ok > ok.txt",
        printed: &["node_modules/ not taken and others", "1 generated not taken"],
        changed: &[OK],
        ..NOTHING
    },
    Hostile {
        script: "rm -rf a.txt b.txt d .gitignore; cd /; kill -TERM 0",
        printed: &["ended by signal 15", "not applied, recorded as"],
        code: 143,
        ..NOTHING
    },
];

#[rstest]
#[tokio::test]
async fn what_a_hostile_command_leaves_is_judged_or_stays_where_it_is(#[values(Backend::Sqlite)] backend: Backend) {
    let server = Server::start(backend).await;
    for Hostile { options, script, code, printed, changed } in COMMANDS {
        let sandbox = Sandbox::of(&server).await;
        let answer = sandbox.exec(options, script);
        assert_eq!(answer.code, *code, "{script}: {answer:?}");
        for text in *printed {
            assert!(answer.err.contains(text), "{script}: {text:?} is not in {}", answer.err);
        }
        let expected: Vec<_> =
            changed.iter().map(|(path, text)| ((*path).to_owned(), text.map(str::to_owned))).collect();
        assert_eq!(sandbox.changed().await, expected, "{script}: {}", answer.err);
        assert_eq!(sandbox.run.verify().await["intact"], true, "{script}");
        // Whatever it did to its sandbox, it is in the record.
        assert_eq!(sandbox.records("event.command").await.len(), 1, "{script}");
        // The same folder, or another one if this one is lost, goes on with the run.
        let other = format!("{}-again", sandbox.folder);
        let again = ["exec", &sandbox.run.id, "--dir", &other, "--", "cat", "b.txt"];
        let again = run(command(&server.base, &server.operator_token, &again));
        assert_eq!((again.code, again.out.as_str()), (0, "b\n"), "{script}: {again:?}");
    }
}

#[rstest]
#[case::some(60_000, "the layer has more than 50000 entries")]
#[case::exhaustive_many(110_000, "the layer has more than 50000 entries")]
#[case::exhaustive_too_many(260_000, "more than 250000 files changed")]
#[tokio::test]
async fn a_command_that_makes_too_many_files_changes_nothing(
    #[values(Backend::Sqlite)] backend: Backend,
    #[case] count: usize,
    #[case] why: &str,
) {
    let server = Server::start(backend).await;
    let sandbox = Sandbox::of(&server).await;
    let printed =
        sandbox.exec(&[], &format!("mkdir many; cd many; seq {count} | xargs touch; cd ..; echo ok > ok.txt"));
    assert!(printed.err.contains(why), "{}", printed.err);
    assert_eq!((printed.code, sandbox.changed().await), (1, vec![]));
    assert_eq!(sandbox.records("event.command").await.len(), 1);
    // What is printed of them is bounded.
    assert!(printed.err.len() < 10_000, "{} bytes", printed.err.len());
}

#[rstest]
#[tokio::test]
async fn a_file_that_is_written_all_the_time_goes_in_whole_or_not_at_all(#[values(Backend::Sqlite)] backend: Backend) {
    let server = Server::start(backend).await;
    let sandbox = Sandbox::of(&server).await;
    // It leaves its group, and goes on after the command: each state of the file is of one letter.
    let writer =
        "while [ -e go ]; do for c in a b c d; do head -c 900000 /dev/zero | tr '\\0' \\$c > busy.txt; done; done";
    let script = format!(
        "touch go; setsid sh -c \"{writer}\" >/dev/null 2>&1 & while [ ! -s busy.txt ]; do :; done; echo ok > ok.txt"
    );
    let printed = sandbox.exec(&[], &script);
    std::fs::remove_file(Path::new(&sandbox.folder).join("go")).unwrap();
    // That the file has changed again afterwards is said too.
    let is_stale = printed.err.contains("the folder is not up to date");
    let is_unsent = printed.err.contains(" · 1 not sent");
    assert!(
        printed.err.contains(" applied as record ") && printed.code == i32::from(is_stale || is_unsent),
        "{printed:?}"
    );
    assert_eq!(sandbox.run.on_disk("ok.txt"), "ok\n");
    if sandbox.run.repo.join("busy.txt").exists() {
        // It may have been between two writes.
        let text = sandbox.run.on_disk("busy.txt");
        let first = text.chars().next();
        assert!(text.chars().all(|letter| Some(letter) == first), "{} bytes, torn", text.len());
    } else {
        assert!(printed.err.contains("not sent: busy.txt: it changes while it is read"), "{}", printed.err);
    }
    assert_eq!(sandbox.run.verify().await["intact"], true);
}

#[rstest]
#[tokio::test]
async fn a_command_that_rewrites_the_index_can_hide_and_not_forge(#[values(Backend::Sqlite)] backend: Backend) {
    let server = Server::start(backend).await;
    let sandbox = Sandbox::of(&server).await;
    assert_eq!(sandbox.exec(&[], "true").code, 0);
    let file = |name: &str| Path::new(&sandbox.folder).join(".workspaced").join(name);
    let (entries, state) = (std::fs::read(file("index")).unwrap(), std::fs::read_to_string(file("state")).unwrap());
    // Others change a file meanwhile, which this folder does not have yet.
    sandbox.run.replace("a.txt", "theirs\n", &crate::harness::sha256("one\n")).await.ok();
    let seq = sandbox.run.last_record().await["seq"].as_u64().unwrap();
    let based = regex_lite::Regex::new(r#""seq":\d+"#).unwrap();
    let at = entries.windows(5).position(|name| name == b"b.txt").unwrap();
    let outside = [&entries[..at], b"../bt", &entries[at + 5..]].concat();
    for (what, entries, state) in [
        ("a later record", entries.clone(), based.replace(&state, format!("\"seq\":{}", seq + 1000)).into_owned()),
        ("another run", entries.clone(), state.replace(&sandbox.run.id, "run_other")),
        ("a path outside", outside, state.clone()),
        ("cut", entries[..entries.len() / 2].to_vec(), state.clone()),
        ("no index", vec![0; 5000], state.clone()),
        ("no text", entries.clone(), "\u{0}".repeat(5000)),
    ] {
        std::fs::write(file("index"), entries).unwrap();
        std::fs::write(file("state"), state).unwrap();
        let printed = sandbox.exec(&[], "echo ok > ok.txt");
        assert_ne!(printed.code, 0, "{what}: {printed:?}");
        assert_eq!(sandbox.changed().await, [("a.txt".to_owned(), Some("theirs\n".to_owned()))], "{what}");
    }
    // What it hides stays unknown: the run has what it had.
    std::fs::write(file("index"), entries).unwrap();
    std::fs::write(file("state"), based.replace(&state, format!("\"seq\":{seq}")).as_ref()).unwrap();
    let began = Instant::now();
    let printed = sandbox.exec(&[], "true");
    assert_eq!(printed.code, 0, "{printed:?}");
    assert!(began.elapsed() < Duration::from_mins(1));
    assert_eq!(sandbox.changed().await, [("a.txt".to_owned(), Some("theirs\n".to_owned()))]);
    assert_eq!(sandbox.records("apply_changeset").await.len(), 0);
}
