//! What agents wrote cannot control the terminal of a person.

use rstest::rstest;
use serde_json::json;

use super::{command, run};
use crate::harness::{Backend, Server};

#[rstest]
#[tokio::test]
async fn nothing_that_is_printed_for_people_controls_a_terminal(#[values(Backend::Sqlite)] backend: Backend) {
    let server = Server::shared(backend).await;
    let hostile = "x\u{1b}]0;owned\u{7}\u{9b}31m\u{202e}y\r";
    let source = json!({"labels": {"hostile": hostile}});
    let used = server.run_with_files(&[("Cargo.lock", "one\n")], source).await;
    used.put("n\u{1b}[31m\u{202e}.txt", "x");
    used.ok("write_file", json!({"path": "a.txt", "content": format!("{hostile}\n"), "reason": hostile})).await;
    used.call("read_file", json!({"path": hostile})).await;
    let lock = used.ok("read_file", json!({"path": "Cargo.lock"})).await;
    let edit = json!({"path": "Cargo.lock", "content": hostile, "expectedSha256": lock["sha256"], "reason": hostile});
    let approval = used.call("write_file", edit).await.json()["approvalId"].as_str().unwrap().to_owned();
    for args in [
        &["run", "list"][..],
        &["run", "show", &used.id],
        &["call", "list_dir", "--run", &used.id],
        &["call", "read_file", "--run", &used.id, "path=a.txt"],
        &["call", "read_file", "--run", &used.id, "path=x\u{1b}[31m"],
        &["audit", "--run", &used.id],
        &["approvals", "list", "--run", &used.id],
        &["approvals", "show", &approval],
        &["diff", &used.id],
        &["report", &used.id],
        &["approvals", "deny", &approval, "--on-behalf-of", "ada"],
    ] {
        let printed = run(command(&server.base, &server.operator_token, args));
        let text = printed.out + &printed.err;
        let is_hostile = |c: char| (c.is_control() && c != '\n' && c != '\t') || ('\u{202a}'..='\u{202e}').contains(&c);
        assert!(!text.is_empty() && !text.contains(is_hostile), "{args:?}: {text:?}");
    }
    // Programs get what was written.
    let args = ["call", "read_file", "--run", &used.id, "path=a.txt", "format=raw", "--json"];
    let read = run(command(&server.base, &server.operator_token, &args)).json();
    assert_eq!(read["content"], format!("{hostile}\n"));
}
