//! Walks over the members of an archive and compares each with the manifest.

#![expect(clippy::disallowed_types, reason = "a member is read from an open file")]

use std::fs::File;
use std::io::{self, Read, Seek as _, SeekFrom};

use model::Sha256;

use crate::error::{ArchiveError, invalid};
use crate::hashing::{Bounded, Hashing};
use crate::manifest::{FORMAT, MANIFEST, Manifest, is_compressed};

/// The largest manifest, in bytes.
const MAX_MANIFEST_BYTES: u64 = 64 << 10;

/// What is done with the members of an archive.
pub(crate) trait MemberVisitor {
    /// Takes the manifest, before the members.
    fn manifest(&mut self, manifest: &Manifest) -> Result<(), ArchiveError>;

    /// Takes a member, uncompressed. What it leaves unread is read, and hashed, afterwards.
    fn member(&mut self, name: &str, content: &mut dyn Read) -> Result<(), ArchiveError>;
}

/// Passes every member of the archive in `reader` to `visitor`, and compares it with the manifest. `max_bytes` bounds the
/// uncompressed members together. Returns the size and the hash of the whole file.
pub(crate) fn walk(
    reader: impl Read,
    max_bytes: u64,
    visitor: &mut impl MemberVisitor,
) -> Result<(u64, Sha256), ArchiveError> {
    let mut whole = Hashing::new(reader);
    let mut tar = tar::Archive::new(&mut whole);
    let mut left = max_bytes;
    let mut manifest: Option<Manifest> = None;
    let mut next = 0;
    // Without what extends headers, which members do not have: it would be read without a limit.
    for entry in tar.entries().map_err(|error| invalid(MANIFEST, &error))?.raw(true) {
        let expected = manifest.as_ref().map(|manifest| manifest.members.get(next));
        let at = match &expected {
            None => MANIFEST,
            Some(member) => member.map_or("the end", |member| &member.name),
        };
        let entry = entry.map_err(|error| invalid(at, &error))?;
        let is_named = entry.path_bytes() == at.as_bytes() && entry.header().entry_type().is_file();
        match expected {
            _ if !is_named => return Err(invalid(at, "found another member")),
            None => {
                let read = read_manifest(entry)?;
                visitor.manifest(&read)?;
                manifest = Some(read);
                continue;
            }
            Some(None) => return Err(invalid(at, "there are more members than in the manifest")),
            Some(Some(member)) => {
                let mut hashing = Hashing::new(entry);
                let visited = visit(&member.name, &mut hashing, &mut left, visitor);
                io::copy(&mut hashing, &mut io::sink()).map_err(|error| invalid(at, &error))?;
                // A changed byte is the reason for anything else that is wrong.
                if (hashing.bytes, hashing.sha256()) != (member.bytes, member.sha256) {
                    return Err(invalid(at, "it does not have the hash that the manifest has of it"));
                }
                visited?;
            }
        }
        next += 1;
    }
    match manifest {
        Some(manifest) if manifest.members.len() == next => {}
        Some(manifest) => return Err(invalid(&manifest.members[next].name, "it is missing")),
        None => return Err(invalid(MANIFEST, "it is missing")),
    }
    io::copy(&mut whole, &mut io::sink()).map_err(|error| invalid("the end", &error))?;
    Ok((whole.bytes, whole.sha256()))
}

/// Opens a compressed member of the archive in `file`. Nothing is compared with the manifest.
///
/// # Errors
///
/// [`ArchiveError`] if the file is no archive, or has no such member.
pub fn open_member(mut file: File, name: &'static str) -> Result<impl Read + Send, ArchiveError> {
    let failed = |error: io::Error| invalid(name, &error);
    file.rewind().map_err(failed)?;
    let mut found = None;
    let mut tar = tar::Archive::new(&file);
    for entry in tar.entries_with_seek().map_err(failed)?.raw(true) {
        let entry = entry.map_err(failed)?;
        if entry.path_bytes() == name.as_bytes() {
            found = Some((entry.raw_file_position(), entry.size()));
            break;
        }
    }
    let (position, bytes) = found.ok_or_else(|| invalid(name, "it is missing"))?;
    file.seek(SeekFrom::Start(position)).map_err(failed)?;
    zstd::Decoder::new(file.take(bytes)).map_err(failed)
}

fn visit(name: &str, member: impl Read, left: &mut u64, visitor: &mut impl MemberVisitor) -> Result<(), ArchiveError> {
    if !is_compressed(name) {
        return visitor.member(name, &mut Bounded { inner: member, left });
    }
    let decoder = zstd::Decoder::new(member).map_err(|error| invalid(name, &error))?;
    let mut content = Bounded { inner: decoder, left };
    visitor.member(name, &mut content)?;
    // What follows the end of a nested archive.
    io::copy(&mut content, &mut io::sink()).map_err(|error| invalid(name, &error)).map(drop)
}

fn read_manifest(entry: impl Read) -> Result<Manifest, ArchiveError> {
    let mut text = Vec::new();
    entry.take(MAX_MANIFEST_BYTES).read_to_end(&mut text).map_err(|error| invalid(MANIFEST, &error))?;
    let manifest: Manifest = serde_json::from_slice(&text).map_err(|error| invalid(MANIFEST, &error))?;
    if manifest.format != FORMAT {
        let problem = format!("this version reads the format `{FORMAT}`, not `{}`", manifest.format);
        return Err(invalid(MANIFEST, &problem));
    }
    if !manifest.is_complete() {
        return Err(invalid(MANIFEST, "its members are not those of this format"));
    }
    Ok(manifest)
}
