//! Three nodes under load and under faults at random, and a check of what callers were answered against the chains.
//!
//! `WORKSPACED_FAULT_SEEDS` (`1..5`; `3,7` names single ones), `WORKSPACED_FAULT_SECONDS` (20) and `WORKSPACED_FAULT_PARALLEL`
//! (3) say which runs are made, how long each is under load, and how many are made at the same time. `WORKSPACED_FAULT_KEEP`
//! names a folder that keeps the logs and the history of a run that fails.

mod checker;
mod cluster;
mod faults;
pub(super) mod link;
mod load;
mod postgres;
mod report;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use futures_util::{StreamExt as _, stream};
use reqwest::Method;
use rstest::rstest;
use serde_json::{Value, json};
use tokio::sync::watch;

use self::checker::{Call, History, check};
use self::cluster::{Cluster, NODES};
use self::faults::{Fault, Faults, OF_NODES, OF_WAYS, choose};
use self::link::Way;
use self::load::{AGENTS, Agent, Counts, Load, Phase, SHARED, first_file};
use self::report::{Verdict, keep};
use crate::harness::{Answer, Run, S3, free_port, setting, sha256};

/// How long calls may remain unanswered once nothing is in the way any more: some leases.
const RECOVERY: Duration = Duration::from_mins(1);

/// The load goes on until more calls than these are acknowledged, but no longer than [`RECOVERY`]. So few would say little.
const TOO_FEW: u64 = NODES as u64 * 10;

/// What one run of all is.
struct Plan {
    name: String,
    seed: u64,
    of_nodes: Vec<Fault>,
    of_ways: Vec<Fault>,
    /// The load lasts at least as long.
    seconds: u64,
}

impl Plan {
    /// Returns the run of a seed: a fault of a node in 15 seconds, and one of a way in 10.
    fn of_seed(seed: u64, seconds: usize) -> Self {
        let of_nodes = choose(&OF_NODES, seed, (seconds / 15).max(1));
        let of_ways = choose(&OF_WAYS, seed, (seconds / 10).max(1));
        Self { name: format!("seed {seed}"), seed, of_nodes, of_ways, seconds: seconds as u64 }
    }
}

/// Returns the files that every run has at its start.
fn base() -> BTreeMap<String, String> {
    let mut base: BTreeMap<_, _> = (0..AGENTS).map(first_file).collect();
    base.insert(SHARED.to_owned(), "shared\n".to_owned());
    base
}

/// Creates the runs of a cluster, one of them from a git repository.
async fn create_runs(cluster: &Cluster) -> Vec<Run> {
    let base = base();
    let files: Vec<_> = base.iter().map(|(path, content)| (path.as_str(), content.as_str())).collect();
    let budget = json!({"maxInsertions": 10_000_000, "maxDeletions": 10_000_000, "maxFilesTouched": 100_000,
        "maxBytes": 1_000_000_000});
    let mut runs = Vec::new();
    for (number, node) in cluster.nodes.iter().enumerate() {
        let extra = json!({"policy": {"budget": budget}, "ttlSeconds": 86_400});
        runs.push(if number == 0 {
            let (url, _) = node.server.repository(&files);
            let mut extra = extra;
            extra["source"] = json!({"type": "git", "url": url});
            node.server.run(extra).await
        } else {
            node.server.run_with_files(&files, extra).await
        });
    }
    runs
}

/// Makes one run of all: a cluster, its load, its faults, and the check.
async fn make(plan: Plan, store: Arc<S3>) -> Verdict {
    let prefix = plan.name.replace(' ', "-");
    let cluster = Cluster::start(&store, &prefix).await;
    let runs = create_runs(&cluster).await;
    let began = Instant::now();
    let (phase, watched) = watch::channel(Phase::Work);
    let load = Load { began, phase: watched, counts: Arc::<Counts>::default() };
    let mut agents = Vec::new();
    for (at, run) in runs.iter().enumerate() {
        for number in 0..AGENTS {
            let seed = plan.seed << 8 | (at * AGENTS + number) as u64;
            let agent = Agent::new(load.clone(), run, &cluster.addresses(), number, seed);
            agents.push((at, tokio::spawn(agent.work())));
        }
    }
    let (mut cluster, made) = disturb(&plan, cluster, began).await;
    tokio::time::sleep(Duration::from_secs(plan.seconds).saturating_sub(began.elapsed())).await;
    let ended = cluster.heal().await;
    // The test says so if there are not enough in time.
    let enough = async {
        while load.counts.acknowledged.load(Ordering::Relaxed) <= TOO_FEW {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let _ = tokio::time::timeout(RECOVERY, enough).await;
    phase.send_replace(Phase::Finish);
    let give_up = tokio::spawn(async move {
        tokio::time::sleep(RECOVERY).await;
        phase.send_replace(Phase::GiveUp);
        std::future::pending::<()>().await;
    });
    let mut calls = vec![Vec::new(); runs.len()];
    for (at, agent) in agents {
        calls[at].extend(agent.await.unwrap_or_else(|error| panic!("{}: {error}", plan.name)));
    }
    give_up.abort();
    let mut violations = ended;
    let histories = check_all(&cluster, runs.iter().zip(calls), &mut violations).await;
    let verdict = Verdict {
        name: plan.name,
        made,
        requests: load.counts.requests.load(Ordering::Relaxed),
        acknowledged: load.counts.acknowledged.load(Ordering::Relaxed),
        took: began.elapsed(),
        violations,
    };
    keep(&verdict, &cluster, &histories);
    verdict
}

/// Checks all runs and the logs. Returns the histories, and adds what is wrong to `violations`.
async fn check_all(
    cluster: &Cluster,
    runs: impl Iterator<Item = (&Run, Vec<Call>)>,
    violations: &mut Vec<String>,
) -> Vec<History> {
    let mut histories = Vec::new();
    for (run, calls) in runs {
        match history(cluster, run, calls).await {
            Ok(history) => {
                let found = check(&history).into_iter();
                violations.extend(found.map(|found| format!("{}: {:?}: {}", run.id, found.broken, found.what)));
                violations.extend(verify(cluster, run).await);
                histories.push(history);
            }
            Err(why) => violations.push(why),
        }
    }
    for (number, node) in cluster.nodes.iter().enumerate() {
        let log = node.server.log();
        violations
            .extend(log.lines().find(|line| line.contains("panicked")).map(|line| format!("node {number}: {line}")));
    }
    histories
}

/// Makes the faults of a plan. Returns how many of each kind were made.
async fn disturb(plan: &Plan, cluster: Cluster, began: Instant) -> (Cluster, BTreeMap<Fault, u32>) {
    let Cluster { nodes, ways, postgres, store } = cluster;
    let faults = |stream| Faults::new(&plan.name, began, plan.seed << 8 | stream);
    let of_nodes = tokio::spawn(faults(254).of_nodes(plan.of_nodes.clone(), nodes));
    let of_ways = tokio::spawn(faults(255).of_ways(plan.of_ways.clone(), ways, postgres));
    let (of_nodes, of_ways) = tokio::join!(of_nodes, of_ways);
    let ((first, nodes), (second, ways, postgres)) = (of_nodes.unwrap(), of_ways.unwrap());
    let mut made = first.made;
    made.extend(second.made);
    (Cluster { nodes, ways, postgres, store }, made)
}

/// Repeats a request until a node answers it, for as long as a recovery may take.
async fn until_answered(cluster: &Cluster, path: &str, input: Option<&Value>) -> Result<Answer, String> {
    let deadline = Instant::now() + RECOVERY;
    for node in 0.. {
        let client = cluster.operator(node);
        let request = match input {
            Some(input) => client.request(Method::POST, path).json(input),
            None => client.request(Method::GET, path),
        };
        match client.try_send(request).await {
            Ok(answer) if answer.status == 200 => return Ok(answer),
            Ok(answer) if Instant::now() > deadline => return Err(format!("{path}: {}", answer.text())),
            Err(error) if Instant::now() > deadline => return Err(format!("{path}: {error}")),
            _ => tokio::time::sleep(Duration::from_millis(200)).await,
        }
    }
    unreachable!("the loop has no end")
}

/// Reads the chain and the files of a run. Of calls that were given up, a node may still make the changes: then once more.
async fn history(cluster: &Cluster, run: &Run, calls: Vec<Call>) -> Result<History, String> {
    let mutations = |records: &[Value]| records.iter().filter(|record| record["mutates"] == true).count();
    let deadline = Instant::now() + RECOVERY;
    let mut records = chain(cluster, run).await?;
    loop {
        let (before, tree) = (mutations(&records), tree(cluster, run).await);
        records = chain(cluster, run).await?;
        if mutations(&records) == before || Instant::now() > deadline {
            let base = base().into_iter().map(|(path, content)| (path, sha256(content))).collect();
            return Ok(History { run: run.id.clone(), base, records, calls, tree: tree? });
        }
    }
}

/// Returns the hashes of a run's files.
async fn tree(cluster: &Cluster, run: &Run) -> Result<BTreeMap<String, String>, String> {
    let run_path = format!("/v1/runs/{}", run.id);
    let list = json!({"glob": ["**"], "maxResults": 10_000});
    let found = until_answered(cluster, &format!("{run_path}/tools/find_files"), Some(&list)).await?.json();
    assert_eq!(found["truncated"], false);
    let mut tree = BTreeMap::new();
    for entry in found["entries"].as_array().unwrap() {
        let path = entry["path"].as_str().unwrap();
        let file = until_answered(cluster, &format!("{run_path}/files/{path}"), None).await?;
        tree.insert(path.to_owned(), sha256(&file.body));
    }
    Ok(tree)
}

/// Returns the records of a run.
async fn chain(cluster: &Cluster, run: &Run) -> Result<Vec<Value>, String> {
    let mut records = Vec::new();
    let mut cursor = String::new();
    loop {
        let path = format!("/v1/runs/{}/audit?limit=1000{cursor}", run.id);
        let page = until_answered(cluster, &path, None).await?.json();
        records.extend(page["items"].as_array().unwrap().iter().cloned());
        match page["nextCursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return Ok(records),
        }
    }
}

/// Returns what the service itself finds wrong in the chain and the files of a run.
async fn verify(cluster: &Cluster, run: &Run) -> Vec<String> {
    let mut found = Vec::new();
    for (what, member, sound) in [("audit/verify", "intact", json!(true)), ("drift", "items", json!([]))] {
        match until_answered(cluster, &format!("/v1/runs/{}/{what}", run.id), None).await {
            Ok(report) if report.json()[member] == sound => {}
            Ok(report) => found.push(format!("{}: {what}: {}", run.id, report.text())),
            Err(why) => found.push(why),
        }
    }
    found
}

/// Starts the store of some runs.
async fn store() -> Arc<S3> {
    Arc::new(S3::start(free_port()).await)
}

/// Returns the seeds that `WORKSPACED_FAULT_SEEDS` names.
fn seeds() -> Vec<u64> {
    let text = std::env::var("WORKSPACED_FAULT_SEEDS").unwrap_or_else(|_| "1..5".to_owned());
    let number = |text: &str| text.trim().parse::<u64>().unwrap_or_else(|_| panic!("WORKSPACED_FAULT_SEEDS: {text}"));
    text.split(',')
        .flat_map(|part| match part.split_once("..") {
            Some((first, last)) => (number(first)..=number(last.trim_start_matches('='))).collect(),
            None => vec![number(part)],
        })
        .collect()
}

#[rstest]
#[case::exhaustive(seeds())]
#[tokio::test(flavor = "multi_thread", worker_threads = 6)]
async fn what_callers_were_answered_agrees_with_the_chains_under_faults_at_random(#[case] seeds: Vec<u64>) {
    let (seconds, parallel) = (setting("WORKSPACED_FAULT_SECONDS", 20), setting("WORKSPACED_FAULT_PARALLEL", 3));
    let store = store().await;
    let make_seed = |seed| {
        let plan = Plan::of_seed(seed, seconds);
        let (name, store) = (plan.name.clone(), Arc::clone(&store));
        async move {
            let made = tokio::spawn(make(plan, store)).await;
            let verdict = made.unwrap_or_else(|error| Verdict::of_panic(name, &error));
            println!("{verdict}");
            verdict
        }
    };
    let verdicts: Vec<_> = stream::iter(seeds).map(make_seed).buffer_unordered(parallel).collect().await;
    println!("{}", report::summary(&verdicts));
    let failed: Vec<_> = verdicts.iter().filter(|verdict| !verdict.violations.is_empty()).collect();
    assert!(failed.is_empty(), "{} of {} runs failed", failed.len(), verdicts.len());
}

#[rstest]
#[case::exhaustive_a_wiped_disk(Fault::WipedDisk)]
#[case::exhaustive_a_wrong_clock(Fault::WrongClock)]
#[case::exhaustive_a_rolling_upgrade(Fault::RollingUpgrade)]
#[case::exhaustive_a_store_that_is_cut_off(Fault::StoreCut)]
#[case::exhaustive_slow_ways_to_the_database(Fault::DatabaseSlow)]
#[case::exhaustive_slow_ways_between_nodes(Fault::NodesSlow)]
#[case::exhaustive_a_promoted_standby(Fault::Promotion)]
#[tokio::test(flavor = "multi_thread")]
async fn what_callers_were_answered_agrees_with_the_chains_under(#[case] fault: Fault) {
    let (of_nodes, of_ways) = if OF_NODES.contains(&fault) { (vec![fault], vec![]) } else { (vec![], vec![fault]) };
    let plan = Plan { name: format!("{fault:?}"), seed: 1, of_nodes, of_ways, seconds: 5 };
    let verdict = make(plan, store().await).await;
    println!("{verdict}");
    assert!(verdict.violations.is_empty());
    assert!(verdict.acknowledged > TOO_FEW, "{}", verdict.acknowledged);
}

#[tokio::test(flavor = "multi_thread")]
async fn exhaustive_while_connections_to_the_database_are_closed_at_once_every_call_is_refused_as_unavailable() {
    let cluster = Cluster::start(&store().await, "closed").await;
    let run = cluster.nodes[0].server.run_with_files(&[("a.txt", "a\n")], json!({})).await;
    run.ok("read_file", json!({"path": "a.txt"})).await;
    cluster.ways.database.iter().for_each(|link| link.set(Way::Cut));
    for node in 0..NODES * 4 {
        let run = cluster.nodes[node % NODES].server.reconnect(&run);
        run.call("read_file", json!({"path": "a.txt"})).await.refused("UNAVAILABLE");
    }
    cluster.ways.open();
    let read = json!({"path": "a.txt"});
    let path = format!("/v1/runs/{}/tools/read_file", run.id);
    assert_eq!(until_answered(&cluster, &path, Some(&read)).await.unwrap().json()["totalLines"], 1);
}
