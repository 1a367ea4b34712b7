//! Versions of files, and which names are taken.

use rustix::fs::{FileType, Stat};
use sha2::{Digest as _, Sha256};

/// The folder of the index, at the root of a checkout. It is never part of the run.
pub const OWN_FOLDER: &str = ".workspaced";
/// The most entries of a layer, and of an index.
pub const MAX_LAYER_ENTRIES: usize = 1_000_000;
/// Names that mean a deletion in a layer.
pub(crate) const WHITEOUT: &str = ".wh.";
/// The name that means that a folder was replaced.
pub(crate) const OPAQUE: &str = ".wh..wh..opq";
/// The longest path in bytes.
const MAX_PATH_BYTES: usize = 4096;
/// The most names of a path: each level of a walk has an open handle.
pub(crate) const MAX_DEPTH: usize = 128;

/// What a path has, if it is no folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NodeKind {
    File,
    Executable,
    Link,
}

/// The version of a file or of a symbolic link: its kind, and the hash of its content or target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NodeVersion {
    pub(crate) kind: NodeKind,
    pub(crate) hash: [u8; 32],
}

/// What identifies one state of a file without its bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct NodeStamp {
    pub(crate) size: u64,
    pub(crate) mode: u32,
    pub(crate) inode: u64,
    pub(crate) modified_ns: i64,
    pub(crate) changed_ns: i64,
}

impl NodeKind {
    /// Returns the kind of a file or link; nothing for a folder or a special file.
    pub(crate) fn of(stat: &Stat) -> Option<Self> {
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile if stat.st_mode & 0o100 != 0 => Some(Self::Executable),
            FileType::RegularFile => Some(Self::File),
            FileType::Symlink => Some(Self::Link),
            _ => None,
        }
    }

    pub(crate) fn as_char(self) -> char {
        match self {
            Self::File => 'f',
            Self::Executable => 'x',
            Self::Link => 'l',
        }
    }

    /// Returns the kind with a number.
    pub(crate) fn parse(number: u8) -> Option<Self> {
        [Self::File, Self::Executable, Self::Link].into_iter().find(|kind| *kind as u8 == number)
    }
}

impl NodeVersion {
    /// The version of a symbolic link.
    pub(crate) fn of_link(target: &[u8]) -> Self {
        Self { kind: NodeKind::Link, hash: Sha256::digest(target).into() }
    }
}

impl NodeStamp {
    pub(crate) fn of(stat: &Stat) -> Self {
        // Centuries away, all times are the last one, which is never in the past: such files are always hashed.
        let nanos = |seconds: i64, nanos: u64| {
            seconds.saturating_mul(1_000_000_000).saturating_add(i64::try_from(nanos).unwrap_or(0))
        };
        Self {
            size: size_of(stat),
            mode: stat.st_mode,
            inode: stat.st_ino,
            modified_ns: nanos(stat.st_mtime, stat.st_mtime_nsec),
            changed_ns: nanos(stat.st_ctime, stat.st_ctime_nsec),
        }
    }

    /// The later one of its two times.
    pub(crate) fn newest_ns(&self) -> i64 {
        self.modified_ns.max(self.changed_ns)
    }

    /// What is known of a file that was looked at when the file system's clock showed `now_ns`: a change within the same tick as the look
    /// leaves no trace, so that the metadata of a younger file proves nothing.
    pub(crate) fn proven_at(self, now_ns: i64) -> Self {
        if self.newest_ns() < now_ns { self } else { Self { size: self.size, mode: self.mode, ..Self::default() } }
    }
}

pub(crate) fn size_of(stat: &Stat) -> u64 {
    u64::try_from(stat.st_size).unwrap_or(0)
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 0xf]);
    digits.map(|digit| char::from(if digit < 10 { b'0' + digit } else { b'a' + digit - 10 })).collect()
}

/// Checks a path of a layer or an index. Says what is wrong with it.
pub(crate) fn check_path(path: &str) -> Result<(), &'static str> {
    if path.is_empty() || path.len() > MAX_PATH_BYTES || path.contains('\0') {
        return Err("the path is empty, too long or has a NUL byte");
    }
    let mut names = 0;
    for name in path.split('/') {
        names += 1;
        match name {
            "" | "." | ".." => return Err("the path leaves the folder"),
            // Some file systems take both cases for one name.
            _ if name.eq_ignore_ascii_case(".git") => return Err("the path is in `.git`"),
            _ if names == 1 && name.eq_ignore_ascii_case(OWN_FOLDER) => {
                return Err("the path is in the folder of the index");
            }
            _ if name.starts_with(WHITEOUT) => return Err("the name begins with `.wh.`, which means a deletion"),
            _ if name.len() > 255 => return Err("the name is too long"),
            _ => {}
        }
    }
    if names > MAX_DEPTH { Err("the path has too many names") } else { Ok(()) }
}

/// Checks the name of a new file. Says what is wrong with it.
pub(crate) fn check_new_name(name: &str) -> Result<(), &'static str> {
    if name.chars().any(char::is_control) { Err("the name has control characters") } else { Ok(()) }
}

/// Whether a symbolic link at `path` leads to a place inside the folder, as its text says. `..` is taken only at the beginning: after
/// a name, which may be a link itself, nobody knows from where it goes up.
pub(crate) fn stays_inside(path: &str, target: &str) -> bool {
    if target.is_empty() || target.starts_with('/') {
        return false;
    }
    let mut above = path.split('/').count() - 1;
    let mut is_below = false;
    for name in target.split('/') {
        match name {
            "" | "." => {}
            ".." if is_below || above == 0 => return false,
            ".." => above -= 1,
            _ => is_below = true,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_goes_up_only_before_it_goes_down() {
        for (path, target) in
            [("l", "a"), ("l", "./a/b"), ("d/l", "../a"), ("d/e/l", "../../a//b/."), ("d/l", ".././e"), ("l", ".")]
        {
            assert!(stays_inside(path, target), "{path} -> {target}");
        }
        // In `a/../../x`, `a` may be a link to a folder at any depth.
        for (path, target) in [
            ("l", ""),
            ("l", "/etc"),
            ("l", ".."),
            ("d/l", "../../x"),
            ("l", "a/../b"),
            ("d/l", "a/../../x"),
            ("d/e/l", "../a/../x"),
            ("d/l", "./a/.."),
        ] {
            assert!(!stays_inside(path, target), "{path} -> {target}");
        }
    }
}
