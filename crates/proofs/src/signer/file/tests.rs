#![expect(clippy::disallowed_methods, reason = "the tests change files from outside")]

use super::*;

const ORIGIN: &str = "o";

fn note(size: u64) -> String {
    format!("{ORIGIN}\n{size}\nroot\n\n— {ORIGIN} signature{size}\n")
}

fn tail(last_note: Option<String>, partial_bytes: usize) -> LogTail {
    LogTail { last_note, partial_bytes: partial_bytes as u64 }
}

#[test]
fn appended_notes_are_in_the_file_and_the_last_one_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("checkpoints.log");
    assert!(read(&path, ORIGIN).unwrap().is_none());
    let (mut file, empty) = CheckpointFile::open(&path, ORIGIN).unwrap();
    assert_eq!(empty, tail(None, 0));
    for size in 1..=300 {
        file.append(&note(size)).unwrap();
    }
    assert_eq!(CheckpointFile::open(&path, ORIGIN).unwrap().1, tail(Some(note(300)), 0));
    let content: String = (1..=300).map(|size| note(size) + "\n").collect();
    assert_eq!(std::fs::read_to_string(&path).unwrap(), content);
}

#[test]
fn a_partial_entry_is_cut_off_wherever_it_ends() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("checkpoints.log");
    let (first, second) = (format!("{}\n", note(1)), format!("{}\n", note(2)));
    for cut in 1..second.len() {
        std::fs::write(&path, [first.as_bytes(), &second.as_bytes()[..cut]].concat()).unwrap();
        let (mut file, found) = CheckpointFile::open(&path, ORIGIN).unwrap();
        assert_eq!(found, tail(Some(note(1)), cut));
        file.append(&note(3)).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), format!("{first}{}\n", note(3)), "{cut}");
    }
    for cut in 1..first.len() {
        std::fs::write(&path, &first.as_bytes()[..cut]).unwrap();
        let (_, found) = CheckpointFile::open(&path, ORIGIN).unwrap();
        assert_eq!((found, std::fs::read(&path).unwrap().len()), (tail(None, cut), 0));
    }
    std::fs::write(&path, [first.as_bytes(), &[0; 100]].concat()).unwrap();
    let (_, found) = CheckpointFile::open(&path, ORIGIN).unwrap();
    assert_eq!(found.last_note, Some(note(1)), "a power failure leaves zeros");
}

#[test]
fn another_file_is_not_changed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notes.txt");
    for text in ["my notes\n".to_owned(), "x".repeat(100_000), format!("{}\nmy notes\n", note(1))] {
        std::fs::write(&path, &text).unwrap();
        assert!(CheckpointFile::open(&path, ORIGIN).is_err());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
    }
    std::fs::write(&path, "x".repeat(100_000)).unwrap();
    assert!(read(&path, ORIGIN).unwrap().unwrap().next_entry().is_err());
}
