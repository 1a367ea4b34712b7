use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;
use tar::{Builder, Header};

mod bounds;

use super::*;
use crate::test_support::{TestWorkspaces, tree_of};
use crate::{ImportSource, ImportedRun};

/// One entry, including forms that no regular program would write.
struct Raw<'a> {
    name: &'a [u8],
    kind: EntryType,
    mode: u32,
    link: &'a [u8],
    bytes: &'a [u8],
}

const FILE: Raw<'_> = Raw { name: b"", kind: EntryType::Regular, mode: 0o644, link: b"", bytes: b"" };

fn file<'a>(name: &'a str, text: &'a str) -> Raw<'a> {
    Raw { name: name.as_bytes(), bytes: text.as_bytes(), ..FILE }
}

fn special<'a>(kind: EntryType, name: &'a str, link: &'a str) -> Raw<'a> {
    Raw { name: name.as_bytes(), kind, link: link.as_bytes(), ..FILE }
}

fn archive(entries: &[Raw<'_>]) -> Vec<u8> {
    let mut tar = Builder::new(Vec::new());
    for raw in entries {
        let mut header = Header::new_gnu();
        header.as_mut_bytes()[..raw.name.len()].copy_from_slice(raw.name);
        header.as_mut_bytes()[157..157 + raw.link.len()].copy_from_slice(raw.link);
        header.set_entry_type(raw.kind);
        header.set_mode(raw.mode);
        header.set_size(raw.bytes.len() as u64);
        header.set_cksum();
        tar.append(&header, raw.bytes).unwrap();
    }
    tar.into_inner().unwrap()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut out = GzEncoder::new(Vec::new(), Compression::default());
    out.write_all(bytes).unwrap();
    out.finish().unwrap()
}

fn import(rig: &TestWorkspaces, run: &str, mut bytes: &[u8]) -> Result<ImportedRun, WorkspaceError> {
    rig.import(run, ImportSource::Archive(&mut bytes))
}

fn refused(rig: &TestWorkspaces, bytes: &[u8]) -> Refusal {
    match import(rig, "refused", bytes) {
        Err(WorkspaceError::Refused(refusal)) => {
            assert!(!rig.run("refused").exists());
            refusal
        }
        other => panic!("not refused: {other:?}"),
    }
}

fn text(rig: &TestWorkspaces, run: &str, path: &str) -> String {
    fs::read_to_string(rig.imported(run).join(path)).unwrap()
}

#[test]
fn a_tar_and_a_tar_gz_give_the_same_tree() {
    let rig = TestWorkspaces::new();
    let long = format!("{}/file", "long".repeat(60));
    let mut tar = Builder::new(Vec::new());
    let mut header = Header::new_gnu();
    header.set_size(4);
    header.set_mode(0o6777);
    tar.append_data(&mut header, &long, &b"long"[..]).unwrap();
    header.set_entry_type(EntryType::Directory);
    header.set_size(0);
    tar.append_data(&mut header, "./empty/", &[][..]).unwrap();
    let bytes = tar.into_inner().unwrap();
    let plain = import(&rig, "plain", &bytes).unwrap();
    let gz = import(&rig, "gz", &gzip(&bytes)).unwrap();
    assert_eq!((plain.files, plain.bytes, plain.base_commit), (1, 4, gz.base_commit));
    assert_eq!(tree_of(&rig.imported("plain")), tree_of(&rig.imported("gz")));
    assert_eq!(text(&rig, "gz", &long), "long");
    assert!(rig.imported("gz").join("empty").is_dir());
    assert_eq!(fs::metadata(rig.imported("gz").join(&long)).unwrap().permissions().mode() & 0o7777, 0o755);
    let left_out: Vec<_> = gz.left_out.iter().map(|one| one.reason.as_str()).collect();
    assert!(matches!(left_out[..], [mode] if mode.starts_with("only its permissions 6777:")), "{left_out:?}");
}

#[test]
fn what_gnu_tar_packs_comes_out_as_it_was_or_not_at_all() {
    let rig = TestWorkspaces::new();
    let source = rig.root("source");
    fs::create_dir_all(source.join("d/e")).unwrap();
    fs::write(source.join("d/e/f"), "text").unwrap();
    fs::write(source.join(format!("d/{}", "ü".repeat(110))), "long name").unwrap();
    fs::write(source.join("sparse"), "").unwrap();
    fs::File::options().write(true).open(source.join("sparse")).unwrap().set_len(1 << 20).unwrap();
    std::os::unix::fs::symlink("e/f", source.join("d/link")).unwrap();
    fs::hard_link(source.join("d/e/f"), source.join("twin")).unwrap();
    let packed = rig.outside().join("packed");
    for (n, args) in
        [vec!["--format=gnu", "-cf"], vec!["--format=pax", "-cf"], vec!["--format=pax", "-czf"]].into_iter().enumerate()
    {
        let made = std::process::Command::new("tar").current_dir(&source).args(&args).arg(&packed).arg(".").status();
        assert!(made.unwrap().success());
        let run = format!("r{n}");
        import(&rig, &run, &fs::read(&packed).unwrap()).unwrap_or_else(|error| panic!("{args:?}: {error:?}"));
        assert!(tree_of(&rig.imported(&run)) == tree_of(&source), "{args:?}");
    }
    for format in ["--format=gnu", "--format=pax"] {
        let mut tar = std::process::Command::new("tar");
        let made = tar.current_dir(&source).args([format, "-Scf"]).arg(&packed).arg(".").status();
        assert!(made.unwrap().success());
        let refusal = refused(&rig, &fs::read(&packed).unwrap());
        assert!(refusal.message.ends_with("a sparse file: pack it without `--sparse`"), "{refusal:?}");
    }
}

#[test]
fn hard_links_become_files_of_their_own() {
    let rig = TestWorkspaces::new();
    let entries =
        [file("a/original", "text"), special(EntryType::Link, "b/copy", "a/original"), file("a/original", "later")];
    import(&rig, "r", &archive(&entries)).unwrap();
    assert_eq!(text(&rig, "r", "b/copy"), "text");
    assert_eq!(text(&rig, "r", "a/original"), "later");
    for (name, link) in [("b", "/etc/passwd"), ("b", "missing"), ("b", "../../etc/passwd"), ("b", "b"), ("b", "link")] {
        let entries = [special(EntryType::Symlink, "link", "x"), special(EntryType::Link, name, link)];
        assert_eq!(refused(&rig, &archive(&entries)).code, Code::PathRejected, "{link}");
    }
}

#[test]
fn of_two_files_with_one_name_the_later_counts() {
    let rig = TestWorkspaces::new();
    let done = import(&rig, "r", &archive(&[file("a", "1"), file("./a", "22"), file("b", "3")])).unwrap();
    assert_eq!(text(&rig, "r", "a"), "22");
    assert_eq!((done.files, done.bytes), (2, 3), "only the last version of a repeated entry is counted");
    assert_eq!(rig.base_git("r", &["cat-file", "-p", &format!("{}:a", done.base_commit)]), "22");
    assert_eq!(tree_of(&rig.imported("r")).len(), 2);
}

#[test]
fn an_invalid_entry_refuses_the_whole_archive_and_is_named() {
    let rig = TestWorkspaces::new();
    let good = || file("good", "1");
    let table: [(&str, Vec<Raw<'_>>); 16] = [
        ("/etc/absolute", vec![good(), file("/etc/absolute", "x")]),
        ("../up", vec![good(), file("../up", "x")]),
        ("a/../../up", vec![good(), file("a/../../up", "x")]),
        ("a/../b", vec![good(), file("a/../b", "x")]),
        ("device", vec![good(), special(EntryType::Char, "device", "")]),
        ("block", vec![good(), special(EntryType::Block, "block", "")]),
        ("pipe", vec![good(), special(EntryType::Fifo, "pipe", "")]),
        ("good/below", vec![good(), file("good/below", "x")]),
        ("good", vec![good(), special(EntryType::Directory, "good", "")]),
        ("good", vec![good(), special(EntryType::Symlink, "good", "x")]),
        ("d", vec![special(EntryType::Directory, "d", ""), file("d", "x")]),
        ("l", vec![special(EntryType::Symlink, "l", "x"), file("l", "x")]),
        ("l/x", vec![special(EntryType::Symlink, "l", "d"), file("d/y", "x"), file("l/x", "x")]),
        ("d/l/x", vec![special(EntryType::Symlink, "d/l", "."), file("d/l/x", "x")]),
        (".", vec![file(".", "x")]),
        ("odd", vec![good(), special(EntryType::new(b'Z'), "odd", "")]),
    ];
    for (name, entries) in table {
        let refusal = refused(&rig, &archive(&entries));
        assert_eq!(refusal.code, Code::PathRejected, "{name}");
        assert_eq!(refusal.details.path.as_deref(), Some(name));
    }
    let long = "n".repeat(256);
    let mut tar = Builder::new(Vec::new());
    let mut header = Header::new_gnu();
    header.set_size(0);
    tar.append_data(&mut header, &long, &[][..]).unwrap();
    assert_eq!(refused(&rig, &tar.into_inner().unwrap()).details.path, Some(format!("{}…", &long[..200])));
    assert_eq!(rig.names(), [".git-home"]);
}

#[test]
fn a_link_to_a_path_outside_is_left_out_and_never_written_through() {
    let rig = TestWorkspaces::new();
    let entries = [
        special(EntryType::Symlink, "out", "../../.."),
        special(EntryType::Symlink, "abs", "/tmp"),
        special(EntryType::Symlink, "d/in", "../e"),
        file("out/x", "inside"),
        file("abs/x", "inside"),
    ];
    let done = import(&rig, "r", &archive(&entries)).unwrap();
    let left_out: Vec<_> = done.left_out.iter().map(|one| one.path.as_str()).collect();
    assert_eq!(left_out, ["out", "abs"]);
    assert_eq!((text(&rig, "r", "out/x"), text(&rig, "r", "abs/x")), ("inside".to_owned(), "inside".to_owned()));
    assert_eq!(fs::read_link(rig.imported("r").join("d/in")).unwrap(), Path::new("../e"));
}

#[test]
fn git_folders_are_left_out_and_reported_once() {
    let rig = TestWorkspaces::new();
    let entries = [
        file(".git/config", "x"),
        file(".git/hooks/pre-commit", "x"),
        file("sub/.Git", "x"),
        special(EntryType::Symlink, "s/.git", "x"),
        file("s/GIT~1/x", "x"),
        file(".gitignore", "*.o\n"),
    ];
    let done = import(&rig, "r", &archive(&entries)).unwrap();
    let left_out: Vec<_> = done.left_out.iter().map(|one| one.path.as_str()).collect();
    assert_eq!(left_out, [".git", "sub/.Git", "s/.git", "s/GIT~1"]);
    assert_eq!(tree_of(&rig.imported("r")).into_keys().collect::<Vec<_>>(), [Path::new(".gitignore")]);
}

#[test]
fn what_is_no_archive_or_is_cut_short_is_refused() {
    let rig = TestWorkspaces::new();
    let tar = archive(&[file("a", &"text ".repeat(1000))]);
    let gz = gzip(&tar);
    let mut bad_sum = gz.clone();
    *bad_sum.iter_mut().nth_back(5).unwrap() ^= 1;
    for bytes in [&b""[..], b"no", &[0x1f, 0x8b], &tar[..700], &gz[..gz.len() - 20], &bad_sum, &[b'x'; 4096]] {
        assert_eq!(refused(&rig, bytes).code, Code::InvalidRequest, "{} bytes", bytes.len());
    }
}

#[test]
fn a_bomb_is_refused_long_before_it_is_unpacked() {
    let rig = TestWorkspaces::with_limits(ImportLimits { max_bytes: 1 << 40, ..ImportLimits::default() });
    let mut header = Header::new_gnu();
    header.set_size(4 << 30);
    header.as_mut_bytes()[..4].copy_from_slice(b"zero");
    header.set_cksum();
    let mut bomb = GzEncoder::new(Vec::new(), Compression::fast());
    bomb.write_all(header.as_bytes()).unwrap();
    let zeros = vec![0; 1 << 20];
    for _ in 0..200 {
        bomb.write_all(&zeros).unwrap();
    }
    let refusal = refused(&rig, &bomb.finish().unwrap());
    assert!(refusal.message.contains("too large"), "{refusal:?}");
    assert!(refusal.details.actual.unwrap() < 150 << 20);
    // A header that promises more than the limit is enough.
    let rig = TestWorkspaces::with_limits(ImportLimits { max_bytes: 1000, ..ImportLimits::default() });
    assert_eq!(refused(&rig, header.as_bytes()).details.limit, Some(1000));
    let many: Vec<_> = (0..50).map(|n| format!("f{n}")).collect();
    let copies: Vec<_> = many.iter().map(|name| special(EntryType::Link, name, "a")).collect();
    let text = "x".repeat(100);
    let entries: Vec<_> = std::iter::once(file("a", &text)).chain(copies).collect();
    assert_eq!(refused(&rig, &archive(&entries)).details.limit, Some(1000), "hard links count what they copy");
}

/// Returns a header that declares `size` bytes.
fn announces(kind: u8, size: u64, gnu: bool) -> Vec<u8> {
    let mut header = if gnu { Header::new_gnu() } else { Header::new_old() };
    header.as_mut_bytes()[..1].copy_from_slice(b"n");
    header.set_entry_type(EntryType::new(kind));
    header.set_mode(0o644);
    header.set_size(size);
    header.set_cksum();
    header.as_bytes().to_vec()
}

/// Reads `head`, then endless bytes, and counts how many were taken.
struct Endless<'a> {
    head: &'a [u8],
    taken: u64,
}

impl Read for Endless<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = if self.head.is_empty() { buffer.len() } else { self.head.read(buffer)? };
        buffer[count..].fill(b'n');
        let count = count.max(1);
        self.taken += count as u64;
        Ok(count)
    }
}

#[test]
fn what_extends_a_header_is_bounded_before_it_is_read() {
    let rig = TestWorkspaces::new();
    let before = archive(&[file("a", "x"), file("b", &"text".repeat(1000))]);
    let before = &before[..before.len() - 1024];
    // The map of a sparse file that never ends.
    let mut sparse = Header::new_gnu();
    sparse.as_mut_bytes()[..4].copy_from_slice(b".git");
    sparse.set_entry_type(EntryType::GNUSparse);
    sparse.set_size(0);
    sparse.as_gnu_mut().unwrap().set_is_extended(true);
    sparse.set_cksum();
    let mut block = tar::GnuExtSparseHeader::new();
    block.set_is_extended(true);
    let map = [sparse.as_bytes(), &block.as_bytes().repeat(4096)[..]].concat();
    for (what, headers) in [
        ("a long name", announces(b'L', 300 << 20, true)),
        ("a long link", announces(b'K', 300 << 20, true)),
        ("extensions", announces(b'x', 600 << 20, true)),
        ("the map of a sparse file", map),
        ("a name without an end", announces(b'L', 1 << 40, true)),
    ] {
        for head in [headers.clone(), [before, &headers].concat()] {
            let mut stream = Endless { head: &head, taken: 0 };
            let error = rig.import("r", ImportSource::Archive(&mut stream)).unwrap_err();
            let WorkspaceError::Refused(refusal) = error else { panic!("{what}: {error:?}") };
            assert_eq!((refusal.code, refusal.details.limit), (Code::InvalidRequest, Some(1 << 20)), "{what}");
            assert!(stream.taken < 2 << 20, "{what}: {} bytes were read", stream.taken);
        }
    }
    // The old format has no extension headers: there this is an entry of an unknown type.
    let mut stream = Endless { head: &announces(b'x', 600 << 20, false), taken: 0 };
    let error = rig.import("r", ImportSource::Archive(&mut stream)).unwrap_err();
    assert!(matches!(&error, WorkspaceError::Refused(refusal) if refusal.code == Code::PathRejected), "{error:?}");
    assert!(stream.taken < 2 << 20, "{} bytes were read", stream.taken);
}

#[test]
fn large_files_and_what_nobody_reads_are_no_headers() {
    let rig = TestWorkspaces::new();
    let (large, comment) = ("x".repeat(5 << 20), format!("3145744 comment={}\n", "c".repeat(3_145_727)));
    let global = Raw { bytes: comment.as_bytes(), ..special(EntryType::XGlobalHeader, "g", "") };
    let entries = [file("a", &large), global, file(".git/objects/pack", &large), file("b", &large)];
    let done = import(&rig, "r", &gzip(&archive(&entries))).unwrap();
    assert_eq!((done.files, done.bytes), (2, 10 << 20));
}

#[test]
fn only_the_start_of_a_long_name_is_reported() {
    let rig = TestWorkspaces::new();
    let long = format!("{}x", "long/".repeat(50_000));
    let name = Raw { bytes: long.as_bytes(), ..special(EntryType::GNULongName, "n", "") };
    for entries in [vec![name, file("a", "x")], vec![file("a", "x")]] {
        let refused = import(&rig, "r", &archive(&entries));
        if entries.len() == 1 {
            refused.unwrap();
            continue;
        }
        let Err(WorkspaceError::Refused(refusal)) = refused else { panic!("not refused") };
        assert_eq!(refusal.code, Code::PathRejected);
        let shown = format!("{refusal:?}");
        assert!(shown.len() < 1000 && shown.contains("long/long/"), "{shown}");
    }
    // Nor in a report.
    let own = format!("{}/.git", "d/".repeat(100) + &"n".repeat(100));
    let mut tar = Builder::new(Vec::new());
    let mut header = Header::new_gnu();
    header.set_size(0);
    tar.append_data(&mut header, &own, &[][..]).unwrap();
    let done = import(&rig, "cut", &tar.into_inner().unwrap()).unwrap();
    assert_eq!(done.left_out[0].path, format!("{}…", &own[..200]));
}

#[test]
fn git_folders_count_as_entries_too() {
    let rig = TestWorkspaces::with_limits(ImportLimits { max_entries: 10, ..ImportLimits::default() });
    let names: Vec<_> = (0..11).map(|n| format!("{n}/.git/x")).collect();
    let entries: Vec<_> = names.iter().map(|name| file(name, "")).collect();
    import(&rig, "r", &archive(&entries[..10])).unwrap();
    assert_eq!(refused(&rig, &archive(&entries)).details.limit, Some(10));
}

#[test]
fn a_stream_that_breaks_is_the_streams_fault() {
    struct Broken;
    impl Read for Broken {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(io::ErrorKind::ConnectionReset.into())
        }
    }
    let rig = TestWorkspaces::new();
    let tar = archive(&[file("a", &"text ".repeat(1000))]);
    for begun in [&tar[..0], &tar[..600], &gzip(&tar)[..30]] {
        let mut stream = begun.chain(Broken);
        let error = rig.import("r", ImportSource::Archive(&mut stream)).unwrap_err();
        assert!(
            matches!(&error, WorkspaceError::Io(error) if error.kind() == io::ErrorKind::ConnectionReset),
            "{error:?}"
        );
    }
    assert_eq!(rig.names(), [".git-home"]);
}

#[test]
fn an_archive_that_is_cut_off_at_any_block_is_refused() {
    let rig = TestWorkspaces::new();
    let whole = archive(&[file("a", "1"), file("d/b", &"2".repeat(600)), file("c", "")]);
    // Two blocks for `a`, three for `d/b`, one for `c`.
    let content = 6 * 512;
    assert!(whole[content..].iter().all(|byte| *byte == 0) && whole.len() >= content + 1024);
    for end in (512..=content).step_by(512) {
        for cut in [whole[..end].to_vec(), gzip(&whole[..end])] {
            assert_eq!(refused(&rig, &cut).code, Code::InvalidRequest, "cut off after {end} bytes");
        }
    }
    import(&rig, "whole", &whole).unwrap();
    // The first of the two blocks of zeros is the end. Some programs write no second one.
    import(&rig, "one", &whole[..content + 512]).unwrap();
}
