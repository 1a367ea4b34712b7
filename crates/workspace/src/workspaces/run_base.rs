//! The base of a run: the file `base` in the run's folder has its name.

use std::collections::HashSet;
use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use model::RunId;
use rustix::io::Errno;

use super::Workspaces;
use crate::base::{Base, missing_part};
use crate::bases::RecordedBase;
use crate::dir::{create_file, entries, open_dir, open_file};

/// The file in the folder of a run.
const NAME: &str = "base";
/// The maximum size of the file.
const MAX_BYTES: u64 = 256;

impl Workspaces {
    /// Opens the base of `run`, whether or not its tree still exists.
    ///
    /// # Errors
    ///
    /// If it does not exist ([`io::ErrorKind::NotFound`], with the missing part) or cannot be used.
    pub fn base(&self, run: &RunId) -> io::Result<Arc<Base>> {
        self.bases.get(&self.base_name(run)?)
    }

    /// Returns what `run` started from, by the base in its folder.
    ///
    /// # Errors
    ///
    /// If the folder or the base is missing or damaged.
    pub fn base_of(&self, run: &RunId) -> io::Result<RecordedBase> {
        Ok(self.bases.info(&self.base_name(run)?)?.recorded())
    }

    /// Opens the folder of the base of `run`.
    pub(crate) fn base_folder(&self, run: &RunId) -> io::Result<OwnedFd> {
        self.bases.folder(&self.base_name(run)?)
    }

    /// Returns the name of the base of `run`.
    ///
    /// # Errors
    ///
    /// If the folder or the name is missing.
    pub fn base_name(&self, run: &RunId) -> io::Result<String> {
        let dir = open_dir(&self.dir, run.as_str()).map_err(|errno| match errno {
            Errno::NOENT => io::Error::new(io::ErrorKind::NotFound, "the run's folder is missing"),
            errno => errno.into(),
        })?;
        read(&dir)
    }

    /// Removes the bases that no run refers to and that no run has begun to use for `unused_for`. Returns how many there were.
    ///
    /// # Errors
    ///
    /// If the disk fails.
    pub fn remove_unused_bases(&self, unused_for: Duration) -> io::Result<usize> {
        let mut used = HashSet::new();
        add_used(&self.dir, &mut used)?;
        // Folders that were set aside may be put back.
        if let Some(lost) = self.open_lost()? {
            add_used(&lost, &mut used)?;
        }
        self.bases.sweep(&used, unused_for)
    }
}

/// Adds the bases of the runs whose folders are in `dir`.
fn add_used(dir: &OwnedFd, used: &mut HashSet<String>) -> io::Result<()> {
    for (name, file_type) in entries(dir, usize::MAX)? {
        if !file_type.is_dir() {
            continue;
        }
        match open_dir(dir, &*name).map_err(io::Error::from).and_then(|dir| read(&dir)) {
            Ok(base) => drop(used.insert(base)),
            // It is being removed or made, or is no run's.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Returns the name of the base of the run in `dir`.
pub(super) fn read(dir: &OwnedFd) -> io::Result<String> {
    let mut name = String::new();
    open_file(dir, NAME).map_err(|errno| missing_part(errno, NAME))?.take(MAX_BYTES).read_to_string(&mut name)?;
    Ok(name.trim_end().to_owned())
}

/// Makes the run in `dir` refer to the base `name`.
pub(super) fn write(dir: &OwnedFd, name: &str) -> io::Result<()> {
    create_file(dir, NAME)?.write_all(format!("{name}\n").as_bytes())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::import::ImportSource;
    use crate::test_support::TestWorkspaces;

    fn run(id: &str) -> RunId {
        RunId::parse(id).unwrap()
    }

    fn bases(rig: &TestWorkspaces) -> usize {
        let all = fs::read_dir(rig.data().join("bases")).unwrap();
        all.filter(|entry| !["sources", "segments"].iter().any(|name| entry.as_ref().unwrap().file_name() == *name))
            .count()
    }

    #[test]
    fn a_base_is_shared_and_stays_while_a_folder_refers_to_it() {
        let rig = TestWorkspaces::new();
        let folder = rig.root("template");
        fs::write(folder.join("a.txt"), "a\n").unwrap();
        for id in ["one", "two"] {
            rig.import(id, ImportSource::Directory(folder.clone())).unwrap();
        }
        assert_eq!((bases(&rig), rig.base("one")), (1, rig.base("two")));
        let sweep = || rig.workspaces.remove_unused_bases(Duration::ZERO).unwrap();
        rig.workspaces.remove(&run("one")).unwrap();
        assert_eq!(sweep(), 0);
        // A folder that was set aside may be put back.
        rig.workspaces.set_aside(&run("two")).unwrap();
        assert_eq!((sweep(), bases(&rig)), (0, 1));
        fs::remove_dir_all(rig.data().join("lost+found/two")).unwrap();
        assert_eq!(rig.workspaces.remove_unused_bases(Duration::from_hours(1)).unwrap(), 0, "it was used just now");
        assert_eq!((sweep(), bases(&rig)), (1, 0));
        // It is made again.
        rig.import("three", ImportSource::Directory(folder.clone())).unwrap();
        assert_eq!(fs::read(rig.imported("three").join("a.txt")).unwrap(), b"a\n");
    }

    #[test]
    fn a_commit_that_was_imported_is_known_until_its_base_is_removed() {
        let rig = TestWorkspaces::new();
        rig.import("one", ImportSource::Empty).unwrap();
        rig.import("two", ImportSource::Empty).unwrap();
        assert_eq!((bases(&rig), rig.base("one")), (1, rig.base("two")));
        for id in ["one", "two"] {
            rig.workspaces.remove(&run(id)).unwrap();
        }
        assert_eq!(rig.workspaces.remove_unused_bases(Duration::ZERO).unwrap(), 1);
        assert_eq!(fs::read_dir(rig.data().join("bases/sources")).unwrap().count(), 0);
        rig.import("three", ImportSource::Empty).unwrap();
        assert_eq!(bases(&rig), 1);
    }
}
