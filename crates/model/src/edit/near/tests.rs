use super::difference::{MAX_LINE_CHARS, MAX_LINES_SHOWN};
use super::*;

fn lines_of(text: &str, old: &str) -> Vec<u64> {
    nearest(text, old).iter().map(|near| near.line).collect()
}

#[test]
fn a_typo_inside_a_line_is_found() {
    let text =
        "fn first() {\n    let total = 1;\n}\n\nfn second() {\n    let counter = total + 1;\n    retry(counter);\n}\n";
    for (old, line) in [
        ("let coutner = total + 1;", 6),
        ("    let counter = totl + 1;", 6),
        ("retyr(counter)", 7),
        ("fn secnd() {", 5),
        ("fn secnod() {\n    let counter = total + 1;", 5),
        ("total + 1;\n    retry(counter_);", 6),
        ("FN FIRST() {", 1),
        ("counter=total+1", 6),
    ] {
        let near = nearest(text, old);
        assert_eq!(near[0].line, line, "{old:?}: {near:?}");
        assert!(near.len() <= 3 && near[0].difference.contains("\n+ "), "{near:?}");
    }
    let near = nearest(text, "let coutner = total + 1;");
    assert_eq!(near[0].difference, "- let coutner = total + 1;\n+     let counter = total + 1;\n");
}

#[test]
fn similar_passages_are_listed_best_first_and_do_not_overlap() {
    let text = "a(one);\nb(one);\nx\na(one);\nb(two);\ny\na(six);\nb(one);\nz\na(one);\nb(on);\n";
    assert_eq!(lines_of(text, "a(one);\nb(onn);"), [1, 10, 4]);
    assert_eq!(lines_of(&"same line\n".repeat(9), "same lime\nsame lime\nsame lime"), [1, 4, 7]);
    assert_eq!(lines_of("alpha beta\n----\n", "alpha bета"), [1]);
    // Nothing is invented where nothing is similar.
    assert!(lines_of("alpha\n", "----").is_empty());
    assert!(lines_of("fn alpha() {\n    1\n}\n", "class Wholly:\n    different = True\n").is_empty());
    assert_eq!(lines_of("fn f() {\n    a + b\n}\n", "a+b"), [2]);
    assert!(lines_of("", "x").is_empty() && lines_of("x", "").is_empty());
}

#[test]
fn a_part_of_a_long_line_is_found_and_shown() {
    let words = (0..200).map(|number| format!("word{number}")).collect::<Vec<_>>().join(" ");
    let text = format!("first\n{words}\nword1 word2\n");
    let near = nearest(&text, "word150 word151 wrod152 word153 word154 word155");
    assert_eq!(near[0].line, 2, "{near:?}");
    assert!(near[0].difference.contains("+ word150 word151 word152"), "{}", near[0].difference);
    let changed = words.replace("word180", "wrod180");
    let near = nearest(&text, &changed);
    assert_eq!(near[0].line, 2);
    assert!(near[0].difference.contains("wrod180") && near[0].difference.contains("word180"), "{near:?}");
}

#[test]
fn a_passage_is_found_by_the_start_of_long_lines() {
    let text = format!("first\n{}\nlast\n", "long line ".repeat(10_000));
    let near = nearest(&text, &"long  line ".repeat(10_000));
    assert_eq!(near[0].line, 2);
}

#[test]
fn a_search_is_bounded_for_any_lines() {
    let words = (0..100_000).map(|number| format!("w{number}")).collect::<Vec<_>>().join(" ");
    let line = "x ".repeat(500_000);
    let short = "a\n".repeat(1 << 20);
    let wide = format!("{}\n", "ab cd ".repeat(60)).repeat(3000);
    for (text, old) in [
        (&line, &words),
        (&words, &line),
        (&short, &words),
        (&short, &"b\n".repeat(1 << 20)),
        (&wide, &wide.replace('d', "e")),
    ] {
        for near in nearest(text, old) {
            let most = MAX_LINES_SHOWN * (2 * MAX_LINE_CHARS + 12);
            assert!(near.difference.len() <= most, "{}", near.difference.len());
        }
    }
}
