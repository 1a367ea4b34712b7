//! Signed notes with Ed25519, as C2SP `signed-note` specifies them: keys, signing, verification.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ed25519_dalek::{Signature, Signer as _, SigningKey, VerifyingKey};
use model::Sha256;

use crate::checkpoint::Checkpoint;
use crate::note_error::NoteError;

/// The signature type of Ed25519.
const ED25519: u8 = 1;
/// The prefix of a signature line.
pub(crate) const SIGNATURE_PREFIX: &str = "— ";
/// The prefix of a private key's text.
const PRIVATE_PREFIX: &str = "PRIVATE+KEY+";
/// The largest note that is accepted.
const MAX_NOTE_BYTES: usize = 16 * 1024;
/// The longest key name.
const MAX_NAME_BYTES: usize = 255;

/// A private key that signs checkpoints.
///
/// The name of the key is the origin of its checkpoints. Only [`to_text`](Self::to_text) reveals the secret.
#[derive(Clone)]
pub struct SignerKey {
    name: String,
    key: SigningKey,
}

impl SignerKey {
    /// Creates the key of `seed`, which has to be random, for the log called `name`.
    ///
    /// # Errors
    ///
    /// [`NoteError::Origin`].
    pub fn from_seed(name: &str, seed: &[u8; 32]) -> Result<Self, NoteError> {
        check_name(name)?;
        Ok(Self { name: name.to_owned(), key: SigningKey::from_bytes(seed) })
    }

    /// Returns the same key with another name.
    ///
    /// # Errors
    ///
    /// [`NoteError::Origin`].
    pub fn with_name(&self, name: &str) -> Result<Self, NoteError> {
        Self::from_seed(name, &self.key.to_bytes())
    }

    /// Parses `PRIVATE+KEY+NAME+ID+KEY`.
    ///
    /// # Errors
    ///
    /// [`NoteError::Key`], [`NoteError::Origin`].
    pub fn parse(text: &str) -> Result<Self, NoteError> {
        let (name, id, seed) = split_key(text.trim().strip_prefix(PRIVATE_PREFIX).ok_or(NoteError::Key)?)?;
        let key = Self::from_seed(name, &seed)?;
        if key.verifier_key().id() == id { Ok(key) } else { Err(NoteError::Key) }
    }

    /// Returns the secret as text, which [`parse`](Self::parse) reads.
    pub fn to_text(&self) -> String {
        format!("{PRIVATE_PREFIX}{}", key_text(&self.name, self.verifier_key().id(), &self.key.to_bytes()))
    }

    /// Returns the public key.
    pub fn verifier_key(&self) -> VerifierKey {
        VerifierKey { name: self.name.clone(), key: self.key.verifying_key() }
    }

    /// Signs the checkpoint of a tree. Returns the whole note.
    pub fn sign(&self, size: u64, root: Sha256) -> String {
        let text = Checkpoint { origin: self.name.clone(), size, root }.to_text();
        format!("{text}\n{}", self.signature_line(&text))
    }

    /// Signs `text`. Returns the signature line with its line feed.
    pub(crate) fn signature_line(&self, text: &str) -> String {
        let mut signature = self.verifier_key().id().to_be_bytes().to_vec();
        signature.extend(self.key.sign(text.as_bytes()).to_bytes());
        format!("{SIGNATURE_PREFIX}{} {}\n", self.name, STANDARD.encode(signature))
    }
}

impl fmt::Debug for SignerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SignerKey({})", self.name)
    }
}

/// A public key that verifies checkpoints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifierKey {
    name: String,
    key: VerifyingKey,
}

impl VerifierKey {
    /// Parses `NAME+ID+KEY`.
    ///
    /// # Errors
    ///
    /// [`NoteError::Key`], [`NoteError::Origin`].
    pub fn parse(text: &str) -> Result<Self, NoteError> {
        let (name, id, key) = split_key(text.trim())?;
        check_name(name)?;
        let key = VerifyingKey::from_bytes(&key).map_err(|_| NoteError::Key)?;
        let key = Self { name: name.to_owned(), key };
        if key.id() == id { Ok(key) } else { Err(NoteError::Key) }
    }

    /// Returns the key as text, which [`parse`](Self::parse) reads.
    pub fn to_text(&self) -> String {
        key_text(&self.name, self.id(), self.key.as_bytes())
    }

    /// Returns the name of the key, which is the origin of the log.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the key ID: the first 4 bytes of a hash over name and key.
    pub(crate) fn id(&self) -> u32 {
        let mut input = self.name.clone().into_bytes();
        input.extend([b'\n', ED25519]);
        input.extend(self.key.as_bytes());
        let hash = Sha256::of(&input);
        let [a, b, c, d, ..] = *hash.as_bytes();
        u32::from_be_bytes([a, b, c, d])
    }

    /// Verifies a note and returns its checkpoint. Signatures by other keys are ignored.
    ///
    /// # Errors
    ///
    /// [`NoteError`] if the text is not a signed note, has no signature or an invalid one by this key, or is not a
    /// checkpoint of this key's origin.
    pub fn verify(&self, note: &str) -> Result<Checkpoint, NoteError> {
        let (text, signatures) = split(note)?;
        let mut is_signed = false;
        for line in signatures.strip_suffix('\n').ok_or(NoteError::Malformed)?.split('\n') {
            is_signed |= self.has_signed(&text, line)?;
        }
        if !is_signed {
            return Err(NoteError::NotSigned);
        }
        let checkpoint = Checkpoint::parse(&text)?;
        if checkpoint.origin == self.name { Ok(checkpoint) } else { Err(NoteError::OtherOrigin) }
    }

    /// Returns whether the signature line is by this key. A line by this key with an invalid signature is an error.
    fn has_signed(&self, text: &str, line: &str) -> Result<bool, NoteError> {
        let malformed = NoteError::Malformed;
        let fields = line.strip_prefix(SIGNATURE_PREFIX).and_then(|fields| fields.split_once(' '));
        let (name, encoded) = fields.ok_or(malformed)?;
        let bytes = STANDARD.decode(encoded).map_err(|_| malformed)?;
        let (id, signature) = bytes.split_first_chunk::<4>().ok_or(malformed)?;
        if name != self.name || u32::from_be_bytes(*id) != self.id() {
            return Ok(false);
        }
        let signature = Signature::from_slice(signature).map_err(|_| NoteError::BadSignature)?;
        let verified = self.key.verify_strict(text.as_bytes(), &signature);
        verified.map(|()| true).map_err(|_| NoteError::BadSignature)
    }
}

/// Splits a note into its text and its signature lines.
fn split(note: &str) -> Result<(String, &str), NoteError> {
    let malformed = NoteError::Malformed;
    if note.len() > MAX_NOTE_BYTES || note.chars().any(|char| char.is_ascii_control() && char != '\n') {
        return Err(malformed);
    }
    let (text, signatures) = note.rsplit_once("\n\n").ok_or(malformed)?;
    Ok((format!("{text}\n"), signatures))
}

/// Returns the text of a note. No signature is verified.
///
/// # Errors
///
/// [`NoteError::Malformed`].
pub(crate) fn text(note: &str) -> Result<String, NoteError> {
    split(note).map(|(text, _)| text)
}

fn check_name(name: &str) -> Result<(), NoteError> {
    let is_invalid = |char: char| char.is_whitespace() || char.is_control() || char == '+';
    if name.is_empty() || name.len() > MAX_NAME_BYTES || name.contains(is_invalid) {
        return Err(NoteError::Origin);
    }
    Ok(())
}

fn key_text(name: &str, id: u32, key: &[u8; 32]) -> String {
    let mut encoded = vec![ED25519];
    encoded.extend(key);
    format!("{name}+{id:08x}+{}", STANDARD.encode(encoded))
}

fn split_key(text: &str) -> Result<(&str, u32, [u8; 32]), NoteError> {
    let invalid = NoteError::Key;
    let mut fields = text.splitn(3, '+');
    let (Some(name), Some(id), Some(encoded)) = (fields.next(), fields.next(), fields.next()) else {
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
