//! Bounds of archives: expansion, hard links, and the meaning of headers.

use std::collections::BTreeSet;

use super::*;

/// Returns one pax record, with its length.
fn record(key: &str, value: &str) -> String {
    let rest = key.len() + value.len() + 3;
    let length = (1..9999).find(|length| *length == rest + length.to_string().len()).unwrap();
    format!("{length} {key}={value}\n")
}

fn pax(kind: EntryType, records: &str) -> Raw<'_> {
    Raw { bytes: records.as_bytes(), ..special(kind, "pax", "") }
}

fn local(records: &str) -> Raw<'_> {
    pax(EntryType::XHeader, records)
}

#[test]
fn names_are_bounded_in_bytes_even_of_entries_that_are_left_out() {
    let limits = ImportLimits { max_name_bytes: 100_000, ..ImportLimits::default() };
    let long = format!("{}/", "n".repeat(200)).repeat(19);
    let names = |end: &str| (0..30).map(|n| record("path", &format!("{long}{n}{end}"))).collect::<Vec<_>>();
    for (what, names) in [
        ("files", names("")),
        ("entries left out", names("/.git")),
        ("folders above a file", vec![record("path", &format!("{}f", "d/".repeat(100))); 1]),
    ] {
        let rig = TestWorkspaces::with_limits(ImportLimits { max_name_bytes: names.len() as u64 * 3_333, ..limits });
        let entries: Vec<_> = names.iter().flat_map(|name| [local(name), file("x", "")]).collect();
        assert_eq!(refused(&rig, &archive(&entries)).details.limit, Some(names.len() as u64 * 3_333), "{what}");
    }
}

#[test]
fn folders_that_no_entry_names_count_as_entries() {
    let rig = TestWorkspaces::with_limits(ImportLimits { max_entries: 40, ..ImportLimits::default() });
    let deep = "d/".repeat(45) + "f";
    assert_eq!(refused(&rig, &archive(&[file(&deep, "")])).details.limit, Some(40));
    // And once, where an entry names them.
    let folders: Vec<_> = (0..39).map(|n| format!("f{n}/")).collect();
    let mut entries: Vec<_> = folders.iter().map(|name| special(EntryType::Directory, name, "")).collect();
    entries.push(file("f0/a", ""));
    import(&rig, "r", &archive(&entries)).unwrap();
}

#[test]
fn the_report_of_what_was_left_out_is_bounded_in_bytes() {
    let rig = TestWorkspaces::new();
    let names: Vec<_> = (0..900).map(|n| record("path", &format!("{}{n}/.git", "ü".repeat(90)))).collect();
    let entries: Vec<_> = names.iter().flat_map(|name| [local(name), file("x", "")]).collect();
    let done = import(&rig, "r", &archive(&entries)).unwrap();
    let bytes: usize = done.left_out.iter().map(|one| one.path.len() + one.reason.len()).sum();
    assert!((60 << 10..=64 << 10).contains(&bytes), "{bytes}");
    assert_eq!(done.left_out.len() as u64 + done.left_out_more, 900);
}

/// The entries that are packed, the files that are imported, and the entries that are skipped.
type Linked<'a> = (&'a str, Vec<Raw<'a>>, &'a [&'a str], &'a [&'a str]);

#[test]
fn a_secret_comes_in_under_no_other_name() {
    let link = |name, target| special(EntryType::Link, name, target);
    let table: [Linked<'_>; 9] = [
        ("a plain name", vec![file(".env", "K"), link("notes.txt", ".env")], &[".env"], &["notes.txt"]),
        ("the secret's name later", vec![file("notes.txt", "K"), link(".env", "notes.txt")], &[".env"], &["notes.txt"]),
        (
            "several names before it",
            vec![file("a.txt", "K"), link("b.txt", "a.txt"), link("c/id_rsa", "b.txt"), link("d.txt", "a.txt")],
            &["c/id_rsa"],
            &["a.txt", "b.txt", "d.txt"],
        ),
        (
            "a link to a link",
            vec![file("certs/server.pem", "K"), link("a.txt", "certs/server.pem"), link("b.txt", "a.txt")],
            &["certs/server.pem"],
            &["a.txt", "b.txt"],
        ),
        ("two secrets", vec![file(".env", "K"), link(".env.local", ".env")], &[".env", ".env.local"], &[]),
        (
            "a link over a file",
            vec![file("a.txt", "x"), file(".env", "K"), link("a.txt", ".env")],
            &[".env"],
            &["a.txt"],
        ),
        (
            "a file over its name",
            vec![file("a.txt", "x"), link("b.txt", "a.txt"), file("a.txt", "own"), link(".env", "b.txt")],
            &[".env", "a.txt"],
            &["b.txt"],
        ),
        (
            "a file over the secret's name",
            vec![file(".env", "K"), link("b.txt", ".env"), file(".env", "own")],
            &[".env"],
            &["b.txt"],
        ),
        (
            "what else was left out",
            vec![
                file(".git/config", "x"),
                link("a.txt", ".git/config"),
                special(EntryType::Symlink, "out", "../.."),
                link("b.txt", "out"),
            ],
            &[],
            &[".git", "a.txt", "out", "b.txt"],
        ),
    ];
    for (what, entries, kept, left_out) in table {
        let rig = TestWorkspaces::new();
        let done = import(&rig, "r", &archive(&entries)).unwrap_or_else(|error| panic!("{what}: {error:?}"));
        let tree: Vec<_> = tree_of(&rig.imported("r")).into_keys().collect();
        assert_eq!(tree, kept.iter().map(Path::new).collect::<Vec<_>>(), "{what}");
        let reported: BTreeSet<_> = done.left_out.iter().map(|one| one.path.as_str()).collect();
        assert_eq!(reported, left_out.iter().copied().collect(), "{what}");
        assert_eq!((done.files, done.left_out.len()), (kept.len() as u64, left_out.len()), "{what}");
        let tracked = rig.base_git("r", &["ls-tree", "-r", "--name-only", &done.base_commit]);
        assert_eq!(tracked.lines().count(), kept.len(), "{what}: {tracked}");
    }
}

#[test]
fn what_git_ignores_comes_in_under_no_other_name() {
    let link = |name, target| special(EntryType::Link, name, target);
    let table: [Linked<'_>; 3] = [
        (
            "rules that come later",
            vec![file("ig.txt", "K"), link("b.txt", "ig.txt"), file(".gitignore", "ig.txt\n")],
            &[".gitignore", "ig.txt"],
            &["b.txt"],
        ),
        (
            "all names ignored",
            vec![file(".gitignore", "/out\n"), file("out/a", "K"), link("out/b", "out/a")],
            &[".gitignore", "out/a", "out/b"],
            &[],
        ),
        (
            // Without the rules `sub/ig.txt` is not ignored any more, while its other name is.
            "rules that are themselves left out",
            vec![
                file(".env", "ig.txt\n"),
                link("sub/.gitignore", ".env"),
                file("sub/ig.txt", "K"),
                link("b.txt", "sub/ig.txt"),
                file(".gitignore", "b.txt\n"),
            ],
            &[".env", ".gitignore", "b.txt"],
            &["sub/.gitignore", "sub/ig.txt"],
        ),
    ];
    for (what, entries, kept, left_out) in table {
        let rig = TestWorkspaces::new();
        let done = import(&rig, "r", &archive(&entries)).unwrap_or_else(|error| panic!("{what}: {error:?}"));
        let tree: Vec<_> = tree_of(&rig.imported("r")).into_keys().collect();
        assert_eq!(tree, kept.iter().map(Path::new).collect::<Vec<_>>(), "{what}");
        let reported: Vec<_> = done.left_out.iter().map(|one| one.path.as_str()).collect();
        assert_eq!(reported, left_out, "{what}");
    }
}

#[test]
fn rules_that_are_left_out_for_a_name_that_git_ignores_still_hide() {
    let rig = TestWorkspaces::new();
    let entries = [
        file(".gitignore", "/out\n"),
        file("out/rules", "hidden.txt\n"),
        special(EntryType::Link, "sub/.gitignore", "out/rules"),
        file("sub/hidden.txt", "K"),
    ];
    let done = import(&rig, "r", &archive(&entries)).unwrap();
    let left_out: Vec<_> = done.left_out.iter().map(|one| one.path.as_str()).collect();
    assert_eq!(left_out, ["sub/.gitignore"]);
    assert_eq!(rig.base_git("r", &["ls-tree", "-r", "--name-only", &done.base_commit]), ".gitignore\n");
    let read = |path: &str| {
        let path = crate::test_support::path(path);
        crate::test_support::code(done.workspace.tree().read(&crate::test_support::rules(), &path, 1000).map(drop))
    };
    assert_eq!(read("sub/hidden.txt"), Code::PolicyDenied);
    // Without the rules it is another base.
    let plain = import(&rig, "plain", &archive(&entries[3..])).unwrap();
    plain
        .workspace
        .tree()
        .read(&crate::test_support::rules(), &crate::test_support::path("sub/hidden.txt"), 1000)
        .unwrap();
}

#[test]
fn a_damaged_pax_header_refuses_the_archive() {
    let rig = TestWorkspaces::new();
    let good = record("path", "good");
    for (what, records) in [
        ("no length", "path=x\n".to_owned()),
        ("a length that is not a number", "+8 path=\n".to_owned()),
        ("too long", format!("99 path=x\n{good}")),
        ("too short", format!("7 path=x\n{good}")),
        ("no key", "5 =x\n".to_owned()),
        ("no equals sign", "8 pathx\n".to_owned()),
        ("a key without an end", format!("5000 {}=\n", "k".repeat(4993))),
        ("no end of line", format!("{}x", good.trim_end())),
        ("an end that is cut off", good[..6].to_owned()),
        ("a damaged record after a good one", format!("{good}\n{}", record("size", "1"))),
        ("a size that is not a number", record("size", "-1")),
        ("a size in words", record("size", "0x10")),
    ] {
        for kind in [EntryType::XHeader, EntryType::XGlobalHeader] {
            if kind == EntryType::XGlobalHeader && what.starts_with("a size") {
                continue;
            }
            let refusal = refused(&rig, &archive(&[pax(kind, &records), file("x", "text")]));
            assert!(
                refusal.code == Code::InvalidRequest && refusal.message.contains("pax"),
                "{what}, {kind:?}: {refusal:?}"
            );
        }
    }
    let global = pax(EntryType::XGlobalHeader, &good);
    assert!(refused(&rig, &archive(&[global, file("x", "text")])).message.contains("pax"));
    for twice in [
        vec![local(&good), local(&good), file("x", "text")],
        vec![local(&good), Raw { bytes: b"other\0", ..special(EntryType::GNULongName, "L", "") }, file("x", "text")],
    ] {
        assert!(refused(&rig, &archive(&twice)).message.contains("pax"));
    }
    assert_eq!(refused(&rig, &archive(&[file("x", "text"), local(&good)])).code, Code::InvalidRequest, "of nothing");
}

#[test]
fn a_pax_header_names_and_measures_its_entry() {
    let rig = TestWorkspaces::new();
    // A value may contain newlines; of two records with one key the later counts.
    let records = [
        record("SCHILY.xattr.user.note", "\n12 path=evil\n"),
        record("path", "first"),
        record("path", "dir/ü.txt"),
        record("mtime", "1.5"),
    ]
    .concat();
    let linkpath = record("linkpath", "dir/ü.txt");
    let entries = [local(&records), file("x", "text"), local(&linkpath), special(EntryType::Link, "twin", "x")];
    import(&rig, "names", &archive(&entries)).unwrap();
    assert_eq!((text(&rig, "names", "dir/ü.txt"), text(&rig, "names", "twin")), ("text".into(), "text".into()));
    // The header says nothing of the bytes.
    let size = record("size", "600");
    let content = "c".repeat(600);
    let mut measured = archive(&[local(&size), file("a", "")]);
    measured.truncate(measured.len() - 1024);
    measured.extend_from_slice(content.as_bytes());
    measured.extend_from_slice(&[0; 1024 - 600]);
    measured.extend_from_slice(&archive(&[file("b", "after")]));
    import(&rig, "sizes", &measured).unwrap();
    assert_eq!((text(&rig, "sizes", "a"), text(&rig, "sizes", "b")), (content, "after".to_owned()));
    // A link has no bytes: programs differ in whether they would skip them.
    let entries = [file("a", "x"), Raw { bytes: b"x", ..special(EntryType::Link, "b", "a") }];
    assert_eq!(refused(&rig, &archive(&entries)).details.path.as_deref(), Some("b"));
}

#[test]
fn a_header_with_a_wrong_sum_or_a_negative_size_refuses_the_archive() {
    let rig = TestWorkspaces::new();
    let mut sum = archive(&[file("a", "x")]);
    sum[0] = b'b';
    assert_eq!(refused(&rig, &sum).code, Code::InvalidRequest);
    let mut header = Header::new_gnu();
    header.as_mut_bytes()[..1].copy_from_slice(b"a");
    header.as_old_mut().size.fill(0xff);
    header.set_cksum();
    assert_eq!(refused(&rig, header.as_bytes()).code, Code::InvalidRequest);
}
