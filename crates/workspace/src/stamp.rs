//! The metadata that identifies one version of a file.

use std::time::{SystemTime, UNIX_EPOCH};

use rustix::fs::Stat;

/// Identifies one version of a file within its file system, without its bytes.
///
/// Two reads under the same stamp return the same bytes, provided that the stamp is settled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FileStamp {
    pub(crate) size: u64,
    pub(crate) inode: u64,
    pub(crate) modified_ns: i64,
    pub(crate) changed_ns: i64,
}

/// A [`FileStamp`] with its file system, for caches that several trees share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct DeviceStamp {
    device: u64,
    pub(crate) stamp: FileStamp,
}

impl FileStamp {
    /// Returns the stamp of the file that `stat` describes.
    pub(crate) fn of(stat: &Stat) -> Self {
        let nanos = |seconds: i64, nanos: u64| seconds.wrapping_mul(1_000_000_000).wrapping_add_unsigned(nanos);
        Self {
            size: u64::try_from(stat.st_size).unwrap_or(0),
            inode: stat.st_ino,
            modified_ns: nanos(stat.st_mtime, stat.st_mtime_nsec),
            changed_ns: nanos(stat.st_ctime, stat.st_ctime_nsec),
        }
    }

    /// Whether both are of one version of a file. A rename changes the time of the inode's last change, so that one is not compared.
    pub(crate) fn has_same_content(&self, other: &Self) -> bool {
        (self.inode, self.size, self.modified_ns) == (other.inode, other.size, other.modified_ns)
    }

    /// Whether the last change is more than a second old. A later write then gets other times, and so another stamp.
    #[expect(clippy::disallowed_methods, reason = "compared with times that the file system took from the same clock")]
    pub(crate) fn is_settled(&self) -> bool {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
        let last = u128::try_from(self.changed_ns.max(self.modified_ns)).unwrap_or(0);
        now.saturating_sub(last) > 1_000_000_000
    }
}

impl DeviceStamp {
    /// Returns the stamp of the file that `stat` describes.
    pub(crate) fn of(stat: &Stat) -> Self {
        Self { device: stat.st_dev, stamp: FileStamp::of(stat) }
    }
}
