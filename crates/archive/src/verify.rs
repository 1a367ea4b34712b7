//! Verification of an archive: every byte, the chain of its records, and the proof that a checkpoint covers it.

use std::collections::HashSet;
use std::io::{BufRead as _, BufReader, Read};

use model::{ChainCheck, Record, RunId, Sha256};
use transparency::{CheckpointReader, InclusionProof, KeyChangeError, KeyHistory, LogEntry, VerifierKey};

use crate::entries::each_entry;
use crate::error::{ArchiveError, invalid};
use crate::hashing::Hashing;
use crate::manifest::{ABSENT, APPROVALS, DATA, FILES, KEY_CHANGES, MANIFEST, Manifest, PROOF, RECORDS, RUN};
use crate::member::{MemberVisitor, walk};
use crate::named::Named;

/// The most bytes that an archive may unpack to.
pub const MAX_UNPACKED_BYTES: u64 = 256 << 30;
/// The largest line or small member: a record, an approval, the run, the proof.
const MAX_TEXT_BYTES: u64 = 64 << 20;

/// What a verified archive contains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArchiveReport {
    /// The run.
    pub run_id: RunId,
    /// The number of records, which is the `seq` of the last one.
    pub records: u64,
    /// The hash of the last record.
    pub head_hash: Sha256,
    /// Contents, diffs, uploads and replies.
    pub data_files: u64,
    /// Contents that are not among the data and are files of the tree.
    pub contents_in_tree: u64,
    /// The paths that contents and uploads that records name would have in the data, in order, of those that are neither there nor
    /// in the tree. The ledger has no copy of a large content that went from a file into the tree, where another has replaced it.
    pub absent: Vec<String>,
    /// Files of the tree and of the base.
    pub files: u64,
    /// The number of leaves of the signed checkpoint that covers the last record; `None` without a key to verify it.
    pub tree_size: Option<u64>,
    /// The size of the archive.
    pub bytes: u64,
    /// The hash of the archive.
    pub sha256: Sha256,
}

/// Verifies the archive in `reader`: each member has the hash in the manifest, the records are a chain that ends at the head
/// in the manifest, no diff is missing, diffs, contents and uploads are those that the records name, what it lists as absent is what
/// is absent, and with `key` that a
/// checkpoint covers the head. The checkpoint has to be signed by `key`, or by a later key to which the archive's statements
/// about changes of the key lead from it. `expected` is the hash of the whole file. Only that hash, if it is taken from the
/// record of the archive, proves the rest: the run, the approvals, the replies, the tree, and which contents are in the archive.
///
/// # Errors
///
/// [`ArchiveError`] with the first member that is invalid.
pub fn verify(
    reader: impl Read,
    key: Option<&VerifierKey>,
    expected: Option<Sha256>,
) -> Result<ArchiveReport, ArchiveError> {
    let mut check = ArchiveCheck::new(key);
    let (bytes, sha256) = walk(reader, MAX_UNPACKED_BYTES, &mut check)?;
    if expected.is_some_and(|expected| expected != sha256) {
        return Err(invalid("the file", "it does not have the hash in its name"));
    }
    let ArchiveCheck { manifest, named, data_files, contents_in_tree, files, tree_size, .. } = check;
    let absent = named.absent()?;
    let manifest = manifest.ok_or_else(|| invalid(MANIFEST, "it is missing"))?;
    let Manifest { run_id, head_seq, head_hash, .. } = manifest;
    let records = head_seq;
    Ok(ArchiveReport {
        run_id,
        records,
        head_hash,
        data_files,
        contents_in_tree,
        absent,
        files,
        tree_size,
        bytes,
        sha256,
    })
}

struct ArchiveCheck<'a> {
    key: Option<&'a VerifierKey>,
    /// The statements about changes of the key.
    key_changes: Vec<String>,
    manifest: Option<Manifest>,
    named: Named,
    data_files: u64,
    contents_in_tree: u64,
    files: u64,
    tree_size: Option<u64>,
}

impl MemberVisitor for ArchiveCheck<'_> {
    fn manifest(&mut self, manifest: &Manifest) -> Result<(), ArchiveError> {
        if !manifest.is_evidence() {
            return Err(invalid(MANIFEST, "it is an archive of a backup, which `workspaced restore --check` checks"));
        }
        self.manifest = Some(manifest.clone());
        Ok(())
    }

    fn member(&mut self, name: &str, content: &mut dyn Read) -> Result<(), ArchiveError> {
        let manifest = self.manifest.clone().ok_or_else(|| invalid(MANIFEST, "it is missing"))?;
        match name {
            RUN => check_run(&manifest, content),
            KEY_CHANGES => self.read_key_changes(content),
            PROOF => self.check_proof(&manifest, content),
            RECORDS => self.check_records(&manifest, content),
            APPROVALS => each_line(APPROVALS, content, |text| {
                serde_json::from_str::<serde_json::Value>(text).map(drop).map_err(|error| invalid(APPROVALS, &error))
            }),
            DATA => self.check_data(&manifest, content),
            ABSENT => self.check_absent(content),
            _ => self.check_files(content),
        }
    }
}

impl<'a> ArchiveCheck<'a> {
    fn new(key: Option<&'a VerifierKey>) -> Self {
        Self {
            key,
            key_changes: Vec::new(),
            manifest: None,
            named: Named::default(),
            data_files: 0,
            contents_in_tree: 0,
            files: 0,
            tree_size: None,
        }
    }

    fn read_key_changes(&mut self, content: &mut dyn Read) -> Result<(), ArchiveError> {
        let mut statements = CheckpointReader::new(BufReader::new(content), "");
        loop {
            match statements.next_entry().map_err(|error| invalid(KEY_CHANGES, &error))? {
                LogEntry::Note(statement) => self.key_changes.push(statement),
                LogEntry::Partial => return Err(invalid(KEY_CHANGES, "it ends within a statement")),
                LogEntry::End => return Ok(()),
            }
        }
    }

    fn check_proof(&mut self, manifest: &Manifest, content: &mut dyn Read) -> Result<(), ArchiveError> {
        let proof: InclusionProof =
            serde_json::from_slice(&small(PROOF, content)?).map_err(|error| invalid(PROOF, &error))?;
        if (&proof.leaf.run_id, proof.seq, proof.leaf.head_seq, proof.leaf.head_hash)
            != (&manifest.run_id, manifest.head_seq, manifest.head_seq, manifest.head_hash)
        {
            return Err(invalid(PROOF, "it is not about the last record of the archive"));
        }
        if let Some(key) = self.key {
            let statements = self.key_changes.iter().map(String::as_str);
            let keys = KeyHistory::follow(key.clone(), statements).map_err(|error| not_by(KEY_CHANGES, &error))?;
            let signed = keys.verify_without_consistency(&proof.checkpoint).map_err(|error| not_by(PROOF, &error))?;
            let verified = proof.verify(&manifest.run_id, manifest.head_seq, keys.key_at(signed.size));
            self.tree_size = Some(verified.map_err(|error| invalid(PROOF, &error))?.size);
        }
        Ok(())
    }

    fn check_records(&mut self, manifest: &Manifest, content: &mut dyn Read) -> Result<(), ArchiveError> {
        let mut chain = ChainCheck::new(&manifest.run_id);
        each_line(RECORDS, content, |text| {
            chain.push(text);
            // A line that is not a record breaks the chain.
            serde_json::from_str::<Record>(text).map_or(Ok(()), |record| self.named.add(&record))
        })?;
        match chain.finish((manifest.head_seq, manifest.head_hash)).first_break {
            None => Ok(()),
            Some(found) => Err(invalid(RECORDS, &format!("record {}: {}", found.seq, found.problem))),
        }
    }

    /// Checks that records name each content, diff and upload, with its hash.
    fn check_data(&mut self, manifest: &Manifest, content: &mut dyn Read) -> Result<(), ArchiveError> {
        each_entry(DATA, content, |entry| {
            let path = String::from_utf8_lossy(&entry.path);
            if !entry.header.entry_type().is_file() {
                return Err(invalid(DATA, &format!("`{}` is not a file", path.escape_debug())));
            }
            let expected = self.named.take(&path, manifest.head_seq)?;
            let mut hashing = Hashing::new(entry.content);
            std::io::copy(&mut hashing, &mut std::io::sink()).map_err(|error| invalid(DATA, &error))?;
            if expected.is_some_and(|expected| expected != hashing.sha256()) {
                return Err(invalid(DATA, &format!("`{}` does not have its hash", path.escape_debug())));
            }
            self.data_files += 1;
            Ok(())
        })
    }

    /// Counts the files, and finds contents in the tree that the data lack.
    fn check_files(&mut self, content: &mut dyn Read) -> Result<(), ArchiveError> {
        let missing = self.named.missing_contents();
        let mut found = HashSet::new();
        each_entry(FILES, content, |entry| {
            if !entry.header.entry_type().is_file() {
                return Ok(());
            }
            self.files += 1;
            if !missing.is_empty() && entry.path.starts_with(b"repo/") {
                let mut hashing = Hashing::new(entry.content);
                std::io::copy(&mut hashing, &mut std::io::sink()).map_err(|error| invalid(FILES, &error))?;
                found.extend(Some(hashing.sha256()).filter(|hash| missing.contains(hash)));
            }
            Ok(())
        })?;
        self.contents_in_tree = self.named.take_contents(&found);
        Ok(())
    }

    /// Checks that what is listed as absent is what is absent: nothing else was taken out of the archive.
    fn check_absent(&self, content: &mut dyn Read) -> Result<(), ArchiveError> {
        let absent = self.named.absent()?;
        let mut expected = absent.iter();
        each_line(ABSENT, content, |line| match expected.next() {
            Some(path) if path == line => Ok(()),
            _ => Err(invalid(
                ABSENT,
                &format!("it lists `{}`, which is not the next that is absent", line.escape_debug()),
            )),
        })?;
        expected
            .next()
            .map_or(Ok(()), |path| Err(invalid(ABSENT, &format!("it does not list `{path}`, which is absent"))))
    }
}

/// Returns the error for a checkpoint that the given key does not confirm.
fn not_by(member: &str, error: &KeyChangeError) -> ArchiveError {
    let hint = "verify the archive with the key that was in force when it was written, or with an earlier one";
    invalid(member, &format!("{error}; {hint}"))
}

fn check_run(manifest: &Manifest, content: &mut dyn Read) -> Result<(), ArchiveError> {
    let run: serde_json::Value = serde_json::from_slice(&small(RUN, content)?).map_err(|error| invalid(RUN, &error))?;
    let head_hash = manifest.head_hash.to_string();
    let is_same = run["runId"].as_str() == Some(manifest.run_id.as_str())
        && run["headSeq"].as_u64() == Some(manifest.head_seq)
        && run["headHash"].as_str() == Some(&head_hash);
    if is_same { Ok(()) } else { Err(invalid(RUN, "it is not the run of the manifest")) }
}

/// Reads a small member.
fn small(name: &str, content: &mut dyn Read) -> Result<Vec<u8>, ArchiveError> {
    let mut bytes = Vec::new();
    content.take(MAX_TEXT_BYTES).read_to_end(&mut bytes).map_err(|error| invalid(name, &error))?;
    Ok(bytes)
}

/// Passes each line of a member to `each`.
fn each_line(
    name: &str,
    content: &mut dyn Read,
    mut each: impl FnMut(&str) -> Result<(), ArchiveError>,
) -> Result<(), ArchiveError> {
    let mut lines = BufReader::new(content);
    let mut line = Vec::new();
    loop {
        line.clear();
        (&mut lines).take(MAX_TEXT_BYTES).read_until(b'\n', &mut line).map_err(|error| invalid(name, &error))?;
        match line.split_last() {
            None => return Ok(()),
            Some((b'\n', text)) => each(std::str::from_utf8(text).map_err(|error| invalid(name, &error))?)?,
            Some(_) => return Err(invalid(name, "a line is too long or has no end")),
        }
    }
}
