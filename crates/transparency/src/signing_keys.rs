//! The keys with which a service signs its log.

use crate::NoteError;
use crate::note::SignerKey;

/// One key, or two while it is replaced: the present one and its successor, which both sign.
#[derive(Clone, Debug)]
pub struct SigningKeys {
    key: SignerKey,
    successor: Option<SignerKey>,
}

impl SigningKeys {
    /// Returns a single key.
    pub fn new(key: SignerKey) -> Self {
        Self { key, successor: None }
    }

    /// Returns the key with a successor.
    ///
    /// # Errors
    ///
    /// [`NoteError::Key`] if the two have different names, or cannot be told apart in a note.
    pub fn with_successor(key: SignerKey, successor: SignerKey) -> Result<Self, NoteError> {
        let (old, new) = (key.verifier_key(), successor.verifier_key());
        if old.name() != new.name() || old.id() == new.id() {
            return Err(NoteError::Key);
        }
        Ok(Self { key, successor: Some(successor) })
    }

    /// Parses one or two private keys that white space separates, the present key first.
    ///
    /// # Errors
    ///
    /// [`NoteError::Key`], [`NoteError::Origin`].
    pub fn parse(text: &str) -> Result<Self, NoteError> {
        let mut words = text.split_whitespace();
        match (words.next(), words.next(), words.next()) {
            (Some(key), None, None) => Ok(Self::new(SignerKey::parse(key)?)),
            (Some(key), Some(successor), None) => {
                Self::with_successor(SignerKey::parse(key)?, SignerKey::parse(successor)?)
            }
            _ => Err(NoteError::Key),
        }
    }

    /// Returns the secrets as text, which [`parse`](Self::parse) reads: each key in a line.
    pub fn to_text(&self) -> String {
        self.all().map(|key| key.to_text() + "\n").collect()
    }

    /// Returns the present key.
    pub fn key(&self) -> &SignerKey {
        &self.key
    }

    /// Returns the key that replaces it.
    pub fn successor(&self) -> Option<&SignerKey> {
        self.successor.as_ref()
    }

    /// Returns the keys in their order.
    pub fn all(&self) -> impl Iterator<Item = &SignerKey> {
        std::iter::once(&self.key).chain(&self.successor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str, seed: u8) -> SignerKey {
        SignerKey::from_seed(name, &[seed; 32]).unwrap()
    }

    #[test]
    fn one_key_or_two_different_ones_of_one_log_are_read_as_they_are_written() {
        let (one, two) = (key("log", 1), key("log", 2));
        let alone = SigningKeys::new(one.clone());
        let both = SigningKeys::with_successor(one.clone(), two.clone()).unwrap();
        for keys in [&alone, &both] {
            let read = SigningKeys::parse(&keys.to_text()).unwrap();
            assert_eq!(read.to_text(), keys.to_text());
            assert_eq!(SigningKeys::parse(&keys.to_text().replace('\n', " ")).unwrap().to_text(), keys.to_text());
        }
        assert_eq!(both.to_text().lines().collect::<Vec<_>>(), [one.to_text(), two.to_text()]);
    }

    #[test]
    fn other_keys_are_refused() {
        let [one, two, three] = [1, 2, 3].map(|seed| key("log", seed).to_text());
        let other_log = key("other", 2).to_text();
        for text in
            ["", "\n", "x", &format!("{one}\n{one}"), &format!("{one}\n{other_log}"), &format!("{one} {two} {three}")]
        {
            assert!(SigningKeys::parse(text).is_err(), "{text}");
        }
        assert!(SigningKeys::parse(&one).is_ok());
    }
}
