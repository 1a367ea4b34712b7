#![expect(clippy::disallowed_methods, reason = "files are bent from outside")]

use super::*;

const ORIGIN: &str = "o";

fn note(size: u64) -> String {
    format!("{ORIGIN}\n{size}\nroot\n\n— {ORIGIN} signature{size}\n")
}

fn notes(path: &Path) -> Vec<Next> {
    let mut notes = Notes::open(path, ORIGIN).unwrap().unwrap();
    let mut found = Vec::new();
    loop {
        let next = notes.next().unwrap();
        if next == Next::End {
            return found;
        }
        let half = next == Next::Half;
        found.push(next);
        if half {
            return found;
        }
    }
}

#[test]
fn what_was_appended_is_read_in_order_and_found_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("checkpoints.log");
    assert!(Notes::open(&path, ORIGIN).unwrap().is_none());
    let mut opened = CheckpointFile::open(&path, ORIGIN).unwrap();
    assert_eq!((opened.last, opened.cut), (None, 0));
    for size in 1..=300 {
        opened.file.append(&note(size)).unwrap();
    }
    let again = CheckpointFile::open(&path, ORIGIN).unwrap();
    assert_eq!((again.last, again.cut), (Some(note(300)), 0));
    assert_eq!(notes(&path), (1..=300).map(|size| Next::Note(note(size))).collect::<Vec<_>>());
}

#[test]
fn half_an_entry_is_cut_off_wherever_it_broke_off() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("checkpoints.log");
    let (first, second) = (format!("{}\n", note(1)), format!("{}\n", note(2)));
    for cut in 1..second.len() {
        std::fs::write(&path, format!("{first}{second}").as_bytes().get(..first.len() + cut).unwrap()).unwrap();
        assert_eq!(notes(&path), [Next::Note(note(1)), Next::Half], "{cut}");
        let mut opened = CheckpointFile::open(&path, ORIGIN).unwrap();
        assert_eq!((opened.last, opened.cut), (Some(note(1)), cut as u64));
        opened.file.append(&note(3)).unwrap();
        assert_eq!(notes(&path), [Next::Note(note(1)), Next::Note(note(3))], "{cut}");
    }
    for cut in 1..first.len() {
        std::fs::write(&path, &first.as_bytes()[..cut]).unwrap();
        let opened = CheckpointFile::open(&path, ORIGIN).unwrap();
        assert_eq!((opened.last, opened.cut, std::fs::read(&path).unwrap().len()), (None, cut as u64, 0));
    }
    std::fs::write(&path, [first.as_bytes(), &[0; 100]].concat()).unwrap();
    assert_eq!(CheckpointFile::open(&path, ORIGIN).unwrap().last, Some(note(1)), "zeros are what a power cut leaves");
}

#[test]
fn a_file_of_something_else_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notes.txt");
    for text in ["my notes\n".to_owned(), "x".repeat(100_000), format!("{}\nmy notes\n", note(1))] {
        std::fs::write(&path, &text).unwrap();
        assert!(CheckpointFile::open(&path, ORIGIN).is_err());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
    }
    std::fs::write(&path, "x".repeat(100_000)).unwrap();
    assert!(Notes::open(&path, ORIGIN).unwrap().unwrap().next().is_err());
}
