//! Random inputs of each form beside the calls that they become: the same tree. Invalid ones change nothing, and say what is wrong in the
//! words of the form.

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use rstest::rstest;
use serde_json::{Value, json};

use super::call;
use crate::harness::{Backend, Run, Server};

/// A change, whose texts occur once.
#[derive(Clone, Debug)]
enum Change {
    Create { path: String, content: String },
    Replace { path: String, content: String },
    Edit { path: String, old: String, new: String },
    Insert { path: String, line: usize, text: String },
    Delete { path: String },
    Rename { path: String, to: String },
}

impl Change {
    fn path(&self) -> &str {
        match self {
            Self::Create { path, .. }
            | Self::Replace { path, .. }
            | Self::Edit { path, .. }
            | Self::Insert { path, .. }
            | Self::Delete { path }
            | Self::Rename { path, .. } => path,
        }
    }

    /// The call of our own tool.
    fn own(&self) -> (&'static str, Value) {
        match self {
            Self::Create { path, content } => {
                ("write_file", json!({"path": path, "content": content, "mode": "CREATE_NEW", "reason": "r"}))
            }
            Self::Replace { path, content } => ("write_file", json!({"path": path, "content": content, "reason": "r"})),
            Self::Edit { path, old, new } => {
                ("edit_file", json!({"path": path, "oldString": old, "newString": new, "reason": "r"}))
            }
            Self::Insert { path, line, text } => (
                "replace_range",
                json!({"path": path, "startLine": line + 1, "endLine": line, "content": text, "reason": "r"}),
            ),
            Self::Delete { path } => ("delete_file", json!({"path": path, "reason": "r"})),
            Self::Rename { path, to } => ("move_file", json!({"from": path, "to": to, "reason": "r"})),
        }
    }

    /// The call in a form; `None` if the form has none.
    fn in_format(&self, format: &str) -> Option<(&'static str, Value)> {
        let editor = |tool| {
            let at = |path: &String| format!("/workspace/{path}");
            let input = match self {
                Self::Create { path, content } | Self::Replace { path, content } => {
                    json!({"command": "create", "path": at(path), "file_text": content})
                }
                Self::Edit { path, old, new } => {
                    json!({"command": "str_replace", "path": at(path), "old_str": old, "new_str": new})
                }
                Self::Insert { path, line, text } => {
                    json!({"command": "insert", "path": at(path), "insert_line": line, "insert_text": text})
                }
                Self::Delete { .. } | Self::Rename { .. } => return None,
            };
            Some((tool, input))
        };
        let writer = |write, edit, creates: bool| match self {
            Self::Create { path, content } if creates => Some((
                edit,
                json!({"file_path": format!("/workspace/{path}"), "old_string": "", "new_string": content}),
            )),
            Self::Create { path, content } | Self::Replace { path, content } => {
                Some((write, json!({"file_path": format!("/workspace/{path}"), "content": content})))
            }
            Self::Edit { path, old, new } => {
                Some((edit, json!({"file_path": format!("/workspace/{path}"), "old_string": old, "new_string": new})))
            }
            _ => None,
        };
        match format {
            "anthropic-editor" => editor("str_replace_based_edit_tool"),
            "anthropic-toolset" => writer("write", "edit", false),
            "claude-code" => writer("Write", "Edit", true),
            "gemini" => writer("write_file", "replace", true),
            "qwen" => writer("write_file", "edit", true),
            "openai-apply-patch" => self.operation().map(|operation| ("apply_patch", json!({"operation": operation}))),
            "codex" => self.patch().map(|patch| ("apply_patch", json!(patch))),
            other => panic!("{other}"),
        }
    }

    fn operation(&self) -> Option<Value> {
        let diff = |old: &str, new: &str| format!("@@\n-{old}\n+{new}\n");
        Some(match self {
            Self::Create { path, content } => {
                json!({"type": "create_file", "path": path, "diff": added(content)})
            }
            Self::Edit { path, old, new } => json!({"type": "update_file", "path": path, "diff": diff(old, new)}),
            Self::Delete { path } => json!({"type": "delete_file", "path": path}),
            Self::Rename { path, to } => json!({"type": "update_file", "path": path, "move_to": to, "diff": ""}),
            _ => return None,
        })
    }

    fn patch(&self) -> Option<String> {
        let body = match self {
            Self::Create { path, content } => {
                format!("*** Add File: /workspace/{path}\n{}", added(content))
            }
            Self::Edit { path, old, new } => format!("*** Update File: {path}\n@@\n-{old}\n+{new}\n"),
            Self::Delete { path } => format!("*** Delete File: {path}\n"),
            Self::Rename { path, to } => format!("*** Update File: {path}\n*** Move to: {to}\n"),
            _ => return None,
        };
        Some(format!("*** Begin Patch\n{body}*** End Patch\n"))
    }
}

/// The lines of a new file in a patch.
fn added(content: &str) -> String {
    content.lines().flat_map(|line| ["+", line, "\n"]).collect()
}

/// What a format says of a text that is not in the file, of one that is there twice, and of a path outside of its folder.
fn said_of_wrong(format: &str) -> [&'static str; 3] {
    let outside = "must start with /workspace";
    match format {
        "anthropic-editor" => [
            "No replacement was performed, old_str `absent` did not appear verbatim in",
            "Multiple occurrences of old_str `line` in lines: ",
            outside,
        ],
        "anthropic-toolset" => ["edit: old_string not found in", "edit: old_string appears", outside],
        "claude-code" => [
            "String to replace not found in file",
            "matches of the string to replace, but replace_all is false",
            outside,
        ],
        "gemini" | "qwen" => [
            "Failed to edit, 0 occurrences found for old_string in",
            "Failed to edit, expected 1 occurrence(s) but found",
            outside,
        ],
        "openai-apply-patch" | "codex" => {
            ["Failed to find expected lines in", "Failed to find expected lines in", outside]
        }
        other => panic!("{other}"),
    }
}

struct Random {
    rng: StdRng,
    lines: usize,
}

impl Random {
    fn below(&mut self, count: usize) -> usize {
        self.rng.random_range(0..count)
    }

    /// A line that no other is equal to or part of.
    fn line(&mut self) -> String {
        self.lines += 1;
        let marks = ["", "  ", "\t", "é ", "`$&` "];
        format!("{}line <{}>", marks[self.below(marks.len())], self.lines)
    }

    fn content(&mut self) -> String {
        let count = 2 + self.below(4);
        (0..count).map(|_| self.line() + "\n").collect()
    }

    fn change(&mut self, run: &Run) -> Change {
        let files: Vec<_> = run.files().into_keys().collect();
        self.lines += 1;
        let new_path = format!("d{}/f{}.txt", self.below(3), self.lines);
        if files.is_empty() {
            return Change::Create { path: new_path, content: self.content() };
        }
        let path = files[self.below(files.len())].clone();
        let text = run.on_disk(&path);
        let lines: Vec<_> = text.lines().collect();
        match self.below(7) {
            0 => Change::Create { path: new_path, content: self.content() },
            1 => Change::Replace { path, content: self.content() },
            2 => Change::Insert { path, line: self.below(lines.len() + 1), text: self.line() },
            3 => Change::Delete { path },
            4 => Change::Rename { path, to: new_path },
            _ => Change::Edit { path, old: lines[self.below(lines.len())].to_owned(), new: self.line() },
        }
    }
}

/// Makes the token see a file, which the change of it expects.
async fn see(run: &Run, path: &str) {
    assert_eq!(run.text("read_file", json!({"path": path})).await.status, 200, "{path}");
}

#[rstest]
#[case::a_few(1, 8)]
#[case::exhaustive(4, 24)]
#[tokio::test]
async fn a_call_in_a_format_leaves_the_tree_of_the_call_that_it_becomes(
    #[values(Backend::Sqlite)] backend: Backend,
    #[case] seeds: u64,
    #[case] steps: usize,
) {
    let server = Server::shared(backend).await;
    for (seed, format) in super::FORMATS.into_iter().enumerate() {
        for seed in (0..seeds).map(|round| round * 1_000 + seed as u64) {
            let (formed, direct) = (server.run(json!({})).await, server.run(json!({})).await);
            let mut random = Random { rng: StdRng::seed_from_u64(seed), lines: 0 };
            let mut done = 0;
            while done < steps {
                let change = random.change(&formed);
                let Some((tool, input)) = change.in_format(format) else { continue };
                let before = formed.files();
                if before.contains_key(change.path()) {
                    see(&formed, change.path()).await;
                    see(&direct, change.path()).await;
                    refuses_wrong(&formed, format, change.path()).await;
                    assert_eq!(formed.files(), before, "{format}, seed {seed}");
                }
                let answer = call(&formed, format, tool, input).await;
                assert_eq!(answer.status, 200, "{format}, seed {seed}, {change:?}: {}", answer.text());
                let (tool, input) = change.own();
                let answer = direct.text(tool, input).await;
                assert_eq!(answer.status, 200, "{format}, seed {seed}, {change:?}: {}", answer.text());
                assert_eq!(formed.files(), direct.files(), "{format}, seed {seed}, {change:?}");
                done += 1;
            }
        }
    }
}

/// Sends three calls that cannot be made.
async fn refuses_wrong(run: &Run, format: &str, path: &str) {
    let edit =
        |path: &str, old: &str| Change::Edit { path: path.to_owned(), old: old.to_owned(), new: "new".to_owned() };
    let [absent, twice, outside] = said_of_wrong(format);
    let text = |change: Change| async move {
        let (tool, input) = change.in_format(format).unwrap();
        let answer = call(run, format, tool, input).await;
        assert!(answer.status >= 400, "{format}: {}", answer.text());
        answer.text()
    };
    let said = text(edit(path, "absent")).await;
    assert!(said.contains(absent), "{format}: {said}");
    if run.on_disk(path).matches("line").count() > 1 {
        let said = text(edit(path, "line")).await;
        assert!(said.contains(twice), "{format}: {said}");
    }
    let wrong = serde_json::to_string(&edit(path, "absent").in_format(format).unwrap().1).unwrap();
    let wrong = wrong.replace("/workspace/", "").replace(path, &format!("/etc/{path}"));
    let (tool, _) = edit(path, "absent").in_format(format).unwrap();
    let answer = call(run, format, tool, serde_json::from_str(&wrong).unwrap()).await;
    assert!(answer.status == 400 && answer.text().contains(outside), "{format}: {}", answer.text());
}
