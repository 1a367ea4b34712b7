//! Callers whose access tokens an issuer has signed: who they are here, and until when. The signature is verified elsewhere.

use std::collections::BTreeSet;
use std::sync::Arc;

use model::{OperatorName, Permission, RunId, Scope, Sha256, Token, TokenId};

use crate::admission::operators::{OF_ISSUER, OperatorIdentity};
use crate::admission::tokens::{Identity, has_expired};
use crate::clock::now;
use crate::operators::Operators;

/// Characters of the subject and of the issuer's host that a name shows.
const SHOWN_CHARS: (usize, usize) = (16, 19);
/// Hexadecimal characters of the hash that makes a name that of one subject of one issuer: 80 bits.
const HASH_CHARS: usize = 20;

/// What a verified access token says.
#[derive(Clone, Debug)]
pub struct IssuedCaller {
    /// The issuer, as it names itself.
    pub issuer: String,
    /// The host of the issuer.
    pub host: String,
    /// The subject, which the issuer gives to nobody else.
    pub subject: String,
    /// The run that the token is for; `None` for an operator.
    pub run: Option<RunId>,
    /// The names of scopes: of operators, or permissions if the token is for a run. Unknown ones permit nothing.
    pub scopes: BTreeSet<String>,
    /// When the token expires, in the format of stored times.
    pub expires_at: String,
}

impl IssuedCaller {
    /// The name in records and approvals, which is also the ID of a token for a run: readable parts of subject and issuer, and a hash
    /// of both. So a person is the same one in every token.
    fn name(&self) -> String {
        // An issuer is a URL, which contains no line end.
        let hash = Sha256::of(format!("{}\n{}", self.issuer, self.subject).as_bytes()).to_string();
        let readable = |text: &str, max: usize| -> String {
            let replaced = |char: char| if char.is_ascii_alphanumeric() { char } else { '_' };
            text.chars().take(max).map(replaced).collect()
        };
        let (subject, host) = (readable(&self.subject, SHOWN_CHARS.0), readable(&self.host, SHOWN_CHARS.1));
        format!("{OF_ISSUER}{subject}-{host}-{}", &hash[..HASH_CHARS])
    }

    fn identity(self, hash: Sha256) -> Result<Identity, model::IdInvalid> {
        let name = self.name();
        let Some(run_id) = self.run else {
            let scopes = self.scopes.iter().filter_map(|scope| Scope::parse(scope)).collect();
            let operator = OperatorIdentity::of_issuer(OperatorName::parse(&name)?, scopes, hash, self.expires_at);
            return Ok(Identity::Operator(Arc::new(operator)));
        };
        let permissions =
            Permission::ALL.into_iter().filter(|permission| self.scopes.contains(permission.as_str())).collect();
        Ok(Identity::Run(Arc::new(Token {
            token_id: TokenId::parse(&name)?,
            run_id,
            secret_sha256: hash,
            permissions,
            expires_at: Some(self.expires_at),
            revoked: false,
        })))
    }
}

impl Operators {
    /// Returns the caller of a token that was admitted, unless it has expired.
    pub fn identify_issued(&self, hash: &Sha256) -> Option<Identity> {
        let (_, identity) = self.engine.tokens.of_issuer.lock().get(hash).cloned()?;
        let is_valid = match &identity {
            Identity::Operator(operator) => self.engine.tokens.operators.check(operator).is_ok(),
            Identity::Run(token) => !has_expired(token),
        };
        is_valid.then_some(identity)
    }

    /// Returns the caller of a token with this hash, which the key with the hash `key` has signed; `None` if it has expired.
    pub fn admit_issued(&self, hash: &Sha256, key: Sha256, caller: IssuedCaller) -> Option<Identity> {
        if caller.expires_at <= now() {
            return None;
        }
        // Every name fits the grammar.
        let identity = caller.identity(*hash).ok()?;
        self.engine.tokens.of_issuer.lock().put(*hash, (key, identity.clone()));
        Some(identity)
    }

    /// Forgets the tokens that were signed by keys for which `is_valid` is false. Their streams end.
    pub fn retain_issued(&self, is_valid: impl Fn(&Sha256) -> bool) {
        let mut cached = self.engine.tokens.of_issuer.lock();
        let ended: Vec<_> = cached.iter().filter(|(_, (key, _))| !is_valid(key)).map(|(hash, _)| *hash).collect();
        for hash in &ended {
            cached.pop(hash);
        }
        drop(cached);
        if !ended.is_empty() {
            self.engine.tokens.announce_revocation();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caller(issuer: &str, subject: &str) -> IssuedCaller {
        IssuedCaller {
            issuer: issuer.to_owned(),
            host: "login.example.org".to_owned(),
            subject: subject.to_owned(),
            run: None,
            scopes: ["audit", "file:read", "Approve", "all"].map(str::to_owned).into(),
            expires_at: "2030-01-01T00:00:00.000000Z".to_owned(),
        }
    }

    #[test]
    fn a_name_is_that_of_one_subject_of_one_issuer_and_fits_every_grammar() {
        let of = |issuer: &str, subject: &str| caller(issuer, subject).name();
        let ada = of("https://login.example.org", "ada");
        assert!(ada.starts_with("oauth-ada-login_example_org-"), "{ada}");
        for (issuer, subject) in [
            ("https://login.example.org", "Ada"),
            ("https://login.example.org", "ada "),
            ("https://login.example.org/", "ada"),
            ("https://login.example.org", ""),
            ("https://login.example.org", &"x".repeat(255)),
            ("https://login.example.org", "auth0|0123456789abcdef"),
            ("https://login.example.org", "\u{1F980}\u{202e}\u{0}"),
        ] {
            let name = of(issuer, subject);
            assert_ne!(name, ada);
            assert!(OperatorName::parse(&name).is_ok() && TokenId::parse(&name).is_ok(), "{name}");
        }
    }

    #[test]
    fn scopes_are_those_of_operators_or_permissions_and_unknown_ones_permit_nothing() {
        let hash = Sha256::of(b"x");
        let Ok(Identity::Operator(operator)) = caller("https://a", "ada").identity(hash) else { panic!() };
        assert_eq!(operator.scopes, BTreeSet::from([Scope::Audit]));
        let run = Some(RunId::parse("r1").unwrap());
        let of_run = IssuedCaller { run, ..caller("https://a", "ada") };
        let Ok(Identity::Run(token)) = of_run.identity(hash) else { panic!() };
        assert_eq!(token.permissions, [Permission::FileRead]);
    }
}
