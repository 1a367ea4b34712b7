//! Archives are written, verified and unpacked; changed and hostile ones are rejected.

#![cfg_attr(
    test,
    expect(
        clippy::disallowed_methods,
        clippy::unwrap_used,
        reason = "tests read what was unpacked, and fail by panicking"
    )
)]

use std::io::{Read as _, Seek as _, Write as _};

use archive::{ArchiveError, ArchiveName, ArchiveReport, ArchiveWriter, DataFile, Part, unpack, verify};
use model::{CheckpointLeaf, Draft, FileKind, LogicalPath, RunId, Sha256, ToolCallId};
use serde_json::json;
use transparency::{Frontier, InclusionProof, SignerKey, VerifierKey, hash_checkpoint_leaf};

const DIFF: &[u8] = b"--- a\n+++ b\n";
const CONTENT: &[u8] = b"hello\n";

struct Built {
    bytes: Vec<u8>,
    sha256: Sha256,
    key: VerifierKey,
}

fn run_id() -> RunId {
    RunId::parse("issue-4711").unwrap()
}

/// Returns the texts of a chain of `count` records, of which the first has a diff, and the last hash.
fn records(count: u64) -> (Vec<String>, Sha256) {
    let (mut texts, mut head) = (Vec::new(), Sha256::ZERO);
    for seq in 0..count {
        let call = ToolCallId::parse(&format!("tc_{seq}")).unwrap();
        let time = "2026-01-01T00:00:01.000000Z".to_owned();
        let mut draft = Draft::new(run_id(), "operator:ada".to_owned(), "write_file", call, time);
        if seq == 0 {
            draft.diff_sha256 = Some(Sha256::of(DIFF));
            draft.artifact_uris = vec![format!("artifact://{}/art_1", run_id())];
            let path = LogicalPath::parse("src/a.txt").unwrap();
            draft.paths_written = vec![path.clone()];
            let after = Some((Sha256::of(CONTENT), 0o644));
            draft.files = vec![model::RecordFile::written(path, FileKind::TextDoc, None, after)];
        }
        let (record, text) = draft.link(seq, head);
        head = record.hash.unwrap();
        texts.push(text);
    }
    (texts, head)
}

/// Returns a tar archive of files and links.
fn files(entries: &[(&str, tar::EntryType, &[u8])]) -> Vec<u8> {
    let mut tar = tar::Builder::new(Vec::new());
    for (path, entry_type, content) in entries {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(*entry_type);
        header.set_mode(0o755);
        header.as_gnu_mut().unwrap().name[..path.len()].copy_from_slice(path.as_bytes());
        let content = if entry_type.is_symlink() {
            header.as_gnu_mut().unwrap().linkname[..content.len()].copy_from_slice(content);
            &[][..]
        } else {
            *content
        };
        header.set_size(content.len() as u64);
        header.set_cksum();
        tar.append(&header, content).unwrap();
    }
    tar.into_inner().unwrap()
}

/// The data of the records.
fn data(diff: &[u8]) -> Vec<(DataFile<'_>, &[u8])> {
    vec![
        (DataFile::Diff("art_1"), diff),
        (DataFile::Content(1, Sha256::of(CONTENT)), CONTENT),
        (DataFile::Reply(1), b"{\"status\":200}"),
    ]
}

fn build_with(tree: &[u8], data: &[(DataFile<'_>, &[u8])]) -> Built {
    build_listing(tree, data, None)
}

/// With a list of what is absent.
fn build_listing(tree: &[u8], data: &[(DataFile<'_>, &[u8])], absent: Option<&str>) -> Built {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = ArchiveWriter::new(folder.path());
    let (texts, head) = records(3);
    let leaf = CheckpointLeaf { head_hash: head, head_seq: 3, run_id: run_id() };
    let signer = SignerKey::from_seed("example.org/log", &[7; 32]).unwrap();
    let mut frontier = Frontier::default();
    frontier.push(hash_checkpoint_leaf(&leaf));
    let proof = InclusionProof {
        seq: 3,
        record_hash: head,
        records: vec![serde_json::from_str(&texts[2]).unwrap()],
        next_seq: None,
        leaf,
        leaf_index: 0,
        tree_size: 1,
        proof: vec![],
        checkpoint: signer.sign(frontier.size(), frontier.root()),
    };
    let mut part = writer.begin(archive::RUN).unwrap();
    write!(part, "{}", json!({ "runId": run_id(), "headSeq": 3, "headHash": head })).unwrap();
    writer.add(part).unwrap();
    let mut part = writer.begin(archive::PROOF).unwrap();
    write!(part, "{}", json!(proof)).unwrap();
    writer.add(part).unwrap();
    let mut part = writer.begin(archive::RECORDS).unwrap();
    for text in &texts {
        writeln!(part, "{text}").unwrap();
    }
    writer.add(part).unwrap();
    let mut part = writer.begin(archive::APPROVALS).unwrap();
    writeln!(part, "{}", json!({ "approval": {}, "input": null })).unwrap();
    writer.add(part).unwrap();
    let mut part = writer.begin(archive::DATA).unwrap();
    for (name, bytes) in data {
        part.add_file(*name, bytes).unwrap();
    }
    part.end_files().unwrap();
    writer.add(part).unwrap();
    let mut part = writer.begin(archive::FILES).unwrap();
    part.write_all(tree).unwrap();
    writer.add(part).unwrap();
    if let Some(absent) = absent {
        let mut part = writer.begin(archive::ABSENT).unwrap();
        write!(part, "{absent}").unwrap();
        writer.add(part).unwrap();
    }
    let mut built = writer.finish(run_id(), 3, head).unwrap();
    let mut bytes = Vec::new();
    built.file.read_to_end(&mut bytes).unwrap();
    assert_eq!((built.bytes, built.sha256), (bytes.len() as u64, Sha256::of(&bytes)));
    Built { bytes, sha256: built.sha256, key: signer.verifier_key() }
}

fn build() -> Built {
    use tar::EntryType::{Directory, Regular, Symlink};
    let tree = files(&[
        ("base.manifest", Regular, b"base"),
        ("repo/", Directory, b""),
        ("repo/src/main.rs", Regular, b"fn main() {}\n"),
        ("repo/link", Symlink, b"../../outside"),
    ]);
    build_with(&tree, &data(DIFF))
}

fn check(built: &Built, bytes: &[u8]) -> Result<ArchiveReport, ArchiveError> {
    verify(bytes, Some(&built.key), Some(built.sha256))
}

#[test]
fn an_archive_is_verified_with_nothing_but_the_file_and_the_key() {
    let built = build();
    let report = check(&built, &built.bytes).unwrap();
    assert_eq!((report.records, report.data_files, report.files, report.tree_size), (3, 3, 2, Some(1)));
    assert_eq!(report.sha256, built.sha256);
    assert_eq!(build().bytes, built.bytes, "the same run gives the same bytes");
    let other = SignerKey::from_seed("example.org/log", &[8; 32]).unwrap().verifier_key();
    let error = verify(&*built.bytes, Some(&other), None).unwrap_err();
    assert_eq!(error.member, "proof.json");
    assert_eq!(verify(&*built.bytes, None, None).unwrap().tree_size, None);
}

#[test]
fn every_changed_byte_is_found() {
    let built = build();
    for offset in (0..built.bytes.len()).step_by(61).chain([built.bytes.len() - 1]) {
        let mut changed = built.bytes.clone();
        changed[offset] ^= 0x20;
        assert!(check(&built, &changed).is_err(), "the byte at {offset}");
    }
    for length in (0..built.bytes.len()).step_by(211) {
        assert!(check(&built, &built.bytes[..length]).is_err(), "cut off at {length}");
    }
    let longer = [&built.bytes[..], &[0]].concat();
    assert_eq!(check(&built, &longer).unwrap_err().member, "the file");
}

#[test]
fn the_error_names_the_member_that_has_changed() {
    let built = build();
    let mut archive = tar::Archive::new(&*built.bytes);
    let members: Vec<_> = archive
        .entries()
        .unwrap()
        .map(|entry| {
            let entry = entry.unwrap();
            (entry.path().unwrap().display().to_string(), entry.raw_file_position(), entry.size())
        })
        .collect();
    assert_eq!(members.len(), 7);
    for (name, start, size) in members.into_iter().skip(1) {
        let mut changed = built.bytes.clone();
        changed[usize::try_from(start + size / 2).unwrap()] ^= 1;
        assert_eq!(check(&built, &changed).unwrap_err().member, name);
    }
}

#[test]
fn a_diff_that_is_not_that_of_its_record_is_found_even_in_a_consistent_archive() {
    let built = build_with(&files(&[]), &data(b"another diff"));
    let error = check(&built, &built.bytes).unwrap_err();
    assert_eq!(
        (error.member.as_str(), error.problem.as_str()),
        ("data.tar.zst", "`diffs/art_1` does not have its hash")
    );
}

#[test]
fn data_that_no_record_names_and_missing_diffs_are_found_even_in_a_consistent_archive() {
    let other = (DataFile::Content(1, Sha256::of(b"other")), &b"other"[..]);
    let of_another_record = (DataFile::Content(2, Sha256::of(CONTENT)), CONTENT);
    let upload = (DataFile::Upload(Sha256::of(CONTENT)), CONTENT);
    let second_reply = (DataFile::Reply(1), &b"{}"[..]);
    let late_reply = (DataFile::Reply(4), &b"{}"[..]);
    for more in [other, of_another_record, upload, second_reply, late_reply, data(DIFF)[0], data(DIFF)[1]] {
        let built = build_with(&files(&[]), &[data(DIFF), vec![more]].concat());
        let error = check(&built, &built.bytes).unwrap_err();
        assert_eq!(error.member, "data.tar.zst", "{more:?}");
        assert!(error.problem.starts_with("no record names `"), "{more:?}: {error}");
    }
    let built = build_with(&files(&[]), &data(DIFF)[1..]);
    assert_eq!(check(&built, &built.bytes).unwrap_err().to_string(), "data.tar.zst: `diffs/art_1` is missing");
}

#[test]
fn a_content_is_in_the_data_or_in_the_tree_or_listed_as_absent() {
    use tar::EntryType::Regular;
    let path = format!("contents/1/{}", Sha256::of(CONTENT));
    let found = |built: &Built| check(built, &built.bytes).map(|report| (report.contents_in_tree, report.absent));
    assert_eq!(found(&build()).unwrap(), (0, vec![]));
    let in_tree = files(&[("base.manifest", Regular, b"base"), ("repo/new.txt", Regular, CONTENT)]);
    assert_eq!(found(&build_with(&in_tree, &data(DIFF)[..1])).unwrap(), (1, vec![]));
    // In an archive of an earlier version nothing is listed.
    let elsewhere = files(&[("base.git/new.txt", Regular, CONTENT)]);
    assert_eq!(found(&build_with(&elsewhere, &data(DIFF)[..1])).unwrap(), (0, vec![path.clone()]));

    let listed = format!("{path}\n");
    let built = build_listing(&elsewhere, &data(DIFF)[..1], Some(&listed));
    assert_eq!(found(&built).unwrap(), (0, vec![path]));
    let to = tempfile::tempdir().unwrap();
    unpack(&*built.bytes, to.path()).unwrap();
    assert_eq!(std::fs::read_to_string(to.path().join("absent.txt")).unwrap(), listed);

    let other = format!("contents/1/{}\n", Sha256::of(b"other"));
    let twice = [&*listed, &*listed].concat();
    for (tree, list) in [(&in_tree, &*listed), (&elsewhere, ""), (&elsewhere, &*other), (&elsewhere, &*twice)] {
        let error = found(&build_listing(tree, &data(DIFF)[..1], Some(list))).unwrap_err();
        assert_eq!(error.member, "absent.txt.zst", "{list}: {error}");
    }
}

#[test]
fn long_names_are_read_and_bounded() {
    use tar::EntryType::{GNULongName, Regular, XHeader};
    let path = format!("repo/{}", ["a"; 100].join("/"));
    let tree = files(&[("././@LongLink", GNULongName, path.as_bytes()), ("short", Regular, b"long")]);
    let (built, to) = (build_with(&tree, &data(DIFF)), tempfile::tempdir().unwrap());
    assert_eq!(check(&built, &built.bytes).unwrap().files, 1);
    unpack(&*built.bytes, to.path()).unwrap();
    assert_eq!(std::fs::read_to_string(to.path().join(path)).unwrap(), "long");

    let long = vec![b'a'; 100 << 10];
    let large = files(&[("././@LongLink", GNULongName, &long), ("short", Regular, b"")]);
    let extended = files(&[("pax", XHeader, b"13 path=a/b\n"), ("short", Regular, b"")]);
    let unfinished = files(&[("././@LongLink", GNULongName, b"repo/a")]);
    for (tree, problem) in [(large, "more than 65536 bytes"), (extended, "a header"), (unfinished, "is missing")] {
        let (built, to) = (build_with(&tree, &data(DIFF)), tempfile::tempdir().unwrap());
        for error in [check(&built, &built.bytes).unwrap_err(), unpack(&*built.bytes, to.path()).unwrap_err()] {
            assert_eq!(error.member, "files.tar.zst");
            assert!(error.problem.contains(problem), "{error}");
        }
    }
    // Before the manifest.
    let outer = files(&[("././@LongLink", GNULongName, &long)]);
    assert_eq!(verify(&*outer, None, None).unwrap_err().member, "manifest.json");
}

#[test]
fn an_archive_is_unpacked_to_readable_files_without_links() {
    let (built, to) = (build(), tempfile::tempdir().unwrap());
    let unpacked = unpack(&*built.bytes, to.path()).unwrap();
    assert_eq!((unpacked.files, unpacked.links), (10, 1));
    let read = |path: &str| std::fs::read_to_string(to.path().join(path)).unwrap();
    assert_eq!(read("repo/src/main.rs"), "fn main() {}\n");
    assert_eq!(read("diffs/art_1").as_bytes(), DIFF);
    assert_eq!(read(&format!("contents/1/{}", Sha256::of(CONTENT))).as_bytes(), CONTENT);
    assert_eq!(read("records.jsonl").lines().map(str::to_owned).collect::<Vec<_>>(), records(3).0);
    assert_eq!(read("links.jsonl"), "{\"path\":\"repo/link\",\"target\":\"../../outside\"}\n");
    assert!(std::fs::symlink_metadata(to.path().join("repo/link")).is_err());
}

#[test]
fn nothing_is_written_outside_of_the_folder() {
    use tar::EntryType::{Link, Regular};
    for (path, entry_type) in [
        ("../outside", Regular),
        ("/outside", Regular),
        ("repo/../../outside", Regular),
        ("repo//a", Regular),
        ("repo/./a", Regular),
        ("repo/hard", Link),
        ("manifest.json", Regular),
    ] {
        let (parent, built) =
            (tempfile::tempdir().unwrap(), build_with(&files(&[(path, entry_type, b"x")]), &data(DIFF)));
        let to = parent.path().join("to");
        std::fs::create_dir(&to).unwrap();
        let error = unpack(&*built.bytes, &to).unwrap_err();
        assert_eq!(error.member, "files.tar.zst", "{path}: {error}");
        let names: Vec<_> = std::fs::read_dir(parent.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["to"], "{path}");
    }
}

#[test]
fn names_have_the_run_and_the_hash() {
    let name = ArchiveName { run_id: RunId::parse("a_b-1").unwrap(), sha256: Sha256::of(b"x") };
    assert_eq!(ArchiveName::parse(&name.to_string()), Some(name.clone()));
    for bad in ["a.tar", "a.b.tar", "x", &format!("{}.tar", name.sha256), &format!("a/b.{}.tar", name.sha256)] {
        assert_eq!(ArchiveName::parse(bad), None, "{bad}");
    }
}

#[test]
fn the_archive_of_a_run_in_a_backup_has_rows_and_entries_and_proves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let write = || {
        let mut writer = ArchiveWriter::new(folder.path());
        let mut rows = Part::rows(tempfile::tempfile().unwrap()).unwrap();
        rows.write_all(b"rows").unwrap();
        let (member, file) = rows.finish().unwrap();
        writer.add_finished(member, file);
        let mut entries = writer.begin(archive::ENTRIES).unwrap();
        entries.write_all(b"entries").unwrap();
        writer.add(entries).unwrap();
        let hashed = writer.write(run_id(), 3, Sha256::ZERO, std::io::sink()).unwrap();
        let built = writer.finish(run_id(), 3, Sha256::ZERO).unwrap();
        assert_eq!(hashed, (built.bytes, built.sha256), "the same members give other bytes");
        built
    };
    let mut built = write();
    assert_eq!(built.sha256, write().sha256, "the same run gives other bytes");
    for (member, content) in [(archive::ROWS, "rows"), (archive::ENTRIES, "entries")] {
        let mut read = String::new();
        archive::open_member(built.file.try_clone().unwrap(), member).unwrap().read_to_string(&mut read).unwrap();
        assert_eq!(read, content);
    }
    assert!(archive::open_member(built.file.try_clone().unwrap(), archive::RECORDS).is_err());
    built.file.rewind().unwrap();
    let refused = verify(&mut built.file, None, None).unwrap_err();
    assert_eq!(refused.problem, "it is an archive of a backup, which `workspaced restore --check` checks");
}
