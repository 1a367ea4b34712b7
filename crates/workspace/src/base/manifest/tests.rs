use super::*;

fn row(path: &str, size: u64) -> ManifestRow {
    let stamp = FileStamp { size, inode: size + 100, modified_ns: -5, changed_ns: 7 };
    let byte = u8::try_from(size).unwrap();
    ManifestRow { path: path.as_bytes().to_vec(), mode: MODE_FILE, oid: [byte; 20], sha256: [byte; 32], stamp }
}

fn folder(path: &str, inode: u64) -> (Vec<u8>, FileStamp) {
    (path.as_bytes().to_vec(), FileStamp { size: 0, inode, modified_ns: 1, changed_ns: 2 })
}

fn sample() -> Vec<u8> {
    let submodules = vec![b"a/m".to_vec(), b"n".to_vec()];
    let head = Head { commit: "c".repeat(40), submodules, ignores: vec![(b"a".to_vec(), b"*.o\n".to_vec())] };
    let rows =
        vec![row("a/z", 1), row("top", 2), row("a.b/c", 3), row("a/b/c/d", 4), row("a/a", 5), row("odd\u{ff}", 6)];
    let folders =
        ["a/b/c", "", "a", "empty", "a.b", "a/b", "empty/er"].iter().zip(1..).map(|(path, inode)| folder(path, inode));
    write(&head, rows, folders.collect())
}

#[test]
fn the_digest_covers_path_mode_and_content_in_the_order_of_paths() {
    let rows = [row("b", 2), ManifestRow { mode: MODE_LINK, ..row("a/z", 1) }, row("a.b", 3)];
    let line = |path: &str, mode: &str, byte: &str| format!("{path}\0{mode}\0{}\n", byte.repeat(32));
    let text = line("a.b", "100644", "03") + &line("a/z", "120000", "01") + &line("b", "100644", "02");
    assert_eq!(digest(&rows), model::Sha256::of(text.as_bytes()));
    assert_eq!(digest(&[]), model::Sha256::of(b""));
}

#[test]
fn what_is_written_is_read() {
    let bytes = sample();
    let (head, manifest) = read(&bytes, 10).unwrap();
    assert_eq!(read_start(&mut &bytes[..80]).unwrap(), (head.commit, vec![b"a/m".to_vec(), b"n".to_vec()]));
    assert_eq!(head.ignores, [(b"a".to_vec(), b"*.o\n".to_vec())]);
    assert_eq!(manifest.len(), 6);
    for (path, size) in [("a/z", 1), ("top", 2), ("a.b/c", 3), ("a/b/c/d", 4), ("a/a", 5), ("odd\u{ff}", 6)] {
        let file = manifest.get(path.as_bytes()).unwrap();
        let byte = u8::try_from(size).unwrap();
        assert_eq!((manifest.size(file), manifest.oid(file), manifest.sha256(file)), (size, &[byte; 20], &[byte; 32]));
        assert_eq!(manifest.name(file), path.rsplit('/').next().unwrap().as_bytes());
    }
    for path in ["a", "", "a/b", "a/zz", "b", "top/x", "empty"] {
        assert_eq!(manifest.get(path.as_bytes()), None, "{path}");
    }
}

#[test]
fn folders_know_what_lies_in_them_and_whether_any_of_it_is_tracked() {
    let (_, manifest) = read(&sample(), 10).unwrap();
    let names = |path: &str| -> Vec<&str> {
        let folder = manifest.folder(path.as_bytes()).unwrap();
        manifest.folders_in(folder).map(|name| std::str::from_utf8(name).unwrap()).collect()
    };
    assert_eq!(names(""), ["a", "a.b", "empty"]);
    assert_eq!(names("a"), ["b"]);
    assert_eq!(names("a/b"), ["c"]);
    assert_eq!(names("a/b/c"), [""; 0]);
    assert_eq!(names("empty"), ["er"]);
    for (path, tracked) in [
        ("", true),
        ("a", true),
        ("a/b", true),
        ("a/b/c", true),
        ("empty", false),
        ("empty/er", false),
        ("none", false),
    ] {
        assert_eq!(manifest.has_files_under(path.as_bytes()), tracked, "{path}");
    }
    let rules: Vec<_> = ["", "a", "a/b", "a.b"]
        .into_iter()
        .filter(|path| manifest.has_gitignore(manifest.folder(path.as_bytes()).unwrap()))
        .collect();
    assert_eq!(rules, ["a"]);
}

#[test]
fn a_stamp_proves_nothing_if_it_is_as_young_as_the_manifest() {
    for (written_ns, proves) in [(7, false), (8, true)] {
        let (_, manifest) = read(&sample(), written_ns).unwrap();
        let file = manifest.get(b"top").unwrap();
        let stamp = row("top", 2).stamp;
        assert_eq!(manifest.is_unchanged(file, &stamp), proves);
        for other in [
            FileStamp { size: 3, ..stamp },
            FileStamp { inode: 3, ..stamp },
            FileStamp { modified_ns: 3, ..stamp },
            FileStamp { changed_ns: 3, ..stamp },
        ] {
            assert!(!manifest.is_unchanged(file, &other));
        }
    }
    for (written_ns, proves) in [(2, false), (3, true)] {
        let (_, manifest) = read(&sample(), written_ns).unwrap();
        let root = manifest.folder(b"").unwrap();
        assert_eq!(manifest.has_same_entries(root, &folder("", 2).1), proves);
        assert!(!manifest.has_same_entries(root, &folder("", 3).1));
    }
}

#[test]
fn a_damaged_manifest_is_noticed_wherever_it_is_damaged() {
    let bytes = sample();
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1;
        assert!(read(&damaged, 10).is_err(), "byte {at}");
        assert!(read(&bytes[..at], 10).is_err(), "cut at {at}");
    }
}

#[test]
fn an_empty_tree_has_a_manifest() {
    let bytes = write(&Head { commit: "x".to_owned(), ..Head::default() }, Vec::new(), vec![folder("", 1)]);
    let (_, manifest) = read(&bytes, 10).unwrap();
    assert_eq!(manifest.len(), 0);
    assert!(!manifest.has_files_under(b""));
}

#[test]
fn ignored_files_added_later_are_found_in_order_and_do_not_make_a_folder_tracked() {
    let (_, mut manifest) = read(&sample(), 10).unwrap();
    let late =
        [row("empty/x", 11), row("a/b/c/e", 12), row("a/m", 13), row("a/a", 14), row("none/x", 15), row("0", 16)];
    assert!(!manifest.has_ignored());
    manifest.add_ignored(&late);
    assert!(manifest.has_ignored());
    let known = [("a/z", 1), ("top", 2), ("a.b/c", 3), ("a/b/c/d", 4), ("a/a", 5), ("odd\u{ff}", 6)];
    let new = [("empty/x", 11), ("a/b/c/e", 12), ("a/m", 13), ("0", 16)];
    assert_eq!(manifest.len(), known.len() + new.len());
    for (path, size) in known.into_iter().chain(new) {
        let file = manifest.get(path.as_bytes()).unwrap_or_else(|| panic!("{path}"));
        let byte = u8::try_from(size).unwrap();
        assert_eq!((manifest.size(file), manifest.oid(file), manifest.sha256(file)), (size, &[byte; 20], &[byte; 32]));
        assert_eq!(manifest.name(file), path.rsplit('/').next().unwrap().as_bytes());
        assert_eq!(manifest.is_ignored(file), size > 10, "{path}");
    }
    // A folder that the base did not have stays unknown.
    assert_eq!(manifest.get(b"none/x"), None);
    assert!(!manifest.has_files_under(b"empty"));
    assert!(manifest.has_files_under(b"a/b"));
}
