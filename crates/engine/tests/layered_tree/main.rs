//! The tree of a run is compared with an ordinary checkout in which the same changes were made, with git as the oracle.
//!
//! A step is a call that changes the tree, or one that must be refused. What it is to change follows from its intent alone, not from
//! its answer. After each step the whole tree is listed and the touched paths are read; now and then all that tools say of the tree
//! is compared. A failure prints the seed and the calls of its sequence.

#![expect(clippy::disallowed_methods, clippy::disallowed_types, reason = "tests prepare folders")]
#![cfg_attr(test, expect(clippy::unwrap_used, reason = "tests and their fixtures fail by panicking"))]

mod checkout;
mod service;
mod steps;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use engine::CallError;
use engine::runs::ExportFormat;
use model::{ApprovalId, Sha256};
use serde_json::{Value, json};
use tempfile::TempDir;

use self::checkout::{Changes, Checkout, Entry, Files, above, file, files_under, read_tree};
use self::service::Service;
use self::steps::{Plan, Random};

/// The steps of the first ring.
const STEPS: u64 = 2000;
const STEPS_OF_SEQUENCE: u64 = 500;
/// The steps between comparisons of all that tools say.
const STEPS_BETWEEN: u64 = 125;
const DENIED: &str = "denied/";

/// A call that has changed the tree: its ID, and what it changed from and to.
struct DoneCall {
    id: String,
    before: Changes,
    after: Changes,
}

/// A call that waits for approval.
struct WaitingCall {
    approval: ApprovalId,
    id: String,
    before: Changes,
    after: Changes,
}

/// A run and the checkout that it must equal.
struct Sequence {
    service: Service,
    _folder: TempDir,
    checkout: Checkout,
    random: Random,
    log: CallLog,
    done: Vec<DoneCall>,
    waiting: Vec<WaitingCall>,
    /// The record and the files of the last comparison.
    compared: (u64, Files),
}

/// The calls of a sequence, printed if it fails.
struct CallLog(u64, Vec<String>);

impl Drop for CallLog {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the sequence with the seed {} failed after these calls:\n{}", self.0, self.1.join("\n"));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_is_the_checkout_with_its_changes() {
    run_sequences(STEPS, 1).await;
}

/// More steps, with other seeds each time. A million of them take hours: `WORKSPACED_TEST_STEPS` sets how many.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_is_the_checkout_with_its_changes_exhaustive() {
    let seconds = SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs();
    let setting = |name: &str| std::env::var(name).ok().map(|value| value.parse().unwrap());
    let seed = setting("WORKSPACED_TEST_SEED").unwrap_or(seconds * 10_000);
    run_sequences(setting("WORKSPACED_TEST_STEPS").unwrap_or(50_000), seed).await;
}

async fn run_sequences(steps: u64, seed: u64) {
    let next = Arc::new(AtomicU64::new(seed));
    let last = seed + steps.div_ceil(STEPS_OF_SEQUENCE);
    let workers = std::thread::available_parallelism().unwrap().get();
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..workers {
        let next = Arc::clone(&next);
        tasks.spawn(async move {
            loop {
                let seed = next.fetch_add(1, Ordering::Relaxed);
                if seed >= last {
                    return;
                }
                let mut sequence = Sequence::start(seed).await;
                for step in 1..=STEPS_OF_SEQUENCE.min(steps) {
                    sequence.step().await;
                    if step % STEPS_BETWEEN == 0 {
                        sequence.compare_all().await;
                    }
                }
            }
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended.unwrap();
    }
}

impl Sequence {
    async fn start(seed: u64) -> Self {
        let memory = Path::new("/dev/shm");
        let folder = if memory.is_dir() { TempDir::new_in(memory) } else { TempDir::new() }.unwrap();
        let is_clone = seed.is_multiple_of(2);
        let root = folder.path().canonicalize().unwrap();
        let origin = root.join("origin");
        let checkout = Checkout::new(&root, &origin, is_clone);
        let source = if is_clone {
            json!({"type": "git", "url": origin})
        } else {
            // The repository in it is left out.
            json!({"type": "directory", "path": origin})
        };
        let most = json!({"maxFilesTouched": 1000, "maxInsertions": 100_000, "maxDeletions": 100_000, "maxFilesDeleted": 1000,
            "maxBytes": 10_000_000});
        let policy = json!({"deny": ["denied/**"], "ask": ["ask/**"], "requireApprovalIf": [], "allowModeChange": true,
            "budget": most, "commandBudget": most});
        let service = Service::start(root.join("data"), vec![origin], &source, &policy).await;
        let compared = (0, checkout.files.clone());
        let (random, log) = (Random::new(seed), CallLog(seed, Vec::new()));
        let mut sequence =
            Self { service, _folder: folder, checkout, random, log, done: Vec::new(), waiting: Vec::new(), compared };
        sequence.compare_all().await;
        sequence
    }

    /// Makes one call or decides about one, and compares what it touches.
    async fn step(&mut self) {
        if !self.waiting.is_empty() && self.random.one_in(6) {
            let waiting = self.waiting.swap_remove(self.random.below(self.waiting.len()));
            return self.decide(waiting).await;
        }
        let head = self.service.head().await;
        let plan = self.plan(head);
        self.log.1.push(format!("{:?} {} -> {:?}", plan.calls, plan.layer.is_some(), plan.changes));
        let answer = self.call(&plan).await;
        let Some(changes) = plan.changes else {
            let Err(CallError::Refused(refusal)) = &answer else { panic!("not refused: {answer:?}") };
            assert!(refusal.details.approval_id.is_none(), "waits for approval: {refusal:?}");
            let paths = plan.calls.iter().filter_map(|(_, input)| Some(input["path"].as_str()?.to_owned()));
            return self.compare_paths(paths.collect()).await;
        };
        let all: Changes = changes.concat();
        let ids = plan.calls.iter().map(|(_, input)| input["toolCallId"].as_str().unwrap().to_owned());
        if !all.iter().any(|(path, _)| is_asked(path)) {
            answer.unwrap();
            for (id, changes) in ids.collect::<Vec<_>>().into_iter().zip(changes) {
                self.note(id, changes);
            }
            return self.compare_paths(all.into_iter().map(|(path, _)| path).collect()).await;
        }
        let Err(CallError::Refused(refusal)) = answer else { panic!("does not wait for approval: {answer:?}") };
        let Some(approval) = refusal.details.approval_id else { panic!("{}", refusal.message) };
        if plan.is_unique {
            let id = ids.collect();
            let waiting = WaitingCall { approval, id, before: self.present(&all), after: all };
            if self.random.one_in(2) && self.waiting.len() < 5 {
                return self.waiting.push(waiting);
            }
            return self.decide(waiting).await;
        }
        let ids: Vec<_> = ids.collect();
        assert_eq!(self.service.decide(&approval, true, json!([])).await, "approved");
        for (id, changes) in ids.into_iter().zip(changes) {
            self.note(id, changes);
        }
        self.compare_paths(all.into_iter().map(|(path, _)| path).collect()).await;
    }

    /// Makes the change of a call in the checkout.
    fn note(&mut self, id: String, changes: Changes) {
        let before = self.present(&changes);
        assert!(self.checkout.apply(&changes), "{changes:?}");
        self.done.push(DoneCall { id, before, after: changes });
    }

    /// Returns what the paths of `changes` have now.
    fn present(&self, changes: &Changes) -> Changes {
        changes.iter().map(|(path, _)| (path.clone(), self.checkout.files.get(path).cloned())).collect()
    }

    /// Approves a call as it is or with an edit, or denies it. It is applied if its files are as they were.
    async fn decide(&mut self, waiting: WaitingCall) {
        let WaitingCall { approval, id, before, mut after } = waiting;
        let paths = after.iter().map(|(path, _)| path.clone()).collect();
        let mut applies = self.checkout.after(&after).is_some();
        for ((path, before), (_, after)) in before.iter().zip(&mut after) {
            match (before, self.checkout.files.get(path), after) {
                // A file keeps the mode that it has got meanwhile.
                (Some(Entry::File(old, _)), Some(Entry::File(now, bit)), Some(Entry::File(_, new))) if old == now => {
                    *new = *bit;
                }
                (before, now, _) => applies &= before.as_ref() == now,
            }
        }
        let (is_approved, edit) = (!self.random.one_in(4), self.edit_of(&after).filter(|_| applies));
        self.log.1.push(format!("decide {id}: {is_approved} {edit:?}, applies: {applies}"));
        let edits = edit
            .iter()
            .filter(|_| is_approved)
            .map(|(path, old, new, _)| json!({"path": path, "oldString": old, "newString": new}));
        let decided = self.service.decide(&approval, is_approved, edits.collect()).await;
        let state = match (is_approved, applies) {
            (false, _) => "denied",
            (true, true) => "approved",
            (true, false) => "failed",
        };
        assert_eq!(decided, state);
        if is_approved && applies {
            self.note(id, after);
            if let Some((path, _, _, entry)) = edit {
                assert!(self.checkout.apply(&[(path, Some(entry))]));
            }
        }
        self.compare_paths(paths).await;
    }

    async fn call(&self, plan: &Plan) -> Result<(), CallError> {
        match (&plan.layer, &plan.calls[..]) {
            (Some(layer), [(_, set)]) => self.service.apply_changeset(set.clone(), layer).await.map(drop),
            (None, [(tool, input)]) => self.service.call(tool, input.clone()).await.map(drop),
            (_, several) => self.service.batch(several).await,
        }
    }

    /// Makes a call that reads. Panics if it is refused.
    async fn read(&self, tool: &str, input: Value) -> Value {
        self.service.call(tool, input.clone()).await.unwrap_or_else(|error| panic!("{tool} {input}: {error:?}"))
    }

    /// Compares the lists of the folders of these paths, and what tools say of each path.
    async fn compare_paths(&mut self, paths: BTreeSet<String>) {
        let files = read_tree(&self.checkout.root);
        let folders: BTreeSet<_> = paths.iter().map(|path| above(path).last().unwrap_or(".").to_owned()).collect();
        for folder in folders {
            if folder == "." || files_under(&files, &folder).next().is_some() {
                self.compare_list(&folder, 1, &files).await;
            }
        }
        self.compare_each(paths.iter().map(String::as_str).collect(), &files).await;
    }

    async fn compare_list(&self, folder: &str, depth: usize, files: &Files) {
        let list = json!({"path": folder, "maxDepth": depth, "maxEntries": 10_000, "includeHidden": true, "includeIgnored": true});
        let listed = self.read("list_dir", list).await;
        let mut expected = expected_entries(files);
        if depth == 1 {
            expected.retain(|path, _| above(path).last().unwrap_or(".") == folder);
        }
        assert_eq!(listed_entries(&listed), expected);
    }

    /// Compares what tools say of each path. Files are read several at a time.
    async fn compare_each(&mut self, paths: Vec<&str>, files: &Files) {
        for paths in paths.chunks(20) {
            let mut read = self.read("read_files", json!({"paths": paths})).await;
            assert!(read["truncated"].is_null(), "{read}");
            for path in paths {
                self.compare_content(path, read["files"][path].take(), files).await;
                self.compare_stat(path, files).await;
            }
        }
    }

    /// Compares the content in an answer of `read_files`, and sometimes that of `read_file`.
    async fn compare_content(&mut self, path: &str, read: Value, files: &Files) {
        // A link is followed across both layers, but not out of the tree.
        let real = self.checkout.resolve(path).filter(|real| self.is_shown(path) && self.is_shown(real));
        let expected = real.as_ref().and_then(|real| match &files[real] {
            Entry::File(bytes, _) if !bytes.contains(&0) => Some(std::str::from_utf8(bytes).unwrap()),
            _ => None,
        });
        assert_eq!(read["content"].as_str(), expected, "{path}: {read}");
        assert_eq!(read["status"] == "OK", expected.is_some(), "{path}: {read}");
        let hash = expected.map(|text| Sha256::of(text.as_bytes()).to_string());
        assert_eq!(read["sha256"].as_str(), hash.as_deref(), "{path}");
        if self.random.one_in(10) {
            let read = self.service.call("read_file", json!({"path": path, "format": "raw", "maxLines": 1000})).await;
            match (read, expected) {
                (Ok(read), Some(text)) => {
                    assert_eq!(
                        (read["content"].as_str(), read["sha256"].as_str()),
                        (Some(text), hash.as_deref()),
                        "{path}"
                    );
                }
                (Err(CallError::Refused(_)), None) => {}
                (read, _) => panic!("{path}: {read:?}"),
            }
        }
    }

    /// Compares what `stat_path` says of a path.
    async fn compare_stat(&mut self, path: &str, files: &Files) {
        let stat = self.service.call("stat_path", json!({"path": path})).await;
        if above(path).any(|folder| matches!(files.get(folder), Some(Entry::Link(_)))) {
            return;
        }
        let stat = stat.unwrap_or_else(|error| panic!("{path}: {error:?}"));
        match files.get(path) {
            Some(Entry::File(bytes, is_executable)) => {
                let mode = if *is_executable { "0755" } else { "0644" };
                let found = (&stat["type"], &stat["sizeBytes"], &stat["mode"]);
                assert_eq!(found, (&json!("file"), &json!(bytes.len()), &json!(mode)), "{path}");
                if self.is_shown(path) {
                    assert_eq!(stat["sha256"], Sha256::of(bytes).to_string(), "{path}");
                }
            }
            Some(Entry::Link(_)) => assert_eq!(stat["type"], "symlink", "{path}"),
            None => {
                let is_folder = self.checkout.root.join(path).is_dir();
                assert_eq!(stat["exists"], is_folder, "{path}");
            }
        }
    }

    /// Whether policy shows the contents of a path.
    fn is_shown(&mut self, path: &str) -> bool {
        !path.starts_with(DENIED) && !self.checkout.is_ignored(path)
    }

    /// Compares everything that tools and exports say.
    async fn compare_all(&mut self) {
        if self.random.one_in(3) {
            self.service.restart().await;
        }
        let files = read_tree(&self.checkout.root);
        assert_same(&files, &self.checkout.files, "the checkout");
        self.compare_list(".", 20, &files).await;
        self.compare_each(files.keys().map(String::as_str).collect(), &files).await;
        let not_ignored: Files = files
            .iter()
            .filter(|(path, _)| !self.checkout.is_ignored(path))
            .map(|(p, e)| (p.clone(), e.clone()))
            .collect();
        let found = self.read("find_files", json!({"glob": ["**"], "maxResults": 10_000})).await;
        let found: Vec<_> =
            found["entries"].as_array().unwrap().iter().map(|entry| entry["path"].as_str().unwrap()).collect();
        assert_eq!(found, not_ignored.keys().collect::<Vec<_>>());
        self.compare_stats(&not_ignored).await;
        let shown: Files = not_ignored.into_iter().filter(|(path, _)| !path.starts_with(DENIED)).collect();
        self.compare_search(&shown).await;
        let diff = self.read("diff_workspace", json!({"maxBytes": 1 << 20})).await;
        let by_git = self.checkout.diff(&["--no-renames"]);
        // Only binary files have a line `index`.
        let diff = without_index_lines(diff["diff"].as_str().unwrap());
        let by_git = without_index_lines(&by_git);
        let different = diff.lines().zip(by_git.lines()).find(|(found, expected)| found != expected);
        assert!(diff == by_git, "{different:?}\n{diff}\ngit:\n{by_git}");
        let patch = self.service.export(ExportFormat::Patch).await;
        let by_git = self.checkout.diff(&["--binary", "--full-index", "--find-renames"]);
        assert_eq!(String::from_utf8(patch).unwrap(), by_git);
        // A link that leads out of the tree is left out of archives.
        let root = &self.checkout.root;
        let leads_inside = |path: &String| root.join(path).canonicalize().is_ok_and(|real| real.starts_with(root));
        let mut exported = shown;
        exported.retain(|path, entry| stays_inside(path, entry) || leads_inside(path));
        let archive = self.service.export(ExportFormat::Archive { since: None, is_plain: true }).await;
        let mut unpacked = Files::new();
        unpack(&archive, &mut unpacked);
        assert_same(&unpacked, &exported, "the archive");
        // Where other links lead can change without a change of their own, which no layer has.
        exported.retain(|path, entry| stays_inside(path, entry));
        let head = self.service.head().await;
        let (since, mut before) = std::mem::replace(&mut self.compared, (head, exported.clone()));
        if since > 0 {
            unpack(
                &self.service.export(ExportFormat::Archive { since: Some(since), is_plain: true }).await,
                &mut before,
            );
            assert_same(&before, &exported, "the layer");
        }
    }

    async fn compare_stats(&self, files: &Files) {
        let stats = self.read("tree_stats", json!({})).await;
        let folders: BTreeSet<_> = files.keys().flat_map(|path| above(path)).collect();
        let sizes = files.values().filter_map(|entry| match entry {
            Entry::File(bytes, _) => Some(bytes.len()),
            Entry::Link(_) => None,
        });
        let found = (&stats["files"], &stats["bytes"], &stats["directories"]);
        let expected = (json!(sizes.clone().count()), json!(sizes.sum::<usize>()), json!(folders.len()));
        assert_eq!(found, (&expected.0, &expected.1, &expected.2));
    }

    async fn compare_search(&self, files: &Files) {
        let found = self.read("search_text", json!({"query": "needle", "maxMatches": 1000})).await;
        let found: Vec<_> = found["matches"]
            .as_array()
            .unwrap()
            .iter()
            .map(|found| (found["path"].as_str().unwrap().to_owned(), found["line"].as_u64().unwrap()))
            .collect();
        let mut expected = Vec::new();
        for (path, entry) in files {
            let Entry::File(bytes, _) = entry else { continue };
            let text = String::from_utf8_lossy(bytes);
            if !text.contains('\0') {
                let lines = (1..).zip(text.lines()).filter(|(_, line)| line.contains("needle"));
                expected.extend(lines.map(|(number, _)| (path.clone(), number)));
            }
        }
        assert_eq!(found, expected);
    }
}

/// Returns the type and size of each listed path.
fn listed_entries(listed: &Value) -> BTreeMap<String, (String, Option<u64>)> {
    let entries = listed["entries"].as_array().unwrap().iter().map(|entry| {
        let text = |name: &str| entry[name].as_str().unwrap().to_owned();
        (text("path"), (text("type"), entry["sizeBytes"].as_u64()))
    });
    entries.collect()
}

fn expected_entries(files: &Files) -> BTreeMap<String, (String, Option<u64>)> {
    let folders =
        files.keys().flat_map(|path| above(path)).map(|path| (path.to_owned(), ("directory".to_owned(), None)));
    let entries = files.iter().map(|(path, entry)| {
        let shown = match entry {
            Entry::File(bytes, _) => ("file".to_owned(), Some(bytes.len() as u64)),
            Entry::Link(_) => ("symlink".to_owned(), None),
        };
        (path.clone(), shown)
    });
    folders.chain(entries).collect()
}

/// Whether a change of the path needs approval: `ask/**` also matches the folder.
fn is_asked(path: &str) -> bool {
    path == "ask" || path.starts_with("ask/")
}

/// Whether an entry is no link, or one whose text alone says that it stays in the tree: `..` comes first.
fn stays_inside(path: &str, entry: &Entry) -> bool {
    let Entry::Link(target) = entry else { return true };
    let ups = target.split('/').take_while(|name| *name == "..").count();
    !target.starts_with('/')
        && ups <= above(path).count()
        && ups == target.split('/').filter(|name| *name == "..").count()
}

/// Panics with the first difference.
fn assert_same(found: &Files, expected: &Files, what: &str) {
    for path in found.keys().chain(expected.keys()) {
        assert_eq!(found.get(path), expected.get(path), "{what}: {path}");
    }
}

fn without_index_lines(text: &str) -> String {
    text.split_inclusive('\n').filter(|line| !line.starts_with("index ")).collect()
}

/// Applies an archive or a layer to `files`.
fn unpack(archive: &[u8], files: &mut Files) {
    let mut added = Files::new();
    for entry in tar::Archive::new(archive).entries().unwrap() {
        let mut entry = entry.unwrap();
        let path = entry.path().unwrap().to_str().unwrap().trim_end_matches('/').to_owned();
        let name = path.rsplit('/').next().unwrap();
        if let Some(removed) = name.strip_prefix(".wh.") {
            let removed = format!("{}{removed}", path.strip_suffix(name).unwrap());
            files.retain(|path, _| *path != removed && !path.starts_with(&format!("{removed}/")));
        } else if entry.header().entry_type().is_symlink() {
            let target = entry.link_name().unwrap().unwrap().to_str().unwrap().to_owned();
            added.insert(path, Entry::Link(target));
        } else if entry.header().entry_type().is_file() {
            let mut bytes = Vec::new();
            entry.read_to_end(&mut bytes).unwrap();
            added.insert(path, file(&bytes, entry.header().mode().unwrap() & 0o100 != 0));
        }
    }
    files.retain(|path, _| !above(path).any(|folder| added.contains_key(folder)));
    files.extend(added);
}
