//! The bases that this machine has fetched: they are kept up to a number of bytes, the most recently used ones, so that other runs which
//! start from them are opened without fetching them again.

#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the cache is the service's own folder; no run has files in it, and every byte that is read is verified"
)]

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, ErrorKind, Read as _, Seek as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use content::StoredObject;
use lru::LruCache;
use model::Sha256;
use parking_lot::Mutex;
use sha2::Digest as _;

/// The folder in the data folder.
const FOLDER: &str = "bases";
/// What is hashed at a time.
const CHUNK_BYTES: usize = 1 << 20;

/// Size of the cache on small disks.
const MIN_CACHE_BYTES: u64 = 4 << 30;

/// Returns the maximum size of the cache on a disk of `disk_bytes`.
pub fn base_cache_bytes(disk_bytes: u64) -> u64 {
    MIN_CACHE_BYTES.max(disk_bytes / 20)
}

/// The cached bases. Their files are `bases/{base}/{part}`.
pub(super) struct BaseCache {
    folder: PathBuf,
    max_bytes: u64,
    /// The sizes of the bases in the folder.
    bases: Mutex<LruCache<String, u64>>,
}

impl BaseCache {
    /// Opens the cache in `data_dir`, and evicts what is over `max_bytes`.
    ///
    /// # Errors
    ///
    /// If the disk fails.
    pub(super) fn open(data_dir: &Path, max_bytes: u64) -> io::Result<Self> {
        let folder = data_dir.join(FOLDER);
        match std::fs::DirBuilder::new().mode(0o700).create(&folder) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        // When each was used is not known any more. The time of a folder is that of the last part that was put into it.
        let mut found: BTreeMap<(SystemTime, String), u64> = BTreeMap::new();
        for entry in std::fs::read_dir(&folder)? {
            let entry = entry?;
            let Ok(name) = entry.file_name().into_string() else { continue };
            if entry.file_type()?.is_dir() {
                found.insert((entry.metadata()?.modified()?, name), bytes_in(&entry.path())?);
            }
        }
        let mut bases = LruCache::unbounded();
        for ((_, name), bytes) in found {
            bases.put(name, bytes);
        }
        let cache = Self { folder, max_bytes, bases: Mutex::new(bases) };
        cache.evict()?;
        Ok(cache)
    }

    /// Returns a part of a base, if it is here and has the hash `expected`. One that has another is removed. Reads all of it.
    ///
    /// # Errors
    ///
    /// If the disk fails.
    pub(super) fn find(&self, base: &str, part: &str, expected: Sha256) -> io::Result<Option<File>> {
        if self.bases.lock().get(base).is_none() {
            return Ok(None);
        }
        let path = self.folder.join(base).join(part);
        let mut file = match File::open(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            file => file?,
        };
        if hash(&mut file)? != expected {
            tracing::warn!(base, part, "a cached part of a base was altered; it is fetched again");
            std::fs::remove_file(&path)?;
            return Ok(None);
        }
        file.rewind()?;
        Ok(Some(file))
    }

    /// Keeps a verified part of a base, unless it is larger than the cache, and evicts others. Leaves `object` at its start.
    ///
    /// # Errors
    ///
    /// If the disk fails. Nothing of the part is kept then.
    pub(super) fn add(&self, base: &str, part: &str, object: &mut dyn StoredObject) -> io::Result<()> {
        let bytes = object.seek(io::SeekFrom::End(0))?;
        object.rewind()?;
        if bytes > self.max_bytes {
            return Ok(());
        }
        let folder = self.folder.join(base);
        let kept = Self::write(&folder, part, object);
        object.rewind()?;
        kept?;
        self.bases.lock().put(base.to_owned(), bytes_in(&folder)?);
        self.evict()
    }

    fn write(folder: &Path, part: &str, object: &mut dyn StoredObject) -> io::Result<()> {
        match std::fs::DirBuilder::new().mode(0o700).create(folder) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        // What a kill leaves is evicted with the base.
        let mut file = tempfile::NamedTempFile::new_in(folder)?;
        io::copy(object, &mut file)?;
        file.persist(folder.join(part)).map(drop).map_err(|error| error.error)
    }

    /// Removes the least recently used bases while all together are too large.
    fn evict(&self) -> io::Result<()> {
        let mut bases = self.bases.lock();
        while bases.iter().map(|(_, bytes)| bytes).sum::<u64>() > self.max_bytes {
            let Some((base, bytes)) = bases.pop_lru() else { break };
            std::fs::remove_dir_all(self.folder.join(&base))?;
            tracing::debug!(base, bytes, "evicted a base from the cache");
        }
        Ok(())
    }
}

fn bytes_in(folder: &Path) -> io::Result<u64> {
    let sizes = std::fs::read_dir(folder)?.map(|entry| entry?.metadata().map(|metadata| metadata.len()));
    sizes.sum()
}

fn hash(file: &mut File) -> io::Result<Sha256> {
    let (mut digest, mut chunk) = (sha2::Sha256::new(), vec![0; CHUNK_BYTES]);
    loop {
        match file.read(&mut chunk)? {
            0 => return Ok(Sha256::from_bytes(digest.finalize().into())),
            read => digest.update(chunk.get(..read).unwrap_or_default()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn object(kib: usize) -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&vec![7; kib << 10]).unwrap();
        file
    }

    #[test]
    fn the_least_recently_used_bases_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let kept = || {
            let bases = std::fs::read_dir(folder.path().join(FOLDER)).unwrap();
            let mut names: Vec<_> = bases.map(|base| base.unwrap().file_name().into_string().unwrap()).collect();
            names.sort();
            names.concat()
        };
        let cache = BaseCache::open(folder.path(), 250 << 10).unwrap();
        let mut seen = Vec::new();
        for base in ["a", "b", "c"] {
            cache.add(base, "part", &mut object(100)).unwrap();
            seen.push(kept());
        }
        assert_eq!(seen, ["a", "ab", "bc"]);
        let expected = Sha256::of(&vec![7; 100 << 10]);
        assert!(cache.find("b", "part", expected).unwrap().is_some());
        cache.add("d", "part", &mut object(100)).unwrap();
        assert_eq!(kept(), "bd", "the base that was read is not the least recently used one");
        cache.add("large", "part", &mut object(300)).unwrap();
        assert_eq!(kept(), "bd", "what is larger than the cache is not kept, and evicts nothing");
        drop(cache);
        // A smaller bound holds from the next start.
        BaseCache::open(folder.path(), 150 << 10).unwrap();
        assert_eq!(kept().len(), 1);
    }
}
