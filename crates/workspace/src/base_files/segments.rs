//! The contents of bases: in large files, back to back, written once and shared by content.
//!
//! A new base names the segments of an earlier one for what both have, and writes the rest to one segment of its own.

use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

use rustix::fs::AtFlags;
use rustix::io::Errno;

use super::codec::{array, damaged_list, number, put_checksum, put_number, without_checksum};
use super::manifest::{FileIndex, ManifestRow};
use super::{BaseFiles, damaged};
use crate::dir::{entries, fresh_name, open_dir, open_file, remove_file};
use crate::file_bytes::FileBytes;
use crate::hashing::copy_hashed;
use crate::temp_entry::TempEntry;

/// The file of a base that says where its contents are.
pub(crate) const LOCATIONS_NAME: &str = "contents";
/// The first bytes of that file. They change with the format.
const MAGIC: &[u8; 4] = b"wsc1";
/// The prefix of a segment's name while it is written.
const STAGING: &str = ".new-";
/// A base refers to at most so many segments. If an earlier one refers to as many, nothing of it is shared.
const MAX_SEGMENTS: usize = 32;
/// The length of a segment's name.
const NAME_BYTES: usize = 16;

/// The segments of all bases.
pub(crate) struct Segments {
    dir: Arc<OwnedFd>,
}

/// Where a content is.
#[derive(Clone, Copy, Debug)]
struct ContentPlace {
    /// The index of its segment in the base's list.
    segment: u32,
    offset: u64,
}

/// Where the contents of a base are, file by file.
pub(crate) struct Locations {
    segments: Vec<(String, Arc<File>)>,
    files: Vec<ContentPlace>,
}

/// The contents of a base that is being made. Dropping it removes the new segments, unless they were [kept](Self::keep).
pub(crate) struct NewContents {
    dir: Arc<OwnedFd>,
    segments: Vec<(String, Arc<File>)>,
    /// The contents by their hash.
    by_hash: HashMap<[u8; 32], ContentPlace>,
    /// The hash and the size of the contents by the blob that git makes of them.
    blobs: HashMap<[u8; 20], ([u8; 32], u64)>,
    /// The new segments: the one that contents are added to, or those that were copied from elsewhere.
    new: Vec<NewSegment>,
    /// The names of the segments that the base refers to.
    used: Vec<String>,
}

/// A segment that is being written.
struct NewSegment {
    /// Its name once it is kept.
    name: String,
    entry: TempEntry,
    file: Arc<File>,
    end: u64,
}

impl Segments {
    /// Opens the folder `name` of `dir`.
    pub(crate) fn open(dir: &OwnedFd, name: &str) -> io::Result<Self> {
        Ok(Self { dir: Arc::new(open_dir(dir, name)?) })
    }

    /// Begins to write the contents of a base. Those that `earlier` has are not written again.
    pub(crate) fn begin(&self, earlier: Option<&BaseFiles>) -> NewContents {
        let mut new = NewContents {
            dir: Arc::clone(&self.dir),
            segments: Vec::new(),
            by_hash: HashMap::new(),
            blobs: HashMap::new(),
            new: Vec::new(),
            used: Vec::new(),
        };
        if let Some(earlier) = earlier.filter(|earlier| earlier.locations.segments.len() < MAX_SEGMENTS) {
            new.segments.clone_from(&earlier.locations.segments);
            let manifest = &earlier.manifest;
            new.by_hash.reserve(manifest.len());
            new.blobs.reserve(manifest.len());
            for (file, at) in (0..).map(FileIndex).zip(&earlier.locations.files) {
                new.by_hash.insert(*manifest.sha256(file), *at);
                new.blobs.insert(*manifest.oid(file), (*manifest.sha256(file), manifest.size(file)));
            }
        }
        new
    }

    /// Parses what [`NewContents::locations`] returned for files of these `sizes`, and opens the segments.
    pub(super) fn read(&self, bytes: &[u8], sizes: impl ExactSizeIterator<Item = u64>) -> io::Result<Locations> {
        let mut rest = bytes;
        let mut segments = Vec::new();
        for name in names(&mut rest)? {
            let file = self.open_one(&name)?;
            let length = file.metadata()?.len();
            segments.push((name, Arc::new(file), length));
        }
        let (rows, []) = without_checksum(rest)?.as_chunks::<12>() else { return Err(damaged_list()) };
        if rows.len() != sizes.len() {
            return Err(damaged_list());
        }
        let files = rows.iter().zip(sizes).map(|(row, size)| {
            let (segment, offset) = row.split_first_chunk::<4>()?;
            let segment = u32::from_le_bytes(*segment);
            let place = ContentPlace { segment, offset: u64::from_le_bytes(offset.try_into().ok()?) };
            let (.., length) = segments.get(segment as usize)?;
            (place.offset.checked_add(size)? <= *length).then_some(place)
        });
        let files = files.collect::<Option<_>>().ok_or_else(|| damaged("a segment of a base ends early"))?;
        Ok(Locations { segments: segments.into_iter().map(|(name, file, _)| (name, file)).collect(), files })
    }

    /// Opens the segment called `name`.
    pub(crate) fn open_one(&self, name: &str) -> io::Result<File> {
        open_file(&*self.dir, name).map_err(|errno| match errno {
            Errno::NOENT => io::Error::new(io::ErrorKind::NotFound, "a segment of the run's base is missing"),
            errno => errno.into(),
        })
    }

    /// Removes what an earlier process has not finished. Returns how many segments that were.
    pub(crate) fn remove_unfinished(&self) -> io::Result<u64> {
        self.remove(|name| name.starts_with(STAGING))
    }

    /// Removes every finished segment that `is_used` does not name.
    pub(crate) fn sweep(&self, is_used: impl Fn(&str) -> bool) -> io::Result<u64> {
        self.remove(|name| is_name(name) && !is_used(name))
    }

    fn remove(&self, which: impl Fn(&str) -> bool) -> io::Result<u64> {
        let mut removed = 0;
        for (name, _) in entries(&*self.dir, usize::MAX)? {
            if name.to_str().is_ok_and(&which) {
                remove_file(&*self.dir, &*name)?;
                removed += 1;
            }
        }
        Ok(removed)
    }
}

/// Reads the start of the list of a base's contents, and returns the names of the segments.
pub(crate) fn names(from: &mut impl Read) -> io::Result<Vec<String>> {
    let (magic, count) = (array(from)?, number(from)? as usize);
    if magic != *MAGIC || count > MAX_SEGMENTS {
        return Err(damaged_list());
    }
    let mut names = vec![0; count * NAME_BYTES + 4];
    from.read_exact(&mut names)?;
    let names = without_checksum(&names)?.chunks(NAME_BYTES).map(|name| String::from_utf8(name.to_vec()).ok());
    names.map(|name| name.filter(|name| is_name(name))).collect::<Option<_>>().ok_or_else(damaged_list)
}

fn is_name(name: &str) -> bool {
    name.len() == NAME_BYTES && name.bytes().all(|byte| byte.is_ascii_hexdigit())
}

impl Locations {
    /// Returns the segment with the content of `file`, and where it begins.
    pub(super) fn of(&self, file: FileIndex) -> (&File, u64) {
        let ContentPlace { segment, offset } = self.files[file.0 as usize];
        (&self.segments[segment as usize].1, offset)
    }
}

impl NewContents {
    /// Returns the hash and the size of the blob `oid`, if the contents have it.
    pub(crate) fn blob(&self, oid: &[u8; 20]) -> Option<([u8; 32], u64)> {
        self.blobs.get(oid).copied()
    }

    /// Adds the bytes of `from`, which should be `size`, and returns their hash.
    ///
    /// # Errors
    ///
    /// If the disk or `from` fails, or there are fewer or more bytes ([`io::ErrorKind::InvalidData`]).
    pub(crate) fn add(&mut self, from: &mut dyn Read, size: u64) -> io::Result<[u8; 32]> {
        let mut next = self.next()?;
        let (sha256, found) = copy_hashed(from, &mut next, size)?;
        if found != size {
            return Err(damaged("a content of a base has another size"));
        }
        next.add(*sha256.as_bytes());
        Ok(*sha256.as_bytes())
    }

    fn add_new(&mut self, name: String) -> io::Result<&mut NewSegment> {
        let (entry, file) = TempEntry::create_file(&self.dir, STAGING)?;
        Ok(self.new.push_mut(NewSegment { name, entry, file: Arc::new(file), end: 0 }))
    }

    /// Whether there is a segment called `name`.
    pub(crate) fn has_segment(&self, name: &str) -> bool {
        rustix::fs::statat(&*self.dir, name, AtFlags::SYMLINK_NOFOLLOW).is_ok()
    }

    /// Adds a copy of a segment called `name`.
    ///
    /// # Errors
    ///
    /// If the disk or `from` fails, or no segment has such a name ([`io::ErrorKind::InvalidData`]).
    pub(crate) fn add_segment(&mut self, name: &str, from: &mut dyn Read) -> io::Result<()> {
        if !is_name(name) {
            return Err(damaged("a segment of a base has another name"));
        }
        let segment = self.add_new(name.to_owned())?;
        segment.end = io::copy(from, &mut &*segment.file)?;
        Ok(())
    }

    /// Makes the base refer to the segments called `names`.
    pub(crate) fn use_segments(&mut self, names: Vec<String>) {
        self.used = names;
    }

    /// Returns where the bytes of the next content go.
    pub(crate) fn next(&mut self) -> io::Result<NextContent<'_>> {
        if self.new.is_empty() {
            let name = fresh_name("");
            let file = Arc::clone(&self.add_new(name.clone())?.file);
            self.segments.push((name, file));
        }
        let segment = u32::try_from(self.segments.len() - 1).map_err(|_| io::ErrorKind::InvalidInput)?;
        let Some(written) = self.new.last_mut() else { return Err(io::ErrorKind::NotFound.into()) };
        let (by_hash, blobs) = (&mut self.by_hash, &mut self.blobs);
        Ok(NextContent { start: written.end, at: written.end, segment, written, by_hash, blobs })
    }

    /// Returns where the contents of `rows` are, as a file. From here on, only the segments that they are in count.
    pub(crate) fn locations(&mut self, rows: &[ManifestRow]) -> io::Result<Vec<u8>> {
        let places = rows.iter().map(|row| self.place(&row.sha256)).collect::<io::Result<Vec<_>>>()?;
        let used: BTreeSet<u32> = places.iter().map(|place| place.segment).collect();
        let index: HashMap<u32, u32> = used.iter().copied().zip(0..).collect();
        let names: String = used.iter().map(|segment| &*self.segments[*segment as usize].0).collect();
        let mut out = Vec::with_capacity(rows.len() * 12 + names.len() + 16);
        out.extend_from_slice(MAGIC);
        put_number(&mut out, used.len());
        let start = out.len();
        out.extend_from_slice(names.as_bytes());
        put_checksum(&mut out, start);
        let start = out.len();
        for ContentPlace { segment, offset } in places {
            out.extend_from_slice(&index[&segment].to_le_bytes());
            out.extend_from_slice(&offset.to_le_bytes());
        }
        put_checksum(&mut out, start);
        self.used = used.into_iter().map(|segment| self.segments[segment as usize].0.clone()).collect();
        Ok(out)
    }

    /// Returns a reader of the content with that hash and size.
    pub(crate) fn read(&self, sha256: &[u8; 32], size: u64) -> io::Result<impl Read> {
        let ContentPlace { segment, offset } = self.place(sha256)?;
        Ok(FileBytes::new(&self.segments[segment as usize].1, offset, size))
    }

    fn place(&self, sha256: &[u8; 32]) -> io::Result<ContentPlace> {
        self.by_hash.get(sha256).copied().ok_or_else(|| damaged("a content of a base was not written"))
    }

    /// Syncs what was written.
    pub(crate) fn sync(&self) -> io::Result<()> {
        for NewSegment { file, end, .. } in &self.new {
            // Without a content that was there already.
            file.set_len(*end)?;
            rustix::fs::fsync(file)?;
        }
        Ok(())
    }

    /// Gives the new segments their names: from here on, a sweep removes them unless a base refers to them.
    pub(crate) fn keep(&mut self) -> io::Result<()> {
        let is_any_new = !self.new.is_empty();
        for new in std::mem::take(&mut self.new) {
            match new.entry.move_to(&self.dir, &new.name) {
                // Another copy was made meanwhile.
                Ok(()) | Err(Errno::EXIST) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        if is_any_new {
            rustix::fs::fsync(&*self.dir)?;
        }
        // The others may have been removed since.
        if self.used.iter().all(|name| self.has_segment(name)) {
            return Ok(());
        }
        Err(io::Error::new(io::ErrorKind::Interrupted, "a segment was removed while a base that needs it was made"))
    }
}

/// A content that is being written. It does not count until it is [added](Self::add).
pub(crate) struct NextContent<'a> {
    start: u64,
    at: u64,
    segment: u32,
    written: &'a mut NewSegment,
    by_hash: &'a mut HashMap<[u8; 32], ContentPlace>,
    blobs: &'a mut HashMap<[u8; 20], ([u8; 32], u64)>,
}

impl NextContent<'_> {
    /// Adds what was written as the blob `oid`, whose hash is `sha256`.
    pub(crate) fn add_blob(self, oid: [u8; 20], sha256: [u8; 32]) {
        self.blobs.insert(oid, (sha256, self.at - self.start));
        self.add(sha256);
    }

    /// Adds what was written, whose hash is `sha256`, unless there is such a content.
    fn add(self, sha256: [u8; 32]) {
        let location = ContentPlace { segment: self.segment, offset: self.start };
        if let std::collections::hash_map::Entry::Vacant(entry) = self.by_hash.entry(sha256) {
            entry.insert(location);
            self.written.end = self.at;
        }
    }

    /// Returns a reader of what was written.
    pub(crate) fn reader(&self) -> impl Read {
        FileBytes::new(&self.written.file, self.start, self.at - self.start)
    }
}

impl Write for NextContent<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.written.file.write_at(bytes, self.at)?;
        self.at += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_damaged_list_of_contents_is_noticed_wherever_it_is_damaged() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("segments")).unwrap();
        let all = crate::guard::open_ambient_folder(folder.path()).unwrap();
        let segments = Segments::open(&all, "segments").unwrap();
        let mut contents = segments.begin(None);
        let rows: Vec<_> = ["one", "two", "three", "one"]
            .iter()
            .map(|text| {
                let size = text.len() as u64;
                let sha256 = contents.add(&mut text.as_bytes(), size).unwrap();
                ManifestRow { path: Vec::new(), mode: 0, oid: [0; 20], sha256, size, is_ignored: false }
            })
            .collect();
        assert!(contents.add(&mut &b"four"[..], 5).is_err(), "a content is shorter than it must be");
        let list = contents.locations(&rows).unwrap();
        contents.sync().unwrap();
        contents.keep().unwrap();
        let sizes = || rows.iter().map(|row| row.size);
        let places = segments.read(&list, sizes()).unwrap();
        assert_eq!(places.files.iter().map(|place| place.offset).collect::<Vec<_>>(), [0, 3, 6, 0]);
        assert_eq!(names(&mut &list[..]).unwrap().len(), 1);
        for at in 0..list.len() {
            let mut damaged = list.clone();
            damaged[at] ^= 1;
            assert!(segments.read(&damaged, sizes()).is_err(), "byte {at}");
            assert!(segments.read(&list[..at], sizes()).is_err(), "cut at {at}");
        }
        assert!(segments.read(&list, sizes().take(3)).is_err(), "the list has more files than the base");
        assert!(segments.read(&list, sizes().map(|size| size + 1)).is_err(), "a file ends after its segment");
        assert_eq!(segments.sweep(|_| true).unwrap(), 0);
        assert_eq!(segments.sweep(|_| false).unwrap(), 1);
    }
}
