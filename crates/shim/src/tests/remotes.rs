//! What a hostile sandbox sends is bounded.

use std::io::{Cursor, Read};

use crate::entry::MAX_LAYER_ENTRIES;
use crate::frame::{FrameKind, write_frame, write_json};
use crate::message::{PROTOCOL, ShimHello};
use crate::{CheckedOut, CommandFolder as _, ReadLimits, RemoteFolder, ScanReport, ShimError};

fn frame(kind: FrameKind, payload: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    write_frame(&mut frame, kind, payload).unwrap();
    frame
}

/// The same frame again and again.
struct Repeated {
    frame: Cursor<Vec<u8>>,
    left: usize,
}

impl Read for Repeated {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let count = self.frame.read(buffer)?;
        if count > 0 || self.left == 0 {
            return Ok(count);
        }
        self.left -= 1;
        self.frame.set_position(0);
        self.frame.read(buffer)
    }
}

/// A sandbox that sends a frame `times`, and then says that it is done.
fn sandbox(times: usize, repeated: Vec<u8>) -> RemoteFolder<impl Read + Send, Vec<u8>> {
    let (mut hello, mut done) = (Vec::new(), Vec::new());
    write_json(&mut hello, FrameKind::Hello, &ShimHello { protocol: PROTOCOL, folder: "/w".to_owned() }).unwrap();
    write_json(&mut done, FrameKind::Done, &ScanReport::default()).unwrap();
    let repeated = Repeated { frame: Cursor::new(repeated), left: times.saturating_sub(1) };
    RemoteFolder::connect(Cursor::new(hello).chain(repeated).chain(Cursor::new(done)), Vec::new()).unwrap()
}

fn change(path: &str) -> String {
    format!(r#"{{"path":"{path}","change":"added","size":1}}"#)
}

#[test]
fn the_scan_of_a_sandbox_is_bounded_in_bytes_and_in_entries() {
    let item = |changes: &str| frame(FrameKind::Item, format!("[{changes}]").as_bytes());
    assert_eq!(sandbox(3, item(&change("a"))).scan(&[]).unwrap().changes.len(), 3);
    // Far fewer than the most entries.
    let path = "d/".repeat(2000).split_off(3800) + &["n".repeat(240).as_str(); 15].join("/");
    let long = vec![change(&path); 32].join(",");
    assert!((3500..4096).contains(&path.len()));
    let mut remote = sandbox(1000, item(&long));
    assert!(matches!(remote.scan(&[]), Err(ShimError::Lost(_))), "1,000 frames of 32 long paths");
    // Nothing but blanks between the brackets.
    let mut remote = sandbox(100, item(&" ".repeat(1 << 20 >> 1)));
    assert!(remote.scan(&[]).is_ok(), "50 MiB");
    let mut remote = sandbox(200, item(&" ".repeat(1 << 20 >> 1)));
    assert!(matches!(remote.scan(&[]), Err(ShimError::Lost(_))), "100 MiB");
    let many = vec![change("a"); 2000].join(",");
    let mut remote = sandbox(MAX_LAYER_ENTRIES / 2000 + 2, item(&many));
    assert!(matches!(remote.scan(&[]), Err(ShimError::Lost(_))), "more than a million changes");
}

#[test]
fn the_scan_of_a_sandbox_names_nothing_that_a_run_cannot_have() {
    let long = "n/".repeat(3000) + "n";
    for path in [long.as_str(), "/etc/passwd", "../a", "a/../b", "", ".git/hooks/x", ".WORKSPACED/index", "a/.wh.b"] {
        let mut remote = sandbox(1, frame(FrameKind::Item, format!("[{}]", change(path)).as_bytes()));
        assert!(matches!(remote.scan(&[]), Err(ShimError::Lost(_))), "{path:?}");
    }
}

#[test]
fn a_sandbox_sends_no_more_than_was_asked_for() {
    let limits = ReadLimits { max_file_bytes: 1 << 20, max_total_bytes: 1 << 20 };
    let data = frame(FrameKind::Data, &vec![0; 64 << 10]);
    let mut taken = Vec::new();
    let mut remote = sandbox(1000, data);
    assert!(matches!(remote.read(&["a".to_owned()], limits, &mut taken), Err(ShimError::Lost(_))));
    assert!(taken.len() <= 2 << 20, "{} bytes", taken.len());
}

#[test]
fn the_hash_of_a_tree_is_one() {
    for said in ["\"\"", "\"../../etc\"", &format!("\"{}\"", "A".repeat(64)), "1"] {
        let mut remote = sandbox(1, frame(FrameKind::Done, said.as_bytes()));
        assert!(remote.tree_sha256().is_err(), "{said}");
    }
}

#[test]
fn a_frame_that_does_not_belong_ends_the_connection() {
    for kind in [FrameKind::Hello, FrameKind::Request, FrameKind::Signal, FrameKind::Stdout, FrameKind::Item] {
        let mut remote = sandbox(1, frame(kind, b"[]"));
        assert!(remote.have().is_err(), "{kind:?}");
        let mut remote = sandbox(1, frame(kind, b"[]"));
        assert!(remote.tree_sha256().is_err(), "{kind:?}");
        let mut remote = sandbox(1, frame(kind, b"[]"));
        let after = CheckedOut { run: "r".to_owned(), seq: 1, head_hash: String::new() };
        assert!(remote.apply(&after, &mut [0; 1024].as_slice()).is_err(), "{kind:?}");
    }
}
