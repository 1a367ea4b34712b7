//! Checkpoints: what a leaf of the tree says, the text of a checkpoint, and the signed note that carries it.
//!
//! Text and note are those of C2SP: `tlog-checkpoint` and `signed-note` with Ed25519.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ed25519_dalek::{Signature, Signer as _, SigningKey, VerifyingKey};
use serde::{Deserialize, Serialize};

use crate::merkle::leaf_hash;
use crate::{RunId, Sha256};

/// Ed25519 in a signed note.
const ED25519: u8 = 1;
/// What begins a signature's line.
const MARK: &str = "— ";
/// The longest note that is looked at, in bytes.
const MAX_NOTE_BYTES: usize = 16 * 1024;
/// The longest origin, in bytes.
const MAX_ORIGIN_BYTES: usize = 255;

/// A leaf: where the audit chain of a run stood. Members stand in the order of their names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct CheckpointLeaf {
    /// The hash of the run's last record.
    pub head_hash: Sha256,
    /// Its `seq`.
    pub head_seq: u64,
    /// The run.
    pub run_id: RunId,
}

impl CheckpointLeaf {
    /// The text that is hashed: canonical JSON.
    pub fn to_canonical(&self) -> String {
        // Strings and numbers only, which always serialise; an empty text would fail verification.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Its hash in the tree.
    pub fn hash(&self) -> Sha256 {
        leaf_hash(self.to_canonical().as_bytes())
    }
}

/// A text that is no checkpoint, no key, or not signed by whom it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CheckpointInvalid {
    /// The name of a log cannot be used.
    #[error("an origin is 1 to 255 characters without spaces, control characters and `+`")]
    Origin,
    /// A key cannot be read.
    #[error("it is no Ed25519 key of a signed note")]
    Key,
    /// A text is no signed note.
    #[error("it is no signed note")]
    Note,
    /// A note's text is no checkpoint.
    #[error("the note's text is no checkpoint")]
    Text,
    /// A checkpoint of another log.
    #[error("the checkpoint is of another origin")]
    OtherOrigin,
    /// A signature of this key is missing.
    #[error("the note is not signed by this key")]
    NotSigned,
    /// A signature of this key does not hold.
    #[error("the signature does not hold")]
    BadSignature,
}

/// What a tree of leaves was at some time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// The log's name.
    pub origin: String,
    /// How many leaves the tree has.
    pub size: u64,
    /// Its root.
    pub root: Sha256,
}

impl Checkpoint {
    /// The text that is signed.
    pub fn to_text(&self) -> String {
        format!("{}\n{}\n{}\n", self.origin, self.size, STANDARD.encode(self.root.as_bytes()))
    }

    /// Reads such a text. Lines behind the third are let pass, as the format asks for.
    ///
    /// # Errors
    ///
    /// [`CheckpointInvalid::Text`].
    pub fn parse(text: &str) -> Result<Self, CheckpointInvalid> {
        let invalid = CheckpointInvalid::Text;
        let lines: Vec<&str> = text.strip_suffix('\n').ok_or(invalid)?.split('\n').collect();
        let [origin, size, root, further @ ..] = lines.as_slice() else { return Err(invalid) };
        if origin.is_empty() || further.iter().any(|line| line.is_empty()) {
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

/// The key that signs checkpoints. Its secret is never shown but by [`CheckpointKey::to_text`].
#[derive(Clone)]
pub struct CheckpointKey {
    name: String,
    key: SigningKey,
}

impl CheckpointKey {
    /// A key of `seed`, which has to be random, for the log called `name`.
    ///
    /// # Errors
    ///
    /// [`CheckpointInvalid::Origin`].
    pub fn from_seed(name: &str, seed: &[u8; 32]) -> Result<Self, CheckpointInvalid> {
        check_name(name)?;
        Ok(Self { name: name.to_owned(), key: SigningKey::from_bytes(seed) })
    }

    /// The same key under another name.
    ///
    /// # Errors
    ///
    /// [`CheckpointInvalid::Origin`].
    pub fn named(&self, name: &str) -> Result<Self, CheckpointInvalid> {
        Self::from_seed(name, &self.key.to_bytes())
    }

    /// Reads `PRIVATE+KEY+NAME+ID+KEY`.
    ///
    /// # Errors
    ///
    /// [`CheckpointInvalid::Key`].
    pub fn parse(text: &str) -> Result<Self, CheckpointInvalid> {
        let rest = text.trim().strip_prefix("PRIVATE+KEY+").ok_or(CheckpointInvalid::Key)?;
        let (name, id, seed) = split_key(rest)?;
        let key = Self::from_seed(name, &seed)?;
        if key.verifier().id() != id {
            return Err(CheckpointInvalid::Key);
        }
        Ok(key)
    }

    /// The secret as text, which [`CheckpointKey::parse`] reads.
    pub fn to_text(&self) -> String {
        format!("PRIVATE+KEY+{}", key_text(&self.name, self.verifier().id(), &self.key.to_bytes()))
    }

    /// What checks this key's signatures.
    pub fn verifier(&self) -> CheckpointVerifier {
        CheckpointVerifier { name: self.name.clone(), key: self.key.verifying_key() }
    }

    /// Signs the checkpoint of a tree: the whole note.
    pub fn sign(&self, size: u64, root: Sha256) -> String {
        let text = Checkpoint { origin: self.name.clone(), size, root }.to_text();
        let mut signed = self.verifier().id().to_be_bytes().to_vec();
        signed.extend(self.key.sign(text.as_bytes()).to_bytes());
        format!("{text}\n{MARK}{} {}\n", self.name, STANDARD.encode(signed))
    }
}

impl fmt::Debug for CheckpointKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CheckpointKey({})", self.name)
    }
}

/// What checks the signatures of one key: public.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckpointVerifier {
    name: String,
    key: VerifyingKey,
}

impl CheckpointVerifier {
    /// Reads `NAME+ID+KEY`.
    ///
    /// # Errors
    ///
    /// [`CheckpointInvalid::Key`].
    pub fn parse(text: &str) -> Result<Self, CheckpointInvalid> {
        let (name, id, key) = split_key(text.trim())?;
        check_name(name)?;
        let key = VerifyingKey::from_bytes(&key).map_err(|_| CheckpointInvalid::Key)?;
        let verifier = Self { name: name.to_owned(), key };
        if verifier.id() == id { Ok(verifier) } else { Err(CheckpointInvalid::Key) }
    }

    /// The key as text, which [`CheckpointVerifier::parse`] reads.
    pub fn to_text(&self) -> String {
        key_text(&self.name, self.id(), self.key.as_bytes())
    }

    /// The log's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What tells this key from others of the same name.
    fn id(&self) -> u32 {
        let mut told = self.name.clone().into_bytes();
        told.extend([b'\n', ED25519]);
        told.extend(self.key.as_bytes());
        let hash = Sha256::of(&told);
        let [a, b, c, d, ..] = *hash.as_bytes();
        u32::from_be_bytes([a, b, c, d])
    }

    /// The checkpoint of a note that this key has signed. Signatures of other keys are let pass.
    ///
    /// # Errors
    ///
    /// Where it is no note, no checkpoint of this origin, or not signed by this key.
    pub fn open(&self, note: &str) -> Result<Checkpoint, CheckpointInvalid> {
        let invalid = CheckpointInvalid::Note;
        if note.len() > MAX_NOTE_BYTES || note.chars().any(|char| char.is_ascii_control() && char != '\n') {
            return Err(invalid);
        }
        let (text, signatures) = note.rsplit_once("\n\n").ok_or(invalid)?;
        let text = format!("{text}\n");
        let mut signed = false;
        for line in signatures.strip_suffix('\n').ok_or(invalid)?.split('\n') {
            signed |= self.holds(&text, line)?;
        }
        if !signed {
            return Err(CheckpointInvalid::NotSigned);
        }
        let checkpoint = Checkpoint::parse(&text)?;
        if checkpoint.origin == self.name { Ok(checkpoint) } else { Err(CheckpointInvalid::OtherOrigin) }
    }

    /// Whether `line` is a signature of this key; an error where it says so and does not hold.
    fn holds(&self, text: &str, line: &str) -> Result<bool, CheckpointInvalid> {
        let invalid = CheckpointInvalid::Note;
        let (name, encoded) = line.strip_prefix(MARK).and_then(|rest| rest.split_once(' ')).ok_or(invalid)?;
        let bytes = STANDARD.decode(encoded).map_err(|_| invalid)?;
        let (id, signature) = bytes.split_first_chunk::<4>().ok_or(invalid)?;
        if name != self.name || u32::from_be_bytes(*id) != self.id() {
            return Ok(false);
        }
        let signature = Signature::from_slice(signature).map_err(|_| CheckpointInvalid::BadSignature)?;
        let held = self.key.verify_strict(text.as_bytes(), &signature);
        held.map(|()| true).map_err(|_| CheckpointInvalid::BadSignature)
    }
}

fn check_name(name: &str) -> Result<(), CheckpointInvalid> {
    let bad = |char: char| char.is_whitespace() || char.is_control() || char == '+';
    if name.is_empty() || name.len() > MAX_ORIGIN_BYTES || name.contains(bad) {
        return Err(CheckpointInvalid::Origin);
    }
    Ok(())
}

fn key_text(name: &str, id: u32, key: &[u8; 32]) -> String {
    let mut encoded = vec![ED25519];
    encoded.extend(key);
    format!("{name}+{id:08x}+{}", STANDARD.encode(encoded))
}

fn split_key(text: &str) -> Result<(&str, u32, [u8; 32]), CheckpointInvalid> {
    let invalid = CheckpointInvalid::Key;
    let mut parts = text.splitn(3, '+');
    let (Some(name), Some(id), Some(encoded)) = (parts.next(), parts.next(), parts.next()) else {
        return Err(invalid);
    };
    let id = u32::from_str_radix(id, 16).ok().filter(|parsed| format!("{parsed:08x}") == id).ok_or(invalid)?;
    let bytes = STANDARD.decode(encoded).map_err(|_| invalid)?;
    match bytes.split_first() {
        Some((&ED25519, key)) => Ok((name, id, key.try_into().map_err(|_| invalid)?)),
        _ => Err(invalid),
    }
}

#[cfg(test)]
mod tests;
