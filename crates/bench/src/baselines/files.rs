//! Durable replacement of a file without a service: temporary file, fsync, rename, fsync of the folder.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;

use crate::baselines::ThreadLoop;
use crate::text::lines_of;

/// Returns a baseline that replaces files of 4 KB in `folder`, one per thread.
pub(crate) fn durable_replace(folder: &Path) -> ThreadLoop<'_> {
    ThreadLoop::new("temporary file + fsync + rename + fsync(folder), up to 16 threads", move |worker| {
        let content = lines_of(worker as u64, 64, 64).concat();
        let (staged, target) = (folder.join(format!("{worker}.staged")), folder.join(format!("{worker}.rs")));
        let folder = folder.to_owned();
        Ok(Box::new(move || {
            let mut file = File::create(&staged)?;
            file.write_all(content.as_bytes())?;
            file.sync_all()?;
            std::fs::rename(&staged, &target)?;
            File::open(&folder)?.sync_all()?;
            Ok(())
        }))
    })
}
