//! The two forms of an answer: JSON and text.

use model::{Permission, RunId};
use serde_json::{Map, Value, json};

use crate::tests::rig::{Rig, Service, operator};
use crate::{Caller, tools};

fn members(input: Value) -> Map<String, Value> {
    serde_json::from_value(input).unwrap()
}

/// Makes a call in the model's view. Returns the text and the JSON of its answer.
async fn shown(rig: &Rig, run: &RunId, caller: Caller, tool: &str, input: Value) -> (String, Value) {
    let tool = tools::find(tool).unwrap();
    let answer = rig.services.calls.call_members_as_text(run, caller, tool, Ok(members(input))).await.unwrap();
    (answer.text, serde_json::from_str(&answer.answer.to_json()).unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_has_the_same_content_in_each_form() {
    let mut rig = Rig::start(Service::Alone).await;
    let run = rig.run().await;
    let operator = || Caller::of_operator(&operator());
    let write = json!({"path": "a.txt", "content": "one\n  two\r\nlast", "reason": "a test", "toolCallId": "write"});
    let first = shown(&rig, &run, operator(), "write_file", write.clone()).await;
    assert_eq!(first.0, "created a.txt (+3 -0)\n");
    assert_eq!((&first.1["created"], first.1.get("replacements"), first.1.get("merged")), (&json!(true), None, None));
    assert!(
        first.1["seq"].is_u64() && first.1["headHash"].is_string() && first.1["warnings"] == json!([]),
        "{first:?}"
    );
    assert_eq!(shown(&rig, &run, operator(), "write_file", write).await, first, "a repetition");
    let edit = json!({"path": "a.txt", "oldString": "two", "newString": "2", "reason": "a test"});
    let (text, edited) = shown(&rig, &run, operator(), "edit_file", edit).await;
    assert_eq!(
        (&*text, &edited["replacements"], &edited["created"]),
        ("edited a.txt, 1 × (+1 -1)\n", &json!(1), &json!(false))
    );
    let range = json!({"path": "a.txt", "startLine": 1, "endLine": 1, "content": "1\n", "expectedSha256": "seen", "reason": "a test"});
    let (text, ranged) = shown(&rig, &run, operator(), "replace_range", range).await;
    assert_eq!((&*text, &ranged["oldSha256"]), ("replaced line 1 of a.txt (+1 -1)\n", &edited["newSha256"]));

    let numbered = "     1 | 1\n     2 |   2\n     3 | last";
    for (tool, input, text, member, want) in [
        ("read_file", json!({"path": "a.txt"}), "1  1\n2    2\n3  last\n[LF and CRLF]\n", "content", json!(numbered)),
        (
            "read_file",
            json!({"path": "a.txt", "startLine": 2, "maxLines": 1}),
            "2    2\n[LF and CRLF]\n[lines 2-2 of 3; continue with startLine=3]\n",
            "content",
            json!("     2 |   2\n"),
        ),
        (
            "read_file",
            json!({"path": "a.txt", "format": "raw", "maxLines": 1}),
            "1\n[LF and CRLF]\n[lines 1-1 of 3; continue with startLine=2]\n",
            "content",
            json!("1\n"),
        ),
        (
            "read_files",
            json!({"paths": ["kept.txt", "a.txt"], "maxChars": 6}),
            "a.txt\n1  1\n[LF and CRLF]\n[lines 1-1 of 3; continue with read_file and startLine=2]\n\nkept.txt\n1  two\n",
            "truncatedReason",
            json!("maxChars"),
        ),
        ("list_dir", json!({"maxEntries": 1}), "a.txt\n[continue with cursor=", "truncated", json!(true)),
        ("find_files", json!({"glob": ["k*"]}), "kept.txt\n", "truncated", json!(false)),
        ("search_text", json!({"query": "las"}), "a.txt\n  3: last\n", "filesSearched", json!(3)),
        ("stat_path", json!({"path": "no.txt"}), "no.txt: does not exist, can be created\n", "exists", json!(false)),
    ] {
        let (shown, answer) = shown(&rig, &run, operator(), tool, input.clone()).await;
        assert!(shown.starts_with(text), "{tool} {input}: {shown}");
        assert_eq!(answer[member], want, "{tool} {input}");
        assert_eq!((&answer["ok"], answer.get("seq"), answer.get("warnings")), (&json!(true), None, None), "{tool}");
    }

    let blind = || Caller { permissions: [Permission::FileDiff].into(), ..operator() };
    let (text, answer) = shown(&rig, &run, blind(), "diff_workspace", json!({})).await;
    assert_eq!((&answer["diff"], &answer["contentWithheld"]), (&json!(""), &json!(true)));
    assert!(text.starts_with("a.txt | +3 -0\n"), "{text}");
}
