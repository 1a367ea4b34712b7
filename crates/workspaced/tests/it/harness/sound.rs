//! What must be true of a run whatever happened to the process, the disk or the database.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{Run, Server, Snapshot, assert_chain, becomes_empty};

/// What the audit says stands in the tree: the start, and then every mutation in order.
fn tree_by_audit(start: &Snapshot, records: &[Value]) -> BTreeMap<String, String> {
    let hash = |told: &str| told.split_once(' ').map(|(_, hash)| hash.to_owned());
    let mut tree: BTreeMap<String, String> =
        start.iter().filter_map(|(path, told)| Some((path.clone(), hash(told)?))).collect();
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

/// Holds a run to all that must be true of it: no gap, a chain that holds, and a tree that is what the audit says.
pub(crate) async fn assert_sound(run: &Run, start: &Snapshot) -> Vec<Value> {
    let records = run.audit().await;
    assert_chain(&run.id, &records);
    let report = run.verify().await;
    assert_eq!(report["intact"], true, "{report:#}");
    let files = |snapshot: Snapshot| {
        let file = |(path, told): (String, String)| Some((path, told.split_once(' ')?.1.to_owned()));
        snapshot.into_iter().filter_map(file).collect::<BTreeMap<_, _>>()
    };
    assert_eq!(files(run.snapshot()), tree_by_audit(start, &records), "the tree is not what the audit says");
    records
}

/// Nothing of a killed call is left beside the tree once somebody has called the run.
pub(crate) async fn assert_swept(server: &Server, run: &Run) {
    run.ok("list_dir", json!({})).await;
    let tmp = server.workspace(&run.id).join("tmp");
    assert!(becomes_empty(&tmp).await, "something is left in tmp/: {:?}", super::snapshot(&tmp));
}

/// Restarts twice: the second recovery finds nothing to do.
pub(crate) async fn recover(server: &mut Server, run: &Run, start: &Snapshot) -> (Run, Vec<Value>) {
    let recoveries = |server: &Server| server.log().matches("pending changes of an earlier process").count();
    server.restart();
    let run = server.reconnect(run);
    let records = assert_sound(&run, start).await;
    let (tree, before) = (run.snapshot(), recoveries(server));
    server.kill();
    server.restart();
    assert_eq!(recoveries(server), before, "a second recovery found something to do\n{}", server.log());
    let run = server.reconnect(&run);
    assert_eq!(run.snapshot(), tree, "a second recovery changed something");
    assert_eq!(assert_sound(&run, start).await, records);
    (run, records)
}
