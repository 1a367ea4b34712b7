//! The text of a checkpoint, as C2SP `tlog-checkpoint` specifies it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use model::Sha256;

use crate::NoteError;

/// The state of a log: its origin, the size of its tree and the root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// The name of the log.
    pub origin: String,
    /// The number of leaves.
    pub size: u64,
    /// The root hash of the tree.
    pub root: Sha256,
}

impl Checkpoint {
    /// Returns the text that is signed.
    pub fn to_text(&self) -> String {
        format!("{}\n{}\n{}\n", self.origin, self.size, STANDARD.encode(self.root.as_bytes()))
    }

    /// Parses such a text. Extension lines after the third are ignored.
    ///
    /// # Errors
    ///
    /// [`NoteError::NoCheckpoint`].
    pub fn parse(text: &str) -> Result<Self, NoteError> {
        let invalid = NoteError::NoCheckpoint;
        let lines: Vec<&str> = text.strip_suffix('\n').ok_or(invalid)?.split('\n').collect();
        let [origin, size, root, extensions @ ..] = lines.as_slice() else { return Err(invalid) };
        if origin.is_empty() || extensions.iter().any(|line| line.is_empty()) {
            return Err(invalid);
        }
        let number: u64 = size.parse().map_err(|_| invalid)?;
        let root: [u8; 32] = STANDARD.decode(root).ok().and_then(|bytes| bytes.try_into().ok()).ok_or(invalid)?;
        if number.to_string() != **size {
            return Err(invalid);
        }
        Ok(Self { origin: (*origin).to_owned(), size: number, root: Sha256::from_bytes(root) })
    }
}
