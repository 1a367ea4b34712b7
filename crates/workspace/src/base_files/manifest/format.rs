//! The file format of the manifest.

use std::collections::HashMap;
use std::io::{self, Read};

use flate2::Crc;
use model::Sha256;
use sha2::Digest as _;

use super::{BaseManifest, FolderIndex, Head, ManifestFile, ManifestFolder, ManifestRow};
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
    put_u32(&mut out, head.submodules.len());
    for path in &head.submodules {
        put_bytes(&mut out, path);
    }
    put_u32(&mut out, head.ignores.len());
    for (folder, text) in &head.ignores {
        put_bytes(&mut out, folder);
        put_bytes(&mut out, text);
    }
    put_u32(&mut out, head.narrowed.len());
    for (path, mode) in &head.narrowed {
        put_bytes(&mut out, path);
        out.extend_from_slice(&mode.to_le_bytes());
    }
    let by_folder: HashMap<&[u8], &[ManifestRow]> = rows
        .chunk_by(|a, b| split(&a.path).0 == split(&b.path).0)
        .map(|files| (split(&files[0].path).0, files))
        .collect();
    put_u32(&mut out, folders.len());
    put_u32(&mut out, rows.len());
    for folder in &folders {
        let files = by_folder.get(&**folder).copied().unwrap_or_default();
        put_bytes(&mut out, folder);
        put_u32(&mut out, files.len());
        for row in files {
            put_bytes(&mut out, split(&row.path).1);
            out.extend_from_slice(&row.mode.to_le_bytes());
            out.extend_from_slice(&row.size.to_le_bytes());
            out.push(u8::from(row.is_ignored));
            out.extend_from_slice(&row.oid);
            out.extend_from_slice(&row.sha256);
        }
    }
    let mut crc = Crc::new();
    crc.update(&out);
    out.extend_from_slice(&crc.sum().to_le_bytes());
    out
}

/// Brings rows into the order of their indices: by folder, and by name.
pub(crate) fn sort(rows: &mut [ManifestRow]) {
    fn key(row: &ManifestRow) -> ((&[u8], &[u8]), &[u8]) {
        let (folder, name) = split(&row.path);
        (split(folder), name)
    }
    rows.sort_unstable_by(|a, b| key(a).cmp(&key(b)));
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

fn put_u32(out: &mut Vec<u8>, count: usize) {
    // The limits of an import are far below.
    out.extend_from_slice(&u32::try_from(count).unwrap_or(u32::MAX).to_le_bytes());
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_u32(out, bytes.len());
    out.extend_from_slice(bytes);
}

/// Parses what [`write`] returned.
pub(crate) fn read(bytes: &[u8]) -> io::Result<(Head, BaseManifest)> {
    let (bytes, sum) = bytes.split_last_chunk::<4>().ok_or_else(damaged)?;
    let mut crc = Crc::new();
    crc.update(bytes);
    if crc.sum() != u32::from_le_bytes(*sum) {
        return Err(damaged());
    }
    let mut input = Input(bytes);
    let head = read_head(&mut input)?;
    let (folder_count, file_count) = (input.u32()?, input.u32()?);
    let mut manifest = BaseManifest {
        names: Vec::with_capacity(input.0.len() / 4),
        by_path: HashMap::with_capacity(folder_count as usize),
        folders: Vec::with_capacity(folder_count as usize),
        files: Vec::with_capacity(file_count as usize),
        hashes: Vec::with_capacity(file_count as usize),
    };
    for index in 0..folder_count {
        let path = input.bytes()?;
        read_folder(&mut manifest, &mut input, index, path)?;
    }
    manifest.names.shrink_to_fit();
    Ok((head, manifest))
}

fn read_folder(manifest: &mut BaseManifest, input: &mut Input<'_>, index: u32, path: &[u8]) -> io::Result<()> {
    let count = input.u32()?;
    let first = position(manifest.files.len())?;
    for _ in 0..count {
        read_file(manifest, input)?;
    }
    let files = first..position(manifest.files.len())?;
    let is_tracked = manifest.files[first as usize..].iter().any(|file| !file.is_ignored);
    let name = add_name(manifest, split(path).1)?;
    manifest.folders.push(ManifestFolder { name, files, folders: 0..0, total: 0, is_tracked: false });
    manifest.by_path.insert(path.into(), FolderIndex(index));
    if !path.is_empty() {
        let parent = manifest.folder(split(path).0).ok_or_else(damaged)?;
        let folders = &mut manifest.folders[parent.0 as usize].folders;
        if folders.start == folders.end {
            *folders = index..index;
        }
        // The folders of one parent come one after the other.
        if folders.end != index {
            return Err(damaged());
        }
        folders.end += 1;
    }
    let mut folder = path;
    loop {
        // Every folder comes after the one above it.
        let at = manifest.folder(folder).ok_or_else(damaged)?;
        let entry = &mut manifest.folders[at.0 as usize];
        entry.total += count;
        entry.is_tracked |= is_tracked;
        if folder.is_empty() {
            return Ok(());
        }
        folder = split(folder).0;
    }
}

fn read_file(manifest: &mut BaseManifest, input: &mut Input<'_>) -> io::Result<()> {
    let name = input.bytes()?;
    let name = add_name(manifest, name)?;
    let (mode, size) = (input.u32()?, u64::from_le_bytes(input.array()?));
    let is_ignored = input.array::<1>()? != [0];
    manifest.files.push(ManifestFile { name, mode, size, is_ignored });
    manifest.hashes.push((input.array()?, input.array()?));
    Ok(())
}

fn add_name(manifest: &mut BaseManifest, name: &[u8]) -> io::Result<std::ops::Range<u32>> {
    let start = position(manifest.names.len())?;
    manifest.names.extend_from_slice(name);
    Ok(start..position(manifest.names.len())?)
}

fn position(count: usize) -> io::Result<u32> {
    u32::try_from(count).map_err(|_| damaged())
}

/// Parses the start of a manifest only: the base commit and the paths of its submodules.
pub(crate) fn read_start(from: &mut impl Read) -> io::Result<(String, Vec<Vec<u8>>)> {
    fn u32(from: &mut impl Read) -> io::Result<u32> {
        let mut bytes = [0; 4];
        from.read_exact(&mut bytes).map_err(cut_off)?;
        Ok(u32::from_le_bytes(bytes))
    }
    fn bytes(from: &mut impl Read) -> io::Result<Vec<u8>> {
        let (length, mut bytes) = (u32(from)?, Vec::new());
        let read = from.take(length.into()).read_to_end(&mut bytes)?;
        if read == length as usize { Ok(bytes) } else { Err(damaged()) }
    }
    let mut magic = [0; MAGIC.len()];
    from.read_exact(&mut magic).map_err(cut_off)?;
    if magic != *MAGIC {
        return Err(damaged());
    }
    let commit = String::from_utf8(bytes(from)?).map_err(|_| damaged())?;
    let count = u32(from)?;
    Ok((commit, (0..count).map(|_| bytes(from)).collect::<io::Result<_>>()?))
}

fn read_head(input: &mut Input<'_>) -> io::Result<Head> {
    let (commit, submodules) = read_start(&mut input.0)?;
    let count = input.u32()?;
    let ignores = (0..count).map(|_| Ok((input.bytes()?.to_vec(), input.bytes()?.to_vec())));
    let ignores = ignores.collect::<io::Result<_>>()?;
    let count = input.u32()?;
    let narrowed = (0..count).map(|_| Ok((input.bytes()?.to_vec(), input.u32()?)));
    Ok(Head { commit, submodules, ignores, narrowed: narrowed.collect::<io::Result<_>>()? })
}

/// The bytes that remain to be parsed.
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn take(&mut self, count: usize) -> io::Result<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or_else(damaged)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        self.take(N)?.try_into().map_err(|_| damaged())
    }

    fn u32(&mut self) -> io::Result<u32> {
        self.array().map(u32::from_le_bytes)
    }

    fn bytes(&mut self) -> io::Result<&'a [u8]> {
        let count = self.u32()?;
        self.take(count as usize)
    }
}

fn cut_off(error: io::Error) -> io::Error {
    if error.kind() == io::ErrorKind::UnexpectedEof { damaged() } else { error }
}

fn damaged() -> io::Error {
    crate::base_files::damaged("the base's manifest is damaged")
}
