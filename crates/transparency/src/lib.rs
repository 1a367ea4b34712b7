//! The transparency log of workspaced's audit records: Merkle tree, signed checkpoints, proofs.
//!
//! The service appends the heads of all audit chains to one Merkle tree (RFC 6962) and signs its root every few seconds as
//! a checkpoint (C2SP `tlog-checkpoint` in a `signed-note`). A party that keeps a checkpoint and the public key can verify
//! that no record before it was changed or removed. `openapi/checkpoints.md` specifies the formats.
//!
//! The law of this crate: it computes from its arguments alone. No database, no HTTP, no async, no clock, no random
//! numbers; the only IO is a [`std::io::BufRead`] that the caller opens. An outside verifier needs this crate and nothing
//! of the service.
//!
//! # Verify a log from outside
//!
//! Keep the public key (`GET /v1/checkpoint/key`) and the last checkpoint that was verified. Then verify each newer
//! checkpoint against it by a [`ConsistencyProof`], and single records by an [`InclusionProof`]:
//!
//! ```
//! use transparency::{ConsistencyProof, Frontier, NoteError, ProofPlan, SignerKey, VerifierKey};
//!
//! // What the service does: it appends leaves and signs the root.
//! let signer = SignerKey::from_seed("example.org/log", &[7; 32])?;
//! let (mut tree, mut hashes) = (Frontier::default(), std::collections::HashMap::new());
//! for leaf in 0..3u8 {
//!     hashes.extend(tree.push(transparency::hash_leaf(&[leaf])));
//! }
//! let old_note = signer.sign(tree.size(), tree.root());
//! hashes.extend(tree.push(transparency::hash_leaf(b"a fourth leaf")));
//! let new_note = signer.sign(tree.size(), tree.root());
//! let proof = ProofPlan::consistency(3, 4).and_then(|plan| plan.compute(|node| hashes.get(&node).copied()));
//! let answer = ConsistencyProof { from: 3, to: 4, proof: proof.unwrap_or_default() };
//!
//! // What a verifier does, which knows the public key and the old checkpoint.
//! let key = VerifierKey::parse(&signer.verifier_key().to_text())?;
//! let (old, new) = (key.verify(&old_note)?, key.verify(&new_note)?);
//! assert_eq!(answer.verify(&old, &new), Ok(()));
//! assert_eq!(key.verify(&new_note.replace("\n4\n", "\n5\n")), Err(NoteError::BadSignature));
//! # Ok::<(), NoteError>(())
//! ```
//!
//! A log may change its key: for a while both keys sign. [`KeyHistory`] follows the checkpoints that both have signed from the key
//! that the verifier keeps, and has the key for each tree size.

mod checkpoint;
mod key_change;
mod leaf_check;
mod log_file;
mod merkle;
mod note;
mod note_error;
mod proof;
mod proof_document;
mod signing_keys;

pub use checkpoint::Checkpoint;
pub use key_change::{KeyChange, KeyChangeError, KeyHistory};
pub use leaf_check::LeafCheck;
pub use log_file::{CheckpointReader, LogEntry, LogTail};
pub use merkle::{Frontier, Subtree, hash_checkpoint_leaf, hash_children, hash_leaf};
/// The types of records and identifiers in this crate's interface.
pub use model;
pub use note::{SignerKey, VerifierKey};
pub use note_error::NoteError;
pub use proof::{ProofPlan, verify_consistency, verify_inclusion};
pub use proof_document::{ConsistencyProof, InclusionProof, ProofError};
pub use signing_keys::SigningKeys;
