use super::*;

const ORIGIN: &str = "o";

fn entry(size: u64) -> String {
    format!("{}\n", note(size))
}

fn note(size: u64) -> String {
    format!("{ORIGIN}\n{size}\nroot\n\n— {ORIGIN} signature{size}\n")
}

/// All parts of a file up to its end or a partial entry.
fn entries(file: &[u8]) -> io::Result<Vec<LogEntry>> {
    let mut reader = CheckpointReader::new(file, ORIGIN);
    let mut found = Vec::new();
    loop {
        match reader.next_entry()? {
            LogEntry::End => return Ok(found),
            LogEntry::Partial => {
                found.push(LogEntry::Partial);
                return Ok(found);
            }
            LogEntry::Note(note) => found.push(LogEntry::Note(note)),
        }
    }
}

#[test]
fn notes_are_read_in_order_and_the_last_one_is_found() {
    assert_eq!(entries(b"").unwrap(), []);
    assert_eq!(LogTail::parse(b"", ORIGIN), Some(LogTail { last_note: None, partial_bytes: 0 }));
    let file: String = (1..=300).map(entry).collect();
    assert_eq!(entries(file.as_bytes()).unwrap(), (1..=300).map(|size| LogEntry::Note(note(size))).collect::<Vec<_>>());
    for start in [0, 1, file.len() - 100] {
        let tail = LogTail::parse(&file.as_bytes()[start..], ORIGIN);
        assert_eq!(tail, Some(LogTail { last_note: Some(note(300)), partial_bytes: 0 }), "{start}");
    }
}

#[test]
fn a_partial_entry_is_recognised_wherever_it_was_cut() {
    let (first, second) = (entry(1), entry(2));
    for cut in 1..second.len() {
        let file = [first.as_bytes(), &second.as_bytes()[..cut]].concat();
        assert_eq!(entries(&file).unwrap(), [LogEntry::Note(note(1)), LogEntry::Partial], "{cut}");
        let tail = LogTail { last_note: Some(note(1)), partial_bytes: cut as u64 };
        assert_eq!(LogTail::parse(&file, ORIGIN), Some(tail), "{cut}");
    }
    for cut in 1..first.len() {
        let tail = LogTail { last_note: None, partial_bytes: cut as u64 };
        assert_eq!(LogTail::parse(&first.as_bytes()[..cut], ORIGIN), Some(tail), "{cut}");
    }
    let zeros = LogTail::parse(&[first.as_bytes(), &[0; 100]].concat(), ORIGIN);
    assert_eq!(zeros, Some(LogTail { last_note: Some(note(1)), partial_bytes: 100 }), "as a power failure leaves it");
}

#[test]
fn another_file_is_not_mistaken_for_a_checkpoint_file() {
    for text in ["my notes\n".to_owned(), "x".repeat(100_000), format!("{}my notes\n", entry(1))] {
        assert_eq!(LogTail::parse(text.as_bytes(), ORIGIN), None);
        assert!(entries(text.as_bytes()).is_err());
    }
}
