//! A run with pending changes whose data is missing or damaged is refused. Other runs are not affected.

use std::path::PathBuf;

use rstest::rstest;
use serde_json::json;

use crate::harness::{Backend, Run, Server, sha256};
use crate::operation::replay_and_repair::{assert_ends, offline, output_of};

/// A kind of damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Damage {
    NoFolder,
    NoTree,
    NoTmp,
    Manifest,
    /// The policy contains an invalid glob.
    Policy,
    /// The row of the run is invalid.
    Row,
    /// The row of a pending step is invalid.
    Step,
}

/// Returns a stopped server, a run with a journalled but unapplied change, and another run.
async fn pending(backend: Backend) -> (Server, Run, Run) {
    let mut server = Server::start(backend).await;
    let run = server.run_with_files(&[("a.txt", "a\n")], json!({"policy": {"write": ["**"]}})).await;
    // Of another base.
    let other = server.run_with_files(&[("a.txt", "a\n"), ("o.txt", "o\n")], json!({})).await;
    let input = json!({"path": "a.txt", "content": "A\n", "expectedSha256": sha256("a\n"), "reason": "pending"});
    server.kill_before_apply(&run, "write_file", &input).await;
    (server, run, other)
}

impl Damage {
    /// Causes or reverts the damage.
    async fn set(self, server: &Server, run: &Run, is_damaged: bool) {
        let (folder, away) = (server.workspace(&run.id), server.home.join("away"));
        let swap = |path: PathBuf| {
            let (from, to) = if is_damaged { (&path, &away) } else { (&away, &path) };
            std::fs::rename(from, to).unwrap();
        };
        let sql = |column: &str, table: &str, sound: &str, damaged: &str| {
            let (old, new) = if is_damaged { (sound, damaged) } else { (damaged, sound) };
            format!("update {table} set {column} = replace({column}, '{old}', '{new}') where run_no = {{run}}")
        };
        match self {
            Self::NoFolder => swap(folder),
            Self::NoTree => swap(folder.join("repo")),
            Self::NoTmp => swap(folder.join("tmp")),
            Self::Manifest => {
                let manifest = run.base().join("manifest");
                let mut bytes = std::fs::read(&manifest).unwrap();
                for byte in &mut bytes {
                    *byte ^= 0xff;
                }
                std::fs::write(&manifest, bytes).unwrap();
            }
            Self::Policy => server.rewrite(run, &[&sql("body", "run", "\"**\"", "\"a[\"")]).await,
            Self::Row => server.rewrite(run, &[&sql("body", "run", "\"policy\"", "\"no policy\"")]).await,
            Self::Step => server.rewrite(run, &[&sql("path", "step", "a.txt", "../a.txt")]).await,
        }
    }

    /// Returns the message of the repair command.
    fn message(self) -> &'static str {
        match self {
            Self::NoFolder | Self::Manifest => "the base is MISSING or damaged",
            Self::NoTree | Self::NoTmp => "the workspace is MISSING or damaged",
            Self::Policy => "this version cannot use the run's policy",
            Self::Row | Self::Step => "cannot be read",
        }
    }
}

#[rstest]
#[tokio::test]
async fn a_damaged_run_does_not_affect_others(
    #[values(Backend::Sqlite)] backend: Backend,
    #[values(
        Damage::NoFolder,
        Damage::NoTree,
        Damage::NoTmp,
        Damage::Manifest,
        Damage::Policy,
        Damage::Row,
        Damage::Step
    )]
    damage: Damage,
) {
    let (mut server, run, other) = pending(backend).await;
    server.database.drop_triggers().await;
    damage.set(&server, &run, true).await;
    server.restart();
    let (run, other) = (server.reconnect(&run), server.reconnect(&other));
    other.replace("a.txt", "other\n", &sha256("a\n")).await.ok();
    let write = json!({"path": "b.txt", "content": "b\n", "reason": "r"});
    run.call("write_file", write.clone()).await.refused("RUN_NEEDS_REPAIR");
    for (tool, input) in [("read_file", json!({"path": "a.txt"})), ("list_dir", json!({}))] {
        run.call(tool, input).await.refused("RUN_NEEDS_REPAIR");
    }
    let batch = json!({"atomic": true, "calls": [{"tool": "write_file", "input": write}]});
    let batch = run.agent.post(&format!("/v1/runs/{}/batch", run.id), batch).await;
    assert!(batch.text().contains("RUN_NEEDS_REPAIR"), "{}", batch.text());
    let listed = server.operator().get("/v1/runs").await.ok();
    let has = |run: &Run| listed["items"].as_array().unwrap().iter().any(|one| one["runId"] == json!(run.id));
    assert!(has(&other) && (has(&run) || damage == Damage::Row), "{listed:#}");
    assert_eq!(run.last_record().await["code"], "RUN_NEEDS_REPAIR", "the refusal is recorded");
    let path = format!("/v1/runs/{}", run.id);
    let shown = run.operator.get(&path).await;
    if damage == Damage::Row {
        drop(shown.refused("RUN_NEEDS_REPAIR"));
    } else {
        drop(shown.ok());
    }
    let metrics = server.nobody().get("/metrics").await.text();
    let count = metrics.lines().find_map(|line| line.strip_prefix("workspaced_runs_broken_total "));
    assert!(count.is_some_and(|count| count.parse::<u64>().unwrap() >= 1), "{metrics}");
    assert!(server.log().contains("needs repair"), "{}", server.log());
    assert!(server.stop().success());

    let repaired = offline(&server, "repair", &["--run", &run.id]);
    assert!(repaired.status.code().is_some_and(|code| code > 0), "{}", output_of(&repaired));
    assert!(output_of(&repaired).contains(damage.message()), "{}", output_of(&repaired));
    let about = format!("{}: needs repair", run.id);
    assert_ends(&offline(&server, "repair", &[]), 1, &[&about, damage.message(), "operator action needed: 1"]);
    let to = server.home.join("again").display().to_string();
    let replayed = offline(&server, "replay", &["--run", &run.id, "--to", &to]);
    assert!(replayed.status.code().is_some() && !output_of(&replayed).contains("panicked"), "{}", output_of(&replayed));
    if matches!(damage, Damage::NoTree | Damage::Policy) {
        assert!(output_of(&replayed).contains("every hash matches the ledger"), "{}", output_of(&replayed));
        assert_eq!(std::fs::read_to_string(server.home.join("again/a.txt")).unwrap(), "A\n");
    }

    damage.set(&server, &run, false).await;
    server.restart();
    let run = server.reconnect(&run);
    assert_eq!(run.ok("read_file", json!({"path": "a.txt"})).await["sha256"], sha256("A\n"));
    run.create("b.txt", "b\n").await;
    assert_eq!(run.verify().await["intact"], true);
    assert!(server.stop().success());
    assert_ends(&offline(&server, "repair", &["--run", &run.id]), 0, &["needs no repair"]);
    assert_ends(&offline(&server, "repair", &[]), 0, &["operator action needed: 0"]);
}
