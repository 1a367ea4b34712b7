//! Symbolic links, resolved over both layers of a tree, name by name.
//!
//! Each name is looked up in its opened folder, so that nobody can exchange what lies above it.

use std::collections::VecDeque;
use std::ffi::{CStr, CString};

use model::{LogicalPath, MAX_PATH_BYTES, PathRejected};

use super::{Blocking, GuardError, Opened, Root, TreeFolder};
use crate::byte_path::split;
use crate::dir::MAX_ATTEMPTS;

/// How many links a path may lead through, as in the kernel.
const MAX_LINKS: usize = 40;
/// How many folders may be above what a link leads to: each is open until it is reached.
const MAX_FOLDERS: usize = 256;

/// What becomes of symbolic links on a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Links {
    Followed,
    /// The path is refused.
    Refused,
}

impl Root {
    /// Opens `path`, on which a link may be.
    pub(super) fn open_linked(
        &self,
        path: &LogicalPath,
        links: Links,
        blocking: Blocking,
    ) -> Result<Opened, GuardError> {
        let mut names: VecDeque<Vec<u8>> = path.components().map(|name| name.as_bytes().to_vec()).collect();
        let mut opened = self.open_plain(".", blocking)?;
        // The path of `opened`, and the folders above it.
        let (mut real, mut above) = (Vec::new(), Vec::<TreeFolder>::new());
        let (mut followed, mut attempts) = (0, 0);
        while let Some(name) = names.pop_front() {
            if !opened.file_type().is_dir() {
                return Err(GuardError::NotADirectory);
            }
            match &*name {
                b"" | b"." => continue,
                b".." => {
                    let Some(folder) = above.pop() else {
                        return Err(GuardError::Rejected(PathRejected::LinkOut));
                    };
                    opened = folder.into_opened()?;
                    real.truncate(split(&real).0.len());
                    continue;
                }
                _ => {}
            }
            let folder = opened.into_folder_at(String::from_utf8_lossy(&real).into_owned());
            let c_name = CString::new(&*name).map_err(|_| GuardError::Missing)?;
            match self.open_in(&folder, &c_name, blocking) {
                Ok(entry) => {
                    opened = entry;
                    above.push(folder);
                    if !real.is_empty() {
                        real.push(b'/');
                    }
                    real.extend_from_slice(&name);
                    if real.len() > MAX_PATH_BYTES || above.len() > MAX_FOLDERS {
                        return Err(GuardError::Missing);
                    }
                    continue;
                }
                Err(GuardError::Missing) => {}
                Err(error) => return Err(error),
            }
            // Nothing is there, or a link.
            if let Some(target) = self.target_of(&folder, &c_name, links, blocking)? {
                followed += 1;
                for name in target.split(|byte| *byte == b'/').rev() {
                    names.push_front(name.to_vec());
                }
            } else {
                // A link was replaced by something else in between.
                attempts += 1;
                names.push_front(name);
            }
            if followed > MAX_LINKS || attempts >= MAX_ATTEMPTS {
                return Err(GuardError::Missing);
            }
            opened = folder.into_opened()?;
        }
        let real = String::from_utf8(real).map_err(|_| GuardError::Rejected(PathRejected::LinkToUnnameable))?;
        let real = LogicalPath::parse(if real.is_empty() { "." } else { &real }).map_err(GuardError::Rejected)?;
        Ok(Opened { real: (real != *path).then_some(real), ..opened })
    }

    /// Returns the target of the link `name` of `folder`, as far as links are followed; `None` if something else is there by now.
    fn target_of(
        &self,
        folder: &TreeFolder,
        name: &CStr,
        links: Links,
        blocking: Blocking,
    ) -> Result<Option<Vec<u8>>, GuardError> {
        match self.read_link_in(folder, name, blocking).map_err(GuardError::Io)? {
            Some(_) if links == Links::Refused => Err(GuardError::Rejected(PathRejected::LinkInMutation)),
            Some(target) if target.starts_with(b"/") => Err(GuardError::Rejected(PathRejected::LinkOut)),
            None if self.stat_entry(folder, name)?.is_none() => Err(GuardError::Missing),
            target => Ok(target),
        }
    }
}
