//! What an entry changes beside files: its run, an operator, and what is stored with them.

use std::collections::BTreeMap;

use model::{ImportReport, OperatorName, OperatorToken, Sha256, Token, TokenId};

/// A change of the entry's run. A change that would have no effect is not recorded: the append returns
/// [`Appended::Unchanged`](super::Appended::Unchanged).
#[derive(Clone, Debug)]
pub enum RunTransition {
    /// Opens a run that is being prepared: sets its base commit, its import report and the size of its tree.
    Open {
        /// The base commit.
        base_commit: String,
        /// The import report.
        import: ImportReport,
    },
    /// Closes a run that is being prepared: its import has failed, as the report says.
    FailImport {
        /// When, RFC 3339 UTC.
        at: String,
        /// The import report.
        import: ImportReport,
    },
    /// Stores the import report of a run that is being prepared and whose import begins again.
    ResumeImport {
        /// The import report.
        import: ImportReport,
    },
    /// Closes the run, unless it is closed or deleted.
    Close {
        /// When, RFC 3339 UTC. Stored unless the run has such a time.
        at: String,
    },
    /// Closes a run that expires at this time, RFC 3339 UTC, unless it is closed or deleted, or another time is stored meanwhile.
    Expire {
        /// The time that has passed.
        expires_at: String,
    },
    /// Deletes the run, unless it is deleted. It stays deleted.
    Delete {
        /// When, as for [`Close`](Self::Close).
        at: String,
    },
    /// Marks a closed run as archived, if its head is still the archived one. It is deleted then, and stays archived.
    Archive {
        /// When, RFC 3339 UTC.
        at: String,
        /// The archive.
        uri: String,
        /// `seq` of the last archived record.
        head_seq: u64,
        /// The hash of that record.
        head_hash: Sha256,
    },
    /// Stores another token of the run, which must not be deleted.
    IssueToken(Token),
    /// Revokes a token of the run, unless it is revoked.
    RevokeToken(TokenId),
    /// Replaces the labels or the expiry time of a run that is not deleted. A closed run has no expiry time to replace.
    Update {
        /// The new labels.
        labels: Option<BTreeMap<String, String>>,
        /// The new expiry time.
        expires_at: Option<Expiry>,
    },
}

/// When a run expires.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expiry {
    /// It does not expire.
    Never,
    /// RFC 3339 UTC.
    At(String),
}

impl From<Expiry> for Option<String> {
    fn from(expiry: Expiry) -> Self {
        match expiry {
            Expiry::Never => None,
            Expiry::At(time) => Some(time),
        }
    }
}

/// Content that a caller uploaded, stored by its digest.
#[derive(Clone, Debug)]
pub struct UploadedContent {
    /// The digest, which is that of `bytes`.
    pub sha256: Sha256,
    /// The content.
    pub bytes: Vec<u8>,
}

/// A change of an operator.
#[derive(Clone, Debug)]
pub enum OperatorChange {
    /// Stores an operator.
    Create {
        /// The operator with its token.
        token: OperatorToken,
        /// The answer to the keyed request for it, with the current time.
        answer: Option<(KeyedAnswer, String)>,
    },
    /// Replaces the token of a valid operator.
    ReplaceToken {
        /// The operator with its new token.
        token: OperatorToken,
        /// When the present token ends, RFC 3339 UTC.
        ends_at: String,
        /// Whether the present token is valid until then, and earlier ones until they end. Otherwise `ends_at` is the current time, at
        /// which every token of the operator is revoked.
        is_valid_until: bool,
        /// The answer to the keyed request for it, with the current time.
        answer: Option<(KeyedAnswer, String)>,
    },
    /// Revokes a valid operator with every token of it. Its earlier votes for pending approvals no longer count.
    Revoke {
        /// The operator's name, in any letter case.
        name: OperatorName,
        /// When, RFC 3339 UTC.
        at: String,
    },
}

/// The answer to a creation under a key. It has no secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyedAnswer {
    /// The operator that chose the key.
    pub operator: String,
    /// Hash of the key.
    pub key_sha256: Sha256,
    /// Hash of the request, by which a repetition is known from another request.
    pub request_sha256: Sha256,
    /// The answer as JSON.
    pub answer: String,
    /// When the key may be used for another request, RFC 3339 UTC with microseconds.
    pub expires_at: String,
}
