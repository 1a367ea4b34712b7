//! Encodings, byte order marks and line endings: what is read, and what a change keeps.

use rstest::rstest;
use serde_json::json;

use crate::harness::{Backend, Run};

const GBK: &[u8] = b"// \xd6\xd0\xce\xc4\xd7\xa2\xca\xcd \xb3\xf5\xca\xbc\xbb\xaf\nint a;\n";
/// A comment that may be Chinese or Korean.
const UNCERTAIN: &[u8] = b"#include <stdio.h>\n// \xb4\xf2\xbf\xaa\xb4\xae\xbf\xda\nvoid f(){}\n";

fn utf16(text: &str) -> Vec<u8> {
    [0xff, 0xfe].into_iter().chain(text.encode_utf16().flat_map(u16::to_le_bytes)).collect()
}

#[rstest]
#[tokio::test]
async fn a_replaced_file_keeps_its_form(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &[]).await;
    let table: [(&str, Vec<u8>, &str, Vec<u8>); 6] = [
        ("g.txt", GBK.to_vec(), "// 中文注释 初始化\nint b;\n", [&GBK[..GBK.len() - 3], b"b;\n"].concat()),
        ("u.ps1", b"\xef\xbb\xbfone\r\ntwo\r\n".to_vec(), "one\nTWO\n", b"\xef\xbb\xbfone\r\nTWO\r\n".to_vec()),
        ("w.txt", utf16("a\r\nb\r\n"), "a\nB\n", utf16("a\r\nB\r\n")),
        (
            "c.cs",
            b"int a;\r\nint b;\r\n".to_vec(),
            "int a;\nint B;\nint c;\n",
            b"int a;\r\nint B;\r\nint c;\r\n".to_vec(),
        ),
        ("mixed.txt", b"a\r\nb\nc\r\nd\n".to_vec(), "a\nb\nC\nd\n", b"a\r\nb\nC\nd\n".to_vec()),
        ("none.txt", b"a".to_vec(), "a\r\nb\n", b"a\r\nb\n".to_vec()),
    ];
    for (path, before, ..) in &table {
        run.put(path, before);
    }
    run.accept_tree().await;
    for (path, _, content, after) in table {
        run.ok("read_file", json!({"path": path})).await;
        let answer = run
            .ok("write_file", json!({"path": path, "content": content, "expectedSha256": "seen", "reason": "t"}))
            .await;
        assert_eq!(answer["warnings"], json!([]), "{path}");
        assert_eq!(std::fs::read(run.file(path)).unwrap(), after, "{path}");
    }
}

#[rstest]
#[tokio::test]
async fn a_form_can_be_named_and_what_cannot_be_kept_is_told(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &[("lf.txt", "a\nb\n")]).await;
    run.put("koi.txt", "<?xml version=\"1.0\" encoding=\"koi8-u\"?>\n");
    run.put("latin.xml", b"<?xml version=\"1.0\" encoding=\"iso-8859-1\"?>\n<a>\xe9</a>\n");
    run.accept_tree().await;
    let write = async |path: &str, content: &str, extra: serde_json::Value| {
        run.ok("read_file", json!({"path": path})).await;
        let mut input = json!({"path": path, "content": content, "expectedSha256": "seen", "reason": "t"});
        input.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        run.call("write_file", input).await
    };
    let kept = write("lf.txt", "a\r\nB\r\n", json!({})).await.ok();
    assert!(kept["warnings"][0].as_str().unwrap().contains("lineEnding=crlf"), "{kept:#}");
    assert_eq!(run.on_disk("lf.txt"), "a\nB\n");
    write("lf.txt", "a\nB\n", json!({"lineEnding": "crlf"})).await.ok();
    assert_eq!(run.on_disk("lf.txt"), "a\r\nB\r\n");
    write("lf.txt", "a\nB\n", json!({"lineEnding": "lf", "encoding": "utf-16le"})).await.ok();
    assert_eq!(std::fs::read(run.file("lf.txt")).unwrap(), utf16("a\nB\n"));
    let lost = write("latin.xml", "<a>漢</a>\n", json!({})).await.ok();
    assert!(lost["warnings"][0].as_str().unwrap().contains("is UTF-8 now"), "{lost:#}");
    assert_eq!(run.on_disk("latin.xml"), "<a>漢</a>\n");
    write("latin.xml", "<a>漢</a>\n", json!({"encoding": "latin1"})).await.refused("UNSUPPORTED_BINARY");
    write("latin.xml", "x", json!({"encoding": "nonsense"})).await.refused("INVALID_REQUEST");
    run.ok(
        "write_file",
        json!({"path": "new.txt", "content": "é\n", "encoding": "latin1", "lineEnding": "crlf", "reason": "t"}),
    )
    .await;
    assert_eq!(std::fs::read(run.file("new.txt")).unwrap(), b"\xe9\r\n");
}

#[rstest]
#[tokio::test]
async fn a_guess_is_said_and_an_uncertain_one_is_not_written(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &[]).await;
    run.put("f.c", UNCERTAIN);
    run.put("declared.py", b"# -*- coding: gbk -*-\n# \xb4\xf2\xbf\xaa\xb4\xae\xbf\xda\n");
    run.accept_tree().await;
    let page = run.ok("read_file", json!({"path": "f.c"})).await;
    assert_eq!(page["encodingGuessed"], true);
    let shown = run.text("read_file", json!({"path": "f.c"})).await.text();
    assert!(shown.ends_with(", guessed]\n") && shown.matches("guessed").count() == 1, "{shown}");
    let declared = run.ok("read_file", json!({"path": "declared.py"})).await;
    assert_eq!((&declared["encoding"], declared.get("encodingGuessed")), (&json!("gbk"), None));
    assert!(declared["content"].as_str().unwrap().contains("打开串口"));
    let named = run.text("read_file", json!({"path": "f.c", "encoding": "gbk"})).await.text();
    assert!(named.contains("打开串口") && named.ends_with("[GBK]\n"), "{named}");
    run.call("read_file", json!({"path": "f.c", "encoding": "utf-8"})).await.refused("INVALID_REQUEST");

    // ASCII is the same in every encoding.
    run.edit("f.c", "void f(){}", "void g(){}", json!({})).await.ok();
    for (tool, input) in [
        ("edit_file", json!({"path": "f.c", "oldString": "void g", "newString": "// 가\nvoid g", "reason": "t"})),
        ("apply_patch", json!({"patch": "--- a/f.c\n+++ b/f.c\n@@ -3 +3,2 @@\n+// 가\n void g(){}\n", "reason": "t"})),
        (
            "replace_range",
            json!({"path": "f.c", "startLine": 3, "endLine": 3, "content": "// 가\n", "expectedSha256": "seen", "reason": "t"}),
        ),
        ("write_file", json!({"path": "f.c", "content": "// 가\n", "expectedSha256": "seen", "reason": "t"})),
    ] {
        let refused = run.call(tool, input).await.refused("INVALID_REQUEST");
        let message = refused["message"].as_str().unwrap();
        assert!(message.contains("uncertain") && message.contains("euc-kr"), "{tool}: {refused:#}");
        assert!(refused["hint"].as_str().unwrap().contains("`encoding`"), "{tool}: {refused:#}");
    }
    let lacking = run.edit("f.c", "void g", "// 关闭\nvoid g", json!({})).await.refused("UNSUPPORTED_BINARY");
    assert!(lacking["message"].as_str().unwrap().contains("euc-kr"), "{lacking:#}");
    run.edit("f.c", "// 打开串口", "// 关闭", json!({"encoding": "gbk"})).await.ok();
    let bytes = std::fs::read(run.file("f.c")).unwrap();
    assert_eq!(bytes, b"#include <stdio.h>\n// \xb9\xd8\xb1\xd5\nvoid g(){}\n");
}

#[rstest]
#[tokio::test]
async fn a_declared_encoding_is_written_and_one_that_is_not_known_makes_a_guess_uncertain(
    #[values(Backend::Sqlite)] backend: Backend,
) {
    let (_server, run) = Run::shared(backend, &[]).await;
    run.put("latin9.xml", b"<?xml version=\"1.0\" encoding=\"ISO-8859-15\"?>\n<a>f\xfcr</a>\n");
    run.put("dos.py", b"# -*- coding: cp850 -*-\n# f\xfcr\n");
    run.accept_tree().await;
    run.edit("latin9.xml", "für", "10 € für", json!({})).await.ok();
    let bytes = std::fs::read(run.file("latin9.xml")).unwrap();
    assert!(bytes.ends_with(b"<a>10 \xa4 f\xfcr</a>\n"), "{bytes:x?}");
    let refused = run.edit("dos.py", "für", "10 € für", json!({})).await.refused("INVALID_REQUEST");
    assert!(refused["message"].as_str().unwrap().contains("uncertain"), "{refused:#}");
    assert!(refused["hint"].as_str().unwrap().contains("`encoding`"), "{refused:#}");
}

#[rstest]
#[tokio::test]
async fn the_form_of_a_file_is_told_once_at_its_end(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &[("lf.txt", "a\n"), ("crlf.txt", "a\r\nb\r\n")]).await;
    run.put("w.txt", utf16("a\r\n"));
    let pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n";
    run.put("img.dat", pointer);
    run.accept_tree().await;
    for (path, want) in
        [("lf.txt", "1  a\n"), ("crlf.txt", "1  a\n2  b\n[CRLF]\n"), ("w.txt", "1  a\n[UTF-16] [CRLF]\n")]
    {
        assert_eq!(run.text("read_file", json!({"path": path})).await.text(), want);
        assert_eq!(run.text("read_files", json!({"paths": [path]})).await.text(), format!("{path}\n{want}"));
    }
    let shown = run.text("read_file", json!({"path": "img.dat"})).await.text();
    assert!(shown.ends_with("[Git LFS pointer: the content of 12,345 bytes is in Git LFS]\n"), "{shown}");
    let edited = run.edit("img.dat", "size 12345", "size 1", json!({})).await.ok();
    assert!(edited["warnings"][0].as_str().unwrap().contains("Git LFS"), "{edited:#}");
}

#[rstest]
#[tokio::test]
async fn a_search_finds_what_a_read_shows(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &[]).await;
    run.put("g.c", [&GBK[..GBK.len() - 7], b"int x = 1;\n"].concat());
    run.put("l.c", b"/* Gr\xf6\xdfe und L\xe4nge der Stra\xdfe */\n");
    for query in ["初始化", "Größe", "Gr", "int x"] {
        let found = run.ok("search_text", json!({"query": query})).await;
        let matches = found["matches"].as_array().unwrap();
        assert_eq!(matches.len(), 1, "{query}: {found:#}");
        assert!(!matches[0]["snippet"].as_str().unwrap().contains('\u{fffd}'), "{found:#}");
    }
}

#[rstest]
#[tokio::test]
async fn each_tool_that_changes_text_takes_the_encoding(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &[("empty.txt", ""), ("ascii.txt", "a\n")]).await;
    run.put("f.c", UNCERTAIN);
    run.put("g.c", UNCERTAIN);
    run.accept_tree().await;
    run.ok("read_file", json!({"path": "f.c"})).await;
    let range = |path: &str, line: u64, content: &str, encoding: Option<&str>| {
        json!({"path": path, "startLine": line, "endLine": line, "content": content, "expectedSha256": "seen",
            "encoding": encoding, "reason": "t"})
    };
    let uncertain = run.call("replace_range", range("f.c", 2, "// 가\n", None)).await.refused("INVALID_REQUEST");
    assert!(uncertain["hint"].as_str().unwrap().contains("`encoding`"), "{uncertain:#}");
    run.call("replace_range", range("f.c", 2, "// x\n", Some("utf-8"))).await.refused("INVALID_REQUEST");
    run.call("replace_range", range("f.c", 2, "// x\n", Some("nonsense"))).await.refused("INVALID_REQUEST");
    run.call("replace_range", range("f.c", 2, "// é 😀\n", Some("gbk"))).await.refused("UNSUPPORTED_BINARY");
    run.ok("replace_range", range("f.c", 2, "// 关闭\n", Some("gbk"))).await;
    let on_disk = |path: &str| std::fs::read(run.file(path)).unwrap();
    assert_eq!(on_disk("f.c"), b"#include <stdio.h>\n// \xb9\xd8\xb1\xd5\nvoid f(){}\n");

    let patch = "--- a/g.c\n+++ b/g.c\n@@ -2 +2,2 @@\n-// 打开串口\n+// 关闭串口\n+// 完\n\
                 --- /dev/null\n+++ b/new.c\n@@ -0,0 +1 @@\n+// 新\n";
    let with = |patch: &str, encoding: &str| json!({"patch": patch, "encoding": encoding, "reason": "t"});
    run.call("apply_patch", json!({"patch": patch, "reason": "t"})).await.refused("PATCH_CONFLICT");
    run.call("apply_patch", with(patch, "utf-16le")).await.refused("INVALID_REQUEST");
    run.call("apply_patch", with(&patch.replace('完', "😀"), "gbk")).await.refused("UNSUPPORTED_BINARY");
    run.call("apply_patch", with(patch, "nonsense")).await.refused("INVALID_REQUEST");
    let applied = run.ok("apply_patch", with(patch, "gbk")).await;
    assert_eq!((&applied["insertions"], &applied["deletions"]), (&json!(3), &json!(1)), "{applied:#}");
    assert_eq!(on_disk("g.c"), b"#include <stdio.h>\n// \xb9\xd8\xb1\xd5\xb4\xae\xbf\xda\n// \xcd\xea\nvoid f(){}\n");
    assert_eq!(on_disk("new.c"), b"// \xd0\xc2\n");
    // A file without text has every encoding, and ASCII is text in most of them.
    for path in ["empty.txt", "ascii.txt"] {
        run.ok("read_file", json!({"path": path})).await;
    }
    let insert = json!({"path": "empty.txt", "startLine": 1, "endLine": 0, "content": "é\n", "expectedSha256": "seen",
        "encoding": "utf-16le", "reason": "t"});
    run.ok("replace_range", insert).await;
    assert_eq!(on_disk("empty.txt"), utf16("é\n"));
    run.ok("replace_range", range("ascii.txt", 1, "é\n", Some("latin1"))).await;
    assert_eq!(on_disk("ascii.txt"), b"\xe9\n");
}

#[rstest]
#[tokio::test]
async fn a_diff_shows_the_characters_that_a_read_shows(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &[("a.txt", "a\n")]).await;
    run.put("g.c", GBK);
    run.put("declared.py", b"# -*- coding: gbk -*-\n# \xb4\xf2\xbf\xaa\xb4\xae\xbf\xda\n");
    run.put("u.txt", utf16("é\r\n"));
    run.put("utf8.txt", "漢\n");
    run.accept_tree().await;
    let edited = run.edit("g.c", "int a", "int b", json!({})).await.ok();
    let diff = run.ok("diff_workspace", json!({})).await;
    let text = diff["diff"].as_str().unwrap();
    for line in ["+// 中文注释 初始化\n", "+# 打开串口\n", "+é\r\n", "+漢\n"] {
        assert!(text.contains(line), "{line}: {text}");
    }
    assert!(!text.contains('\u{fffd}'), "{text}");
    let form = |path: &str| {
        let file = diff["files"].as_array().unwrap().iter().find(|file| file["path"] == path).unwrap();
        (file["encoding"].clone(), file["encodingGuessed"].clone())
    };
    assert_eq!(form("g.c"), (json!("gbk"), json!(true)));
    assert_eq!(form("declared.py"), (json!("gbk"), json!(null)));
    assert_eq!(form("u.txt"), (json!("utf-16le"), json!(null)));
    assert_eq!(form("utf8.txt"), (json!(null), json!(null)));
    let shown = run.text("diff_workspace", json!({})).await.text();
    assert!(shown.ends_with("\n[GBK: declared.py]\n[GBK, guessed: g.c]\n[UTF-16: u.txt]\n"), "{shown}");
    let one = run.text("diff_workspace", json!({"path": "utf8.txt"})).await.text();
    assert!(one.ends_with("+漢\n"), "{one}");
    // So does the diff that is stored as evidence, and the change can be undone.
    let artifact = run.artifact(edited["artifactUris"][0].as_str().unwrap()).await;
    assert!(artifact.contains(" // 中文注释 初始化\n-int a;\n+int b;\n"), "{artifact}");
    run.ok("revert_calls", json!({"last": 1, "reason": "t"})).await;
    assert_eq!(std::fs::read(run.file("g.c")).unwrap(), GBK);
    // Without permission to read, nothing of the content is told.
    let path = format!("/v1/runs/{}/tokens", run.id);
    let token = run.operator.post(&path, json!({"permissions": ["file:diff"]})).await.is(201);
    let blind = Run { agent: run.agent.with_token(token["token"].as_str()), ..run.clone() };
    let files = blind.ok("diff_workspace", json!({})).await["files"].to_string();
    assert!(!files.contains("encoding"), "{files}");
}
