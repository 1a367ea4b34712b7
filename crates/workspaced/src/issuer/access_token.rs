//! Access tokens as of RFC 9068: signed JWTs, which are read before they are verified and used only afterwards.

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use engine::clock::time_at;
use engine::operators::IssuedCaller;
use model::{RunId, json};
use serde_json::{Map, Value};

use crate::issuer::keys::{Algorithm, IssuerKey};
use config::IssuerConfig;

/// Maximum length of an access token.
pub(crate) const MAX_TOKEN_BYTES: usize = 8 * 1024;
/// Maximum length of a subject, of the ID of a key and of a run's name.
const MAX_TEXT_BYTES: usize = 255;
/// By how many seconds the clock of the issuer may differ.
const SKEW_SECONDS: f64 = 30.0;
/// The latest time that is one: in the year 9999.
const LATEST_SECONDS: f64 = 253_402_300_799.0;

/// An access token whose signature is not verified yet.
pub(crate) struct AccessToken<'a> {
    signed: &'a str,
    signature: Vec<u8>,
    algorithm: Algorithm,
    key: Option<String>,
    claims: Map<String, Value>,
}

/// Whether `token` may be a JWT: three parts in base64url. Tokens of the service have no `.`.
pub(crate) fn has_form(token: &str) -> bool {
    let is_encoded = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    token.len() <= MAX_TOKEN_BYTES
        && token.starts_with("ey")
        && token.bytes().filter(|byte| *byte == b'.').count() == 2
        && token.as_bytes().iter().all(is_encoded)
}

impl<'a> AccessToken<'a> {
    /// Reads a token; `None` if it is no access token with an accepted algorithm.
    pub(crate) fn parse(token: &'a str) -> Option<Self> {
        Self::parse_kind(token, |kind| {
            let is_kind = |known: &&str| kind.is_some_and(|kind| known.eq_ignore_ascii_case(kind));
            ["at+jwt", "application/at+jwt"].iter().any(is_kind)
        })
    }

    /// Reads a token whose `typ` is accepted by `is_kind`.
    pub(crate) fn parse_kind(token: &'a str, is_kind: impl Fn(Option<&str>) -> bool) -> Option<Self> {
        let (signed, signature) = token.rsplit_once('.')?;
        let (header, claims) = signed.split_once('.')?;
        let header = object(header)?;
        // An extension that the verifier must understand.
        if header.contains_key("crit") {
            return None;
        }
        if !is_kind(header.get("typ").and_then(Value::as_str)) {
            return None;
        }
        let key = match header.get("kid") {
            None => None,
            Some(Value::String(id)) if id.len() <= MAX_TEXT_BYTES => Some(id.clone()),
            Some(_) => return None,
        };
        let algorithm = Algorithm::parse(header.get("alg")?.as_str()?)?;
        let signature = URL_SAFE_NO_PAD.decode(signature).ok()?;
        Some(Self { signed, signature, algorithm, key, claims: object(claims)? })
    }

    /// Whether the token may be signed by `key`.
    pub(crate) fn names(&self, key: &IssuerKey) -> bool {
        self.key.as_ref().is_none_or(|id| key.id.as_ref() == Some(id)) && key.is_for(self.algorithm)
    }

    /// Whether the token is signed by `key`.
    pub(crate) fn is_signed_by(&self, key: &IssuerKey) -> bool {
        key.verifies(self.algorithm, self.signed.as_bytes(), &self.signature)
    }

    /// Returns whom the token names; `None` if it is from another issuer, for another service, or not valid at `now`.
    pub(crate) fn caller(&self, config: &IssuerConfig, now: i64) -> Option<IssuedCaller> {
        let ends = self.valid_until(config, &config.audiences, now)?;
        let subject = self.text("sub").filter(|subject| (1..=MAX_TEXT_BYTES).contains(&subject.len()))?;
        // A token that names a run is for that run and nothing else, whatever its scopes.
        let run = match config.run_claim.as_ref().and_then(|claim| self.claims.get(claim)) {
            None | Some(Value::Null) => None,
            Some(name) => Some(RunId::parse(name.as_str()?).ok()?),
        };
        let scopes = match self.claims.get("scope") {
            None => BTreeSet::new(),
            Some(scopes) => scopes.as_str()?.split(' ').map(str::to_owned).collect(),
        };
        #[expect(clippy::cast_possible_truncation, reason = "within the year 9999")]
        let expires_at = time_at((ends.min(LATEST_SECONDS) * 1000.0) as i64);
        Some(IssuedCaller {
            issuer: config.issuer.clone(),
            host: config.url.host_str().unwrap_or_default().to_owned(),
            subject: subject.to_owned(),
            run,
            scopes,
            expires_at,
        })
    }

    /// Returns until when the token is valid, in seconds; `None` if it is from another issuer, for others than `audiences`, or not
    /// valid at `now`.
    pub(crate) fn valid_until(&self, config: &IssuerConfig, audiences: &[String], now: i64) -> Option<f64> {
        #[expect(clippy::cast_precision_loss, reason = "seconds of this era are exact")]
        let now = now as f64;
        if self.text("iss")? != config.issuer || !self.is_for(audiences) {
            return None;
        }
        let (ends, issued_at) = (self.time("exp")? + SKEW_SECONDS, self.time("iat")?);
        let not_before = if self.claims.contains_key("nbf") { self.time("nbf")? } else { issued_at };
        (ends > now && issued_at.max(not_before) <= now + SKEW_SECONDS).then_some(ends)
    }

    /// Returns a claim.
    pub(crate) fn claim(&self, name: &str) -> Option<&Value> {
        self.claims.get(name)
    }

    pub(crate) fn text(&self, claim: &str) -> Option<&str> {
        self.claims.get(claim)?.as_str()
    }

    /// Returns a time in seconds; `None` if the claim is missing or no time.
    fn time(&self, claim: &str) -> Option<f64> {
        self.claims.get(claim)?.as_f64().filter(|seconds| (0.0..=LATEST_SECONDS).contains(seconds))
    }

    fn is_for(&self, audiences: &[String]) -> bool {
        let is_own = |audience: &Value| audience.as_str().is_some_and(|name| audiences.iter().any(|own| own == name));
        match self.claims.get("aud") {
            Some(Value::Array(all)) => all.iter().any(is_own),
            Some(one) => is_own(one),
            None => false,
        }
    }
}

/// Decodes a JSON object without duplicate members.
fn object(encoded: &str) -> Option<Map<String, Value>> {
    let text = URL_SAFE_NO_PAD.decode(encoded).ok().filter(|text| !text.is_empty())?;
    json::parse_object(&text).ok()
}

#[cfg(test)]
mod tests {
    use reqwest::Url;
    use serde_json::json;

    use super::*;

    const NOW: i64 = 1_800_000_000;

    fn config() -> IssuerConfig {
        IssuerConfig {
            issuer: "https://a.example".to_owned(),
            url: Url::parse("https://a.example").unwrap(),
            resource: None,
            audiences: vec!["files".to_owned()],
            run_claim: Some("run".to_owned()),
            sign_in: None,
        }
    }

    fn token(header: &Value, claims: &Value) -> String {
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        format!("{}.{}.AAAA", part(header), part(claims))
    }

    fn claims() -> Value {
        json!({"iss": "https://a.example", "aud": "files", "sub": "ada", "exp": NOW + 300, "iat": NOW, "scope": "audit"})
    }

    /// Whom the claims with another value for `member` name.
    fn with(member: &str, value: Value) -> Option<IssuedCaller> {
        let mut claims = claims();
        claims[member] = value;
        let token = token(&json!({"alg": "ES256", "typ": "at+jwt"}), &claims);
        assert!(has_form(&token));
        AccessToken::parse(&token).unwrap().caller(&config(), NOW)
    }

    #[test]
    fn only_access_tokens_with_accepted_algorithms_are_read() {
        for (header, is_read) in [
            (json!({"alg": "ES256", "typ": "at+jwt"}), true),
            (json!({"alg": "RS256", "typ": "application/at+JWT", "kid": "a", "jwk": {}}), true),
            (json!({"alg": "ES256", "typ": "JWT"}), false),
            (json!({"alg": "ES256"}), false),
            (json!({"alg": "none", "typ": "at+jwt"}), false),
            (json!({"alg": "HS256", "typ": "at+jwt"}), false),
            (json!({"alg": ["ES256"], "typ": "at+jwt"}), false),
            (json!({"alg": "ES256", "typ": "at+jwt", "kid": 1}), false),
            (json!({"alg": "ES256", "typ": "at+jwt", "crit": ["b64"], "b64": false}), false),
            (json!([]), false),
        ] {
            assert_eq!(AccessToken::parse(&token(&header, &claims())).is_some(), is_read, "{header}");
        }
        let twice = URL_SAFE_NO_PAD.encode(r#"{"alg":"none","typ":"at+jwt","alg":"ES256"}"#);
        assert!(AccessToken::parse(&format!("{twice}.e30.AAAA")).is_none(), "a member is given twice");
        for text in ["", "a.b", "ey.a.b.c", "ey.a.b=", "ey.a.b c", "wsr_ey.a.b", &format!("ey.{}.b", "a".repeat(9000))]
        {
            assert!(!has_form(text), "{text}");
        }
    }

    #[test]
    fn a_token_is_valid_here_and_now_or_names_nobody() {
        let valid = with("aud", json!(["other", "files"])).unwrap();
        assert_eq!((valid.subject.as_str(), valid.run), ("ada", None));
        assert_eq!(with("run", json!("r1")).unwrap().run, RunId::parse("r1").ok());
        assert_eq!(with("exp", json!(1_799_999_970.5)).unwrap().expires_at, "2027-01-15T08:00:00.500000Z");
        for (member, good) in
            [("nbf", json!(NOW + 30)), ("iat", json!(NOW + 30)), ("scope", json!("")), ("exp", json!(2e11))]
        {
            assert!(with(member, good.clone()).is_some(), "{member}: {good}");
        }
        for (member, bad) in [
            ("iss", json!("https://a.example/")),
            ("iss", json!(["https://a.example"])),
            ("aud", json!("file")),
            ("aud", json!([])),
            ("aud", json!({"files": "files"})),
            ("aud", Value::Null),
            ("exp", json!(NOW - 30)),
            ("exp", json!((NOW + 300).to_string())),
            ("exp", Value::Null),
            ("exp", json!(-1)),
            ("exp", json!(1e15)),
            ("nbf", json!(NOW + 31)),
            ("nbf", json!("0")),
            ("nbf", Value::Null),
            ("iat", json!(NOW + 31)),
            ("iat", Value::Null),
            ("sub", json!("")),
            ("sub", json!(7)),
            ("sub", json!("x".repeat(256))),
            ("scope", json!(["audit"])),
            ("run", json!(["r1"])),
            ("run", json!("../r1")),
            ("run", json!("")),
            ("run", json!("_service")),
        ] {
            assert!(with(member, bad.clone()).is_none(), "{member}: {bad}");
        }
        for missing in ["iss", "aud", "exp", "iat", "sub"] {
            let mut claims = claims();
            claims.as_object_mut().unwrap().remove(missing);
            let token = token(&json!({"alg": "ES256", "typ": "at+jwt"}), &claims);
            assert!(AccessToken::parse(&token).unwrap().caller(&config(), NOW).is_none(), "{missing}");
        }
    }
}
