//! The size of the model's view, on the tree of this repository.

use std::path::Path;

use rstest::rstest;
use serde_json::{Value, json};

use crate::harness::{Backend, Run, Server};

/// Adds the text files under `folder`.
fn add_files(root: &Path, folder: &Path, files: &mut Vec<(String, String)>) {
    let mut entries: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    for path in entries {
        let name = path.file_name().unwrap().to_str().unwrap();
        if path.is_dir() && name != "target" && name != ".git" && name != "corpus" {
            add_files(root, &path, files);
        } else if let Ok(text) = std::fs::read_to_string(&path) {
            files.push((path.strip_prefix(root).unwrap().to_str().unwrap().to_owned(), text));
        }
    }
}

async fn run_of_this_repository() -> Run {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap();
    let mut files = Vec::new();
    add_files(&root, &root.join("crates"), &mut files);
    let named: Vec<_> = files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    let server = Server::shared(Backend::Sqlite).await;
    let mut run = server.run_with_files(&named, json!({})).await;
    // The files name internal folders.
    run.agent.files_contain_local_paths = true;
    run
}

/// Asserts that the text is at most 1.15 times its content, and returns it with the size of the JSON answer.
async fn measured(run: &Run, tool: &str, input: Value, content_of: impl Fn(&Value) -> usize) -> (String, usize) {
    let json = run.ok(tool, input.clone()).await;
    let text = run.text(tool, input.clone()).await.text();
    let (content, json) = (content_of(&json), json.to_string().len());
    assert!(text.len() * 100 <= content * 115, "{tool} {input}: {} bytes of text, {content} of content", text.len());
    println!("{tool}: content {content}, text {} bytes, JSON {json} bytes", text.len());
    (text, json)
}

fn sum_of<'a>(items: &'a Value, length: impl Fn(&'a Value) -> usize) -> usize {
    items.as_array().unwrap().iter().map(|item| length(item) + 1).sum()
}

fn length_of(value: &Value) -> usize {
    value.as_str().unwrap().len()
}

#[rstest]
#[case::of_some_files(10)]
#[case::exhaustive(1)]
#[tokio::test]
async fn a_text_is_hardly_larger_than_its_content(#[case] step: usize) {
    let run = run_of_this_repository().await;
    let everything = json!({"maxDepth": 20, "maxEntries": 10_000});
    let paths = |list: &Value| sum_of(&list["entries"], |entry| length_of(&entry["path"]));
    let (tree, json) = measured(&run, "list_dir", everything, paths).await;
    assert!(tree.lines().count() > 300 && json > tree.len() * 5, "{} {json}", tree.len());
    let (found, json) = measured(&run, "find_files", json!({"glob": "*.rs", "maxResults": 10_000}), paths).await;
    assert!(json > found.len() * 4, "{} {json}", found.len());

    let matches = |found: &Value| {
        let matches = found["matches"].as_array().unwrap();
        let of_file = |file: &[Value]| {
            let lines = file.iter().map(|found| found["line"].to_string().len() + length_of(&found["snippet"]) + 1);
            length_of(&file[0]["path"]) + 1 + lines.sum::<usize>()
        };
        matches.chunk_by(|a, b| a["path"] == b["path"]).map(of_file).sum()
    };
    for query in ["fn ", "Refusal", "serde"] {
        let (text, json) = measured(&run, "search_text", json!({"query": query, "maxMatches": 1000}), matches).await;
        assert!(json > text.len() * 2, "{query}: {} {json}", text.len());
    }

    // The sum over all files: files of very short lines are rare.
    let (mut content, mut shown, mut in_json) = (0, 0, 0);
    for path in found.lines().filter(|path| !path.starts_with('[')).step_by(step) {
        let raw = run.ok("read_file", json!({"path": path, "format": "raw"})).await;
        content += length_of(&raw["content"]);
        shown += run.text("read_file", json!({"path": path})).await.body.len();
        in_json += run.call("read_file", json!({"path": path})).await.body.len();
    }
    println!("read_file: content {content}, text {shown} bytes, JSON {in_json} bytes");
    assert!(content > 500_000 / step && shown * 100 <= content * 115, "{shown} bytes of text, {content} of content");

    let path = found.lines().find(|path| path.ends_with("model/src/lib.rs")).unwrap();
    let edit = json!({"path": path, "oldString": "//! ", "newString": "//!  ", "replaceAll": true, "reason": "r"});
    let answer = run.text("edit_file", edit).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert!(answer.body.len() < 80, "{}", answer.text());
    measured(&run, "diff_workspace", json!({}), |diff| length_of(&diff["diff"])).await;
}
