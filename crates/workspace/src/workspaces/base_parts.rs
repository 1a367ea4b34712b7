//! The parts of a base, for a store outside of this machine: the files that it consists of, and the segments with its contents.

use std::fs::File;
use std::io::{self, Seek as _};
use std::os::fd::OwnedFd;
use std::path::Path;

use model::{RunId, Sha256};
use rustix::io::Errno;

use super::Workspaces;
use crate::bare::FETCHED;
use crate::base::{GIT_NAME, MANIFEST_NAME};
use crate::base_files::{LOCATIONS_NAME, segment_names};
use crate::dir::{entries, open_dir, open_file, open_under};
use crate::hashing::copy_hashed;

/// The part with the list of the base's files.
pub(super) const MANIFEST_PART: &str = "manifest";
/// The part that says where the contents of the files are.
pub(super) const CONTENTS_PART: &str = "contents";
/// The part that lists the commits whose parents are missing.
pub(super) const SHALLOW_PART: &str = "shallow";
/// The part that says that the base was fetched from a repository.
pub(super) const FETCHED_PART: &str = "fetched";
/// What the names of packs begin with.
pub(super) const PACK: &str = "pack-";
/// What the names of segments begin with.
pub(super) const SEGMENT: &str = "segment-";

/// A part of a base.
pub struct BasePart {
    /// Its name: lower-case letters, digits, `.` and `-`.
    pub name: String,
    /// Its size in bytes.
    pub size_bytes: u64,
    /// Its bytes, which nobody changes.
    pub file: File,
}

impl BasePart {
    fn new(name: String, file: File) -> io::Result<Self> {
        Ok(Self { name, size_bytes: file.metadata()?.len(), file })
    }

    /// Returns the hash of its bytes.
    ///
    /// # Errors
    ///
    /// If the disk fails.
    pub fn sha256(&self) -> io::Result<Sha256> {
        let mut file = &self.file;
        let (sha256, _) = copy_hashed(&mut file, &mut io::sink(), self.size_bytes)?;
        file.rewind()?;
        Ok(sha256)
    }
}

impl Workspaces {
    /// Returns the parts that make `run`'s base again. Two bases with the same files have the same list of files; their segments and packs
    /// may differ.
    ///
    /// # Errors
    ///
    /// If the base is missing or the disk fails.
    pub fn base_parts(&self, run: &RunId) -> io::Result<Vec<BasePart>> {
        let folder = self.base_folder(run)?;
        let list = open_file(&folder, LOCATIONS_NAME)?;
        let segments = segment_names(&mut &list)?;
        let mut parts = vec![
            BasePart::new(MANIFEST_PART.to_owned(), open_file(&folder, MANIFEST_NAME)?)?,
            // Opened again, at its start.
            BasePart::new(CONTENTS_PART.to_owned(), open_file(&folder, LOCATIONS_NAME)?)?,
        ];
        for name in segments {
            let file = self.bases.segments()?.open_one(&name)?;
            parts.push(BasePart::new(format!("{SEGMENT}{name}"), file)?);
        }
        add_git_parts(&open_dir(&folder, GIT_NAME)?, &mut parts)?;
        Ok(parts)
    }
}

/// Adds the files of the base's repository that are parts: `shallow`, the name by which it was fetched, and the packs.
fn add_git_parts(git_dir: &OwnedFd, parts: &mut Vec<BasePart>) -> io::Result<()> {
    for (name, path) in [(SHALLOW_PART, SHALLOW_PART), (FETCHED_PART, FETCHED)] {
        match open_under(git_dir, path, rustix::fs::OFlags::empty()) {
            Ok(file) => parts.push(BasePart::new(name.to_owned(), file.into())?),
            Err(Errno::NOENT) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    let packs = match open_under(git_dir, "objects/pack", rustix::fs::OFlags::DIRECTORY) {
        Err(Errno::NOENT) => return Ok(()),
        packs => packs?,
    };
    for (name, _) in entries(&packs, usize::MAX)? {
        if let Some(name) = name.to_str().ok().filter(|name| name.starts_with(PACK)) {
            parts.push(BasePart::new(name.to_owned(), open_file(&packs, name)?)?);
        }
    }
    Ok(())
}

pub(super) fn damaged(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// Names the base commit in `git_dir` as the one that was fetched.
pub(super) fn set_fetched(git_dir: &Path, commit: &str) -> io::Result<()> {
    let reference = git_dir.join(FETCHED);
    if let Some(folder) = reference.parent() {
        std::fs::create_dir_all(folder)?;
    }
    std::fs::write(reference, format!("{commit}\n"))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::import::ImportSource;
    use crate::test_support::{TestWorkspaces, git};

    /// Makes the base of `run` in `from` on the machine of `to`, and returns its name and the parts that were copied.
    fn copy_base(from: &TestWorkspaces, run: &str, to: &TestWorkspaces) -> io::Result<(String, Vec<String>)> {
        let run = RunId::parse(run).unwrap();
        let (mut maker, mut copied) = (to.workspaces.base_maker()?, Vec::new());
        for BasePart { name, mut file, .. } in from.workspaces.base_parts(&run)? {
            if maker.needs(&name) {
                maker.add_part(&name, &mut file)?;
                copied.push(name);
            }
        }
        Ok((maker.finish(Some(&from.workspaces.base_of(&run)?))?, copied))
    }

    #[test]
    fn a_base_is_made_of_its_parts_and_shares_segments_with_others() {
        let (rig, other) = (TestWorkspaces::new(), TestWorkspaces::new());
        let source = rig.root("source");
        git(&source, &["init", "-q"]);
        let import = |run: &str, name: &str| {
            fs::write(source.join(name), format!("{name}\n")).unwrap();
            fs::write(source.join(".gitignore"), "*.o\n").unwrap();
            git(&source, &["add", "-A"]);
            git(&source, &["commit", "-qm", name]);
            rig.import(run, ImportSource::GitLocal { path: source.clone(), reference: None }).unwrap();
        };
        import("one", "a.txt");
        import("two", "b.txt");
        let segments = |parts: &[String]| parts.iter().filter(|part| part.starts_with(SEGMENT)).count();
        let (name, copied) = copy_base(&rig, "one", &other).unwrap();
        assert_eq!((&name, segments(&copied)), (&rig.workspaces.base_name(&RunId::parse("one").unwrap()).unwrap(), 1));
        let (name, copied) = copy_base(&rig, "two", &other).unwrap();
        assert_eq!(segments(&copied), 1, "{copied:?}");
        let base = other.workspaces.bases.get(&name).unwrap();
        for (path, text) in [("a.txt", "a.txt\n"), ("b.txt", "b.txt\n")] {
            let path = model::LogicalPath::parse(path).unwrap();
            assert_eq!(base.read(&path, 100).unwrap().unwrap(), text.as_bytes());
        }
        // A copy of a copy.
        assert_eq!(copy_base(&rig, "two", &other).unwrap().0, name);
    }

    #[test]
    fn parts_that_belong_to_no_base_are_refused_and_leave_nothing() {
        let (rig, other) = (TestWorkspaces::new(), TestWorkspaces::new());
        rig.with_files("one", &[("a.txt", "a\n")]);
        let made = |change: &dyn Fn(&str) -> Option<&'static str>| {
            let run = RunId::parse("one").unwrap();
            let mut maker = other.workspaces.base_maker()?;
            for BasePart { name, mut file, .. } in rig.workspaces.base_parts(&run)? {
                match change(&name) {
                    Some("") => {}
                    Some(name) => maker.add_part(name, &mut file)?,
                    None => maker.add_part(&name, &mut file)?,
                }
            }
            maker.finish(Some(&rig.workspaces.base_of(&run)?))
        };
        for name in ["segment-../x", "segment-", "pack-../x", "pack-/x", "other"] {
            let change = |part: &str| part.starts_with(SEGMENT).then_some(name);
            assert_eq!(made(&change).unwrap_err().kind(), io::ErrorKind::InvalidData, "{name}");
        }
        for missing in [SEGMENT, MANIFEST_PART, CONTENTS_PART] {
            let change = |part: &str| part.starts_with(missing).then_some("");
            assert_eq!(made(&change).unwrap_err().kind(), io::ErrorKind::NotFound, "{missing}");
        }
        let left = |folder: &str| fs::read_dir(other.data().join(folder)).unwrap().count();
        assert_eq!((left("bases"), left("bases/segments")), (2, 0));
        made(&|_| None).unwrap();
    }
}
