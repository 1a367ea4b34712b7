//! Which runs have a base that others can reuse.

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;

use model::{RunId, Sha256};
use parking_lot::Mutex;

use super::{RULES, read_description};
use crate::dir::{entries, open_dir};

/// The commits of each repository, each with a run.
type Bases = HashMap<Sha256, Vec<(String, RunId)>>;

/// The commits and runs of each repository; read from the runs' folders on first use.
#[derive(Default)]
pub(in crate::import) struct ReuseIndex(Mutex<Option<Bases>>);

impl ReuseIndex {
    /// Returns the commits of `origin` that have a base, the newest last, each with its run.
    pub(in crate::import) fn of(&self, workspaces: &OwnedFd, origin: Sha256) -> io::Result<Vec<(String, RunId)>> {
        let mut index = self.0.lock();
        if index.is_none() {
            *index = Some(scan(workspaces)?);
        }
        Ok(index.as_ref().and_then(|index| index.get(&origin)).cloned().unwrap_or_default())
    }

    /// Adds the base of `run`. Before the first use there is nothing to add to: the folder will be found.
    pub(in crate::import) fn add(&self, origin: Sha256, commit: &str, run: &RunId) {
        if let Some(index) = &mut *self.0.lock() {
            let bases = index.entry(origin).or_default();
            bases.retain(|(_, known)| known != run);
            bases.push((commit.to_owned(), run.clone()));
        }
    }

    /// Removes the base of `run`.
    pub(in crate::import) fn remove(&self, run: &RunId) {
        if let Some(index) = &mut *self.0.lock() {
            index.retain(|_, bases| {
                bases.retain(|(_, known)| known != run);
                !bases.is_empty()
            });
        }
    }
}

fn scan(workspaces: &OwnedFd) -> io::Result<Bases> {
    let mut index = Bases::new();
    for (name, _) in entries(workspaces, usize::MAX)? {
        let Some(run) = name.to_str().ok().and_then(|name| RunId::parse(name).ok()) else { continue };
        // Most runs have no such file, and one that is being removed has none any more.
        let Ok(found) = open_dir(workspaces, run.as_str()).map_err(Into::into).and_then(|dir| read_description(&dir))
        else {
            continue;
        };
        if found.rules == RULES {
            index.entry(found.origin).or_default().push((found.commit, run));
        }
    }
    Ok(index)
}
