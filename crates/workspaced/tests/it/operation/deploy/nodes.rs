//! Deployment files of several nodes. `deploy/try` runs what they say as processes.

use super::{read, root};
use crate::harness::workspaced;

pub(super) const COMPOSE: &str = "deploy/nodes/compose.yml";
pub(super) const CADDYFILE: &str = "deploy/nodes/Caddyfile";
pub(super) const MANIFESTS: &str = "deploy/nodes/kubernetes.yaml";
/// What a node does not start without, besides a key of checkpoints.
const OF_NODES: [&str; 4] = [
    "WORKSPACED_NODE_URL",
    "WORKSPACED_CLUSTER_SECRET_FILE",
    "WORKSPACED_DATABASE_URL_FILE",
    "WORKSPACED_OBJECT_STORE_URL",
];

/// The number after `before`, which `text` has once.
fn number_after(text: &str, before: &str) -> u64 {
    let [_, after] = text.split(before).collect::<Vec<_>>()[..] else { panic!("`{before}` is not once in the text") };
    after.trim_start().chars().take_while(char::is_ascii_digit).collect::<String>().parse().unwrap()
}

/// How long a service waits for its requests when it is stopped.
fn drain_seconds() -> u64 {
    let help = String::from_utf8(workspaced().args(["serve", "--help"]).output().unwrap().stdout).unwrap();
    let setting = help.split("--drain-seconds").nth(1).unwrap();
    number_after(setting.split(']').next().unwrap(), "[default: ")
}

#[test]
fn every_path_of_the_composition_of_nodes_exists() {
    let folder = root().join("deploy/nodes");
    let (mut paths, mut images) = (0, 0);
    for line in read(COMPOSE).lines().map(|line| line.trim().trim_start_matches("- ")) {
        if let Some(path) = ["context: ", "file: "].iter().find_map(|key| line.strip_prefix(key)) {
            paths += 1;
            assert!(path.starts_with("../../secrets/") || folder.join(path).exists(), "{path}");
        }
        if line.starts_with("./") {
            paths += 1;
            assert!(folder.join(line.split(':').next().unwrap()).exists(), "{line}");
        }
        if let Some(image) = line.strip_prefix("image: ").filter(|image| *image != "workspaced") {
            images += 1;
            let (_, tag) = image.split_once(':').unwrap_or_else(|| panic!("{image} has no tag"));
            assert!(tag.trim_start_matches('v').matches('.').count() >= 2, "{image} is no exact version");
        }
    }
    assert!(paths >= 12 && images >= 2, "{paths} paths, {images} images");
}

#[test]
fn nodes_have_all_settings_that_they_need_and_addresses_of_their_own() {
    let composition = read(COMPOSE);
    for setting in OF_NODES {
        assert!(composition.contains(&format!("{setting}: ")), "{setting}");
        assert!(read(MANIFESTS).contains(&format!("- name: {setting}\n")), "{setting}");
    }
    // The image has it in the composition, and a secret in Kubernetes, since volumes there belong to one pod.
    assert!(read("deploy/Dockerfile").contains("WORKSPACED_CHECKPOINT_KEY_FILE="));
    assert!(composition.matches("- checkpoint-key:/var/lib/workspaced-key").count() == 2);
    assert!(read(MANIFESTS).contains("value: /run/secrets/workspaced/checkpoint.key"));
    for node in ["node-a", "node-b"] {
        assert!(composition.contains(&format!("\n  {node}:")), "{node}");
        assert_eq!(composition.matches(&format!("WORKSPACED_NODE_URL: http://{node}:8080\n")).count(), 1, "{node}");
        assert!(read(CADDYFILE).contains(&format!("{node}:8080")), "{node}");
    }
    let manifests = read(MANIFESTS);
    assert!(manifests.contains("value: http://$(POD_NAME).workspaced-nodes:8080"));
    assert!(manifests.contains("serviceName: workspaced-nodes\n") && manifests.contains("name: workspaced-nodes\n"));
}

#[test]
fn nodes_get_longer_to_end_than_their_requests() {
    let drain = drain_seconds();
    assert!(number_after(&read(COMPOSE), "stop_grace_period: ") > drain);
    let manifests = read(MANIFESTS);
    let before = number_after(&manifests, "command: [sleep, \"");
    assert!(number_after(&manifests, "terminationGracePeriodSeconds: ") > before + drain);
}

#[test]
fn nodes_are_left_out_and_replaced_one_at_a_time() {
    let manifests = read(MANIFESTS);
    for needle in [
        "readinessProbe:\n            httpGet: {path: /readyz, port: http}",
        "rollingUpdate: {maxUnavailable: 1}",
        "kind: PodDisruptionBudget",
        "spec:\n  maxUnavailable: 1\n",
    ] {
        assert!(manifests.contains(needle), "{needle}");
    }
    assert!(number_after(&manifests, "replicas: ") >= 2);
    assert!(read(CADDYFILE).contains("health_uri /readyz"));
}
