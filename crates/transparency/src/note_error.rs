//! Why a key, a note or a checkpoint is not accepted.

/// Why a key, a note or a checkpoint is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoteError {
    /// The name of a log cannot be used.
    #[error("invalid origin: use 1 to 255 bytes without spaces, control characters and `+`")]
    Origin,
    /// A key cannot be parsed.
    #[error("it is not an Ed25519 key in the text form of signed notes")]
    Key,
    /// A text is not a signed note.
    #[error("it is not a signed note")]
    Malformed,
    /// The text of a note is not a checkpoint.
    #[error("the note's text is not a checkpoint")]
    NoCheckpoint,
    /// The checkpoint belongs to another log.
    #[error("the checkpoint has another origin")]
    OtherOrigin,
    /// The note has no signature by this key.
    #[error("the note is not signed by this key")]
    NotSigned,
    /// A signature by this key is invalid.
    #[error("the signature is invalid")]
    BadSignature,
}
