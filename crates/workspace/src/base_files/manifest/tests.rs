use super::*;

fn row(path: &str, size: u64) -> ManifestRow {
    let byte = u8::try_from(size).unwrap();
    let path = path.as_bytes().to_vec();
    ManifestRow { path, mode: MODE_FILE, oid: [byte; 20], sha256: [byte; 32], size, is_ignored: false }
}

/// Returns the files of the sample in order.
fn rows() -> Vec<ManifestRow> {
    let ignored = |path, size| ManifestRow { is_ignored: true, ..row(path, size) };
    let mut rows = vec![
        row("a/z", 1),
        row("top", 2),
        row("a.b/c", 3),
        row("a/b/c/d", 4),
        row("a/a", 5),
        row("odd\u{ff}", 6),
        ignored("empty/er/x.o", 7),
        ignored("a/x.o", 8),
    ];
    sort(&mut rows);
    rows
}

fn sample() -> Vec<u8> {
    let submodules = vec![b"a/m".to_vec(), b"n".to_vec()];
    let head = Head {
        commit: "c".repeat(40),
        submodules,
        ignores: vec![(b"a".to_vec(), b"*.o\n".to_vec())],
        narrowed: vec![(b"top".to_vec(), 0o600)],
    };
    let folders = ["a/b/c", "", "a", "empty", "a.b", "a/b", "empty/er"].map(|path| path.as_bytes().to_vec());
    write(&head, &rows(), folders.to_vec())
}

#[test]
fn the_digest_covers_path_mode_and_content_in_the_order_of_paths() {
    let rows = [row("b", 2), ManifestRow { mode: MODE_LINK, ..row("a/z", 1) }, row("a.b", 3)];
    let line = |path: &str, mode: &str, byte: &str| format!("{path}\0{mode}\0{}\n", byte.repeat(32));
    let text = line("a.b", "100644", "03") + &line("a/z", "120000", "01") + &line("b", "100644", "02");
    assert_eq!(digest(&rows), model::Sha256::of(text.as_bytes()));
    assert_eq!(digest([]), model::Sha256::of(b""));
}

#[test]
fn what_is_written_is_read() {
    let bytes = sample();
    let (head, manifest) = read(&bytes).unwrap();
    assert_eq!(read_start(&mut &bytes[..80]).unwrap(), (head.commit, vec![b"a/m".to_vec(), b"n".to_vec()]));
    assert_eq!(head.ignores, [(b"a".to_vec(), b"*.o\n".to_vec())]);
    assert_eq!(head.narrowed, [(b"top".to_vec(), 0o600)]);
    assert_eq!(manifest.len(), 8);
    assert!(manifest.rows().map(|(file, _)| file).eq((0..8).map(FileIndex)));
    assert_eq!(manifest.rows().map(|(_, row)| row).collect::<Vec<_>>(), rows());
    for (path, size) in [
        ("a/z", 1),
        ("top", 2),
        ("a.b/c", 3),
        ("a/b/c/d", 4),
        ("a/a", 5),
        ("odd\u{ff}", 6),
        ("empty/er/x.o", 7),
        ("a/x.o", 8),
    ] {
        let file = manifest.get(path.as_bytes()).unwrap();
        let byte = u8::try_from(size).unwrap();
        assert_eq!((manifest.size(file), manifest.oid(file), manifest.sha256(file)), (size, &[byte; 20], &[byte; 32]));
        assert_eq!(manifest.name(file), path.rsplit('/').next().unwrap().as_bytes());
        assert_eq!(manifest.is_ignored(file), size > 6, "{path}");
    }
    for path in ["a", "", "a/b", "a/zz", "b", "top/x", "empty"] {
        assert_eq!(manifest.get(path.as_bytes()), None, "{path}");
    }
}

#[test]
fn folders_have_their_folders_by_name() {
    let (_, manifest) = read(&sample()).unwrap();
    let folders = |path: &[u8]| {
        let found = manifest.folders_in(manifest.folder(path).unwrap());
        found.map(|(folder, name)| (manifest.files_in(folder).len(), name)).collect::<Vec<_>>()
    };
    assert_eq!(folders(b""), [(3, &b"a"[..]), (1, b"a.b"), (0, b"empty")]);
    assert_eq!(folders(b"a"), [(0, &b"b"[..])]);
    assert_eq!(folders(b"a/b/c"), []);
    let root = manifest.folder(b"").unwrap();
    assert_eq!(manifest.folder_in(root, b"a.b"), manifest.folder(b"a.b"));
    assert_eq!(manifest.folder_in(root, b"a.c"), None);
}

#[test]
fn folders_know_how_much_is_under_them_and_whether_any_of_it_is_tracked() {
    let (_, manifest) = read(&sample()).unwrap();
    for (path, files, tracked) in [
        ("", 8, true),
        ("a", 4, true),
        ("a/b", 1, true),
        ("a/b/c", 1, true),
        ("empty", 1, false),
        ("empty/er", 1, false),
        ("none", 0, false),
    ] {
        let found = (manifest.files_under(path.as_bytes()), manifest.has_files_under(path.as_bytes()));
        assert_eq!(found, (files, tracked), "{path}");
    }
}

#[test]
fn a_damaged_manifest_is_noticed_wherever_it_is_damaged() {
    let bytes = sample();
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1;
        assert!(read(&damaged).is_err(), "byte {at}");
        assert!(read(&bytes[..at]).is_err(), "cut at {at}");
    }
}

#[test]
fn an_empty_tree_has_a_manifest() {
    let bytes = write(&Head { commit: "x".to_owned(), ..Head::default() }, &[], vec![Vec::new()]);
    let (_, manifest) = read(&bytes).unwrap();
    assert_eq!(manifest.len(), 0);
    assert!(!manifest.has_files_under(b""));
}
