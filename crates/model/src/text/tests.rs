use proptest::prelude::*;

use super::*;

fn numbered_within(text: &[u8], start: u64, lines: u64, max_bytes: usize) -> TextPage {
    let page = page(text, PageFormat::Numbered, start, lines, max_bytes).unwrap();
    TextPage { content: number_lines(&page.content, page.start_line, page.end_line), ..page }
}

fn numbered(text: &[u8], start: u64, lines: u64) -> TextPage {
    numbered_within(text, start, lines, 64 * 1024)
}

fn raw(text: &[u8], start: u64, lines: u64, max_bytes: usize) -> TextPage {
    page(text, PageFormat::Raw, start, lines, max_bytes).unwrap()
}

#[test]
fn bytes_are_text_in_an_encoding_or_binary() {
    let table: [(&[u8], Option<Encoding>); 17] = [
        (b"", Some(Encoding::Utf8)),
        (b"plain\n", Some(Encoding::Utf8)),
        ("é € 漢\n".as_bytes(), Some(Encoding::Utf8)),
        (b"\x1b[1mbold\x1b[0m", Some(Encoding::Utf8)),
        (b"\xef\xbb\xbfplain", Some(Encoding::Utf8Bom)),
        (b"\xef\xbb\xbf", Some(Encoding::Utf8Bom)),
        (b"\xff\xfea\0\n\0", Some(Encoding::Utf16Le)),
        (b"\xfe\xff\0a\0\n", Some(Encoding::Utf16Be)),
        (b"\xff\xfe", Some(Encoding::Utf16Le)),
        (b"\xff\xfea", None),
        (b"\xff\xfe\0\xd8", None),
        (b"\xff\xfe\0\0", None),
        (b"caf\xe9 au lait, na\xefve, gar\xe7on\n", Some(Encoding::Windows1252)),
        (b"// M\xfcller\n", Some(Encoding::Windows1252)),
        (b"a\0b", None),
        (b"\xe9\x01", None),
        (b"\xef\xbb\xbfa\0", None),
    ];
    for (bytes, want) in table {
        assert_eq!(detect_encoding(bytes), want, "{bytes:x?}");
    }
}

#[test]
fn older_encodings_are_distinguished() {
    let table = [
        ("Привет, мир. Это комментарий к коду.\n", Encoding::Windows1251),
        ("これは日本語のコメントです。文字コードの判定。\n", Encoding::ShiftJis),
        ("これは日本語のコメントです。文字コードの判定。\n", Encoding::EucJp),
        ("这是一个中文注释,用于检测编码。\n", Encoding::Gbk),
        ("이것은 한국어 주석입니다.\n", Encoding::EucKr),
        ("Příliš žluťoučký kůň úpěl ďábelské ódy\n", Encoding::Windows1250),
    ];
    for (text, encoding) in table {
        let bytes = encode(text, encoding).unwrap();
        assert_eq!(decode(&bytes), Some(Decoded { text: text.to_owned(), encoding }));
    }
}

#[test]
fn a_text_in_gbk_with_characters_that_gbk_lacks_is_gb18030() {
    let common = "这是一个很长的说明，读取配置文件，如果失败就返回错误代码。\n".repeat(20);
    let guessed = encode(&format!("{common}张㐀先生\n"), Encoding::Gb18030).unwrap();
    let decoded = decode(&guessed).unwrap();
    assert_eq!((decoded.text.lines().last(), decoded.encoding), (Some("张㐀先生"), Encoding::Gb18030));
    assert!(is_guessed(&guessed, Encoding::Gb18030) && is_likely(&guessed, Encoding::Gb18030));
    for name in ["gbk", "gb18030"] {
        let declared = encode(&format!("# coding: {name}\n# 张㐀先生\n"), Encoding::Gb18030).unwrap();
        assert_eq!(detect_encoding(&declared), Some(Encoding::Gb18030), "{name}");
        assert!(!is_guessed(&declared, Encoding::Gb18030), "{name}");
    }
    assert_eq!(detect_encoding(&encode(&common, Encoding::Gbk).unwrap()), Some(Encoding::Gbk));
}

#[test]
fn characters_that_an_encoding_lacks_are_not_encoded() {
    assert_eq!(encode("漢", Encoding::Windows1252), None);
    assert_eq!(encode("\u{fffd}", Encoding::ShiftJis), None);
    assert_eq!(encode("é", Encoding::Windows1252), Some(b"\xe9".to_vec()));
    assert_eq!(encode("é", Encoding::Utf8Bom), Some("\u{feff}é".as_bytes().to_vec()));
}

#[test]
fn line_endings_are_detected() {
    let table = [
        ("", LineEnding::None),
        ("a\rb", LineEnding::None),
        ("a\nb\r", LineEnding::Lf),
        ("a\r\nb", LineEnding::Crlf),
        ("a\r\nb\n", LineEnding::Mixed),
        ("a\r\r\n", LineEnding::Crlf),
    ];
    for (text, want) in table {
        assert_eq!(LineEnding::of(text), want, "{text:?}");
        assert_eq!(numbered(text.as_bytes(), 1, 9).line_ending, want, "{text:?}");
    }
}

#[test]
fn line_numbers_have_six_digits_and_lines_end_in_lf() {
    let page = numbered(b"one\r\n\ntwo \r\nlast", 1, 200);
    assert_eq!(page.content, "     1 | one\n     2 | \n     3 | two \n     4 | last");
    assert_eq!((page.end_line, page.total_lines, page.truncated, page.next_start_line), (4, 4, false, None));
    let many = "\n".repeat(1_234_567);
    assert_eq!(numbered(many.as_bytes(), 999_999, 2).content, "999999 | \n1000000 | \n");
    assert_eq!(numbered(many.as_bytes(), 1_234_567, 9).content, "1234567 | \n");
}

#[test]
fn the_rest_of_a_line_has_its_number_even_if_it_is_empty() {
    for (column, want) in [(2, "     1 | b"), (9, "     1 | ")] {
        let start = PageStart { line: 1, column: Some(column) };
        let size = TextPageSize { max_bytes: 100, max_chars: None };
        let page = page_within(b"ab", PageFormat::Numbered, start, 1, size).unwrap();
        assert_eq!(number_lines(&page.content, page.start_line, page.end_line), want);
    }
}

#[test]
fn a_page_states_the_next_line() {
    let page = numbered(b"a\nb\nc\n", 2, 1);
    assert_eq!((page.start_line, page.end_line, page.total_lines), (2, 2, 3));
    assert_eq!((page.content.as_str(), page.truncated, page.next_start_line), ("     2 | b\n", true, Some(3)));
    let last = numbered(b"a\nb\nc\n", 3, 1);
    assert_eq!((last.end_line, last.truncated, last.next_start_line), (3, false, None));
}

#[test]
fn a_page_beyond_the_end_is_empty() {
    for (text, total) in [(&b""[..], 0), (b"a", 1), (b"a\nb\n", 2)] {
        for format in [PageFormat::Numbered, PageFormat::Raw] {
            for start in [total + 1, total + 7, u64::MAX] {
                let page = page(text, format, start, 10, 100).unwrap();
                assert_eq!((page.start_line, page.end_line, page.total_lines), (start, start - 1, total));
                assert_eq!((page.content.as_str(), page.truncated, page.next_start_line), ("", false, None));
            }
        }
    }
}

#[test]
fn long_numbered_lines_are_cut_and_counted() {
    let text = format!("{}\n{}\n{}\n", "é".repeat(2000), "é".repeat(2001), "x".repeat(5000));
    let page = numbered(text.as_bytes(), 1, 10);
    assert_eq!(page.lines_cut, 2);
    assert_eq!(page.content, format!("     1 | {0}\n     2 | {0}\n     3 | {1}\n", "é".repeat(2000), "x".repeat(2000)));
}

#[test]
fn raw_lines_keep_their_bytes_and_lose_the_byte_order_mark() {
    let page = raw(b"\xef\xbb\xbfa\r\nb\n\tc", 1, 10, 100);
    assert_eq!((page.content.as_str(), page.encoding), ("a\r\nb\n\tc", Encoding::Utf8Bom));
    let utf16 = encode("ä\r\nö", Encoding::Utf16Le).unwrap();
    assert_eq!(raw(&utf16, 2, 1, 100).content, "ö");
}

#[test]
fn a_raw_line_longer_than_a_page_is_cut_between_characters_and_skipped() {
    let text = "x\n".to_owned() + &"é".repeat(50) + "\ny\n";
    let first = raw(text.as_bytes(), 1, 10, 33);
    assert_eq!((first.content.as_str(), first.next_start_line, first.lines_cut), ("x\n", Some(2), 0));
    let long = raw(text.as_bytes(), 2, 10, 33);
    assert_eq!(
        (long.content, long.next_start_line, long.truncated, long.lines_cut),
        ("é".repeat(16), Some(3), true, 1)
    );
    let only = raw("é".repeat(50).as_bytes(), 1, 10, 33);
    assert_eq!((only.next_start_line, only.truncated, only.end_line), (None, true, 1));
}

proptest! {
    #[test]
    fn pages_together_are_the_text(text in "([a-zé\r]{0,9}\n?){0,30}", lines in 1u64..5, max_bytes in 12usize..60) {
        let mut start = Some(1);
        let (mut joined, mut joined_numbered, mut pages) = (String::new(), String::new(), 0);
        while let Some(line) = start {
            let page = raw(text.as_bytes(), line, lines, max_bytes);
            prop_assert!(page.content.len() <= max_bytes);
            prop_assert!(page.end_line < line + lines);
            prop_assert_eq!(page.truncated, page.next_start_line.is_some() || page.lines_cut > 0);
            if page.lines_cut > 0 { return Ok(()); }
            joined.push_str(&page.content);
            start = page.next_start_line;
            pages += 1;
            prop_assert!(pages < 100);
        }
        prop_assert_eq!(&joined, &text);
        start = Some(1);
        while let Some(line) = start {
            let page = numbered_within(text.as_bytes(), line, lines, max_bytes);
            prop_assert!(page.content.len() <= max_bytes || page.end_line == page.start_line);
            joined_numbered.push_str(&page.content);
            start = page.next_start_line;
        }
        let want = text.split_inclusive('\n').enumerate().map(|(at, line)| {
            let shown = line.strip_suffix("\r\n").map(|line| format!("{line}\n"));
            format!("{:6} | {}", at + 1, shown.as_deref().unwrap_or(line))
        });
        prop_assert_eq!(joined_numbered, want.collect::<Vec<_>>().concat());
    }

    #[test]
    fn decoded_text_is_encoded_to_the_same_bytes(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        if let Some(decoded) = decode(&bytes) {
            prop_assert_eq!(encode(&decoded.text, decoded.encoding), Some(bytes));
        }
    }

    #[test]
    fn text_in_older_encodings_is_decoded_without_loss(bytes in prop::collection::vec(0x20u8.., 0..200)) {
        let bytes: Vec<u8> = bytes.into_iter().filter(|byte| *byte != 0x7f).collect();
        if let Some(decoded) = decode(&bytes) {
            prop_assert_eq!(encode(&decoded.text, decoded.encoding), Some(bytes));
        } else {
            prop_assert!(crate::kind::is_binary(&bytes) || bytes.starts_with(b"\xff\xfe") || bytes.starts_with(b"\xfe\xff"));
        }
    }

    #[test]
    fn an_edit_keeps_every_other_byte(head in prop::collection::vec(0xa0u8..0xff, 1..20)) {
        let bytes = [&head[..], b" = 1;\n"].concat();
        if let Some(decoded) = decode(&bytes) {
            let edited = encode(&decoded.text.replace("1;", "2;"), decoded.encoding);
            prop_assert_eq!(edited, Some([&head[..], b" = 2;\n"].concat()));
        }
    }
}

#[test]
fn a_guess_is_likely_only_if_nothing_else_is_as_plausible() {
    let german = b"Die Stra\xdfe ist gro\xdf und sch\xf6n.\n\xc4pfel f\xfcr alle\n";
    for (bytes, encoding) in [(&german[..], Encoding::Windows1252), (b"caf\xe9\n", Encoding::Windows1252)] {
        assert_eq!(detect_encoding(bytes), Some(encoding));
        assert!(is_guessed(bytes, encoding) && is_likely(bytes, encoding));
    }
    // A text that declares another encoding contradicts the guess, even if that encoding is not known.
    for name in ["cp850", "utf-8"] {
        let declared = [format!("# coding: {name}\n").as_bytes(), &german[..]].concat();
        assert_eq!(detect_encoding(&declared), Some(Encoding::Windows1252), "{name}");
        assert!(is_guessed(&declared, Encoding::Windows1252), "{name}");
        assert!(!is_likely(&declared, Encoding::Windows1252), "{name}");
    }
    let uncertain = b"#include <stdio.h>\n// \xb4\xf2\xbf\xaa\xb4\xae\xbf\xda\n";
    assert!(!is_likely(uncertain, detect_encoding(uncertain).unwrap()));
    let languages = [
        ("初始化串口设备，中文注释内容，这是一个很长的说明。", Encoding::Gbk),
        ("打开串口，读取配置文件，如果失败就返回错误代码。", Encoding::Gbk),
        ("初始化串列埠裝置，這是一個很長的中文註解說明。", Encoding::Big5),
        ("設定ファイルを読み込み、失敗したらエラーを返します。", Encoding::ShiftJis),
        ("設定ファイルを読み込み、失敗したらエラーを返します。", Encoding::EucJp),
        (
            "설정 파일을 읽고 실패하면 오류를 돌려줍니다. 연결이 끊어지면 다시 시도하며 기록은 남기지 않습니다.",
            Encoding::EucKr,
        ),
        ("Читает файл настроек и возвращает ошибку, если его нет. ", Encoding::Windows1251),
        ("Διαβάζει το αρχείο ρυθμίσεων και επιστρέφει σφάλμα. ", Encoding::Windows1253),
    ];
    for (text, encoding) in languages {
        let long = encode(&text.repeat(20), encoding).unwrap();
        assert_eq!(detect_encoding(&long), Some(encoding), "{text}");
        assert!(is_likely(&long, encoding), "{encoding:?}");
    }
    // Kanji alone are as plausible as other characters, and repetitions prove nothing.
    let kanji = encode("初期化処理 通信設定 割込許可 終了処理 定数定義", Encoding::EucJp).unwrap();
    assert!(!is_likely(&kanji, Encoding::Gbk));
    for repeated in [encode(&"打开串口".repeat(50), Encoding::Gbk), encode(&"日本語".repeat(50), Encoding::EucJp)]
    {
        let bytes = repeated.unwrap();
        assert!(!is_likely(&bytes, detect_encoding(&bytes).unwrap()));
    }
}

/// The detector sees a sample, whose last character may be cut.
#[test]
fn a_long_text_is_detected_wherever_its_sample_ends() {
    let texts = [
        ("这是一个很长的说明，读取配置文件，如果失败就返回错误代码。\n", Encoding::Gbk),
        ("初始化串列埠裝置，這是一個很長的中文註解說明。\n", Encoding::Big5),
        ("設定ファイルを読み込み、失敗したらエラーを返します。\n", Encoding::ShiftJis),
        ("設定ファイルを読み込み、失敗したらエラーを返します。\n", Encoding::EucJp),
        ("설정 파일을 읽고 실패하면 오류를 돌려줍니다. 연결이 끊어지면 다시 시도합니다.\n", Encoding::EucKr),
    ];
    for (text, encoding) in texts {
        // With one of them the sample ends inside a character.
        for ascii in ["", "x"] {
            let long = format!("{ascii}{}", text.repeat(40_000 / text.chars().count()));
            let bytes = encode(&long, encoding).unwrap();
            assert!(bytes.len() > 64 * 1024, "{}", bytes.len());
            assert_eq!(detect_encoding(&bytes), Some(encoding), "{encoding:?} {ascii}");
        }
    }
}
