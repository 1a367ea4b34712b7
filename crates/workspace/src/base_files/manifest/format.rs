//! The file format of the manifest.

use std::collections::HashMap;
use std::io::{self, Read};

use model::Sha256;
use sha2::Digest as _;

use super::{BaseManifest, Head, ManifestFile, ManifestFolder, ManifestRow};
use crate::base_files::codec::{
    array, bytes, damaged_list, number, put_bytes, put_checksum, put_number, slice, without_checksum,
};
use crate::byte_path::split;

/// The first bytes of the file. They change with the format.
const MAGIC: &[u8; 8] = b"wsbase5\n";

/// Returns the file's bytes. `rows` are [in order](sort), `folders` are all folders of the tree, the root (empty) included.
pub(crate) fn write(head: &Head, rows: &[ManifestRow], mut folders: Vec<Vec<u8>>) -> Vec<u8> {
    // The root sorts first: its name and its parent's are empty.
    folders.sort_unstable_by(|a, b| split(a).cmp(&split(b)));
    let mut out = Vec::with_capacity(rows.len() * 96 + 256);
    out.extend_from_slice(MAGIC);
    put_bytes(&mut out, head.commit.as_bytes());
    put_number(&mut out, head.submodules.len());
    for path in &head.submodules {
        put_bytes(&mut out, path);
    }
    put_number(&mut out, head.ignores.len());
    for (folder, text) in &head.ignores {
        put_bytes(&mut out, folder);
        put_bytes(&mut out, text);
    }
    put_number(&mut out, head.narrowed.len());
    for (path, mode) in &head.narrowed {
        put_bytes(&mut out, path);
        out.extend_from_slice(&mode.to_le_bytes());
    }
    let by_folder: HashMap<&[u8], &[ManifestRow]> = rows
        .chunk_by(|a, b| split(&a.path).0 == split(&b.path).0)
        .map(|files| (split(&files[0].path).0, files))
        .collect();
    put_number(&mut out, folders.len());
    put_number(&mut out, rows.len());
    for folder in &folders {
        let files = by_folder.get(&**folder).copied().unwrap_or_default();
        put_bytes(&mut out, folder);
        put_number(&mut out, files.len());
        for row in files {
            put_bytes(&mut out, split(&row.path).1);
            out.extend_from_slice(&row.mode.to_le_bytes());
            out.extend_from_slice(&row.size.to_le_bytes());
            out.push(u8::from(row.is_ignored));
            out.extend_from_slice(&row.oid);
            out.extend_from_slice(&row.sha256);
        }
    }
    put_checksum(&mut out, 0);
    out
}

/// Brings rows into the order of their indices: by folder, and by name.
pub(crate) fn sort(rows: &mut [ManifestRow]) {
    rows.sort_by_cached_key(|row| {
        let (folder, name) = split(&row.path);
        let (parent, folder) = split(folder);
        // No name has a zero, which sorts before every byte of one.
        [parent, folder, name].join(&0)
    });
}

/// Returns the hash of the files, which does not depend on where or when they were imported: see
/// [`ImportedRun::manifest_sha256`](crate::ImportedRun::manifest_sha256).
pub(crate) fn digest<'a>(rows: impl IntoIterator<Item = &'a ManifestRow>) -> Sha256 {
    let mut sorted: Vec<_> = rows.into_iter().collect();
    sorted.sort_unstable_by(|a, b| a.path.cmp(&b.path));
    let mut hash = sha2::Sha256::new();
    for row in sorted {
        hash.update(&row.path);
        hash.update(format!("\0{:o}\0{}\n", row.mode, Sha256::from_bytes(row.sha256)));
    }
    Sha256::from_bytes(hash.finalize().into())
}

/// Parses what [`write`] returned.
pub(crate) fn read(list: &[u8]) -> io::Result<(Head, BaseManifest)> {
    let mut input = without_checksum(list)?;
    let (commit, submodules) = read_start(&mut input)?;
    let ignores = (0..number(&mut input)?).map(|_| Ok((bytes(&mut input)?, bytes(&mut input)?)));
    let ignores = ignores.collect::<io::Result<_>>()?;
    let narrowed = (0..number(&mut input)?).map(|_| Ok((bytes(&mut input)?, number(&mut input)?)));
    let head = Head { commit, submodules, ignores, narrowed: narrowed.collect::<io::Result<_>>()? };
    let (folder_count, file_count) = (number(&mut input)?, number(&mut input)?);
    let mut manifest = BaseManifest {
        names: Vec::with_capacity(input.len() / 4),
        folders: Vec::with_capacity(folder_count as usize),
        files: Vec::with_capacity(file_count as usize),
        hashes: Vec::with_capacity(file_count as usize),
    };
    for index in 0..folder_count {
        read_folder(&mut manifest, &mut input, index)?;
    }
    manifest.names.shrink_to_fit();
    Ok((head, manifest))
}

fn read_folder(manifest: &mut BaseManifest, input: &mut &[u8], index: u32) -> io::Result<()> {
    let (path, count) = (slice(input)?, number(input)?);
    let first = position(manifest.files.len())?;
    for _ in 0..count {
        read_file(manifest, input)?;
    }
    let files = first..position(manifest.files.len())?;
    let is_tracked = manifest.files[first as usize..].iter().any(|file| !file.is_ignored);
    let range = add_name(manifest, path)?;
    manifest.folders.push(ManifestFolder { path: range, files, folders: 0..0, total: 0, is_tracked: false });
    if !path.is_empty() {
        let parent = manifest.folder(split(path).0).ok_or_else(damaged_list)?;
        let folders = &mut manifest.folders[parent.0 as usize].folders;
        if folders.start == folders.end {
            *folders = index..index;
        }
        // The folders of one parent come one after the other.
        if folders.end != index {
            return Err(damaged_list());
        }
        folders.end += 1;
    }
    let mut folder = path;
    loop {
        // Every folder comes after the one above it.
        let at = manifest.folder(folder).ok_or_else(damaged_list)?;
        let entry = &mut manifest.folders[at.0 as usize];
        entry.total += count;
        entry.is_tracked |= is_tracked;
        if folder.is_empty() {
            return Ok(());
        }
        folder = split(folder).0;
    }
}

fn read_file(manifest: &mut BaseManifest, input: &mut &[u8]) -> io::Result<()> {
    let name = add_name(manifest, slice(input)?)?;
    let (mode, size) = (number(input)?, u64::from_le_bytes(array(input)?));
    let is_ignored = array(input)? != [0];
    manifest.files.push(ManifestFile { name, mode, size, is_ignored });
    manifest.hashes.push((array(input)?, array(input)?));
    Ok(())
}

fn add_name(manifest: &mut BaseManifest, name: &[u8]) -> io::Result<std::ops::Range<u32>> {
    let start = position(manifest.names.len())?;
    manifest.names.extend_from_slice(name);
    Ok(start..position(manifest.names.len())?)
}

fn position(count: usize) -> io::Result<u32> {
    u32::try_from(count).map_err(|_| damaged_list())
}

/// Parses the start of a manifest only: the base commit and the paths of its submodules.
pub(crate) fn read_start(from: &mut impl Read) -> io::Result<(String, Vec<Vec<u8>>)> {
    if array(from)? != *MAGIC {
        return Err(damaged_list());
    }
    let commit = String::from_utf8(bytes(from)?).map_err(|_| damaged_list())?;
    Ok((commit, (0..number(from)?).map(|_| bytes(from)).collect::<io::Result<_>>()?))
}
