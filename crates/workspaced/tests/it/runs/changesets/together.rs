//! Change sets beside others: agents that edit the same files, and a runner that repeats what it has sent.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rstest::rstest;
use serde_json::json;

use super::{Layer, head, runner, send, with};
use crate::harness::{Answer, Backend, Run, exhaustive, setting, sha256};

const FILES: usize = 4;
const LINES: usize = 30;

/// The files of the run at one record, as a runner takes them out.
async fn checked_out(runner: &Run) -> (u64, BTreeMap<String, String>) {
    let answer = runner.agent.get(&format!("/v1/runs/{}/archive", runner.id)).await;
    let seq = answer.header("workspaced-seq").parse().unwrap();
    let mut files = BTreeMap::new();
    for entry in tar::Archive::new(flate2::read::GzDecoder::new(&answer.body[..])).entries().unwrap() {
        let mut entry = entry.unwrap();
        let path = entry.path().unwrap().to_str().unwrap().to_owned();
        let mut text = String::new();
        entry.read_to_string(&mut text).unwrap();
        if entry.header().entry_type().is_file() {
            files.insert(path, text);
        }
    }
    (seq, files)
}

fn formatted(text: &str) -> String {
    text.lines().flat_map(|line| [line.trim_end(), "\n"]).collect()
}

/// Takes the files out, removes blanks at the ends of lines, and sends what that has changed.
async fn format(runner: &Run) -> Option<Answer> {
    let (seq, files) = checked_out(runner).await;
    let changed = files.iter().map(|(path, text)| (path, text, formatted(text))).filter(|(_, text, new)| *text != new);
    let changed: Vec<_> = changed.collect();
    if changed.is_empty() {
        return None;
    }
    let layer = changed.iter().fold(Layer::new(), |layer, (path, _, text)| layer.file(path, text)).bytes();
    let command = json!({"argv": ["fmt"], "exitCode": 0});
    let set = json!({"basedOnSeq": seq, "reason": "fmt", "onConflict": "merge", "command": command});
    Some(send(runner, &set, &layer).await)
}

/// `WORKSPACED_TEST_EDITS` sets the number of edits of each agent.
#[rstest]
#[case::a_few(40)]
#[case::exhaustive(setting("WORKSPACED_TEST_EDITS", 400))]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_agents_and_a_formatter_at_once_lose_nothing_of_each_other(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
    #[case] edits: usize,
) {
    let text = (0..LINES).map(|line| format!("line {line}: start   \n")).collect::<Vec<_>>().concat();
    let paths: Vec<_> = (0..FILES).map(|number| format!("src/f{number}.txt")).collect();
    let files: Vec<_> = paths.iter().map(|path| (path.as_str(), text.as_str())).collect();
    let budget = json!({"maxInsertions": 10_000_000, "maxDeletions": 10_000_000, "maxBytes": 1_000_000_000});
    let (_, run) = Run::shared_with(backend, &files, json!({"policy": {"runBudget": budget}})).await;
    let runner = runner(&run, &[]).await;
    let working = Arc::new(AtomicUsize::new(2));
    let agents: Vec<_> = (0..2)
        .map(|agent| {
            let (run, working, paths) = (run.clone(), Arc::clone(&working), paths.clone());
            tokio::spawn(async move {
                let mut last = BTreeMap::new();
                for edit in 0..edits {
                    // Each agent has every second line, so that their lines are side by side.
                    let (path, line) = (&paths[edit % FILES], (edit / FILES * 2 + agent) % LINES);
                    let before = last.get(&(path.clone(), line)).cloned().unwrap_or_else(|| "start".to_owned());
                    let after = format!("edit {edit} of {agent}");
                    let prefix = format!("line {line}: ");
                    run.edit(path, &format!("{prefix}{before}"), &format!("{prefix}{after}  "), json!({})).await.ok();
                    last.insert((path.clone(), line), after);
                }
                working.fetch_sub(1, Ordering::AcqRel);
                last
            })
        })
        .collect();
    let (mut applied, mut refused) = (0, 0);
    loop {
        let is_last = working.load(Ordering::Acquire) == 0;
        match format(&runner).await {
            Some(answer) if answer.status == 200 => applied += 1,
            // Both have changed the same lines: nothing of it is applied.
            Some(answer) => {
                answer.refused("WRITE_CONFLICT");
                refused += 1;
            }
            None if is_last => break,
            None => {}
        }
    }
    let mut expected: BTreeMap<(String, usize), String> = BTreeMap::new();
    for agent in agents {
        expected.extend(agent.await.unwrap());
    }
    for path in &paths {
        let lines: Vec<_> = run.on_disk(path).lines().map(str::to_owned).collect();
        assert_eq!(lines.len(), LINES, "{path}");
        for (number, line) in lines.iter().enumerate() {
            let last = expected.get(&(path.clone(), number)).map_or("start", String::as_str);
            assert_eq!(*line, format!("line {number}: {last}"), "{path}, after {applied} sets and {refused} refusals");
        }
    }
    assert!(applied > 0);
    // A refused set is in the record, and so is its command.
    let records = run.audit().await;
    let count = |tool: &str| records.iter().filter(|record| record["tool"] == tool).count();
    assert_eq!((count("apply_changeset"), count("event.command")), (applied + refused, applied + refused));
    assert_eq!(run.verify().await["intact"], true);
}

#[rstest]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_set_that_is_sent_several_times_at_once_is_applied_once(
    #[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend,
) {
    let (_, run) = Run::shared(backend, &[("a.txt", "a\n")]).await;
    let runner = runner(&run, &[]).await;
    let based = head(&run).await;
    let command = json!({"argv": ["make"], "exitCode": 0});
    let set = json!({"changesetId": "cs_once", "basedOnSeq": based, "reason": "make", "command": command});
    let layer = Layer::new().file("a.txt", "a2\n").file("b.txt", "b\n").bytes();
    let sent: Vec<_> = (0..8)
        .map(|_| {
            let (runner, set, layer) = (runner.clone(), set.clone(), layer.clone());
            tokio::spawn(async move { send(&runner, &set, &layer).await.ok() })
        })
        .collect();
    let mut answers = Vec::new();
    for answer in sent {
        answers.push(answer.await.unwrap());
    }
    assert!(answers.iter().all(|answer| *answer == answers[0]), "{answers:#?}");
    assert_eq!(head(&run).await, based + 2, "one command, one set");
    // Others change what it has changed: the same set answers what it answered, and changes nothing.
    run.replace("a.txt", "a3\n", &sha256("a2\n")).await.ok();
    assert_eq!(send(&runner, &set, &layer).await.ok(), answers[0]);
    assert_eq!(run.on_disk("a.txt"), "a3\n");
    // Another layer, command or base is another set.
    let other = Layer::new().file("a.txt", "other\n").bytes();
    send(&runner, &set, &other).await.refused("TOOL_CALL_ID_REUSED");
    let exit = json!({"argv": ["make"], "exitCode": 1});
    for extra in [json!({"command": exit}), json!({"basedOnSeq": based - 1}), json!({"onConflict": "merge"})] {
        send(&runner, &with(&set, &extra), &layer).await.refused("TOOL_CALL_ID_REUSED");
    }
    assert_eq!(run.on_disk("a.txt"), "a3\n");
}
