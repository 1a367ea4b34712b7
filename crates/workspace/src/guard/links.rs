//! Symbolic links, resolved over both layers of a tree, name by name.

use std::collections::VecDeque;

use model::{LogicalPath, PathRejected};
use rustix::fs::FileType;
use rustix::io::Errno;

use super::{Blocking, FoundEntry, GuardError, LOOK_FLAGS, Opened, Root, TreeLayer};
use crate::dir::MAX_ATTEMPTS;

/// How many links a path may lead through, as in the kernel.
const MAX_LINKS: usize = 40;

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
        for _ in 0..MAX_ATTEMPTS {
            let real = self.real_path(path, links, blocking)?;
            match self.open_plain(real.as_str(), blocking) {
                // A link has come to be on the path since.
                Err(Errno::LOOP) => {}
                opened => return Ok(Opened { real: (real != *path).then_some(real), ..opened? }),
            }
        }
        Err(GuardError::Missing)
    }

    /// Returns the path to which `path` leads, which exists.
    pub(super) fn real_path(
        &self,
        path: &LogicalPath,
        links: Links,
        blocking: Blocking,
    ) -> Result<LogicalPath, GuardError> {
        for _ in 0..MAX_ATTEMPTS {
            if let Some(real) = self.follow(path, links, blocking)? {
                let text = String::from_utf8(real);
                let text = text.map_err(|_| GuardError::Rejected(PathRejected::LinkToUnnameable))?;
                let text = if text.is_empty() { "." } else { &text };
                return LogicalPath::parse(text).map_err(GuardError::Rejected);
            }
        }
        Err(GuardError::Missing)
    }

    /// As [`real_path`](Self::real_path). `None` if something was replaced meanwhile.
    fn follow(&self, path: &LogicalPath, links: Links, blocking: Blocking) -> Result<Option<Vec<u8>>, GuardError> {
        let mut names: VecDeque<Vec<u8>> = path.components().map(|name| name.as_bytes().to_vec()).collect();
        let (mut real, mut followed) = (Vec::new(), 0);
        while let Some(name) = names.pop_front() {
            match &*name {
                b"" | b"." => continue,
                b".." => {
                    if real.is_empty() {
                        return Err(GuardError::Rejected(PathRejected::LinkOut));
                    }
                    let above = crate::byte_path::split(&real).0.len();
                    real.truncate(above);
                    continue;
                }
                _ => {}
            }
            let folder = real.len();
            if folder > 0 {
                real.push(b'/');
            }
            real.extend_from_slice(&name);
            let Some(found) = self.find_in_folder(&real, blocking)? else { return Ok(None) };
            match found.file_type() {
                FileType::Directory => {}
                FileType::Symlink if links == Links::Refused => {
                    return Err(GuardError::Rejected(PathRejected::LinkInMutation));
                }
                FileType::Symlink => {
                    followed += 1;
                    if followed > MAX_LINKS {
                        return Err(GuardError::Missing);
                    }
                    let Some(link) = found.link()? else { return Ok(None) };
                    if link.target.starts_with(b"/") {
                        return Err(GuardError::Rejected(PathRejected::LinkOut));
                    }
                    real.truncate(folder);
                    for name in link.target.split(|byte| *byte == b'/').rev() {
                        names.push_front(name.to_vec());
                    }
                }
                _ if names.is_empty() => {}
                _ => return Err(GuardError::NotADirectory),
            }
        }
        Ok(Some(real))
    }

    /// Returns what is at `path`, all above which are folders. `None` if one of them is not any more.
    fn find_in_folder(&self, path: &[u8], blocking: Blocking) -> Result<Option<FoundEntry>, GuardError> {
        let (handle, layer) = match (self.open_in_own(path, LOOK_FLAGS, blocking), &self.base) {
            (Err(Errno::LOOP | Errno::NOTDIR), _) => return Ok(None),
            (Err(Errno::NOENT), Some(base)) => match base.open(path, LOOK_FLAGS, blocking) {
                // A folder of the run's own has taken the place of something else in the base.
                Err(Errno::LOOP) => return Err(GuardError::Missing),
                handle => (handle?, TreeLayer::Base),
            },
            (own, _) => (own?, TreeLayer::Own),
        };
        Ok(Some(FoundEntry { stat: rustix::fs::fstat(&handle)?, handle, layer }))
    }
}
