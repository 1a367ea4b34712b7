//! Changes of the key that signs a log: checkpoints that the old and the new key sign, and the keys that follow from them.
//!
//! While both keys sign, each checkpoint has two extension lines that name them. So a verifier that knows only one of them
//! accepts it, the old key names its successor, and the new key signs that it continues this tree and no other. Any one of these
//! checkpoints is the **statement** by which a verifier follows the change later.

use crate::note::{self, SignerKey, VerifierKey};
use crate::note_error::NoteError;
use model::Sha256;

use crate::Checkpoint;

/// The prefixes of the extension lines, in order.
const OLD_KEY: &str = "old-key ";
const NEW_KEY: &str = "new-key ";

/// Why a statement, or a checkpoint of a log whose key was changed, is not accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyChangeError {
    /// A note is not accepted.
    #[error(transparent)]
    Note(#[from] NoteError),
    /// A note is not a statement.
    #[error("it is not a statement about a change of the key")]
    Malformed,
    /// The two keys of a statement are the same, or have different names.
    #[error("a statement names two keys of one log, and this one does not")]
    Keys,
    /// A key that a statement names has not signed it.
    #[error("the statement at {size} leaves is not signed by the {key} that it names: it is forged")]
    NotSignedBy {
        /// The size of the statement's tree.
        size: u64,
        /// `old key` or `new key`.
        key: &'static str,
    },
    /// A statement does not continue the one before, or puts a replaced key in force again.
    #[error(
        "the statement at {size} leaves does not replace the key that the statement before it names by a new one: a statement is \
        missing, or the log has forked"
    )]
    Gap {
        /// The size of the statement's tree.
        size: u64,
    },
    /// A statement has no larger tree than the one before.
    #[error("the statement at {size} leaves follows one at {before}")]
    Backwards {
        /// The size of the statement's tree.
        size: u64,
        /// The size of the tree of the statement before.
        before: u64,
    },
    /// No statement names the trusted key.
    #[error("no statement about a change of the key names the trusted key: one is missing, or this is another log")]
    Untrusted,
    /// A checkpoint is signed by a key of the log that was not in force at its size.
    #[error(
        "the checkpoint over {size} leaves is signed by {key}, which was not in force for it: another key is from \
        {from} leaves on"
    )]
    NotInForce {
        /// The size of the checkpoint's tree.
        size: u64,
        /// The key that signed it.
        key: String,
        /// The size from which on the key in force had to sign.
        from: u64,
    },
    /// A checkpoint is signed by a key that was replaced before the trusted one.
    #[error(
        "the checkpoint over {size} leaves is signed by {key}, for which the trusted key does not vouch, since it came \
        later: verify it with that key, or with one before it"
    )]
    Earlier {
        /// The size of the checkpoint's tree.
        size: u64,
        /// The key that signed it.
        key: String,
    },
    /// A checkpoint and a statement over the same number of leaves have different roots.
    #[error("the checkpoint and the statement over {size} leaves have different roots: the log has forked")]
    OtherRoot {
        /// The size of both trees.
        size: u64,
    },
}

/// A verified statement that `new` replaces `old` as the key of a log. Both have signed it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyChange {
    /// The state of the log that both have signed. Checkpoints over as many leaves or more are signed by `new`.
    pub checkpoint: Checkpoint,
    /// The replaced key.
    pub old: VerifierKey,
    /// Its successor.
    pub new: VerifierKey,
}

impl SignerKey {
    /// Signs a checkpoint with both keys, which says that `new` replaces this key. Returns the whole note.
    ///
    /// # Errors
    ///
    /// [`KeyChangeError::Keys`] if `new` has another name or is the same key.
    pub fn sign_change(&self, new: &SignerKey, size: u64, root: Sha256) -> Result<String, KeyChangeError> {
        let (old_key, new_key) = (self.verifier_key(), new.verifier_key());
        check_keys(&old_key, &new_key)?;
        let checkpoint = Checkpoint { origin: old_key.name().to_owned(), size, root }.to_text();
        let text = format!("{checkpoint}{OLD_KEY}{}\n{NEW_KEY}{}\n", old_key.to_text(), new_key.to_text());
        Ok(format!("{text}\n{}{}", self.signature_line(&text), new.signature_line(&text)))
    }
}

impl KeyChange {
    /// Returns whether a note has the form of a statement. Nothing is verified.
    pub fn is_statement(note: &str) -> bool {
        note.split('\n').nth(3).is_some_and(|line| line.starts_with(OLD_KEY))
    }

    /// Parses a statement, and verifies that both keys that it names have signed it. Whether one of them is to be trusted is
    /// for [`KeyHistory::follow`].
    ///
    /// # Errors
    ///
    /// [`KeyChangeError`] if the note is not a statement, or a signature is missing or invalid.
    pub fn verify(note: &str) -> Result<Self, KeyChangeError> {
        let text = note::text(note)?;
        let checkpoint = Checkpoint::parse(&text)?;
        let mut lines = text.lines().skip(3);
        let mut field = |prefix| lines.next().and_then(|line: &str| line.strip_prefix(prefix));
        let (Some(old), Some(new), None) = (field(OLD_KEY), field(NEW_KEY), lines.next()) else {
            return Err(KeyChangeError::Malformed);
        };
        let (old, new) = (VerifierKey::parse(old)?, VerifierKey::parse(new)?);
        check_keys(&old, &new)?;
        let size = checkpoint.size;
        for (key, which) in [(&old, "old key"), (&new, "new key")] {
            match key.verify(note) {
                Ok(_) => {}
                Err(NoteError::NotSigned | NoteError::BadSignature) => {
                    return Err(KeyChangeError::NotSignedBy { size, key: which });
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(Self { checkpoint, old, new })
    }
}

fn check_keys(old: &VerifierKey, new: &VerifierKey) -> Result<(), KeyChangeError> {
    // Keys with one ID could not be distinguished in signature lines.
    if old.name() != new.name() || old.id() == new.id() { Err(KeyChangeError::Keys) } else { Ok(()) }
}

/// The keys of a log, each with the range of tree sizes for which it signs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyHistory {
    /// The key that the verifier trusts.
    trusted: VerifierKey,
    changes: Vec<KeyChange>,
}

impl KeyHistory {
    /// Follows the statements of a log, in their order, from a key that the verifier trusts.
    ///
    /// The statements have to be one chain that contains the trusted key. An earlier key vouches for a later one, since it
    /// names it. A later key does not vouch for an earlier one, but for the tree of the statement that it has signed: a
    /// checkpoint from before the statement is confirmed by the consistency proof between it and the statement.
    ///
    /// # Errors
    ///
    /// [`KeyChangeError`] if a statement is invalid, they are not a chain, or the trusted key is not in it.
    pub fn follow<'a>(
        trusted: VerifierKey,
        statements: impl IntoIterator<Item = &'a str>,
    ) -> Result<Self, KeyChangeError> {
        let mut history = Self { trusted, changes: Vec::new() };
        for note in statements {
            history.add(KeyChange::verify(note)?)?;
        }
        let is_named = |change: &KeyChange| change.old == history.trusted || change.new == history.trusted;
        if history.changes.is_empty() || history.changes.iter().any(is_named) {
            return Ok(history);
        }
        Err(KeyChangeError::Untrusted)
    }

    fn add(&mut self, change: KeyChange) -> Result<(), KeyChangeError> {
        let size = change.checkpoint.size;
        if let Some(last) = self.changes.last() {
            let before = last.checkpoint.size;
            if last.new != change.old || self.changes.iter().any(|earlier| earlier.old == change.new) {
                return Err(KeyChangeError::Gap { size });
            }
            if size <= before {
                return Err(KeyChangeError::Backwards { size, before });
            }
        }
        self.changes.push(change);
        Ok(())
    }

    /// Returns the changes, in order.
    pub fn changes(&self) -> &[KeyChange] {
        &self.changes
    }

    /// Returns the key that signs new checkpoints.
    pub fn newest(&self) -> &VerifierKey {
        self.changes.last().map_or(&self.trusted, |last| &last.new)
    }

    /// Returns the key that has to sign a checkpoint over `size` leaves.
    pub fn key_at(&self, size: u64) -> &VerifierKey {
        let next = self.changes.iter().find(|change| size < change.checkpoint.size);
        next.map_or(self.newest(), |change| &change.old)
    }

    /// Verifies a checkpoint: the key that was in force for its size has signed it.
    ///
    /// # Errors
    ///
    /// [`KeyChangeError`] if the note is not accepted, or is signed by a key that was not in force.
    pub fn verify(&self, note: &str) -> Result<Checkpoint, KeyChangeError> {
        let size = Checkpoint::parse(&note::text(note)?)?.size;
        let checkpoint = self.key_at(size).verify(note).map_err(|error| match error {
            NoteError::NotSigned => self.not_in_force(note, size).unwrap_or(KeyChangeError::Note(error)),
            error => error.into(),
        })?;
        let same_size = self.changes.iter().find(|change| change.checkpoint.size == size);
        if same_size.is_some_and(|change| change.checkpoint.root != checkpoint.root) {
            return Err(KeyChangeError::OtherRoot { size });
        }
        Ok(checkpoint)
    }

    /// Verifies a checkpoint as [`verify`](Self::verify) does, where no consistency proof follows. So a checkpoint from before
    /// the trusted key was in force is accepted only if this key has signed a statement over the same tree.
    ///
    /// # Errors
    ///
    /// [`KeyChangeError`] if the note is not accepted, or the trusted key does not vouch for it.
    pub fn verify_without_consistency(&self, note: &str) -> Result<Checkpoint, KeyChangeError> {
        let checkpoint = self.verify(note)?;
        let size = checkpoint.size;
        let since = self.changes.iter().find(|change| change.new == self.trusted);
        if since.is_some_and(|change| size < change.checkpoint.size) {
            return Err(KeyChangeError::Earlier { size, key: self.key_at(size).to_text() });
        }
        Ok(checkpoint)
    }

    /// Returns the error for a checkpoint that another key of the log has signed.
    fn not_in_force(&self, note: &str, size: u64) -> Option<KeyChangeError> {
        let keys = self.changes.iter().flat_map(|change| [&change.old, &change.new]);
        let key = keys.into_iter().find(|key| key.verify(note).is_ok())?.to_text();
        let before = self.changes.iter().rfind(|change| change.checkpoint.size <= size);
        let from = before.map_or(0, |change| change.checkpoint.size);
        Some(KeyChangeError::NotInForce { size, key, from })
    }
}

#[cfg(test)]
mod tests;
