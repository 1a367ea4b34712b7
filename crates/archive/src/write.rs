//! Writing an archive: each member into an unnamed temporary file, then all of them into one.

#![expect(clippy::disallowed_types, reason = "temporary files without a name")]

use std::fs::File;
use std::io::{self, BufWriter, Read, Seek as _, Write};
use std::path::Path;

use model::{RunId, Sha256};
use tar::{Builder, EntryType, Header};
use zstd::Encoder;

use crate::hashing::Hashing;
use crate::manifest::{FORMAT, MANIFEST, Manifest, Member, ROWS, is_compressed};

/// The compression level of zstd: its default.
const LEVEL: i32 = 3;

/// Collects the members of an archive.
pub struct ArchiveWriter<'a> {
    /// The folder of the temporary files, which have no names in it.
    folder: &'a Path,
    members: Vec<(Member, File)>,
}

/// A member that is being written.
pub struct Part {
    name: &'static str,
    out: PartWriter,
}

enum PartWriter {
    Plain(Hashing<BufWriter<File>>),
    Compressed(Encoder<'static, Hashing<BufWriter<File>>>),
}

/// A file of the data of a record.
#[derive(Clone, Copy, Debug)]
pub enum DataFile<'a> {
    /// A content that the record wrote, with its digest.
    Content(u64, Sha256),
    /// The diff of an artifact, by its ID.
    Diff(&'a str),
    /// An upload, with its digest.
    Upload(Sha256),
    /// The reply to the call.
    Reply(u64),
}

/// A complete archive in an unnamed temporary file, read from its start.
#[derive(Debug)]
pub struct FinishedArchive {
    /// The file.
    pub file: File,
    /// Its size.
    pub bytes: u64,
    /// Its hash.
    pub sha256: Sha256,
}

impl<'a> ArchiveWriter<'a> {
    /// Begins an archive, with temporary files in `folder`.
    pub fn new(folder: &'a Path) -> Self {
        Self { folder, members: Vec::new() }
    }

    /// Begins a member, such as [`RECORDS`](crate::RECORDS).
    ///
    /// # Errors
    ///
    /// If no temporary file can be created.
    pub fn begin(&self, name: &'static str) -> io::Result<Part> {
        let out = Hashing::new(BufWriter::new(tempfile::tempfile_in(self.folder)?));
        let out = if is_compressed(name) { PartWriter::Compressed(compress(out)?) } else { PartWriter::Plain(out) };
        Ok(Part { name, out })
    }

    /// Adds a member that is complete. Members are added in the order of the tables in the [crate].
    ///
    /// # Errors
    ///
    /// If it cannot be written.
    pub fn add(&mut self, part: Part) -> io::Result<()> {
        let (member, file) = part.finish()?;
        self.add_finished(member, file);
        Ok(())
    }

    /// Adds a member that was [finished](Part::finish) earlier, with its file.
    pub fn add_finished(&mut self, member: Member, file: File) {
        self.members.push((member, file));
    }

    /// Writes the archive of `run_id`, whose chain ends at `head_seq` with the hash `head_hash`. Members can be added afterwards, for
    /// another one.
    ///
    /// # Errors
    ///
    /// If the temporary files cannot be read or written.
    pub fn finish(&mut self, run_id: RunId, head_seq: u64, head_hash: Sha256) -> io::Result<FinishedArchive> {
        let mut file = tempfile::tempfile_in(self.folder)?;
        let (bytes, sha256) = self.write(run_id, head_seq, head_hash, &mut file)?;
        file.rewind()?;
        Ok(FinishedArchive { file, bytes, sha256 })
    }

    /// As [`finish`](Self::finish), to `to`. Returns the size and the hash. The same members give the same bytes each time.
    ///
    /// # Errors
    ///
    /// If the temporary files cannot be read, or `to` not be written.
    pub fn write(
        &mut self,
        run_id: RunId,
        head_seq: u64,
        head_hash: Sha256,
        to: impl Write,
    ) -> io::Result<(u64, Sha256)> {
        let members = self.members.iter().map(|(member, _)| member.clone()).collect();
        let manifest = Manifest { format: FORMAT.to_owned(), run_id, head_seq, head_hash, members };
        let manifest = serde_json::to_vec_pretty(&manifest)?;
        let mut tar = Builder::new(Hashing::new(BufWriter::new(to)));
        tar.append_data(&mut header(manifest.len() as u64), MANIFEST, &*manifest)?;
        for (member, file) in &mut self.members {
            file.rewind()?;
            tar.append_data(&mut header(member.bytes), &member.name, file.take(member.bytes))?;
        }
        let mut out = tar.into_inner()?;
        out.flush()?;
        Ok((out.bytes, out.sha256()))
    }
}

fn compress<W: Write>(to: W) -> io::Result<Encoder<'static, W>> {
    let mut encoder = Encoder::new(to, LEVEL)?;
    // A backup reads members of archives that it does not hash again.
    encoder.include_checksum(true)?;
    Ok(encoder)
}

impl Part {
    /// Begins the member [`ROWS`](crate::ROWS) in `file`, which is empty. The rows of many runs are written before their archives.
    ///
    /// # Errors
    ///
    /// If it cannot be written.
    pub fn rows(file: File) -> io::Result<Self> {
        Ok(Self { name: ROWS, out: PartWriter::Compressed(compress(Hashing::new(BufWriter::new(file)))?) })
    }

    /// Completes the member. Returns it with its file.
    ///
    /// # Errors
    ///
    /// If it cannot be written.
    pub fn finish(self) -> io::Result<(Member, File)> {
        let out = match self.out {
            PartWriter::Plain(out) => out,
            PartWriter::Compressed(out) => out.finish()?,
        };
        let member = Member { name: self.name.to_owned(), bytes: out.bytes, sha256: out.sha256() };
        Ok((member, out.inner.into_inner().map_err(io::IntoInnerError::into_error)?))
    }

    /// Adds a file of a record, which is in memory, to the [data](crate::DATA).
    ///
    /// # Errors
    ///
    /// If it cannot be written.
    pub fn add_file(&mut self, name: DataFile<'_>, bytes: &[u8]) -> io::Result<()> {
        self.add_content(name, bytes.len() as u64, bytes)
    }

    /// As [`add_file`](Self::add_file), with the first `bytes` bytes of `content`.
    ///
    /// # Errors
    ///
    /// If it cannot be written, or `content` has fewer bytes.
    pub fn add_content(&mut self, name: DataFile<'_>, bytes: u64, content: impl Read) -> io::Result<()> {
        let mut header = header(bytes);
        header.set_path(match name {
            DataFile::Content(seq, sha256) => format!("contents/{seq}/{sha256}"),
            DataFile::Diff(artifact) => format!("diffs/{artifact}"),
            DataFile::Upload(sha256) => format!("uploads/{sha256}"),
            DataFile::Reply(seq) => format!("replies/{seq}.json"),
        })?;
        header.set_cksum();
        self.write_all(header.as_bytes())?;
        if io::copy(&mut content.take(bytes), self)? != bytes {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let padding = bytes.next_multiple_of(512) - bytes;
        io::copy(&mut io::repeat(0).take(padding), self).map(drop)
    }

    /// Ends the [data](crate::DATA), which is a tar archive.
    ///
    /// # Errors
    ///
    /// If it cannot be written.
    pub fn end_files(&mut self) -> io::Result<()> {
        self.write_all(&[0; 1024])
    }
}

impl Write for Part {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        match &mut self.out {
            PartWriter::Plain(out) => out.write(buffer),
            PartWriter::Compressed(out) => out.write(buffer),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.out {
            PartWriter::Plain(out) => out.flush(),
            PartWriter::Compressed(out) => out.flush(),
        }
    }
}

fn header(size: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(EntryType::Regular);
    header.set_mode(0o644);
    header.set_size(size);
    header.set_mtime(0);
    header.set_uid(0);
    header.set_gid(0);
    header
}
