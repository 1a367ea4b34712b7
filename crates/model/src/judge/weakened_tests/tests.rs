use super::{deletes_test, weakens_test};
use crate::{ChangeFacts, Effect, EvidenceFact, FileKind, LogicalPath};

fn path(path: &str) -> LogicalPath {
    LogicalPath::parse(path).unwrap()
}

fn fired(at: &str, effect: &Effect, old: Option<&str>, new: Option<&str>) -> (bool, bool) {
    let at = path(at);
    let facts = ChangeFacts {
        path: &at,
        kind: FileKind::TextSource,
        effect,
        insertions: 0,
        deletions: 0,
        bytes: 0,
        mode_change: false,
        ignored: false,
        touched_before: false,
        old_text: old.map(str::as_bytes),
        new_text: new.map(str::as_bytes),
        not_compared: false,
        evidence: EvidenceFact::Missing,
    };
    (deletes_test(&facts), weakens_test(&facts))
}

#[track_caller]
fn weakened(at: &str, old: &str, new: &str) {
    assert_eq!(fired(at, &Effect::Replace, Some(old), Some(new)), (false, true), "{at}: {old} -> {new}");
}

#[track_caller]
fn kept(at: &str, old: &str, new: &str) {
    assert_eq!(fired(at, &Effect::Replace, Some(old), Some(new)), (false, false), "{at}: {old} -> {new}");
}

#[test]
fn fewer_tests_or_assertions_weaken() {
    let rust = "#[test]\nfn a() {\n    assert_eq!(1, 1);\n    assert!(true);\n}\n";
    weakened("tests/a.rs", rust, "#[test]\nfn a() {\n    assert_eq!(1, 1);\n}\n");
    weakened("tests/a.rs", rust, "fn a() {\n    assert_eq!(1, 1);\n    assert!(true);\n}\n");
    weakened("tests/a.rs", rust, &rust.replace("#[test]", "#[test]\n#[ignore]"));
    weakened("tests/a.rs", rust, &rust.replace("#[test]", "#[test]\n#[cfg_attr(windows, ignore)]"));
    weakened("tests/a.rs", rust, &rust.replace("#[test]", "#[cfg(any())]\n#[test]"));
    weakened("tests/a.rs", "#[should_panic]\n#[test]\nfn a() {}\n", "#[test]\nfn a() {}\n");
    let java = "class ATest {\n  @Test void a() { assertEquals(1, 1); }\n}\n";
    weakened("src/test/java/ATest.java", java, &java.replace("@Test ", ""));
    weakened("src/test/java/ATest.java", java, &java.replace("@Test", "@Disabled @Test"));
    weakened("src/test/java/ATest.java", java, &java.replace("@Test", "@Test(enabled = false)"));
    weakened("src/test/java/ATest.java", java, &java.replace("assertEquals(1, 1);", ""));
    let script = "describe('x', () => {\n  it('a', () => { expect(1).toBe(1); });\n});\n";
    weakened("src/a.test.ts", script, &script.replace("it(", "it.skip("));
    weakened("src/a.test.ts", script, &script.replace("it(", "xit("));
    weakened("src/a.spec.js", script, &script.replace("describe(", "describe.skip("));
    weakened("src/a.spec.js", script, &script.replace("it(", "it.only("));
    weakened("src/__tests__/a.tsx", script, &script.replace("expect(1).toBe(1);", ""));
    let python = "def test_a():\n    assert f(1) == 1\n";
    weakened("tests/test_a.py", python, "def test_a():\n    pass\n");
    weakened("tests/test_a.py", python, &python.replace("def test_a", "def a"));
    weakened("tests/test_a.py", python, &format!("@pytest.mark.skip\n{python}"));
    weakened("a_test.py", "self.assertEqual(1, 1)\n", "pass\n");
    let go = "func TestA(t *testing.T) {\n\tif f() != 1 {\n\t\tt.Errorf(\"x\")\n\t}\n}\n";
    weakened("a_test.go", go, &go.replace("t.Errorf(\"x\")", ""));
    weakened("a_test.go", go, &go.replace("func TestA", "func testA"));
    weakened("a_test.go", go, &go.replace("\tif f", "\tt.Skip()\n\tif f"));
    weakened("a_test.go", go, &format!("//go:build never\n\n{go}"));
    weakened("a_test.go", "require.Equal(t, 1, 1)\n", "_ = 1\n");
}

#[test]
fn other_changes_do_not_weaken() {
    let rust = "#[test]\nfn a() {\n    assert_eq!(1, 1);\n}\n";
    kept("tests/a.rs", rust, &rust.replace("(1, 1)", "(2, 2)"));
    kept("tests/a.rs", rust, &format!("{rust}{}", rust.replace("fn a", "fn b")));
    kept("tests/a.rs", "#[ignore]\n#[test]\nfn a() {}\n", "#[test]\nfn a() {}\n");
    kept("src/a.ts", "expect(1)\n", "\n");
    kept("src/main/java/A.java", "assert x;\n", "\n");
    kept("a.go", "t.Error(1)\n", "\n");
    kept("src/a.py", "assert x\n", "\n");
    kept("docs/test_a.md", "assert x\n", "\n");
}

#[test]
fn comments_and_strings_do_not_count() {
    kept("tests/a.rs", "// assert!(x)\n#[test]\nfn a() {}\n", "#[test]\nfn a() {}\n");
    kept("tests/a.rs", "/* /* assert!(x) */ assert!(y) */ fn a() {}\n", "fn a() {}\n");
    kept("tests/a.rs", "let a = r#\"\" assert!(x) \"#;\n", "let a = 1;\n");
    kept("tests/test_a.py", "\"\"\"\nassert x\n\"\"\"\n# assert y\ns = 'assert z'\n", "s = 1\n");
    kept("a.test.ts", "const a = `it(expect(`; // it('b')\n", "const a = 1;\n");
    kept("ATest.java", "String a = \"\"\"\n assert x \"\"\"; // @Test\n", "String a;\n");
    kept("a_test.go", "a := `assert.X` // t.Error()\n", "a := 1\n");
    // What is commented out does not count any more.
    weakened("tests/a.rs", "fn a<'a>(x: &'a str) { assert!(x); }\n", "fn a<'a>(x: &'a str) { // assert!(x);\n}\n");
    weakened("tests/a.rs", "let c = '\"'; assert!(x); let d = '\\'';\n", "let c = '\"'; let d = \" assert!(x) \";\n");
    weakened("tests/test_a.py", "assert x\n", "'''\nassert x\n'''\n");
    weakened("a.test.ts", "it('a', () => { expect(1); });\n", "it('a', () => { /* expect(1); */ });\n");
}

#[test]
fn rust_tests_among_other_code_count() {
    let code = "fn f(x: u8) {\n    assert!(x > 0);\n    debug_assert!(x > 1);\n}\n";
    let tests = "#[cfg(test)]\nmod tests {\n    #[test]\n    fn a() {\n        assert!(true);\n    }\n}\n";
    kept("src/a.rs", &format!("{code}{tests}"), &format!("fn f(_: u8) {{}}\n{tests}"));
    weakened("src/a.rs", &format!("{code}{tests}"), code);
    weakened("src/a.rs", &format!("{code}{tests}"), &format!("{code}{}", tests.replace("assert!(true);", "")));
    assert_eq!(fired("src/a.rs", &Effect::Delete, Some(tests), None), (true, false));
    assert_eq!(fired("src/a.rs", &Effect::Delete, Some(code), None), (false, false));
}

#[test]
fn deleted_emptied_and_renamed_tests() {
    let python = Some("def test_a():\n    assert 1\n");
    for at in ["tests/a.rs", "src/test/java/A.java", "a.spec.ts", "tests/test_a.py", "a_test.go", "A_TEST.GO"] {
        assert_eq!(fired(at, &Effect::Delete, Some("x\n"), None), (true, false), "{at}");
        assert!(fired(at, &Effect::Replace, Some("x\n"), Some(" \n")).0, "{at}");
    }
    assert_eq!(fired("src/a.py", &Effect::Delete, python, None), (false, false));
    assert_eq!(fired("test_a.py", &Effect::Create, None, Some("")), (false, false));
    let moves = |from: &str, to: &str, new: Option<&str>| {
        let gone = fired(from, &Effect::MoveFrom { to: path(to) }, python, None);
        let came = fired(to, &Effect::MoveTo { from: path(from) }, python, new);
        (gone.0 || came.0, gone.1 || came.1)
    };
    assert_eq!(moves("test_a.py", "tests/test_b.py", python), (false, false));
    assert_eq!(moves("test_a.py", "test_b.py", Some("def test_a():\n    pass\n")), (false, true));
    assert_eq!(moves("test_a.py", "a.py", python), (true, true));
    assert_eq!(moves("test_a.py", "test_a.py.txt", python), (true, true));
    assert_eq!(moves("a.py", "b.py", python), (false, false));
}

#[test]
fn odd_texts_take_one_pass() {
    for text in ["'", "\"", "/*", "r#\"", "`", "'\\", "'''", "#[", "#![", "\u{feff}é'é'", "func ", "@"] {
        for at in ["tests/a.rs", "ATest.java", "a.spec.ts", "test_a.py", "a_test.go"] {
            let many = text.repeat(2000);
            assert_eq!(fired(at, &Effect::Replace, Some(&many), Some(&many)), (false, false));
            let _ = fired(at, &Effect::Replace, Some(&many), Some(text));
        }
    }
}
