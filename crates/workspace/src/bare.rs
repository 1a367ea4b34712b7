//! The bare repository of a base, created without a template, and the commit of a base that no repository has.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;

use sha1::Digest as _;

use crate::base_files::manifest::ManifestRow;
use crate::byte_path::split;
use crate::git::hex;

/// The ref of the fetched commit.
pub(crate) const FETCHED: &str = "refs/workspaced/base";

/// The committer of a base that no repository had. The time is fixed, so that the same files give the same commit.
const COMMITTER: &str = "workspaced <workspaced@localhost> 0 +0000";
const MESSAGE: &str = "What the run started with\n";
/// The git mode of a folder.
pub(crate) const MODE_FOLDER: u32 = 0o040_000;

/// Creates an empty bare repository in `git_dir`, which must not exist.
pub(crate) fn make_bare(git_dir: &Path) -> io::Result<()> {
    std::fs::create_dir(git_dir)?;
    for folder in ["objects", "refs", "refs/heads"] {
        std::fs::create_dir(git_dir.join(folder))?;
    }
    std::fs::write(git_dir.join("HEAD"), "ref: refs/heads/base\n")?;
    std::fs::write(git_dir.join("config"), "[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = true\n")
}

/// Makes the repository in `git_dir` read the objects of the one in `from`.
pub(crate) fn borrow(git_dir: &Path, from: &Path) -> io::Result<()> {
    std::fs::create_dir_all(git_dir.join("objects/info"))?;
    let mut objects = from.join("objects").into_os_string().into_encoded_bytes();
    objects.push(b'\n');
    std::fs::write(git_dir.join("objects/info/alternates"), objects)?;
    // A commit that was fetched without its history has this file.
    match std::fs::copy(from.join("shallow"), git_dir.join("shallow")) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Returns the size of all objects. Unreadable entries count as empty, since git may be moving them.
pub(crate) fn size(git_dir: &Path) -> u64 {
    let folder = |path: &Path| {
        let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.metadata().ok()).map(|meta| meta.len()).sum::<u64>()
    };
    folder(&git_dir.join("objects")) + folder(&git_dir.join("objects/pack"))
}

/// Returns the commit that git would make of `rows`, which no repository has.
pub(crate) fn commit_of<'a>(rows: impl Iterator<Item = &'a ManifestRow>) -> String {
    // The entries of each folder in the order of git, in which the name of a folder ends with a slash.
    let mut trees: BTreeMap<&[u8], BTreeMap<Vec<u8>, _>> = BTreeMap::new();
    for row in rows {
        let (folder, name) = split(&row.path);
        trees.entry(folder).or_default().insert(name.to_vec(), (row.mode, row.oid));
    }
    let mut root = object_id("tree", b"");
    // Every folder sorts after the one above it, which contains its tree.
    while let Some((path, entries)) = trees.pop_last() {
        let mut tree = Vec::new();
        for (name, (mode, oid)) in entries {
            tree.extend_from_slice(format!("{mode:o} ").as_bytes());
            tree.extend_from_slice(name.strip_suffix(b"/").unwrap_or(&name));
            tree.push(0);
            tree.extend_from_slice(&oid);
        }
        let tree = object_id("tree", &tree);
        if path.is_empty() {
            root = tree;
        } else {
            let (folder, name) = split(path);
            trees.entry(folder).or_default().insert([name, b"/"].concat(), (MODE_FOLDER, tree));
        }
    }
    let text = format!("tree {}\nauthor {COMMITTER}\ncommitter {COMMITTER}\n\n{MESSAGE}", hex(&root));
    hex(&object_id("commit", text.as_bytes()))
}

/// Returns the id of an object with these bytes.
pub(crate) fn object_id(kind: &str, bytes: &[u8]) -> [u8; 20] {
    object_hash(kind, bytes.len() as u64).chain_update(bytes).finalize().into()
}

/// Returns the hash of an object of `size` bytes before the first of them.
pub(crate) fn object_hash(kind: &str, size: u64) -> sha1::Sha1 {
    sha1::Sha1::new_with_prefix(format!("{kind} {size}\0"))
}

/// Writes a path in the quoted form of `fast-import`, which allows any byte.
pub(crate) fn write_quoted(to: &mut impl Write, path: &[u8]) -> io::Result<()> {
    to.write_all(b"\"")?;
    for byte in path {
        match byte {
            b'"' | b'\\' => to.write_all(&[b'\\', *byte])?,
            0x20..=0x7e => to.write_all(&[*byte])?,
            byte => write!(to, "\\{byte:03o}")?,
        }
    }
    to.write_all(b"\"")
}
