//! The entries of a tar archive inside of an archive, with the long names of GNU's format.
//!
//! Headers are read as they are, because the `tar` crate reads what extends a header without a limit.

use std::io::Read;

use tar::{Archive, Entry, EntryType, Header};

use crate::error::{ArchiveError, invalid};

/// The longest path, or target of a link, in bytes.
const MAX_NAME_BYTES: u64 = 64 << 10;

/// One entry.
pub(crate) struct NestedEntry<'a> {
    /// As in the archive.
    pub(crate) path: Vec<u8>,
    /// The target of a link.
    pub(crate) link: Vec<u8>,
    pub(crate) header: &'a Header,
    pub(crate) content: &'a mut dyn Read,
}

/// Passes each entry of the tar archive in `content`, the member `member`, to `each`.
pub(crate) fn each_entry(
    member: &str,
    content: impl Read,
    mut each: impl FnMut(NestedEntry<'_>) -> Result<(), ArchiveError>,
) -> Result<(), ArchiveError> {
    let mut tar = Archive::new(content);
    let (mut path, mut link) = (None, None);
    for entry in tar.entries().map_err(|error| invalid(member, &error))?.raw(true) {
        let mut entry = entry.map_err(|error| invalid(member, &error))?;
        match entry.header().entry_type() {
            EntryType::GNULongName => path = Some(long_name(member, entry)?),
            EntryType::GNULongLink => link = Some(long_name(member, entry)?),
            EntryType::XHeader | EntryType::XGlobalHeader | EntryType::GNUSparse => {
                return Err(invalid(member, "an entry has a header that archives of this format do not have"));
            }
            _ => {
                let header = entry.header().clone();
                let path = path.take().unwrap_or_else(|| header.path_bytes().into_owned());
                let of_header = || header.link_name_bytes().map(std::borrow::Cow::into_owned).unwrap_or_default();
                let link = link.take().unwrap_or_else(of_header);
                each(NestedEntry { path, link, header: &header, content: &mut entry })?;
            }
        }
    }
    match (path, link) {
        (None, None) => Ok(()),
        _ => Err(invalid(member, "an entry is missing after its name")),
    }
}

fn long_name(member: &str, mut entry: Entry<'_, impl Read>) -> Result<Vec<u8>, ArchiveError> {
    if entry.size() > MAX_NAME_BYTES {
        return Err(invalid(member, &format!("a name has more than {MAX_NAME_BYTES} bytes")));
    }
    let mut name = Vec::new();
    entry.read_to_end(&mut name).map_err(|error| invalid(member, &error))?;
    if name.last() == Some(&0) {
        name.pop();
    }
    Ok(name)
}
