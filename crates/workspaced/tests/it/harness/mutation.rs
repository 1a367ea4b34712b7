//! Every kind of mutation, each as one repeatable call.

use reqwest::Method;
use serde_json::{Value, json};

use super::{Answer, Run, Server, Snapshot, sha256};

/// The files of a run before the mutation.
pub(crate) const FILES: [(&str, &str); 4] =
    [("a.txt", "one\ntwo\nthree\n"), ("b.txt", "b\n"), ("gone.txt", "g\n"), ("Cargo.lock", "l\n")];

/// Changes, creates, deletes and moves a file, and creates folders.
const PATCH: &str = "--- a/a.txt\n+++ b/a.txt\n@@ -1,3 +1,3 @@\n one\n-two\n+2\n three\n--- /dev/null\n+++ b/new/dir/n.txt\n@@ -0,0 +1 @@\n+n\n\
    --- a/gone.txt\n+++ /dev/null\n@@ -1 +0,0 @@\n-g\n\
    diff --git a/b.txt b/moved/b.txt\nsimilarity index 100%\nrename from b.txt\nrename to moved/b.txt\n";

/// Replaces two folders with files, one that the patch empties and one that is empty, and a file with a folder.
const SWAP: &str = "--- a/full/x.txt\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n--- /dev/null\n+++ b/full\n@@ -0,0 +1 @@\n+full\n\
    --- /dev/null\n+++ b/empty\n@@ -0,0 +1 @@\n+empty\n\
    diff --git a/b.txt b/b.txt/deep/b.txt\nsimilarity index 100%\nrename from b.txt\nrename to b.txt/deep/b.txt\n";

/// Empties folders, including nested ones.
const EMPTY: &str = "--- a/old/er/x.txt\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n\
    diff --git a/older/y.txt b/y.txt\nsimilarity index 100%\nrename from older/y.txt\nrename to y.txt\n";

/// Changes the mode of a file and nothing else.
const MODE: &str = "diff --git a/a.txt b/a.txt\nold mode 100644\nnew mode 100755\n";

/// The content type of [`changeset_body`].
pub(crate) const CHANGESET_TYPE: &str = "multipart/form-data; boundary=a-border";

/// Returns the body of a request with a change set.
pub(crate) fn changeset_body(changeset: &Value, layer: &[u8]) -> Vec<u8> {
    let part = |name: &str| format!("--a-border\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n");
    let json = changeset.to_string();
    let parts = [part("changeset").as_bytes(), json.as_bytes(), b"\r\n", part("layer").as_bytes()].concat();
    [&parts, layer, b"\r\n--a-border--\r\n"].concat()
}

/// Changes, creates and deletes a file, creates a link, and replaces a file with one.
fn layer(is_large: bool) -> Vec<u8> {
    let mut files = vec![("a.txt", &b"1\ntwo\nthree\n"[..]), ("new/dir/n.txt", b"n\n"), (".wh.gone.txt", b"")];
    let large = [vec![0; 9 << 20], vec![1; 9 << 20]];
    if is_large {
        files.extend([("large/0.bin", large[0].as_slice()), ("large/1.bin", large[1].as_slice())]);
    }
    let mut layer = super::tar_of(&files);
    // Without the two blocks of zeros at its end.
    layer.truncate(layer.len() - 1024);
    let mut links = tar::Builder::new(layer);
    for (path, target) in [("b.txt", "a.txt"), ("new/link", "../new/dir/n.txt")] {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(tar::EntryType::Symlink);
        header.set_size(0);
        links.append_link(&mut header, path, target).unwrap();
    }
    links.into_inner().unwrap()
}

/// A kind of mutation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Create,
    Replace,
    Edit,
    Delete,
    Move,
    Patch,
    Swap,
    Empty,
    Mode,
    PutBinary,
    PutLarge,
    Revert,
    Approval,
    Changeset,
    /// With contents outside of memory, and a layer that is one too.
    LargeChangeset,
}

/// One mutation of a run, with the tool call ID `m`.
#[derive(Debug)]
pub(crate) struct Mutation {
    pub(crate) run: Run,
    /// The tree at the start of the run.
    pub(crate) start: Snapshot,
    /// The number of records before the mutation.
    pub(crate) records: usize,
    kind: Kind,
    path: String,
    body: Value,
    bytes: Vec<u8>,
}

impl Kind {
    pub(crate) const ALL: [Self; 15] = [
        Self::Create,
        Self::Replace,
        Self::Edit,
        Self::Delete,
        Self::Move,
        Self::Patch,
        Self::Swap,
        Self::Empty,
        Self::Mode,
        Self::PutBinary,
        Self::PutLarge,
        Self::Revert,
        Self::Approval,
        Self::Changeset,
        Self::LargeChangeset,
    ];

    /// Returns how many records it has: a change set follows that of its command.
    pub(crate) fn records(self) -> usize {
        if matches!(self, Self::Changeset | Self::LargeChangeset) { 2 } else { 1 }
    }

    /// Returns how many files it moves into or out of the tree.
    pub(crate) fn steps(self) -> usize {
        match self {
            Self::Patch | Self::Swap | Self::Changeset => 5,
            Self::LargeChangeset => 7,
            Self::Empty => 3,
            Self::Move => 2,
            _ => 1,
        }
    }

    /// Returns whether it creates folders.
    pub(crate) fn creates_folders(self) -> bool {
        use Kind::{Changeset, Create, LargeChangeset, Move, Patch, PutBinary, Swap};
        matches!(self, Create | Move | Patch | Swap | PutBinary | Changeset | LargeChangeset)
    }

    /// Returns how many folders it replaces with files.
    pub(crate) fn replaced_folders(self) -> usize {
        if self == Self::Swap { 2 } else { 0 }
    }

    /// Returns how many folders it empties and so removes.
    pub(crate) fn emptied_folders(self) -> usize {
        if self == Self::Empty { 3 } else { 0 }
    }

    fn tool_and_input(self) -> (&'static str, Value) {
        let a = sha256(FILES[0].1);
        match self {
            Self::Create => ("write_file", json!({"path": "new/c.txt", "content": "c\n"})),
            Self::Replace => ("write_file", json!({"path": "a.txt", "content": "ONE\n", "expectedSha256": a})),
            Self::Edit => ("edit_file", json!({"path": "a.txt", "oldString": "two", "newString": "2"})),
            Self::Delete => ("delete_file", json!({"path": "gone.txt", "expectedSha256": sha256("g\n")})),
            Self::Move => ("move_file", json!({"from": "b.txt", "to": "moved/b.txt", "expectedSha256": sha256("b\n")})),
            Self::Patch => ("apply_patch", json!({"patch": PATCH})),
            Self::Swap => ("apply_patch", json!({"patch": SWAP})),
            Self::Empty => ("apply_patch", json!({"patch": EMPTY})),
            Self::Mode => ("apply_patch", json!({"patch": MODE})),
            Self::Revert => ("revert_calls", json!({"toolCallIds": ["first"]})),
            Self::Approval => {
                ("write_file", json!({"path": "Cargo.lock", "content": "m\n", "expectedSha256": sha256("l\n")}))
            }
            Self::PutBinary | Self::PutLarge | Self::Changeset | Self::LargeChangeset => ("", json!({})),
        }
    }
}

impl Mutation {
    /// Creates a run with everything that the mutation needs. Does not send the mutation.
    pub(crate) async fn prepare(server: &Server, kind: Kind) -> Self {
        let run = server.run_with_files(&FILES, json!({"policy": {"allowModeChange": true}})).await;
        let start = run.snapshot();
        let (tool, mut body) = kind.tool_and_input();
        body["toolCallId"] = json!("m");
        body["reason"] = json!("r");
        let (mut path, mut bytes) = (format!("/v1/runs/{}/tools/{tool}", run.id), Vec::new());
        match kind {
            Kind::PutBinary => {
                path = format!("/v1/runs/{}/files/bin/b.dat", run.id);
                bytes = (0..=255).collect();
            }
            Kind::PutLarge => {
                path = format!("/v1/runs/{}/files/large.dat", run.id);
                bytes = (0..1_200_000_u32).flat_map(|number| [0, (number % 251).to_le_bytes()[0]]).collect();
            }
            Kind::Revert => {
                let edit = json!({"toolCallId": "first", "path": "a.txt", "oldString": "two", "newString": "2", "reason": "r"});
                run.ok("edit_file", edit).await;
            }
            Kind::Swap => {
                run.create("full/x.txt", "x\n").await;
                std::fs::create_dir_all(run.repo.join("empty/er")).unwrap();
            }
            Kind::Empty => {
                run.create("old/er/x.txt", "x\n").await;
                run.create("older/y.txt", "y\n").await;
            }
            Kind::Approval => {
                let asked = run.call(tool, body).await.refused("APPROVAL_REQUIRED");
                path = format!("/v1/approvals/{}/approve", asked["approvalId"].as_str().unwrap());
                body = json!({"decidedBy": "p"});
            }
            Kind::Changeset | Kind::LargeChangeset => {
                path = format!("/v1/runs/{}/changesets", run.id);
                let command = json!({"argv": ["make"], "exitCode": 0});
                let based_on = run.last_record().await["seq"].clone();
                let set = json!({"changesetId": "m", "basedOnSeq": based_on, "reason": "r", "command": command});
                bytes = changeset_body(&set, &layer(kind == Kind::LargeChangeset));
            }
            _ => {}
        }
        let records = run.audit().await.len();
        Self { run, start, records, kind, path, body, bytes }
    }

    /// Sends the call. Returns the status, or `None` if the server stopped before it answered.
    pub(crate) async fn send(&self, run: &Run) -> Option<u16> {
        self.answer(run).await.map(|answer| answer.status)
    }

    /// Sends the call. Returns the answer, or `None` if the server stopped before it answered.
    pub(crate) async fn answer(&self, run: &Run) -> Option<Answer> {
        let request = match self.kind {
            Kind::PutBinary | Kind::PutLarge => {
                let put = run.agent.request(Method::PUT, &self.path).body(self.bytes.clone());
                put.header("if-none-match", "*").header("x-reason", "r").header("x-tool-call-id", "m")
            }
            Kind::Approval => run.operator.request(Method::POST, &self.path).json(&self.body),
            Kind::Changeset | Kind::LargeChangeset => {
                let post = run.operator.request(Method::POST, &self.path).body(self.bytes.clone());
                post.header("content-type", CHANGESET_TYPE)
            }
            _ => run.agent.request(Method::POST, &self.path).json(&self.body),
        };
        let answer = run.agent.try_send(request).await.ok()?;
        if answer.status >= 400 {
            answer.refusal();
        }
        Some(answer)
    }

    /// Repeats the call twice and asserts that it was applied exactly once.
    pub(crate) async fn assert_applied_once(&self, run: &Run) {
        for time in 0..2 {
            let answer = self.answer(run).await.unwrap();
            let status = answer.status;
            // A repeated decision may also find that the approval is already decided.
            let fits = [200, 201].contains(&status) || (self.kind == Kind::Approval && status == 409);
            assert!(fits, "{:?} was answered {status} the {time}th time: {answer:?}", self.kind);
        }
        let records = super::assert_consistent(run, &self.start).await;
        let done = records.iter().filter(|record| record["toolCallId"] == "m" && record["outcome"] == "ok");
        assert_eq!(done.count(), 1, "{records:#?}");
        if self.kind == Kind::Mode {
            use std::os::unix::fs::PermissionsExt as _;
            let mode = run.file("a.txt").metadata().unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o755, "the mode is recorded and not applied");
        }
        if self.kind.emptied_folders() > 0 {
            assert!(run.snapshot().values().all(|entry| entry != "directory"), "{:#?}", run.snapshot());
        }
    }
}
