//! Reading blobs of a repository, by one `git cat-file` for any number of them.

use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::thread;

use crate::git::{Bounds, Git, GitError, hex};

/// A reader of blobs.
pub(crate) struct Blobs<'a> {
    git: &'a Git,
}

impl<'a> Blobs<'a> {
    pub(crate) fn new(git: &'a Git) -> Self {
        Self { git }
    }

    /// Calls `take` with each of `items` in order, and the bytes and the size of the blob that `oid` names for it; `None` if it is
    /// missing. `take` need not read all of the bytes. git reads ahead.
    ///
    /// # Errors
    ///
    /// What `take` returns, or as [`Git::run`].
    pub(crate) fn each<T: Sync>(
        &self,
        bounds: &Bounds<'_>,
        items: &[T],
        oid: impl Fn(&T) -> &[u8; 20] + Sync,
        mut take: impl FnMut(&T, Option<(&mut dyn Read, u64)>) -> io::Result<()>,
    ) -> Result<(), GitError> {
        self.git.run(&["cat-file", "--batch", "--buffer"], bounds, |to, stdout| {
            thread::scope(|scope| {
                // Another thread sends the requests, since git stops reading them while nobody takes its output.
                scope.spawn(|| {
                    let mut to = BufWriter::new(to);
                    items.iter().try_for_each(|item| writeln!(to, "{}", hex(oid(item))))?;
                    to.flush()
                });
                // Dropped at the first error, which ends git and so that thread.
                let mut from = BufReader::with_capacity(256 * 1024, stdout);
                items.iter().try_for_each(|item| {
                    let exists = read_blob(&mut from, &mut |bytes, size| take(item, Some((bytes, size))))?;
                    if exists { Ok(()) } else { take(item, None) }
                })
            })
        })
    }
}

/// The error of a blob that the base lacks.
pub(crate) fn missing_from_base() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "a file is missing from the base")
}

/// Calls `take` with the bytes and the size of the blob that git prints next. Returns false if git says that it has none.
fn read_blob(from: &mut impl BufRead, take: &mut dyn FnMut(&mut dyn Read, u64) -> io::Result<()>) -> io::Result<bool> {
    let mut line = String::new();
    from.by_ref().take(256).read_line(&mut line)?;
    let size = line.trim_end().rsplit(' ').next().and_then(|size| size.parse::<u64>().ok());
    let (true, Some(size)) = (line.contains(" blob "), size) else {
        tracing::warn!(line = %line.trim_end(), "an object of a base or of a git source is missing");
        return if line.ends_with(" missing\n") { Ok(false) } else { Err(missing_from_base()) };
    };
    let mut bytes = from.by_ref().take(size);
    take(&mut bytes, size)?;
    io::copy(&mut bytes, &mut io::sink())?;
    let mut newline = [0];
    from.read_exact(&mut newline)?;
    Ok(true)
}
