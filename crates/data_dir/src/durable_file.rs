//! Small files of the data folder that are written once.

#![expect(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "the files are beside the runs' folders, not in them"
)]

use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

/// Writes a line to the file `name`, for this user alone. After a crash, the file is as before or has all of the line.
///
/// # Errors
///
/// If the disk fails.
pub(super) fn write_durably(data_dir: &Path, name: &str, line: &str) -> io::Result<()> {
    let new = data_dir.join(format!("{name}.new"));
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
    // Also of a file that exists.
    file.set_permissions(Permissions::from_mode(0o600))?;
    writeln!(file, "{line}")?;
    file.sync_all()?;
    std::fs::rename(new, data_dir.join(name))?;
    File::open(data_dir)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_earlier_process_has_begun_to_write_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("name.new"), "half of a longer li").unwrap();
        write_durably(folder.path(), "name", "line").unwrap();
        assert_eq!(std::fs::read_to_string(folder.path().join("name")).unwrap(), "line\n");
        let mode = std::fs::metadata(folder.path().join("name")).unwrap().permissions().mode();
        assert_eq!((mode & 0o777, folder.path().join("name.new").exists()), (0o600, false));
    }
}
