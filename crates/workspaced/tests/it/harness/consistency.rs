//! Invariants of a run after any failure of the process, the disk or the database.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{Run, Server, Snapshot, assert_chain, sha256, until_empty};

/// Returns the hash of a file of a snapshot, of a link that of its target; `None` for a folder.
fn hash(entry: &str) -> Option<String> {
    match entry.split_once(' ')? {
        ("->", target) => Some(sha256(target)),
        (_, hash) => Some(hash.to_owned()),
    }
}

/// Returns the tree according to the audit: the start, and then every mutation in order.
fn tree_from_audit(start: &Snapshot, records: &[Value]) -> BTreeMap<String, String> {
    let mut tree: BTreeMap<String, String> =
        start.iter().filter_map(|(path, entry)| Some((path.clone(), hash(entry)?))).collect();
    for record in records.iter().filter(|record| record["outcome"] == "ok" && record["mutates"] == true) {
        for file in record["files"].as_array().unwrap() {
            let path = file["path"].as_str().unwrap().to_owned();
            match file["newSha256"].as_str() {
                Some(hash) => tree.insert(path, hash.to_owned()),
                None => tree.remove(&path),
            };
        }
    }
    tree
}

/// Asserts that the audit has no gap, the chain is intact, and the tree equals what the audit describes. Returns the records, without
/// those of the questions that this asks.
pub(crate) async fn assert_consistent(run: &Run, start: &Snapshot) -> Vec<Value> {
    let mut records = run.audit().await;
    assert_chain(&run.id, &records);
    records.retain(|record| record["tool"] != "stat_path");
    let report = run.verify().await;
    assert_eq!(report["intact"], true, "{report:#}");
    let expected = tree_from_audit(start, &records);
    let mut found = BTreeMap::new();
    for (path, entry) in run.files() {
        // What the run has removed is still in its base, and the service does not show it.
        if run.repo.join(&path).symlink_metadata().is_ok() || run.has(&path).await {
            found.extend(hash(&entry).map(|hash| (path, hash)));
        }
    }
    assert_eq!(found, expected, "the tree differs from the audit");
    records
}

/// Asserts that a call to the run removes the temporary files of killed calls.
pub(crate) async fn assert_tmp_is_empty(server: &Server, run: &Run) {
    run.ok("list_dir", json!({})).await;
    let tmp = server.workspace(&run.id).join("tmp");
    until_empty(&tmp).await;
}

/// Restarts twice and asserts that the second recovery has nothing to do.
pub(crate) async fn recover(server: &mut Server, run: &Run, start: &Snapshot) -> (Run, Vec<Value>) {
    let recoveries = |server: &Server| server.log().matches("pending changes of an earlier process").count();
    server.restart();
    let run = server.reconnect(run);
    let records = assert_consistent(&run, start).await;
    let (tree, before) = (run.snapshot(), recoveries(server));
    server.kill();
    server.restart();
    assert_eq!(recoveries(server), before, "the second recovery was not empty\n{}", server.log());
    let run = server.reconnect(&run);
    assert_eq!(run.snapshot(), tree, "the second recovery changed the tree");
    assert_eq!(assert_consistent(&run, start).await, records);
    (run, records)
}
