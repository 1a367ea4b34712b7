//! The data folder, for one process at a time.

#![expect(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "the folder has to be there before the crates that own what is in it can be asked"
)]

use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;

use rustix::fs::FlockOperation;

use crate::config::BadSetting;

/// The right to use a data folder, for as long as it is held. The system ends it with the process, however that ends.
#[derive(Debug)]
pub(crate) struct DataLock(#[expect(dead_code, reason = "held for its drop")] File);

impl DataLock {
    /// Makes the folder where it is missing, and takes it.
    ///
    /// # Errors
    ///
    /// Where it cannot be made, or another process has it.
    pub(crate) fn take(data_dir: &Path) -> Result<Self, BadSetting> {
        let failed = |why: String| BadSetting(format!("--data-dir {}: {why}", data_dir.display()));
        std::fs::create_dir_all(data_dir).map_err(|error| failed(error.to_string()))?;
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        let file = options.open(data_dir.join("lock")).map_err(|error| failed(error.to_string()))?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Self(file)),
            Err(rustix::io::Errno::WOULDBLOCK) => Err(failed("another workspaced is using this folder".to_owned())),
            Err(error) => Err(failed(io::Error::from(error).to_string())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_taker_is_told_in_one_line_and_the_next_one_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("new/data");
        let held = DataLock::take(&place).unwrap();
        let told = DataLock::take(&place).unwrap_err().to_string();
        assert!(told.ends_with("another workspaced is using this folder") && !told.contains('\n'), "{told}");
        drop(held);
        assert!(DataLock::take(&place).is_ok());
    }
}
