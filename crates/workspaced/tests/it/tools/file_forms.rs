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
async fn a_replaced_file_keeps_its_form(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
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
        assert_eq!(std::fs::read(run.repo.join(path)).unwrap(), after, "{path}");
    }
}

#[rstest]
#[tokio::test]
async fn a_form_can_be_named_and_what_cannot_be_kept_is_told(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
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
    assert_eq!(std::fs::read(run.repo.join("lf.txt")).unwrap(), utf16("a\nB\n"));
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
    assert_eq!(std::fs::read(run.repo.join("new.txt")).unwrap(), b"\xe9\r\n");
}

#[rstest]
#[tokio::test]
async fn a_guess_is_said_and_an_uncertain_one_is_not_written(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
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
    let bytes = std::fs::read(run.repo.join("f.c")).unwrap();
    assert_eq!(bytes, b"#include <stdio.h>\n// \xb9\xd8\xb1\xd5\nvoid g(){}\n");
}

#[rstest]
#[tokio::test]
async fn the_form_of_a_file_is_told_once_at_its_end(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
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
async fn a_search_finds_what_a_read_shows(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
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
