//! Sign-in of people at the issuer: the authorization code of `OpenID` Connect, with PKCE (RFC 7636).

use std::collections::BTreeSet;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use config::SignInConfig;
use engine::clock::now_seconds;
use engine::operators::Operators;
use model::{Scope, Sha256};
use reqwest::Url;
use serde_json::Value;

use super::fetch::{self, Endpoints, FetchError};
use super::{Issuer, access_token::AccessToken};

/// Maximum length of an ID token, which may list many groups.
const MAX_ID_TOKEN_BYTES: usize = 64 * 1024;
/// What is asked for: who the person is, and the address.
const SCOPE: &str = "openid email";

/// A sign-in that is under way, as the person's browser keeps it.
pub(crate) struct SignInAttempt {
    /// What the issuer returns, so that only the browser that has begun can end it.
    pub(crate) state: String,
    /// What the ID token names, so that it is of this sign-in.
    pub(crate) nonce: String,
    /// What the code is exchanged with.
    pub(crate) verifier: String,
}

/// A person who has signed in.
pub(crate) struct SignedIn {
    /// The verified address.
    pub(crate) address: String,
    /// The scopes of the person's groups.
    pub(crate) scopes: BTreeSet<Scope>,
}

/// Why nobody has signed in.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SignInError {
    #[error("the issuer does not say where people sign in")]
    NoEndpoints,
    #[error(transparent)]
    Fetch(#[from] FetchError),
    #[error("the ID token is not valid: {0}")]
    Token(&'static str),
    #[error("the issuer has not verified the person's address")]
    Address,
    #[error("none of the person's groups has a scope")]
    Groups,
}

impl Issuer {
    /// Returns where people sign in. Asks the issuer if it has not said so yet, as after a start without it.
    async fn endpoints(self: &Arc<Self>, operators: &Arc<Operators>) -> Result<Endpoints, SignInError> {
        let mut known = self.current();
        if known.endpoints.is_none() {
            known = self.renew(operators, &known).await;
        }
        known.endpoints.clone().ok_or(SignInError::NoEndpoints)
    }

    /// Returns the address at which a person signs in; `redirect` is where the issuer sends the person afterwards.
    ///
    /// # Errors
    ///
    /// If the issuer has not said where people sign in.
    pub(crate) async fn authorization_url(
        self: &Arc<Self>,
        operators: &Arc<Operators>,
        sign_in: &SignInConfig,
        attempt: &SignInAttempt,
        redirect: &str,
    ) -> Result<Url, SignInError> {
        let mut url = self.endpoints(operators).await?.authorization;
        let challenge = URL_SAFE_NO_PAD.encode(Sha256::of(attempt.verifier.as_bytes()).as_bytes());
        url.query_pairs_mut().extend_pairs([
            ("response_type", "code"),
            ("client_id", &sign_in.client_id),
            ("redirect_uri", redirect),
            ("scope", SCOPE),
            ("state", &attempt.state),
            ("nonce", &attempt.nonce),
            ("code_challenge", &challenge),
            ("code_challenge_method", "S256"),
        ]);
        Ok(url)
    }

    /// Exchanges the code of a person who has signed in, and returns who it is.
    ///
    /// # Errors
    ///
    /// If the issuer refuses the code, or its ID token does not name a person with a scope.
    pub(crate) async fn redeem(
        self: &Arc<Self>,
        operators: &Arc<Operators>,
        sign_in: &SignInConfig,
        attempt: &SignInAttempt,
        code: &str,
        redirect: &str,
    ) -> Result<SignedIn, SignInError> {
        let address = self.endpoints(operators).await?.token;
        let form = fetch::form([
            ("grant_type", "authorization_code"),
            ("code", code),
            ("redirect_uri", redirect),
            ("client_id", &sign_in.client_id),
            ("code_verifier", &attempt.verifier),
        ]);
        let token = fetch::id_token(&self.http, sign_in, address, form).await?;
        if token.len() > MAX_ID_TOKEN_BYTES {
            return Err(SignInError::Token("too long"));
        }
        // RFC 9068 and OpenID Connect give each kind of token its own `typ`, or none.
        let is_kind = |kind: Option<&str>| kind.is_none_or(|kind| kind.eq_ignore_ascii_case("JWT"));
        let token = AccessToken::parse_kind(&token, is_kind).ok_or(SignInError::Token("not a signed token"))?;
        let mut keys = self.current();
        if !keys.keys.iter().any(|key| token.names(key)) {
            keys = self.renew(operators, &keys).await;
        }
        if !keys.keys.iter().any(|key| token.names(key) && token.is_signed_by(key)) {
            return Err(SignInError::Token("not signed by the issuer"));
        }
        let audiences = [sign_in.client_id.clone()];
        token
            .valid_until(&self.config, &audiences, now_seconds())
            .ok_or(SignInError::Token("for others, or not now"))?;
        // A token for several is for the one that it names.
        if token.claim("azp").is_some_and(|party| party.as_str() != Some(&sign_in.client_id)) {
            return Err(SignInError::Token("for another client"));
        }
        if token.text("nonce") != Some(&attempt.nonce) {
            return Err(SignInError::Token("of another sign-in"));
        }
        let is_verified = token.claim("email_verified") == Some(&Value::Bool(true));
        let address = token.text("email").filter(|_| is_verified).ok_or(SignInError::Address)?;
        let scopes = scopes_of(sign_in, token.claim(&sign_in.groups_claim));
        if scopes.is_empty() {
            return Err(SignInError::Groups);
        }
        Ok(SignedIn { address: address.to_owned(), scopes })
    }
}

/// Returns the scopes of the groups in a claim: a list, or one name.
fn scopes_of(sign_in: &SignInConfig, groups: Option<&Value>) -> BTreeSet<Scope> {
    let is_in = |group: &String| match groups {
        Some(Value::Array(groups)) => groups.iter().any(|one| one.as_str() == Some(group)),
        Some(Value::String(one)) => one == group,
        _ => false,
    };
    sign_in.scopes.iter().filter(|(_, groups)| groups.iter().any(is_in)).map(|(scope, _)| *scope).collect()
}
