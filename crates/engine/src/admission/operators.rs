//! Operators: people and programs that call the service under a name, each with a token and scopes of its own.
//!
//! Those of the configuration stay until it is read again. The others are stored in the ledger and can be revoked.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use ledger::{Ledger, LedgerError, RequiredToken, TokenHolder};
use model::{Code, Operator, OperatorName, OperatorToken, Refusal, Scope, Sha256};
use parking_lot::{Mutex, RwLock};
use subtle::ConstantTimeEq as _;

use crate::clock::now;

/// Maximum number of stored tokens that are neither revoked nor expired. All of them are in memory.
const MAX_OPERATORS: usize = 1000;

/// The operator of the token that the environment or the first start has set.
pub const OPERATOR: &str = "operator";
/// The operator of the token in `WORKSPACED_AUDIT_TOKEN`.
pub const AUDIT: &str = "audit";
/// Names that the audit uses for other callers.
const RESERVED: [&str; 8] =
    [OPERATOR, AUDIT, "orchestrate", "repair", "service", "restore", "migrate-store", "command-line"];
/// What the names of callers begin with whose tokens an issuer has signed. No other operator and no token ID begins so.
pub(crate) const OF_ISSUER: &str = "oauth-";
/// Operators that are read from the ledger at a time.
const PAGE: u32 = 1000;

/// The holder of an operator's token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperatorIdentity {
    /// The operator's name.
    pub name: OperatorName,
    /// What the operator may do.
    pub scopes: BTreeSet<Scope>,
    /// SHA-256 of the token.
    pub secret_sha256: Sha256,
    /// When the token expires.
    expires_at: Option<String>,
    source: OperatorKeeper,
}

/// Who keeps an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OperatorKeeper {
    /// The configuration.
    Configured,
    /// The ledger, so that it can be revoked.
    Stored,
    /// An issuer, which has signed its token. The service knows it by that token alone.
    Issuer,
}

/// Why operators cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The ledger fails.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// Two operators have one name.
    #[error(
        "the operator `{0}` is in the configuration and in the database: remove it from the configuration, or start \
         without it there and revoke it (`workspaced operator revoke {0}`)"
    )]
    DuplicateName(OperatorName),
}

/// The operators that this process knows and that are not revoked.
pub(crate) struct KnownOperators {
    /// Those of the configuration, of which the first is the built-in operator.
    fixed: RwLock<Vec<Arc<OperatorIdentity>>>,
    stored: Mutex<HashMap<Sha256, Arc<OperatorIdentity>>>,
    /// Held while the tokens of an operator are changed.
    pub(crate) changes: tokio::sync::Mutex<()>,
}

impl OperatorIdentity {
    /// An operator of the configuration.
    pub fn configured(name: OperatorName, scopes: impl IntoIterator<Item = Scope>, secret_sha256: Sha256) -> Self {
        let scopes = scopes.into_iter().collect();
        Self { name, scopes, secret_sha256, expires_at: None, source: OperatorKeeper::Configured }
    }

    /// An operator that the environment sets.
    ///
    /// # Errors
    ///
    /// None for the names in this module.
    pub(crate) fn built_in(name: &str, scope: Scope, secret_sha256: Sha256) -> Result<Self, LedgerError> {
        let name = OperatorName::parse(name).map_err(|error| LedgerError::Internal(Box::new(error)))?;
        Ok(Self::configured(name, [scope], secret_sha256))
    }

    fn stored(token: OperatorToken) -> Self {
        let OperatorToken { operator, secret_sha256 } = token;
        let (name, scopes, expires_at) = (operator.name, operator.scopes, operator.expires_at);
        Self { name, scopes, secret_sha256, expires_at, source: OperatorKeeper::Stored }
    }

    /// An operator whose token an issuer has signed.
    pub(crate) fn of_issuer(
        name: OperatorName,
        scopes: BTreeSet<Scope>,
        secret_sha256: Sha256,
        expires_at: String,
    ) -> Self {
        Self { name, scopes, secret_sha256, expires_at: Some(expires_at), source: OperatorKeeper::Issuer }
    }

    /// Whether the operator has one of `scopes`.
    pub fn has_any(&self, scopes: &[Scope]) -> bool {
        scopes.iter().any(|scope| self.scopes.contains(scope))
    }

    /// Whether the name is that of a shared token, which does not name a person.
    pub fn is_shared(&self) -> bool {
        self.source == OperatorKeeper::Configured && self.name.as_str() == OPERATOR
    }

    /// The name in the audit.
    pub fn actor(&self) -> String {
        // Records of every version have this name for the token of the environment.
        let name = if self.is_shared() { Scope::Orchestrate.as_str() } else { self.name.as_str() };
        format!("operator:{name}")
    }

    /// What must hold when something is recorded for the operator; `None` if its token cannot end.
    pub fn required_token(&self) -> Option<RequiredToken> {
        self.may_end().then(|| RequiredToken {
            holder: TokenHolder::Operator(self.secret_sha256),
            expires_at: self.expires_at.clone(),
            now,
        })
    }

    /// Whether the token can be revoked by a call or expire.
    pub(crate) fn may_end(&self) -> bool {
        self.source != OperatorKeeper::Configured
    }

    fn has_expired(&self) -> bool {
        self.expires_at.as_ref().is_some_and(|expires_at| *expires_at <= now())
    }
}

impl KnownOperators {
    /// Adds the operators of the ledger to those of the configuration.
    ///
    /// # Errors
    ///
    /// Fails if the ledger fails, or has a valid operator with the name of a configured one.
    pub(crate) async fn load(fixed: Vec<OperatorIdentity>, ledger: &dyn Ledger) -> Result<Self, LoadError> {
        let stored = read_stored(ledger).await?;
        let is_fixed = |stored: &&OperatorToken| fixed.iter().any(|fixed| fixed.name.is_same(&stored.operator.name));
        if let Some(token) = stored.iter().find(is_fixed) {
            return Err(LoadError::DuplicateName(token.operator.name.clone()));
        }
        let fixed = fixed.into_iter().map(Arc::new).collect();
        let (fixed, stored) = (RwLock::new(fixed), Mutex::new(by_hash(stored)));
        Ok(Self { fixed, stored, changes: tokio::sync::Mutex::default() })
    }

    /// Reads the operators of the ledger again. Changes by other nodes may be in flight.
    ///
    /// # Errors
    ///
    /// Fails if the ledger fails.
    pub(crate) async fn refresh(&self, ledger: &dyn Ledger) -> ledger::Result<()> {
        let _changing = self.changes.lock().await;
        let stored = by_hash(read_stored(ledger).await?);
        *self.stored.lock() = stored;
        Ok(())
    }

    /// Returns the operator whose token has this hash, unless the token has expired.
    pub(crate) fn find(&self, hash: &Sha256) -> Option<Arc<OperatorIdentity>> {
        let is_same = |operator: &&Arc<OperatorIdentity>| -> bool {
            operator.secret_sha256.as_bytes().ct_eq(hash.as_bytes()).into()
        };
        let fixed = self.fixed.read().iter().find(is_same).map(Arc::clone);
        let found = fixed.or_else(|| self.stored.lock().get(hash).cloned());
        found.filter(|operator| !operator.has_expired())
    }

    /// Returns the operator of that name, with the token of it that lasts longest, unless each has expired.
    pub(crate) fn named(&self, name: &OperatorName) -> Option<Arc<OperatorIdentity>> {
        let fixed = self.fixed.read().iter().find(|operator| operator.name == *name).map(Arc::clone);
        fixed.or_else(|| {
            let stored = self.stored.lock();
            let tokens = stored.values().filter(|operator| operator.name == *name && !operator.has_expired());
            tokens.max_by_key(|one| (one.expires_at.is_none(), one.expires_at.clone())).cloned()
        })
    }

    /// Returns whether an operator of that name is configured.
    pub(crate) fn is_fixed(&self, name: &OperatorName) -> bool {
        self.fixed.read().iter().any(|operator| operator.name.is_same(name))
    }

    /// Returns the hash of the built-in operator's first token.
    pub(crate) fn built_in_sha256(&self) -> Sha256 {
        self.fixed.read().first().map_or(Sha256::ZERO, |operator| operator.secret_sha256)
    }

    /// Replaces the operators of the configuration.
    ///
    /// # Errors
    ///
    /// Fails if the ledger has a valid operator with the name of one of them.
    pub(crate) async fn reconfigure(&self, fixed: Vec<OperatorIdentity>) -> Result<(), LoadError> {
        let _changing = self.changes.lock().await;
        let is_stored = |name: &OperatorName| self.stored.lock().values().any(|stored| stored.name.is_same(name));
        if let Some(taken) = fixed.iter().find(|operator| is_stored(&operator.name)) {
            return Err(LoadError::DuplicateName(taken.name.clone()));
        }
        *self.fixed.write() = fixed.into_iter().map(Arc::new).collect();
        Ok(())
    }

    /// Checks that an operator may still act.
    ///
    /// # Errors
    ///
    /// `UNAUTHENTICATED` if its token was revoked or has expired.
    pub(crate) fn check(&self, operator: &OperatorIdentity) -> Result<(), Refusal> {
        let is_valid = match operator.source {
            OperatorKeeper::Issuer => !operator.has_expired(),
            OperatorKeeper::Configured | OperatorKeeper::Stored => self.find(&operator.secret_sha256).is_some(),
        };
        if is_valid {
            return Ok(());
        }
        Err(Refusal::new(
            Code::Unauthenticated,
            "the token was revoked or has expired while the request was in progress; nothing was changed",
            "Ask an operator with the scope `orchestrate` for another token.",
        ))
    }

    /// Describes the configured operators.
    pub(crate) fn describe_fixed(&self) -> Vec<Operator> {
        let describe = |operator: &Arc<OperatorIdentity>| Operator {
            name: operator.name.clone(),
            scopes: operator.scopes.clone(),
            created_at: None,
            created_by: None,
            expires_at: None,
            revoked_at: None,
        };
        let mut described: Vec<Operator> = Vec::new();
        for operator in self.fixed.read().iter().map(describe) {
            // An operator may have two tokens.
            if !described.iter().any(|other| other.name.is_same(&operator.name)) {
                described.push(operator);
            }
        }
        described
    }

    /// Checks that there may be one more token. Forgets those that have expired, which do not count.
    ///
    /// # Errors
    ///
    /// `QUOTA_EXCEEDED`.
    pub(crate) fn check_count(&self) -> Result<(), Refusal> {
        let count = {
            let mut stored = self.stored.lock();
            stored.retain(|_, operator| !operator.has_expired());
            stored.len()
        };
        if count < MAX_OPERATORS {
            return Ok(());
        }
        let message = format!("there are {count} operators; there may be {MAX_OPERATORS}");
        let refusal = Refusal::new(Code::QuotaExceeded, message, "Revoke operators that are not used any more.");
        Err(refusal.with_details(|details| {
            (details.limit, details.actual) = (Some(MAX_OPERATORS as u64), Some(count as u64));
        }))
    }

    pub(crate) fn add(&self, token: OperatorToken) {
        self.stored.lock().insert(token.secret_sha256, Arc::new(OperatorIdentity::stored(token)));
    }

    pub(crate) fn remove(&self, name: &OperatorName) {
        self.stored.lock().retain(|_, operator| !operator.name.is_same(name));
    }

    /// Adds `token`. The token `present`, which it replaces, is valid until `ends_at`; without that, every token of the operator ends.
    pub(crate) fn replace(&self, present: &Sha256, token: OperatorToken, ends_at: Option<&str>) {
        let mut stored = self.stored.lock();
        match ends_at {
            None => stored.retain(|_, operator| !operator.name.is_same(&token.operator.name)),
            Some(ends_at) => {
                if let Some(operator) = stored.get_mut(present) {
                    let replaced = OperatorIdentity { expires_at: Some(ends_at.to_owned()), ..(**operator).clone() };
                    *operator = Arc::new(replaced);
                }
            }
        }
        stored.insert(token.secret_sha256, Arc::new(OperatorIdentity::stored(token)));
    }
}

/// Reads the tokens of the ledger that have not been revoked. An expired one that was not replaced is among them, because its
/// operator keeps the name.
async fn read_stored(ledger: &dyn Ledger) -> ledger::Result<Vec<OperatorToken>> {
    let (mut stored, mut after) = (Vec::new(), 0);
    let now = now();
    // The end of a replaced token may be in the future.
    let has_ended =
        |operator: &Operator| operator.is_revoked() || operator.revoked_at.as_ref().is_some_and(|end| *end <= now);
    loop {
        let page = ledger.operators(after, PAGE).await?;
        let Some((last, _)) = page.last() else { return Ok(stored) };
        after = *last;
        stored.extend(page.into_iter().map(|(_, token)| token).filter(|token| !has_ended(&token.operator)));
    }
}

fn by_hash(stored: Vec<OperatorToken>) -> HashMap<Sha256, Arc<OperatorIdentity>> {
    stored.into_iter().map(|token| (token.secret_sha256, Arc::new(OperatorIdentity::stored(token)))).collect()
}

/// Parses the name of a new operator.
///
/// # Errors
///
/// `INVALID_REQUEST` for a malformed or reserved name.
pub fn parse_name(raw: &str) -> Result<OperatorName, Refusal> {
    let hint = "Give another name, such as `ada` or `ada@example.org`.";
    if model::credential_in(raw.as_bytes()).is_some() {
        return Err(Refusal::invalid("the operator name contains a credential", hint));
    }
    let name = OperatorName::parse(raw).map_err(|error| Refusal::invalid(error.to_string(), hint))?;
    let is_of_issuer = name.as_str().get(..OF_ISSUER.len()).is_some_and(|start| start.eq_ignore_ascii_case(OF_ISSUER));
    if is_of_issuer || RESERVED.iter().any(|reserved| reserved.eq_ignore_ascii_case(name.as_str())) {
        return Err(Refusal::invalid(format!("the operator name `{name}` is reserved"), hint));
    }
    Ok(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operator(name: &str, scopes: &[Scope]) -> OperatorIdentity {
        let name = OperatorName::parse(name).unwrap();
        OperatorIdentity::configured(name, scopes.iter().copied(), Sha256::of(b"x"))
    }

    #[test]
    fn the_audit_shows_the_name_of_an_operator() {
        for (name, actor) in
            [("operator", "operator:orchestrate"), ("audit", "operator:audit"), ("ada", "operator:ada")]
        {
            assert_eq!(operator(name, &[]).actor(), actor);
        }
    }

    #[test]
    fn names_that_the_audit_uses_are_reserved() {
        for bad in ["operator", "Audit", "service", "repair", "ORCHESTRATE", "OAuth-ada", "", "a b"] {
            assert_eq!(parse_name(bad).unwrap_err().code, Code::InvalidRequest, "{bad:?}");
        }
        assert_eq!(parse_name("ada").unwrap().as_str(), "ada");
    }
}
