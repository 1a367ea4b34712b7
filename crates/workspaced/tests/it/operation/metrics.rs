//! Metrics: what the dashboard, the alerts and the guide name is what the service prints.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use rstest::rstest;
use serde_json::json;

use crate::harness::{Backend, Disk, Server, Setup, sha256};

fn deployed(file: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy").join(file);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Returns the metrics that a text names, without the suffixes of histograms.
fn names(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let metric = |word: &str| {
        let word = ["_bucket", "_sum", "_count"].iter().find_map(|suffix| word.strip_suffix(suffix)).unwrap_or(word);
        word.to_owned()
    };
    let is_metric = |word: &&str| word.starts_with("workspaced_") || word.starts_with("process_");
    words.filter(is_metric).map(metric).collect()
}

/// Returns the first line of the metrics that begins with `prefix`.
fn line<'a>(metrics: &'a str, prefix: &str) -> &'a str {
    metrics.lines().find(|line| line.starts_with(prefix)).unwrap_or_else(|| panic!("no {prefix} in\n{metrics}"))
}

/// Returns the metrics once they contain `needle`. The maintenance task updates some of them.
async fn until(server: &Server, needle: &str) -> String {
    let printed = async || Some(server.nobody().get("/metrics").await.text()).filter(|text| text.contains(needle));
    server.until(&format!("the metrics have `{needle}`"), printed).await
}

#[rstest]
#[tokio::test]
async fn dashboard_alerts_and_guide_name_metrics_that_the_service_prints(#[values(Backend::Sqlite)] backend: Backend) {
    let mut server = Server::start(backend).await;
    let files = [("a.txt", "a\n"), ("Cargo.lock", "l\n"), (".env", "A=b\n")];
    let run = server.run_with_files(&files, json!({"policy": {"deny": ["private-plans/**"]}})).await;
    run.create("b.txt", "b\n").await;
    run.ok("search_text", json!({"query": "a"})).await;
    run.call("read_file", json!({"path": ".env"})).await.refused("POLICY_DENIED_SECRET");
    run.call("read_file", json!({"path": "private-plans/x"})).await.refused("POLICY_DENIED");
    let lock = json!({"path": "Cargo.lock", "content": "m\n", "expectedSha256": sha256("l\n"), "reason": "an update"});
    run.call("write_file", lock).await.is(202);
    server.nobody().get("/v1/runs").await.refused("UNAUTHENTICATED");
    assert_eq!(run.operator.get(&format!("/v1/runs/{}/archive", run.id)).await.status, 200);
    let stream = run.operator.stream("/v1/audit/stream", None).await;
    server.until_journal_is_empty().await;

    let metrics = until(&server, "workspaced_approvals_pending").await;
    assert!(line(&metrics, "workspaced_tool_calls_total{tool=\"read_file\",decision=\"DENY\"").ends_with(" 2"));
    assert_eq!(line(&metrics, "workspaced_refusals_total{code=\"POLICY_DENIED_SECRET\""), REFUSED);
    assert_eq!(line(&metrics, "workspaced_rule_refusals_total{rule=\"kind:SECRET_LIKE\""), RULE);
    assert_eq!(line(&metrics, "workspaced_rule_refusals_total{rule=\"deny\""), DENIED);
    assert!(!metrics.contains("private-plans") && !metrics.contains(&run.id), "globs and IDs are not labels");
    let of_process = |name: &str| line(&metrics, name).split(' ').next_back().unwrap().parse::<f64>().unwrap();
    assert!(of_process("process_resident_memory_bytes ") > 1e6 && of_process("process_cpu_seconds_total ") > 0.0);
    assert!(of_process("process_open_fds ") > 5.0 && of_process("process_open_fds ") < of_process("process_max_fds "));
    assert!(of_process("process_start_time_seconds ") > 1.6e9);
    assert_eq!(line(&metrics, "workspaced_streams "), "workspaced_streams 1");
    assert_eq!(line(&metrics, "workspaced_signing_stopped "), "workspaced_signing_stopped 0");
    drop(stream);
    let printed: BTreeSet<String> =
        metrics.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).map(str::to_owned).collect();
    for file in ["grafana.json", "alerts.yml"] {
        let named = names(&deployed(file));
        assert!(named.len() >= 10, "{file}");
        let unknown: Vec<_> = named.difference(&printed).filter(|name| *name != WITH_TLS).collect();
        assert!(unknown.is_empty(), "{file} names metrics that are not printed: {unknown:?}");
    }
    let is_row = |line: &&str| line.starts_with("| `workspaced_") || line.starts_with("| `process_");
    let rows: String = deployed("operations/monitoring.md").lines().filter(is_row).collect();
    let documented = names(&rows);
    let of_nodes = names(&deployed("nodes.md"));
    assert!(of_nodes.len() >= 5 && of_nodes.is_subset(&documented), "{of_nodes:?}");
    // Only some failures create the first.
    let rare = ["workspaced_reads_cancelled_total", WITH_TLS].map(str::to_owned);
    let missing: Vec<_> = printed.difference(&documented).collect();
    assert!(missing.is_empty(), "monitoring.md lacks {missing:?}");
    let unknown: Vec<_> = documented.difference(&printed).filter(|name| !rare.contains(name)).collect();
    assert!(unknown.is_empty(), "monitoring.md names metrics that are not printed: {unknown:?}");

    // The gauges that need the database are updated at the start.
    assert!(server.stop().success());
    server.restart();
    let metrics = until(&server, "workspaced_approvals_pending 1\n").await;
    assert_eq!(line(&metrics, "workspaced_runs{state=\"awaiting_approval\"}").split(' ').next_back(), Some("1"));
    assert_ne!(line(&metrics, "workspaced_approvals_oldest_seconds "), "workspaced_approvals_oldest_seconds 0");
    assert_ne!(line(&metrics, "workspaced_runs_bytes "), "workspaced_runs_bytes 0");
}

/// Printed where there is a certificate, as a test of TLS asserts.
const WITH_TLS: &str = "workspaced_tls_certificate_expires_timestamp_seconds";
const REFUSED: &str = "workspaced_refusals_total{code=\"POLICY_DENIED_SECRET\"} 1";
const RULE: &str = "workspaced_rule_refusals_total{rule=\"kind:SECRET_LIKE\"} 1";
const DENIED: &str = "workspaced_rule_refusals_total{rule=\"deny\"} 1";

#[rstest]
#[tokio::test]
async fn readiness_reports_a_disk_below_its_reserve(#[values(Backend::Sqlite)] backend: Backend) {
    let mut server = Server::prepare(Setup::new(backend)).await;
    let Some(_disk) = Disk::in_memory(&server.data_dir(), "size=128m,mode=0700") else { return };
    server.restart();
    let ready = server.nobody().get("/readyz").await.ok();
    assert_eq!(ready, json!({"ok": true}));
    // A twentieth of a small disk is its reserve: 6.4 MiB, of which 4 are left.
    let space = rustix::fs::statvfs(server.data_dir()).unwrap();
    let filler = space.f_bavail * space.f_frsize - (4 << 20);
    std::fs::write(server.data_dir().join("filler"), vec![1; usize::try_from(filler).unwrap()]).unwrap();
    // The disk is measured now and then.
    let degraded = async || {
        let ready = server.nobody().get("/readyz").await.ok();
        if ready["degraded"].is_null() { Err(ready) } else { Ok(ready) }
    };
    let ready = server.until("the readiness is degraded", degraded).await;
    assert_eq!((&ready["ok"], &ready["degraded"][0]["what"]), (&json!(true), &json!("disk")), "{ready}");
    server.run(json!({})).await.create("a.txt", "a\n").await;
}

#[test]
fn the_alerts_are_valid() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/alerts.yml");
    let Ok(checked) = Command::new("promtool").args(["check", "rules"]).arg(file).output() else {
        println!("SKIPPED: promtool is not installed");
        return;
    };
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
}

#[test]
fn the_dashboard_is_valid() {
    let dashboard: serde_json::Value = serde_json::from_str(&deployed("grafana.json")).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let ids: BTreeSet<_> = panels.iter().map(|panel| panel["id"].as_u64().unwrap()).collect();
    assert_eq!(ids.len(), panels.len(), "two panels have the same ID");
    let rows = panels.iter().filter(|panel| panel["type"] == "row").count();
    assert!(rows > 3, "the panels are not in rows");
    for panel in panels.iter().filter(|panel| panel["type"] != "row") {
        assert!(panel["fieldConfig"]["defaults"]["unit"].is_string(), "{panel:#}");
        let queries = panel["targets"].as_array().unwrap();
        assert!(queries.iter().all(|query| !names(query["expr"].as_str().unwrap()).is_empty()), "{panel:#}");
    }
}
