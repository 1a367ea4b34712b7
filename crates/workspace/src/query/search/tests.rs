use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use model::{Code, Encoding, FileKind, PolicyOverrides};
use rustix::fs::{CWD, Mode};

use super::{Match, SearchMode, SearchQuery, SearchReport};
use crate::test_support::{
    CANARY, TestBase, TestTree, code, not_cancelled, path, rules, rules_with, search_query as query,
};
use crate::{Tree, WorkspaceError};

fn regex(text: &str) -> SearchQuery {
    SearchQuery { mode: SearchMode::Regex, ..query(text) }
}

fn search(tree: &Tree, query: &SearchQuery) -> SearchReport {
    tree.search(&rules(), query, &not_cancelled()).unwrap()
}

fn positions(report: &SearchReport) -> Vec<(&str, u64, u64)> {
    report.matches.iter().map(|found| (found.path.as_str(), found.line, found.column)).collect()
}

fn files(report: &SearchReport) -> Vec<&str> {
    report.matches.iter().map(|found| found.path.as_str()).collect()
}

#[test]
fn matches_come_in_path_order_with_line_column_and_kind() {
    let fixture = TestTree::with(&[
        ("b.rs", "x\n  needle needle\n"),
        ("a/b.md", "needle"),
        ("a-b.txt", "é needle\r\nneedle\r\n"),
        ("a.toml", "nothing"),
    ]);
    let report = search(&fixture.tree(), &query("needle"));
    assert_eq!(positions(&report), [("a-b.txt", 1, 3), ("a-b.txt", 2, 1), ("a/b.md", 1, 1), ("b.rs", 2, 3)]);
    assert_eq!(report.matches[0].snippet, "é needle");
    assert_eq!((report.matches[2].kind, report.matches[3].kind), (FileKind::TextDoc, FileKind::TextSource));
    assert_eq!((report.files_searched, report.truncated_reason), (4, None));
}

#[test]
fn context_stays_in_its_file_and_is_whole_where_matches_are_close() {
    let fixture = TestTree::with(&[("a", "1\n2 x\n3\n4 x\n5 x\n6\n"), ("b", "x")]);
    for bytes in [false, true] {
        if bytes {
            // The same text as UTF-16, which takes another path through the searcher.
            let text = "1\n2 x\n3\n4 x\n5 x\n6\n".encode_utf16().flat_map(u16::to_le_bytes);
            fixture.write("a", [0xff, 0xfe].into_iter().chain(text).collect::<Vec<_>>());
        }
        let report = search(&fixture.tree(), &SearchQuery { context_lines: 2, ..query("x") });
        let shown: Vec<_> =
            report.matches.iter().map(|found| (found.line, found.before.join("|"), found.after.join("|"))).collect();
        let want = [(2, "1", "3|4 x"), (4, "2 x|3", "5 x|6"), (5, "3|4 x", "6"), (1, "", "")];
        assert_eq!(shown, want.map(|(line, before, after)| (line, before.to_owned(), after.to_owned())), "{bytes}");
        // Also where more matches follow than are returned.
        for query in [SearchQuery { max_matches: 1, ..query("x") }, SearchQuery { one_per_file: true, ..query("x") }] {
            let report = search(&fixture.tree(), &SearchQuery { context_lines: 2, ..query });
            assert_eq!(report.matches[0].after, ["3", "4 x"]);
        }
    }
}

#[test]
fn queries_are_literal_regular_folded_or_whole_words() {
    let fixture = TestTree::with(&[("a", "a.c\nabc\nABC\nabcd\nx abc\r\nÄbc\n")]);
    let lines =
        |query: &SearchQuery| search(&fixture.tree(), query).matches.iter().map(|found| found.line).collect::<Vec<_>>();
    assert_eq!(lines(&query("a.c")), [1]);
    assert_eq!(lines(&regex("a.c")), [1, 2, 4, 5]);
    assert_eq!(lines(&regex("^a.c$")), [1, 2]);
    assert_eq!(lines(&regex("abc$")), [2, 5]);
    assert_eq!(lines(&SearchQuery { case_sensitive: false, ..query("abc") }), [2, 3, 4, 5]);
    assert_eq!(lines(&SearchQuery { case_sensitive: false, ..query("äbc") }), [6]);
    assert_eq!(lines(&SearchQuery { whole_word: true, ..query("abc") }), [2, 5]);
    assert_eq!(lines(&SearchQuery { whole_word: true, case_sensitive: false, ..regex("a.c") }), [1, 2, 3, 5]);
    assert_eq!(lines(&regex("x*")), [1, 2, 3, 4, 5, 6]);
}

#[test]
fn empty_lines_are_found_with_either_line_ending() {
    let fixture = TestTree::with(&[
        ("a-none", "a\r\nb\r\n"),
        ("b-some", "a\r\n\r\nb\r\n \t\r\n\r\n"),
        ("c-lf", "a\n\nb\n \t\n\n"),
        ("d-open", "a\r\n\r\nb"),
        ("e-mixed", "a\r\n\nb\r\n"),
    ]);
    // As UTF-16, which is searched after decoding.
    let text = "a\r\n\r\nb\r\n".encode_utf16().flat_map(u16::to_le_bytes);
    fixture.write("f-wide", [0xff, 0xfe].into_iter().chain(text).collect::<Vec<_>>());
    let found = |text: &str| {
        let report = search(&fixture.tree(), &regex(text));
        report.matches.iter().map(|found| format!("{}:{}", &found.path[..1], found.line)).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(found("^$"), "b:2 b:5 c:2 c:5 d:2 e:2 f:2");
    assert_eq!(found(r"^\s*$"), "b:2 b:4 b:5 c:2 c:4 c:5 d:2 e:2 f:2");
    assert_eq!(found(r"^\s+$"), "b:4 c:4");
    assert_eq!(found(r"b$"), "a:2 b:3 c:3 d:3 e:3 f:3");
    assert_eq!(found(r"^a?$"), "a:1 b:1 b:2 b:5 c:1 c:2 c:5 d:1 d:2 e:1 e:2 f:1 f:2");
    // Enough lines for several pieces.
    fixture.write("g-long", "long enough\r\n".repeat(30_000));
    assert_eq!(found("^$|zzz"), "b:2 b:5 c:2 c:5 d:2 e:2 f:2");
}

#[test]
fn a_carriage_return_inside_a_line_does_not_end_it() {
    let fixture = TestTree::with(&[
        ("a-lf", "10%\r50%\rdone\nnext\n"),
        ("b-none", "a\r\rb"),
        ("c-crlf", "x\r\n10%\rdone\r\n\r\nnext\r\n"),
    ]);
    let found = |query: SearchQuery| {
        let report = search(&fixture.tree(), &query);
        let found = report.matches.iter().map(|found| format!("{}:{}:{}", &found.path[..1], found.line, found.column));
        found.collect::<Vec<_>>().join(" ")
    };
    assert_eq!(found(regex("^done$")), "");
    assert_eq!(found(regex("^$")), "c:3:1");
    assert_eq!(found(regex(r"^\s*$")), "c:3:1");
    assert_eq!(found(regex("%$")), "");
    assert_eq!(found(regex("done$")), "a:1:9 c:2:5");
    assert_eq!(found(regex("^10%.*done$")), "a:1:1 c:2:1");
    assert_eq!(found(regex("^(?:next|x)$")), "a:2:1 c:1:1 c:4:1");
    assert_eq!(found(SearchQuery { whole_word: true, ..regex("don.$") }), "a:1:9 c:2:5");
    let across = |text: &str| found(SearchQuery { multiline: true, ..regex(text) });
    assert_eq!(across("^done$"), "");
    assert_eq!(across("^$"), "c:3:1");
    assert_eq!(across("^next$"), "a:2:1 c:4:1");
    // In a line that is too long for the expression.
    let progress = (0..200_000_u32).fold(String::new(), |text, number| text + &number.to_string() + "\r");
    fixture.write("d-long", format!("{progress}done\r\nlast\n"));
    assert_eq!(found(regex(&format!("^done$|^last$|{}$", "x".repeat(4_000)))), "d:2:1");
}

#[test]
fn an_expression_may_name_the_carriage_return_of_a_line_ending() {
    let fixture = TestTree::with(&[("a-crlf", "x\r\ny\r\n"), ("b-lf", "x\ny\n")]);
    assert_eq!(positions(&search(&fixture.tree(), &regex(r"x\r$"))), [("a-crlf", 1, 1)]);
    assert_eq!(positions(&search(&fixture.tree(), &regex(r"\r"))), [("a-crlf", 1, 2), ("a-crlf", 2, 2)]);
    assert_eq!(positions(&search(&fixture.tree(), &regex(r"y\r?$"))), [("a-crlf", 2, 1), ("b-lf", 2, 1)]);
}

#[test]
fn anchors_of_a_text_match_at_each_line() {
    let fixture = TestTree::with(&[("a", "xy\nyx\nx\n")]);
    let lines =
        |text: &str| search(&fixture.tree(), &regex(text)).matches.iter().map(|found| found.line).collect::<Vec<_>>();
    assert_eq!(lines(r"\Ax"), [1, 3]);
    assert_eq!(lines(r"x\z"), [2, 3]);
}

#[test]
fn an_expression_that_is_too_large_is_refused() {
    let fixture = TestTree::with(&[("a", "x")]);
    for text in [r"\w{200}", r"(?:\w{10}){20}", "((a{100}){100}){100}", "a{4000000000}", &r"[\w&&\pL]".repeat(400)] {
        for case_sensitive in [true, false] {
            let query = SearchQuery { case_sensitive, ..regex(text) };
            let Err(WorkspaceError::Refused(refusal)) = fixture.tree().search(&rules(), &query, &not_cancelled())
            else {
                panic!("{text} was searched for")
            };
            let says = ["`query` is too large", "Unicode classes"];
            assert!(says.iter().any(|says| refusal.message.contains(says)), "{text}: {refusal}");
        }
    }
    let names = (0..400).map(|number| format!("name{number}")).collect::<Vec<_>>().join("|");
    for text in [
        r"\b(?:\w{2,12} ){6,}\d\b",
        r"fn \w+\(.*\) -> Result<",
        ".{0,500}TODO.{0,500}",
        r"[\w.-]+@[\w.-]+",
        r"\w{100}",
        &names,
    ] {
        for case_sensitive in [true, false] {
            search(&fixture.tree(), &SearchQuery { case_sensitive, ..regex(text) });
        }
    }
}

#[test]
fn bad_queries_are_refused_as_such() {
    let fixture = TestTree::new();
    let bad = [
        query(""),
        query("two\nlines"),
        regex("("),
        regex("(?=look)ahead"),
        regex("x{1000}{1000}{1000}"),
        regex(&"(".repeat(5_000)),
        SearchQuery { include_glob: vec!["[".to_owned()], ..query("x") },
        SearchQuery { exclude_glob: vec!["{a".to_owned()], ..query("x") },
    ];
    for query in bad {
        let answer = fixture.tree().search(&rules(), &query, &not_cancelled());
        assert_eq!(code(answer), Code::InvalidRequest, "{:?}", query.query.get(..20));
    }
}

#[test]
fn globs_choose_files_by_name_or_by_path() {
    let names = ["a.rs", "src/b.rs", "src/c.md", "src/gen/d.rs", "tests/e.rs", ".github/f.yml"];
    let fixture = TestTree::with(&names.map(|name| (name, "needle")));
    let globs = |include: &[&str], exclude: &[&str]| {
        let owned = |globs: &[&str]| globs.iter().map(|glob| (*glob).to_owned()).collect();
        let query = SearchQuery { include_glob: owned(include), exclude_glob: owned(exclude), ..query("needle") };
        search(&fixture.tree(), &query).matches.into_iter().map(|found| found.path).collect::<Vec<_>>()
    };
    assert_eq!(globs(&["*.rs"], &[]), ["a.rs", "src/b.rs", "src/gen/d.rs", "tests/e.rs"]);
    assert_eq!(globs(&["src/*.rs"], &[]), ["src/b.rs"]);
    assert_eq!(globs(&["./src/**"], &["*.md"]), ["src/b.rs", "src/gen/d.rs"]);
    assert_eq!(globs(&["/a.rs", "*.{yml,md}"], &[]), [".github/f.yml", "a.rs", "src/c.md"]);
    assert_eq!(globs(&[], &["src", "tests/"]), [".github/f.yml", "a.rs"]);
    assert_eq!(globs(&["src/"], &["gen"]), ["src/b.rs", "src/c.md"]);
}

#[test]
fn what_no_tool_reads_is_never_searched() {
    let fixture = TestTree::with(&[
        (".env", "needle"),
        ("deep/.aws/credentials", "needle"),
        (".git/config", "needle"),
        (".gitignore", "*.log\n/skip/\n"),
        ("a.log", "needle"),
        ("skip/b", "needle"),
        ("private/c", "needle"),
        ("seen.txt", "needle"),
        ("target/made.txt", "needle"),
        ("kept.log", "needle"),
    ]);
    fs::write(fixture.outside("secret.txt"), "needle").unwrap();
    fixture.link("link.txt", "seen.txt");
    fixture.link("out.txt", "../outside/secret.txt");
    fixture.link("folder", "../outside");
    fs::hard_link(fixture.outside("secret.txt"), fixture.repo("alias.txt")).unwrap();
    fixture.write("binary", b"needle\0");
    fixture.write("late-binary", [b"needle\n".to_vec(), vec![b'x'; 100_000], b"\0".to_vec()].concat());
    rustix::fs::mkfifoat(CWD, fixture.repo("fifo"), Mode::RUSR | Mode::WUSR).unwrap();
    fs::write(fixture.repo("").join(OsStr::from_bytes(b"odd\xff")), "needle").unwrap();
    let tree = fixture.tree_on(TestBase::tracking(&["kept.log", "seen.txt"]));
    let rules =
        rules_with(&PolicyOverrides { deny: Some(vec!["private/**".to_owned()]), ..PolicyOverrides::default() });
    let report = tree.search(&rules, &query("needle"), &not_cancelled()).unwrap();
    assert_eq!(files(&report), ["kept.log", "seen.txt", "target/made.txt"]);
    assert_eq!(report.skipped, Vec::<String>::new());
}

#[test]
fn the_path_may_be_a_file_or_a_link_and_is_judged_first() {
    let fixture =
        TestTree::with(&[("a/b.txt", "needle"), ("c.txt", "needle"), (".env", "needle"), ("nul", "needle\0")]);
    fixture.link("folder", "a");
    fixture.link("file", "a/b.txt");
    fixture.link("innocent", ".env");
    fixture.link("out", "../outside");
    let tree = fixture.tree();
    for (raw, want) in
        [("a", &["a/b.txt"][..]), ("a/b.txt", &["a/b.txt"]), ("folder", &["folder/b.txt"]), ("file", &["file"])]
    {
        assert_eq!(files(&search(&tree, &SearchQuery { path: path(raw), ..query("needle") })), want, "{raw}");
    }
    for (raw, want) in [
        ("out", Code::PathRejected),
        (".env", Code::PolicyDeniedSecret),
        ("innocent", Code::PolicyDeniedSecret),
        ("missing/.env", Code::PolicyDeniedSecret),
        ("missing", Code::NotFound),
        ("nul", Code::UnsupportedBinary),
    ] {
        let query = SearchQuery { path: path(raw), ..query("needle") };
        assert_eq!(code(tree.search(&rules(), &query, &not_cancelled())), want, "{raw}");
    }
}

#[test]
fn the_first_matches_are_the_same_however_many_are_asked_for() {
    let fixture = TestTree::new();
    for folder in 0..25 {
        for file in 0..25 {
            fixture.write(&format!("d{folder}/f{file}"), "needle\nneedle\n".repeat(file % 3));
        }
    }
    let tree = fixture.tree();
    let all = search(&tree, &SearchQuery { max_matches: 100_000, ..query("needle") });
    assert_eq!(all.truncated_reason, None);
    assert_eq!(all.files_searched, 625);
    let paths = files(&all);
    assert!(paths.is_sorted());
    for max_matches in [1, 7, 100, 300, all.matches.len() - 1] {
        for _ in 0..5 {
            let some = search(&tree, &SearchQuery { max_matches, ..query("needle") });
            assert_eq!(some.matches, all.matches[..max_matches]);
            assert_eq!(some.truncated_reason.as_deref(), Some("maxMatches"));
            let again = search(&tree, &SearchQuery { max_matches, ..query("needle") });
            assert_eq!(some.files_searched, again.files_searched);
        }
    }
    let exact = search(&tree, &SearchQuery { max_matches: all.matches.len(), ..query("needle") });
    assert_eq!(exact.truncated_reason, None);
}

#[test]
fn an_answer_is_bounded_in_bytes() {
    let fixture = TestTree::new();
    for file in 0..20 {
        fixture.write(&format!("f{file:02}"), format!("{} needle {}\n", "x".repeat(300), "y".repeat(300)).repeat(200));
    }
    let report = search(&fixture.tree(), &SearchQuery { max_matches: 1000, context_lines: 3, ..query("needle") });
    assert_eq!(report.truncated_reason.as_deref(), Some("maxBytes"));
    let bytes: usize = report.matches.iter().map(|found| found.snippet.len() + found.before.join("").len()).sum();
    assert!((50_000..300_000).contains(&bytes), "{bytes}");
    assert!(report.matches.iter().all(|found| found.snippet.chars().count() <= 400));
}

#[test]
fn a_snippet_shows_the_match_of_a_long_line() {
    let fixture = TestTree::with(&[
        ("a", &format!("{}needle{}", "é".repeat(5_000), "ü".repeat(5_000))),
        ("b", &format!("needle{}", "ü".repeat(5_000))),
        ("c", &format!("{}needle", "é".repeat(5_000))),
        ("d", &"n".repeat(400)),
    ]);
    fixture.write("e", [vec![0xe9; 3_000], b"needle".to_vec(), vec![0xe9; 3_000]].concat());
    let found = search(&fixture.tree(), &query("needle")).matches;
    let columns: Vec<_> = found.iter().map(|found| found.column).collect();
    assert_eq!(columns, [5_001, 1, 5_001, 3_001]);
    for Match { path, snippet, .. } in &found {
        assert!(snippet.contains("needle"), "{path}: {snippet}");
        assert!((127..=400).contains(&snippet.chars().count()), "{path}: {}", snippet.chars().count());
    }
    assert!(found[0].snippet.starts_with('…') && found[0].snippet.ends_with('…'));
    assert!(!found[1].snippet.starts_with('…') && found[1].snippet.ends_with('…'));
    assert!(found[2].snippet.starts_with('…') && found[2].snippet.ends_with("needle"));
    let whole = search(&fixture.tree(), &query("nnn"));
    assert_eq!(whole.matches[0].snippet, "n".repeat(400));
}

#[test]
fn a_match_is_found_wherever_chunks_end() {
    let chunk = super::scan::CHUNK_BYTES;
    let fixture = TestTree::new();
    for (file, at) in
        [chunk - 7, chunk - 6, chunk - 3, chunk - 1, chunk, chunk + 1, 2 * chunk - 2, 3 * chunk].iter().enumerate()
    {
        let mut text = vec![b'x'; 4 * chunk];
        text[at - 1] = b'\n';
        text[*at..at + 6].copy_from_slice(b"needle");
        fixture.write(&format!("f{file}"), &text);
    }
    let report = search(&fixture.tree(), &SearchQuery { context_lines: 1, ..query("needle") });
    assert_eq!(report.matches.len(), 8);
    for found in &report.matches {
        assert_eq!((found.line, found.column), (2, 1), "{}", found.path);
        assert!(found.snippet.starts_with("needlexxx"));
        assert!(found.before[0].starts_with("xxx"));
    }
}

#[test]
fn lines_of_any_length_and_files_of_any_size_are_survived() {
    let fixture = TestTree::with(&[("small.txt", "needle\n")]);
    fixture.write("line.txt", [vec![b'x'; 64 * 1024], b"needle".to_vec(), vec![b'y'; 64 * 1024]].concat());
    fixture.write("megabytes.txt", [vec![b'x'; 10 << 20], b"needle\n".to_vec()].concat());
    fs::File::create(fixture.repo("sparse.txt")).unwrap().set_len(1 << 40).unwrap();
    let report = search(&fixture.tree(), &query("needle"));
    assert_eq!(files(&report), ["line.txt", "megabytes.txt", "small.txt"]);
    assert_eq!(report.skipped, ["sparse.txt: too large"]);
    // A policy with a higher limit: larger files are streamed, and a line that is too long is reported.
    let rules = rules_with(&PolicyOverrides { max_file_bytes: Some(8 << 20), ..PolicyOverrides::default() });
    fs::remove_file(fixture.repo("sparse.txt")).unwrap();
    fixture.write("lines.txt", b"some line\n".repeat(2 << 20));
    fixture.write("one-line.txt", vec![b'x'; 20 << 20]);
    let mut late = b"some line\n".repeat(2 << 20);
    late.extend_from_slice(b"needle\n");
    fixture.write("late.txt", late);
    let report = fixture.tree().search(&rules, &query("needle"), &not_cancelled()).unwrap();
    assert_eq!(files(&report), ["late.txt", "line.txt", "megabytes.txt", "small.txt"]);
    assert_eq!(report.matches[0].line, (2 << 20) + 1);
    assert_eq!(report.skipped, ["one-line.txt: a line is too long, or it cannot be read"]);
}

#[test]
fn other_encodings_are_searched_too() {
    let fixture = TestTree::new();
    let text = "first\nein Käse\n";
    let (little, big) =
        (text.encode_utf16().flat_map(u16::to_le_bytes), text.encode_utf16().flat_map(u16::to_be_bytes));
    fixture.write("little", [0xff, 0xfe].into_iter().chain(little).collect::<Vec<_>>());
    fixture.write("big", [0xfe, 0xff].into_iter().chain(big).collect::<Vec<_>>());
    fixture.write("bom", "\u{feff}ein Käse\n");
    fixture.write("latin", b"ein K\xe4se\n");
    let report = search(&fixture.tree(), &query("ein K"));
    assert_eq!(positions(&report), [("big", 2, 1), ("bom", 1, 1), ("latin", 1, 1), ("little", 2, 1)]);
    let snippets: Vec<_> = report.matches.iter().map(|found| found.snippet.as_str()).collect();
    assert_eq!(snippets, ["ein Käse", "ein Käse", "ein Käse", "ein Käse"]);
    for found in [query("Käse"), regex("K.se"), SearchQuery { case_sensitive: false, ..query("KÄSE") }] {
        assert_eq!(files(&search(&fixture.tree(), &found)), ["big", "bom", "latin", "little"], "{found:?}");
    }
    let at_start = search(&fixture.tree(), &regex("^ein"));
    assert_eq!(positions(&at_start), [("big", 2, 1), ("bom", 1, 1), ("latin", 1, 1), ("little", 2, 1)]);
}

#[test]
fn text_in_an_older_encoding_is_found_as_it_is_read() {
    let fixture = TestTree::new();
    let long = "x\n".repeat(200_000);
    for (name, encoding, text) in [
        ("gbk", Encoding::Gbk, "/* 初始化串口设备，中文注释内容 */\n"),
        ("sjis", Encoding::ShiftJis, "// 初期化する設定ファイル、こんにちは\n"),
        ("cyrillic", Encoding::Windows1251, "Привет, мир: это текст на русском языке\n"),
    ] {
        fixture.write(name, model::encode(text, encoding).unwrap());
        // After more bytes than are read at a time.
        fixture.write(&format!("{name}-long"), model::encode(&format!("{long}{text}"), encoding).unwrap());
    }
    for (wanted, name, line) in [("初始化", "gbk", 1), ("初期化", "sjis", 1), ("русском", "cyrillic", 1)] {
        let report = search(&fixture.tree(), &query(wanted));
        let long = format!("{name}-long");
        assert_eq!(files(&report), [name, long.as_str()], "{wanted}");
        assert_eq!((report.matches[0].line, report.matches[1].line), (line, 200_001));
        assert!(report.matches.iter().all(|found| found.snippet.contains(wanted)), "{:?}", report.matches);
    }
}

#[test]
fn a_cancelled_search_stops() {
    let fixture = TestTree::with(&[("a", "needle"), ("b/c", "needle")]);
    let answer = fixture.tree().search(&rules(), &query("needle"), &AtomicBool::new(true));
    assert!(matches!(answer, Err(WorkspaceError::Cancelled)));
}

#[test]
fn an_expression_that_takes_long_for_a_line_passes_over_its_file() {
    let fixture = TestTree::new();
    // Too many sets of states to cache, and too many states to follow byte by byte.
    let line: String =
        (0..60_000_u32).map(|at| if at.wrapping_mul(2_654_435_761) >> 31 == 0 { 'a' } else { 'b' }).collect();
    fixture.write("long.txt", format!("{line}\nab\n"));
    fixture.write("short.txt", format!("{}ac\n", "a".repeat(69)));
    let hard = "a(?:[ab]{1,60}){70}c|ac";
    let report = search(&fixture.tree(), &regex(hard));
    assert_eq!(positions(&report), [("short.txt", 1, 70)]);
    assert_eq!(report.skipped, ["long.txt: a line is too long for this expression"]);
    // An expression of the same size that is simple to follow is searched for in any line.
    let simple = format!("{}c|ba", "a".repeat(4_000));
    let report = search(&fixture.tree(), &regex(&simple));
    assert_eq!(files(&report), ["long.txt"]);
    assert_eq!(report.skipped, [""; 0]);
}

#[test]
fn a_hard_expression_ends_soon_after_its_time() {
    let fixture = TestTree::new();
    // Too many sets of states to cache, on lines that are just short enough to follow all states.
    let text: String = (0..1_000_000_u32)
        .map(|at| match at % 1_700 {
            0 => '\n',
            _ if at.wrapping_mul(2_654_435_761) >> 31 == 0 => 'a',
            _ => 'b',
        })
        .collect();
    fixture.write("long.txt", text);
    let query = SearchQuery { max_time: Duration::from_millis(100), ..regex("(?:[ab]{1,60}){70}c") };
    for query in [query.clone(), SearchQuery { multiline: true, ..query }] {
        let started = Instant::now();
        let report = search(&fixture.tree(), &query);
        assert!(report.truncated_reason.as_deref() == Some("maxTime") || report.skipped.len() == 1, "{report:?}");
        // Built to be fast, it takes less than a second.
        assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
    }
}

#[test]
fn pieces_of_a_text_are_matched_as_the_whole_is() {
    let fixture = TestTree::new();
    // Many pieces for an expression with many states; some of them end at an empty line.
    let text: String =
        (0..20_000).map(|line| if line % 7 == 0 { "\n".to_owned() } else { format!("line {line}\r\n") }).collect();
    fixture.write("text.txt", &text);
    fixture.write("unended.txt", "x\n\nlast");
    let lines = |query: SearchQuery| {
        let report = search(&fixture.tree(), &SearchQuery { max_matches: 1_000, ..query });
        report.matches.iter().map(|found| (found.path.clone(), found.line)).collect::<Vec<_>>()
    };
    let at = |path: &str, line| (path.to_owned(), line);
    let empty: Vec<_> = (0..1_000).map(|number| at("text.txt", number * 7 + 1)).collect();
    assert_eq!(lines(regex("^$")), empty);
    assert_eq!(lines(regex("^$|(?:x[0-9a-f]{60}){70}")), empty);
    assert_eq!(lines(regex(r"\b1999[78]$")), [at("text.txt", 19_998), at("text.txt", 19_999)]);
    assert_eq!(lines(regex("st$")), [at("unended.txt", 3)]);
    assert_eq!(lines(SearchQuery { whole_word: true, ..regex("lin|1234") }), [at("text.txt", 1_235)]);
}

#[test]
fn a_search_that_exceeds_its_time_returns_the_matches_so_far() {
    let fixture = TestTree::with(&[("a", "needle"), ("b/c", "needle")]);
    for query in [query("needle"), regex("ne+dle"), SearchQuery { path: path("a"), ..query("needle") }] {
        let report = search(&fixture.tree(), &SearchQuery { max_time: Duration::ZERO, ..query });
        assert_eq!(files(&report), [""; 0]);
        assert_eq!(report.truncated_reason.as_deref(), Some("maxTime"));
    }
}

#[test]
fn a_search_ends_in_time_where_no_file_is_searched() {
    let rules_of_git = (0..400).map(|number| format!("*a*a*a*a*a*{number}x")).collect::<Vec<_>>().join("\n");
    let fixture = TestTree::with(&[("folder/.gitignore", &*rules_of_git)]);
    for number in 0..3_000 {
        fixture.write(&format!("folder/{}{number}", "a".repeat(200)), "x\n");
    }
    let started = Instant::now();
    let report = search(&fixture.tree(), &SearchQuery { max_time: Duration::from_millis(300), ..query("x") });
    assert_eq!(report.truncated_reason.as_deref(), Some("maxTime"));
    assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
}

#[test]
fn folders_as_deep_as_paths_go_are_searched() {
    let fixture = TestTree::new();
    let mut at = open(&fixture);
    for depth in 0..3_000 {
        rustix::fs::mkdirat(&at, "d", Mode::RWXU).unwrap();
        let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::CREATE;
        rustix::fs::openat(&at, "f", flags | rustix::fs::OFlags::WRONLY, Mode::RUSR).unwrap();
        if depth % 500 == 1 {
            let file = rustix::fs::openat(&at, "found", flags | rustix::fs::OFlags::RDWR, Mode::RUSR).unwrap();
            rustix::io::write(&file, b"needle").unwrap();
        }
        at = rustix::fs::openat(&at, "d", rustix::fs::OFlags::RDONLY, Mode::empty()).unwrap();
    }
    // 4,096 bytes of path are about 2,045 such folders.
    let report = search(&fixture.tree(), &query("needle"));
    let depths: Vec<_> = report.matches.iter().map(|found| found.path.matches('/').count()).collect();
    assert_eq!(depths, [2001, 1501, 1001, 501, 1]);
    drop(at);
    std::process::Command::new("rm").args(["-rf"]).arg(fixture.repo("d")).status().unwrap();
}

fn open(fixture: &TestTree) -> std::os::fd::OwnedFd {
    crate::guard::open_ambient_folder(&fixture.repo("")).unwrap()
}

#[test]
fn the_canary_is_where_it_is_looked_for() {
    // Otherwise the tests that never find it would prove nothing.
    let fixture = TestTree::new();
    let outside = Tree::open_mount(&fixture.outside("")).unwrap();
    assert_eq!(files(&search(&outside, &query(CANARY))), ["secret.txt"]);
}

#[test]
fn a_match_may_span_lines() {
    let fixture = TestTree::with(&[
        ("a.rs", "fn one(\n    x: u8,\n) {}\n\nfn two() {}\nfn three(\n    y: u8,\n) {}\n"),
        ("crlf.rs", "fn one(\r\n    x: u8,\r\n) {}\r\n"),
        ("é.rs", "é\nfn one(\n    é: u8,\n) {}\n"),
    ]);
    let across = |query: SearchQuery| search(&fixture.tree(), &SearchQuery { multiline: true, ..query });
    let report = across(regex(r"fn \w+\([^)]+\) \{"));
    let lines: Vec<_> = report.matches.iter().map(|found| (found.path.as_str(), found.line, found.end_line)).collect();
    assert_eq!(lines, [("a.rs", 1, Some(3)), ("a.rs", 6, Some(8)), ("crlf.rs", 1, Some(3)), ("é.rs", 2, Some(4))]);
    assert_eq!(report.matches[0].snippet, "fn one(\n    x: u8,\n) {}");
    assert_eq!(report.matches[2].snippet, report.matches[0].snippet);
    // One line is as it is without it; an anchor and a word boundary see what is before and after.
    let report = across(regex(r"^fn two"));
    assert_eq!((report.matches[0].line, report.matches[0].end_line), (5, None));
    assert_eq!(across(regex(r"u8,\n\) \{\}\z")).matches, []);
    assert_eq!(files(&across(regex(r"u8,\s+\) \{\}\s*\z"))), ["a.rs", "crlf.rs", "é.rs"]);
    assert_eq!(across(SearchQuery { whole_word: true, ..regex("ne.*tw") }).matches, []);
    // `.` matches line endings, in the fewest lines if the expression asks for that.
    let report = across(regex("one.*?u8"));
    assert_eq!((report.matches[0].line, report.matches[0].end_line, report.matches[0].column), (1, Some(2), 4));
    // A text of several lines is found whatever ends them, in any case.
    let report = across(query("(\n    x: u8,\n)"));
    assert_eq!(positions(&report), [("a.rs", 1, 7), ("crlf.rs", 1, 7)]);
    let folded = across(SearchQuery { case_sensitive: false, ..query("ONE(\n") });
    assert_eq!(files(&folded), ["a.rs", "crlf.rs", "é.rs"]);
    // The lines around it follow its last.
    let report = across(SearchQuery { context_lines: 1, ..regex(r"three\(\s+y") });
    assert_eq!(
        (report.matches[0].before.join("|"), report.matches[0].after.join("|")),
        ("fn two() {}".into(), ") {}".into())
    );
}

#[test]
fn a_line_ending_in_an_expression_matches_either_one() {
    let fixture = TestTree::with(&[("crlf", "a\r\nb\r\n\t\r\nc\r\n"), ("lf", "a\nb\n\t\nc\n")]);
    let found = |text: &str| {
        let report = search(&fixture.tree(), &SearchQuery { multiline: true, ..regex(text) });
        let last_line = |found: &Match| found.end_line.unwrap_or(found.line);
        let lines = report.matches.iter().map(|found| format!("{}:{}-{}", found.path, found.line, last_line(found)));
        lines.collect::<Vec<_>>().join(" ")
    };
    for text in [r"a\nb", "a\nb", r"a\x0Ab", r"a$\nb", r"^a\n^b$", r"(?x) a \n b", r"a\n{1}b", r"(?:\w\n){2}"] {
        assert_eq!(found(text), "crlf:1-2 lf:1-2", "{text}");
    }
    assert_eq!(found(r"b\n\t\nc"), "crlf:2-4 lf:2-4");
    // What is in brackets, and a carriage return, are matched as they are written.
    assert_eq!(found(r"a[\n]b"), "lf:1-2");
    assert_eq!(found(r"a\r\nb"), "crlf:1-2");
}

#[test]
fn matches_of_adjacent_lines_are_matches_of_their_own() {
    let fixture = TestTree::with(&[("a.py", "import a\nimport b\n    import c\n"), ("b.rs", "{\n    }\n\n}\n")]);
    fixture.write("bom.txt", ["\u{feff}".as_bytes(), &b"some line\n".repeat(200_000), b"last\nimport\n"].concat());
    let across = |query: SearchQuery| search(&fixture.tree(), &SearchQuery { multiline: true, ..query });
    let report = across(query("import"));
    assert_eq!(positions(&report), [("a.py", 1, 1), ("a.py", 2, 1), ("a.py", 3, 5), ("bom.txt", 200_002, 1)]);
    assert!(report.matches.iter().all(|found| found.end_line.is_none() && !found.snippet.contains('\n')));
    assert_eq!(across(SearchQuery { max_matches: 2, ..query("import") }).matches.len(), 2);
    // One that takes the ending of its last line.
    let report = across(query("}\n\n"));
    assert_eq!((positions(&report), report.matches[0].end_line), (vec![("b.rs", 2, 5)], Some(3)));
    // A text with a byte order mark is decoded first.
    assert_eq!(positions(&across(query("last\nimport"))), [("bom.txt", 200_001, 1)]);
}

#[test]
fn what_spans_lines_is_refused_unless_it_is_asked_for() {
    let fixture = TestTree::with(&[("a", "x\ny\n")]);
    for (query, hint) in [(query("x\ny"), "Or set `multiline`."), (regex(r"x\ny"), "Or set `multiline`.")] {
        let Err(WorkspaceError::Refused(refusal)) = fixture.tree().search(&rules(), &query, &not_cancelled()) else {
            panic!("{query:?} was searched for")
        };
        assert_eq!(refusal.code, Code::InvalidRequest);
        assert!(refusal.message.contains("spans several lines") && refusal.hint.ends_with(hint), "{refusal:?}");
        assert_eq!(positions(&search(&fixture.tree(), &SearchQuery { multiline: true, ..query })), [("a", 1, 1)]);
    }
}

#[test]
fn a_match_that_spans_many_lines_is_cut() {
    let fixture = TestTree::with(&[("small", "begin\nend\n")]);
    fixture.write("large", format!("begin\n{}end\n", "some line of the text\n".repeat(100_000)));
    let report = search(&fixture.tree(), &SearchQuery { multiline: true, ..regex("begin.*end") });
    let [large, small] = &report.matches[..] else { panic!("{:?}", report.matches.len()) };
    assert_eq!((large.line, large.end_line, small.end_line), (1, Some(100_002), Some(2)));
    assert!(large.snippet.len() <= 4_100 && large.snippet.ends_with("\n…"), "{}", large.snippet.len());
    assert!(large.snippet.starts_with("begin\nsome line of the text\n"));
    // A line of it is cut as any other.
    fixture.write("large", format!("begin{}\n{}end\n", "x".repeat(5_000), "y".repeat(5_000)));
    let report = search(&fixture.tree(), &SearchQuery { multiline: true, ..regex("begin.*end") });
    assert!(report.matches[0].snippet.chars().count() < 810, "{}", report.matches[0].snippet);
}

#[test]
fn a_text_that_is_too_large_to_be_searched_across_lines_is_passed_over() {
    let fixture = TestTree::with(&[("small.txt", "ab\nac\n")]);
    let text: String =
        (0..60_000_u32).map(|at| if at.wrapping_mul(2_654_435_761) >> 31 == 0 { 'a' } else { '\n' }).collect();
    fixture.write("long.txt", text);
    let hard = SearchQuery { multiline: true, ..regex("a(?:[a\n]{1,60}){70}c|ac") };
    let report = search(&fixture.tree(), &hard);
    assert_eq!(positions(&report), [("small.txt", 2, 1)]);
    assert_eq!(report.skipped, ["long.txt: too large for this expression across lines"]);
    fixture.write("long.txt", b"some line\n".repeat(2 << 20));
    let rules = rules_with(&PolicyOverrides { max_file_bytes: Some(8 << 20), ..PolicyOverrides::default() });
    let query = SearchQuery { multiline: true, ..regex("b.a") };
    let report = fixture.tree().search(&rules, &query, &not_cancelled()).unwrap();
    assert_eq!(files(&report), ["small.txt"]);
    assert_eq!(report.skipped, ["long.txt: too large to be searched across lines"]);
}
