//! What a change set does with what was denied, with what others have changed, and with as much as it may have.

use rstest::rstest;
use serde_json::{Value, json};
use tar::EntryType;

use super::{Layer, head, runner, send, with};
use crate::harness::{Backend, Run, Server, sha256, tar_of};

/// What no compression makes smaller.
fn noise(bytes: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    (0..bytes.div_ceil(8)).flat_map(|_| next()).take(bytes).collect()
}

fn packed(layer: Layer) -> Vec<u8> {
    zstd::encode_all(&layer.bytes()[..], 1).unwrap()
}

fn named(answer: &Value) -> (Value, Value) {
    let left = answer["left"].as_array().unwrap().iter().map(|left| format!("{} {}", left["path"], left["rule"]));
    (answer["applied"].clone(), json!(left.map(|left| left.replace('"', "")).collect::<Vec<_>>()))
}

#[rstest]
#[tokio::test]
async fn a_folder_that_is_cleared_again_and_again_is_looked_into_once(#[values(Backend::Sqlite)] backend: Backend) {
    let files: Vec<_> = (0..2000).map(|n| format!("many/d{}/f{n}.txt", n % 20)).collect();
    let files: Vec<_> = files.iter().map(|path| (path.as_str(), "x\n")).collect();
    let policy = json!({"policy": {"commandBudget": {"maxFilesDeleted": 3000}}});
    let (_, run) = Run::shared_with(backend, &files, policy).await;
    let runner = runner(&run, &[]).await;
    let set = json!({"basedOnSeq": head(&run).await, "reason": "generate"});
    // Folders in it too, so that each is under one that is cleared.
    let cleared = |n: usize| match n % 4 {
        0 => format!("many/d{}/.wh..wh..opq", n % 20),
        1 => format!("many/.wh.d{}", n % 20),
        _ => "many/.wh..wh..opq".to_owned(),
    };
    let layer = (0..40_000).fold(Layer::new(), |layer, n| layer.file(&cleared(n), "")).file("many/new.txt", "n\n");
    let answer = send(&runner, &set, &packed(layer)).await.ok();
    assert_eq!(answer["applied"].as_array().unwrap().len(), 2001);
    assert_eq!(run.present_files().await.into_keys().collect::<Vec<_>>(), ["many/new.txt"]);
}

#[rstest]
#[tokio::test]
async fn a_change_from_outside_is_one_that_the_command_has_not_seen(#[values(Backend::Sqlite)] backend: Backend) {
    let files = [("a.txt", "1\n2\n3\n4\n5\n"), ("b.txt", "b\n"), ("d/kept.txt", "k\n"), ("d/gone.txt", "g\n")];
    let (_, run) = Run::shared_with(backend, &files, json!({"policy": {"outsideChanges": "RECORD"}})).await;
    let runner = runner(&run, &[]).await;
    let set = json!({"basedOnSeq": head(&run).await, "reason": "fmt"});
    run.put("a.txt", "one\n2\n3\n4\n5\n");
    run.put("b.txt", "outside\n");
    run.put("d/kept.txt", "outside\n");
    run.put("d/new.txt", "outside\n");
    let before = run.files();
    let changed = Layer::new().file("a.txt", "1\n2\n3\n4\nfive\n").bytes();
    let deleted = Layer::new().file(".wh.b.txt", "").bytes();
    let named_in_folder = Layer::new().file("d/.wh.kept.txt", "").bytes();
    for (set, layer, path) in [
        (&set, &changed, "a.txt"),
        (&with(&set, &json!({"onConflict": "merge"})), &changed, "a.txt"),
        (&set, &deleted, "b.txt"),
        (&with(&set, &json!({"onDenied": "leave"})), &deleted, "b.txt"),
        (&set, &named_in_folder, "d/kept.txt"),
    ] {
        let refused = send(&runner, set, layer).await.refused("WRITE_CONFLICT");
        assert_eq!((&refused["path"], &refused["currentSha256"]), (&json!(path), &json!(sha256(run.on_disk(path)))));
        assert!(run.files() == before, "{path}");
    }
    // A command that deletes a folder has not deleted what it has not seen in it.
    let answer = send(&runner, &set, &Layer::new().file(".wh.d", "").bytes()).await.ok();
    assert_eq!(answer["applied"], json!(["d/gone.txt"]));
    assert_eq!((run.on_disk("d/kept.txt"), run.on_disk("d/new.txt")), ("outside\n".to_owned(), "outside\n".to_owned()));
    // What the command has found there already is no conflict.
    let same = Layer::new().file("b.txt", "outside\n").bytes();
    assert_eq!(send(&runner, &set, &same).await.ok()["applied"], json!([]));
}

#[rstest]
#[tokio::test]
async fn what_is_left_keeps_what_its_place_has(#[values(Backend::Sqlite)] backend: Backend) {
    let files = [("a.txt", "a\n"), ("d/1.txt", "1\n"), ("d/deep/2.txt", "2\n")];
    let (_, run) = Run::shared(backend, &files).await;
    let runner = runner(&run, &[]).await;
    let set = json!({"basedOnSeq": head(&run).await, "reason": "r", "onDenied": "leave"});
    let credential = format!("token = ghp_{}\n", "a1".repeat(18));
    let large = vec![b'x'; (8 << 20) + 1];
    let before = run.files();
    let ok = || Layer::new().file("ok.txt", "ok\n");
    for place in ["d", "a.txt"] {
        let (folder, name) = place.rsplit_once('/').map_or(("", place), |(folder, name)| (folder, name));
        let whiteout = format!("{folder}.wh.{name}");
        for (what, layer, rule) in [
            ("credential", ok().file(place, &credential), "credential:github-token"),
            ("link", ok().link(place, EntryType::Symlink, "/ok.txt"), "PATH_REJECTED"),
            ("hard link", ok().link(place, EntryType::Link, "ok.txt"), "layer:a-hard-link"),
            ("device", ok().entry(place, EntryType::Char, 0o644, b""), "layer:a-device"),
            ("large", ok().file(place, &large), "FILE_TOO_LARGE"),
            // As a container engine writes what took the place of a file or a folder.
            (
                "deleted and a link",
                ok().file(&whiteout, "").link(place, EntryType::Symlink, "/ok.txt"),
                "PATH_REJECTED",
            ),
            (
                "a device and deleted",
                ok().entry(place, EntryType::Block, 0o644, b"").file(&whiteout, ""),
                "layer:a-device",
            ),
        ] {
            let dry = with(&set, &json!({"dryRun": true}));
            let answer = send(&runner, &dry, &packed(layer)).await.ok();
            let expected = (json!(["ok.txt"]), json!([format!("{place} {rule}")]));
            assert_eq!(named(&answer), expected, "{what} at {place}: {answer:#}");
        }
    }
    // And not only as it is told.
    let layer = ok().file("d", &credential).link("a.txt", EntryType::Symlink, "/ok.txt");
    send(&runner, &set, &packed(layer)).await.ok();
    assert_eq!(run.on_disk("ok.txt"), "ok\n");
    let mut after = run.files();
    after.remove("ok.txt");
    assert_eq!(after, before);
}

#[rstest]
#[tokio::test]
async fn what_cannot_be_taken_is_only_counted_where_nothing_is_taken(#[values(Backend::Sqlite)] backend: Backend) {
    let (_, run) = Run::shared(backend, &[(".gitignore", "*.log\n"), ("a.txt", "a\n")]).await;
    let runner = runner(&run, &[]).await;
    // No entry is denied, so that the set is not refused.
    let set = json!({"basedOnSeq": head(&run).await, "reason": "npm ci"});
    let layer = Layer::new()
        .link("node_modules/.bin/tsc", EntryType::Symlink, "../tsc/bin.js")
        .link("target/debug/app", EntryType::Link, "target/debug/deps/app")
        .entry("target/socket", EntryType::Fifo, 0o644, b"")
        .file("target/large", vec![0; (8 << 20) + 1])
        .entry("pipe.log", EntryType::Char, 0o644, b"")
        .file("a.txt", "a2\n");
    let answer = send(&runner, &set, &packed(layer)).await.ok();
    assert_eq!(named(&answer), (json!(["a.txt"]), json!([])));
    assert_eq!(answer["notTaken"], json!({"node_modules/": 1, "target/": 3, "pipe.log": 1}));
}

#[rstest]
#[tokio::test]
async fn a_mode_that_others_have_changed_is_refused_or_kept(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let policy = json!({"policy": {"allowModeChange": true}});
    let text = "1\n2\n3\n4\n5\n6\n7\n";
    let (_, run) = Run::shared_with(backend, &[("a.sh", text), ("b.sh", "b\n")], policy).await;
    let runner = runner(&run, &[]).await;
    let set = json!({"basedOnSeq": head(&run).await, "reason": "fmt"});
    run.patch("diff --git a/a.sh b/a.sh\nold mode 100644\nnew mode 100755\n").await.ok();
    let a = |text: &str| Layer::new().entry("a.sh", EntryType::Regular, 0o644, text.as_bytes());
    let unchanged = a(text).entry("b.sh", EntryType::Regular, 0o755, b"b\n").bytes();
    let changed = a(&text.replace('7', "seven")).bytes();
    let mode = |path: &str| {
        let metadata = std::fs::metadata(run.file(path)).unwrap();
        std::os::unix::fs::PermissionsExt::mode(&metadata.permissions()) & 0o777
    };
    for layer in [unchanged, changed] {
        let before = run.files();
        let refused = send(&runner, &set, &layer).await.refused("WRITE_CONFLICT");
        assert_eq!(refused["path"], "a.sh", "{refused:#}");
        assert_eq!(run.files(), before);
        let merge = with(&set, &json!({"onConflict": "merge"}));
        let answer = send(&runner, &merge, &layer).await.ok();
        let warning = "`a.sh` keeps its mode, since the file has changed meanwhile";
        assert_eq!(answer["warnings"], json!([warning]), "{answer:#}");
        // A change of a mode that is the command's own is taken.
        assert_eq!((mode("a.sh"), mode("b.sh")), (0o755, 0o755));
    }
    assert_eq!(run.on_disk("a.sh"), text.replace('7', "seven"));
    assert_eq!(run.verify().await["intact"], true);
}

#[rstest]
#[tokio::test]
async fn a_deletion_of_no_file_is_none_of_its_folder(#[values(Backend::Sqlite)] backend: Backend) {
    let (_, run) = Run::shared(backend, &[("a.txt", "a\n"), ("d/e/1.txt", "1\n")]).await;
    let runner = runner(&run, &[]).await;
    let set = json!({"basedOnSeq": head(&run).await, "reason": "r"});
    let leave = with(&set, &json!({"onDenied": "leave"}));
    let before = run.files();
    for path in [".wh.", ".wh..", ".wh...", "d/.wh..", "d/.wh...", "d/e/.wh...", "d/.wh..wh.e"] {
        let layer = Layer::new().file(path, "").bytes();
        send(&runner, &set, &layer).await.refused("PATH_REJECTED");
        let answer = send(&runner, &leave, &layer).await.ok();
        assert_eq!(named(&answer), (json!([]), json!([format!("{path} layer:a-deletion-of-no-file")])), "{answer:#}");
        assert!(run.files() == before, "{path}");
    }
}

#[rstest]
#[tokio::test]
async fn names_that_differ_in_their_unicode_form_alone_are_one_file(#[values(Backend::Sqlite)] backend: Backend) {
    let (_, run) = Run::shared(backend, &[("a.txt", "a\n")]).await;
    let runner = runner(&run, &[]).await;
    let set = json!({"basedOnSeq": head(&run).await, "reason": "r"});
    let leave = with(&set, &json!({"onDenied": "leave", "dryRun": true}));
    for (first, second) in [("cafe\u{301}.txt", "caf\u{e9}.txt"), ("e\u{301}/a.txt", "\u{e9}/b.txt")] {
        for (one, other) in [(first, second), (second, first)] {
            let layer = Layer::new().file(one, "1\n").file(other, "2\n").file("b.txt", "b\n").bytes();
            send(&runner, &set, &layer).await.refused("PATH_REJECTED");
            let answer = send(&runner, &leave, &layer).await.ok();
            let (applied, left) = named(&answer);
            assert_eq!(applied.as_array().unwrap().len(), 2, "{answer:#}");
            assert_eq!(left.as_array().unwrap().len(), 1, "{answer:#}");
        }
        // A name in place of the other one is no second one.
        let layer = Layer::new().file(first, "1\n").file(&whiteout(second), "").bytes();
        assert_eq!(send(&runner, &leave, &layer).await.ok()["applied"], json!([first]));
    }
    assert_eq!(run.files().len(), 1);
}

#[tokio::test]
async fn a_set_of_deep_paths_is_judged_in_bounded_memory() {
    let server = Server::start(Backend::Sqlite).await;
    let run = server.run_with_files(&[("a.txt", "a\n")], json!({})).await;
    let runner = runner(&run, &[]).await;
    let deep = vec!["a"; 1000].join("/");
    let paths: Vec<_> = (0..400).map(|number| format!("{number:04}{}/{deep}", "n".repeat(200))).collect();
    let mut files: Vec<_> = paths.iter().map(|path| (path.as_str(), &b"x"[..])).collect();
    files.push(("\u{e9}.txt", b"e"));
    let set = json!({"basedOnSeq": head(&run).await, "reason": "r", "onDenied": "leave", "dryRun": true});
    let layer = tar_of(&files);
    let (answer, growth) = server.peak_growth(send(&runner, &set, &layer)).await;
    let answer = answer.ok();
    assert_eq!(answer["applied"], json!(["\u{e9}.txt"]), "the others are too deep");
    assert!(growth < 128 << 20, "{} MiB", growth >> 20);
}

fn whiteout(path: &str) -> String {
    match path.rsplit_once('/') {
        Some((folder, name)) => format!("{folder}/.wh.{name}"),
        None => format!(".wh.{path}"),
    }
}

#[rstest]
#[tokio::test]
async fn a_command_of_any_length_is_recorded(#[values(Backend::Sqlite)] backend: Backend) {
    let (_, run) = Run::shared(backend, &[("a.txt", "a\n")]).await;
    let runner = runner(&run, &[]).await;
    let set = json!({"basedOnSeq": head(&run).await, "reason": "r"});
    for (number, length) in [400, 488, 489, 490, 491, 492, 499, 500, 501, 5000].into_iter().enumerate() {
        for code in [json!(0), json!(-1), json!(null)] {
            // A character of several bytes counts as one.
            let argv = json!(["x\u{e9}".repeat(length / 2) + &"y".repeat(length % 2)]);
            let set = with(&set, &json!({"command": {"argv": argv, "exitCode": code}}));
            let layer = Layer::new().file(&format!("{number}.txt"), code.to_string()).bytes();
            let set = if code == json!(0) { set } else { with(&set, &json!({"basedOnSeq": head(&run).await})) };
            let answer = send(&runner, &set, &layer).await.ok();
            let records = run.audit().await;
            let event = records.iter().find(|record| record["seq"] == answer["eventSeq"]).unwrap();
            let summary = event["input"]["summary"].as_str().unwrap();
            assert!(summary.chars().count() <= 500, "{length}: {summary}");
            assert!(summary.ends_with("exit code") || summary.ends_with(&format!("exit {code}")), "{summary}");
            assert_eq!(event["input"]["data"]["argv"], argv, "the whole command is in the data");
        }
    }
}

#[rstest]
#[tokio::test]
async fn a_set_may_be_as_large_as_its_limits_say(#[values(Backend::Sqlite)] backend: Backend) {
    let policy = json!({"policy": {"maxTransferBytes": 12 << 20, "commandBudget": {"maxBytes": 64 << 20}}});
    let (_, run) = Run::shared_with(backend, &[("a.txt", "a\n")], policy).await;
    let runner = runner(&run, &[]).await;
    let set = json!({"basedOnSeq": head(&run).await, "reason": "generate"});
    // More than any other body may have.
    let layer = Layer::new().file("noise.bin", noise(5 << 20)).bytes();
    let answer = send(&runner, &set, &layer).await.ok();
    assert_eq!(answer["applied"], json!(["noise.bin"]));
    // It unpacks to more than the memory that one body may have, the packed one included.
    let zeros = vec![0; 8 << 20];
    let layer = (0..7).fold(Layer::new(), |layer, number| layer.file(&format!("z{number}.bin"), &zeros));
    let answer = send(&runner, &set, &packed(layer)).await.ok();
    assert_eq!(answer["applied"].as_array().unwrap().len(), 7);
    assert_eq!(std::fs::metadata(run.file("z6.bin")).unwrap().len(), 8 << 20);

    let layer = Layer::new().file("noise.bin", noise((16 << 20) - 2048)).bytes();
    assert!(layer.len() <= 16 << 20);
    send(&runner, &set, &layer).await.refused("FILE_TOO_LARGE");
    let layer = (0..3).fold(Layer::new(), |layer, n| layer.file(&format!("n{n}.bin"), noise(6 << 20))).bytes();
    let refused = send(&runner, &set, &layer).await.refused("BODY_TOO_LARGE");
    assert_eq!(refused["limit"], json!((16 << 20) + 256 * 1024), "{refused:#}");
    assert!(!run.files().contains_key("n0.bin"));
}

#[rstest]
#[tokio::test]
async fn a_set_is_undone_as_a_whole_with_its_modes(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let files: Vec<_> = (0..60).map(|n| (format!("d{}/{n}.sh", n % 7), format!("{n}\n"))).collect();
    let files: Vec<_> = files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    // A call may touch 20 files.
    let (_, run) = Run::shared_with(backend, &files, json!({"policy": {"allowModeChange": true}})).await;
    let runner = runner(&run, &[]).await;
    let before = run.files();
    let layer = files.iter().enumerate().fold(Layer::new(), |layer, (number, (path, text))| match number % 4 {
        0 => layer.entry(path, EntryType::Regular, 0o755, text.as_bytes()),
        1 => layer.entry(path, EntryType::Regular, 0o755, b"new\n"),
        2 => layer.file(&whiteout(path), ""),
        _ => layer.file(path, "new\n"),
    });
    let set = json!({"changesetId": "cs", "basedOnSeq": head(&run).await, "reason": "chmod"});
    let answer = send(&runner, &set, &packed(layer.file("new/a.sh", "a\n"))).await.ok();
    assert_eq!(answer["applied"].as_array().unwrap().len(), 61);
    let after = run.files();

    let undo = json!({"toolCallIds": ["cs"], "reason": "undo"});
    let write = json!({"path": "other.txt", "content": "x\n", "reason": "r"});
    // With other calls in a batch it is one of them.
    let calls = json!([{"tool": "revert_calls", "input": undo}, {"tool": "write_file", "input": write}]);
    let refused = run.batch(calls).await;
    assert!(refused.text().contains("budget:maxFilesTouched"), "{}", refused.text());
    assert_eq!(run.files(), after);
    let undone = run.ok("revert_calls", undo).await;
    assert_eq!(undone["files"].as_array().unwrap().len(), 61, "{undone:#}");
    assert_eq!(run.files(), before);
    assert_eq!(run.verify().await["intact"], true);
}

#[rstest]
#[tokio::test]
async fn the_command_of_a_layer_that_is_refused_is_recorded(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let (_, run) = Run::shared(backend, &[("a.txt", "a\n")]).await;
    let runner = runner(&run, &[]).await;
    let command = json!({"argv": ["make"], "exitCode": 0});
    let set = json!({"changesetId": "cs", "basedOnSeq": head(&run).await, "reason": "make", "command": command});
    let many = (0..50_001).fold(Layer::new(), |layer, number| layer.file(&format!("f{number}"), ""));
    for (layer, code) in [
        (packed(many), "INVALID_REQUEST"),
        (Layer::new().file("../a.txt", "x").bytes(), "PATH_REJECTED"),
        (b"no tar".to_vec(), "INVALID_REQUEST"),
    ] {
        let id = format!("cs_{}", layer.len());
        let set = with(&set, &json!({ "changesetId": id }));
        for _ in 0..2 {
            send(&runner, &set, &layer).await.refused(code);
            let records = run.audit().await;
            let of_command = records.iter().filter(|record| record["toolCallId"] == format!("{id}.command"));
            assert_eq!(of_command.count(), 1, "{code}: once, however often it is sent");
        }
    }
    // A request that nobody can read has no command.
    let before = run.audit().await.len();
    let unreadable = with(&set, &json!({"reason": ""}));
    send(&runner, &unreadable, &Layer::new().file("b.txt", "b\n").bytes()).await.refused("INVALID_REQUEST");
    let records = run.audit().await;
    assert!(records[before..].iter().all(|record| record["tool"] == "apply_changeset"), "{:#?}", &records[before..]);
}

#[rstest]
#[tokio::test]
async fn what_a_set_leaves_out_is_recorded_and_counted_as_denied(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let policy = json!({"policy": {"deny": ["secret/**"]}});
    let (_, run) = Run::shared_with(backend, &[("a.txt", "a\n"), ("Cargo.lock", "l\n")], policy).await;
    let runner = runner(&run, &[]).await;
    let secrets = |layer: Layer, count: usize| {
        (0..count).fold(layer, |layer, number| layer.file(&format!("secret/{number:03}"), "s\n"))
    };
    let layer = secrets(Layer::new().file("a.txt", "a2\n").file(".env", "A=1\n"), 120).bytes();
    let set = |id: &str, seq: u64| json!({"changesetId": id, "basedOnSeq": seq, "reason": "make", "onDenied": "leave"});
    let answer = send(&runner, &set("cs_1", head(&run).await), &layer).await.ok();
    assert_eq!(answer["left"].as_array().unwrap().len(), 121);
    let record = run.last_record().await;
    assert_eq!((&record["decision"], &record["outcome"]), (&json!("ALLOW"), &json!("ok")));
    assert_eq!((record["left"].as_array().unwrap().len(), &record["leftCount"]), (100, &json!(121)));
    for left in
        [json!({"path": ".env", "rule": "kind:SECRET_LIKE"}), json!({"path": "secret/000", "rule": "deny:secret/**"})]
    {
        assert!(record["left"].as_array().unwrap().contains(&left), "{left} in {record:#}");
    }
    assert_eq!(run.get().await["counts"]["denied"], 1, "one call");
    // All denied: the attempt is recorded all the same. So is that of a dry run.
    let layer = Layer::new().file(".env", "A=1\n").bytes();
    send(&runner, &set("cs_2", head(&run).await), &layer).await.ok();
    let mut dry = set("cs_3", head(&run).await);
    dry["dryRun"] = json!(true);
    send(&runner, &dry, &layer).await.ok();
    // A set that waits is counted once, whatever is decided.
    let layer = Layer::new().file(".env", "A=1\n").file("Cargo.lock", "m\n").bytes();
    let asked = send(&runner, &set("cs_4", head(&run).await), &layer).await.refused("APPROVAL_REQUIRED");
    let record = run.last_record().await;
    assert_eq!((&record["outcome"], &record["leftCount"]), (&json!("pending"), &json!(1)), "{record:#}");
    assert_eq!(run.get().await["counts"]["denied"], 4);
    let approve = format!("/v1/approvals/{}/approve", asked["approvalId"].as_str().unwrap());
    run.operator.post(&approve, json!({"onBehalfOf": "ada"})).await.ok();
    assert_eq!((run.on_disk("Cargo.lock"), run.last_record().await["left"].clone()), ("m\n".to_owned(), Value::Null));
    assert_eq!(run.get().await["counts"]["denied"], 4);

    let found = crate::harness::items(&run.operator, &format!("/v1/runs/{}/audit?path=.env", run.id)).await;
    assert_eq!(found.len(), 4, "{found:#?}");
    let stats = run.operator.get(&format!("/v1/stats?run={}", run.id)).await.ok();
    assert_eq!((&stats["total"]["denied"], &stats["total"]["deniedByPerson"]), (&json!(4), &json!(0)), "{stats:#}");
    let report = run.operator.get(&format!("/v1/runs/{}/report", run.id)).await.ok();
    assert_eq!((&report["counts"]["denied"], &report["counts"]["refused"]), (&json!(4), &json!(0)));
    let env = report["files"].as_array().unwrap().iter().find(|file| file["path"] == ".env").unwrap();
    assert_eq!(env["refused"], 4);
    let text = run.operator.get(&format!("/v1/runs/{}/report?format=markdown", run.id)).await.text();
    assert!(text.contains(", 4 denied, "), "{text}");
    assert_eq!(run.verify().await["intact"], true);
}

/// The mode of a moved file stays as it was, like that of any other file, and its content moves.
#[rstest]
#[tokio::test]
async fn a_moved_file_keeps_its_mode_where_policy_allows_no_other(#[values(Backend::Sqlite)] backend: Backend) {
    let (_, run) = Run::shared(backend, &[("a.sh", "a\n")]).await;
    let runner = runner(&run, &[]).await;
    let set = json!({"basedOnSeq": head(&run).await, "reason": "mv", "onDenied": "leave"});
    let layer = Layer::new().file(".wh.a.sh", "").entry("b.sh", EntryType::Regular, 0o755, b"a\n").bytes();
    let answer = send(&runner, &set, &layer).await.ok();
    assert_eq!(answer["left"], json!([{"path": "b.sh", "rule": "modeChange"}]), "{answer:#}");
    assert_eq!(run.present_files().await.into_keys().collect::<Vec<_>>(), ["b.sh"]);
    let metadata = std::fs::metadata(run.file("b.sh")).unwrap();
    assert_eq!(std::os::unix::fs::PermissionsExt::mode(&metadata.permissions()) & 0o111, 0);
}
