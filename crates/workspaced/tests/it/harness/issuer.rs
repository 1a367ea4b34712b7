//! An issuer of access tokens on loopback, with real keys. It registers every client and asks nobody for consent.

use std::collections::HashMap;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::extract::{Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use parking_lot::Mutex;
use ring::rand::SystemRandom;
use ring::rsa::PublicKeyComponents;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _, RSA_PKCS1_SHA256, RSA_PSS_SHA256, RsaKeyPair,
};
use serde_json::{Value, json};

use super::{Backend, Setup};

/// What tokens for the service name as their audience.
pub(crate) const AUDIENCE: &str = "files";

/// What the issuer answers when it is asked for its keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IssuerMode {
    Normal,
    /// 503 to everything.
    Away,
    /// Keys of more than the service reads.
    Huge,
    /// Keys that never come.
    Slow,
    /// Metadata that name another issuer.
    OtherIssuer,
    /// Metadata that name another host for the keys, and plain HTTP.
    KeysElsewhere,
    /// Metadata at the address of `OpenID` Connect alone.
    OpenId,
}

/// A key of an issuer.
#[derive(Clone)]
pub(crate) enum Signer {
    Ec(String, Arc<EcdsaKeyPair>),
    Rsa(String, Arc<RsaKeyPair>),
}

impl Signer {
    pub(crate) fn ec(id: &str) -> Self {
        let random = SystemRandom::new();
        let document = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).unwrap();
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, document.as_ref(), &random).unwrap();
        Self::Ec(id.to_owned(), Arc::new(pair))
    }

    pub(crate) fn rsa(id: &str) -> Self {
        let options = ["genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048", "-outform", "DER"];
        let made = Command::new("openssl").args(options).output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        // Versions of OpenSSL differ in the form.
        let pair = RsaKeyPair::from_pkcs8(&made.stdout).or_else(|_| RsaKeyPair::from_der(&made.stdout)).unwrap();
        Self::Rsa(id.to_owned(), Arc::new(pair))
    }

    fn id(&self) -> &str {
        match self {
            Self::Ec(id, _) | Self::Rsa(id, _) => id,
        }
    }

    /// The public key.
    pub(crate) fn jwk(&self) -> Value {
        let encode = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        match self {
            Self::Ec(id, pair) => {
                let (x, y) = pair.public_key().as_ref()[1..].split_at(32);
                json!({"kty": "EC", "crv": "P-256", "kid": id, "use": "sig", "x": encode(x), "y": encode(y)})
            }
            Self::Rsa(id, pair) => {
                let key = PublicKeyComponents::<Vec<u8>>::from(pair.public());
                json!({"kty": "RSA", "kid": id, "use": "sig", "n": encode(&key.n), "e": encode(&key.e)})
            }
        }
    }

    /// Signs a token with the members of `header` besides its own.
    pub(crate) fn sign(&self, header: &Value, claims: &Value) -> String {
        let algorithm = if matches!(self, Self::Ec(..)) { "ES256" } else { "RS256" };
        let mut all = json!({"alg": algorithm, "typ": "at+jwt", "kid": self.id()});
        all.as_object_mut().unwrap().extend(header.as_object().unwrap().clone());
        all.as_object_mut().unwrap().retain(|_, value| !value.is_null());
        let signed = unsigned(&all, claims);
        let random = SystemRandom::new();
        let signature = match self {
            Self::Ec(_, pair) => pair.sign(&random, signed.as_bytes()).unwrap().as_ref().to_vec(),
            Self::Rsa(_, pair) => {
                let kind: &dyn ring::signature::RsaEncoding =
                    if all["alg"] == "PS256" { &RSA_PSS_SHA256 } else { &RSA_PKCS1_SHA256 };
                let mut signature = vec![0; pair.public().modulus_len()];
                pair.sign(kind, &random, signed.as_bytes(), &mut signature).unwrap();
                signature
            }
        };
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
    }
}

/// Returns the first two parts of a token.
pub(crate) fn unsigned(header: &Value, claims: &Value) -> String {
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    format!("{}.{}", part(header), part(claims))
}

struct Shared {
    url: String,
    mode: Mutex<IssuerMode>,
    keys: Mutex<Vec<Value>>,
    signer: Signer,
    /// Requests for keys.
    requests: Mutex<usize>,
    /// What the next tokens say besides the usual.
    claims: Mutex<Value>,
    /// The resources that clients have asked tokens for.
    resources: Mutex<Vec<String>>,
}

/// An issuer, which runs until the test ends.
pub(crate) struct Issuer {
    pub(crate) url: String,
    /// Its first key, of the elliptic curve P-256.
    pub(crate) signer: Signer,
    shared: Arc<Shared>,
}

impl Issuer {
    pub(crate) async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/tenant", listener.local_addr().unwrap());
        let signer = Signer::ec("first");
        let shared = Arc::new(Shared {
            url: url.clone(),
            mode: Mutex::new(IssuerMode::Normal),
            keys: Mutex::new(vec![signer.jwk()]),
            signer: signer.clone(),
            requests: Mutex::new(0),
            claims: Mutex::new(json!({})),
            resources: Mutex::default(),
        });
        let router = Router::new()
            .route("/.well-known/oauth-authorization-server/tenant", get(metadata))
            .route("/tenant/.well-known/openid-configuration", get(openid_metadata))
            .route("/tenant/keys", get(keys))
            .route("/tenant/register", post(register))
            .route("/tenant/authorize", get(authorize))
            .route("/tenant/token", post(token))
            .with_state(Arc::clone(&shared));
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { url, signer, shared }
    }

    /// The settings of a service that accepts the issuer's tokens.
    pub(crate) fn setup(&self, backend: Backend) -> Setup {
        let setup = Setup::new(backend).arg("--oauth-issuer", &self.url).arg("--oauth-audience", AUDIENCE);
        setup.arg("--oauth-run-claim", "run")
    }

    pub(crate) fn set_mode(&self, mode: IssuerMode) {
        *self.shared.mode.lock() = mode;
    }

    pub(crate) fn set_keys(&self, keys: Vec<Value>) {
        *self.shared.keys.lock() = keys;
    }

    /// Sets what the tokens say that clients get by themselves.
    pub(crate) fn set_claims(&self, claims: Value) {
        *self.shared.claims.lock() = claims;
    }

    pub(crate) fn requests(&self) -> usize {
        *self.shared.requests.lock()
    }

    pub(crate) fn resources(&self) -> Vec<String> {
        self.shared.resources.lock().clone()
    }

    /// The claims of a valid token of ada, with those of `other` besides; null removes one.
    pub(crate) fn claims(&self, other: Value) -> Value {
        self.shared.claims_with(other)
    }

    /// A token that the issuer's first key has signed.
    pub(crate) fn token(&self, other: Value) -> String {
        self.signer.sign(&json!({}), &self.claims(other))
    }
}

impl Shared {
    fn claims_with(&self, other: Value) -> Value {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        let mut claims = json!({"iss": self.url, "aud": AUDIENCE, "sub": "ada", "client_id": "tests", "jti": "1", "iat": now, "exp": now + 600});
        let Value::Object(other) = other else { panic!("claims are an object") };
        claims.as_object_mut().unwrap().extend(other);
        claims.as_object_mut().unwrap().retain(|_, value| !value.is_null());
        claims
    }

    fn metadata(&self, mode: IssuerMode) -> Response {
        let at = |name: &str| format!("{}/{name}", self.url);
        let issuer = if mode == IssuerMode::OtherIssuer { "http://127.0.0.1:1" } else { &self.url };
        let keys = if mode == IssuerMode::KeysElsewhere { "http://192.0.2.1/keys".to_owned() } else { at("keys") };
        let metadata = json!({
            "issuer": issuer, "jwks_uri": keys, "authorization_endpoint": at("authorize"), "token_endpoint": at("token"),
            "registration_endpoint": at("register"), "response_types_supported": ["code"],
            "grant_types_supported": ["authorization_code"], "code_challenge_methods_supported": ["S256"],
            "token_endpoint_auth_methods_supported": ["none"],
        });
        Json(metadata).into_response()
    }
}

async fn metadata(State(shared): State<Arc<Shared>>) -> Response {
    let mode = *shared.mode.lock();
    match mode {
        IssuerMode::Away => StatusCode::SERVICE_UNAVAILABLE.into_response(),
        IssuerMode::OpenId => StatusCode::NOT_FOUND.into_response(),
        _ => shared.metadata(mode),
    }
}

async fn openid_metadata(State(shared): State<Arc<Shared>>) -> Response {
    let mode = *shared.mode.lock();
    if mode == IssuerMode::OpenId { shared.metadata(mode) } else { StatusCode::NOT_FOUND.into_response() }
}

async fn keys(State(shared): State<Arc<Shared>>) -> Response {
    *shared.requests.lock() += 1;
    let (mode, mut keys) = (*shared.mode.lock(), shared.keys.lock().clone());
    match mode {
        IssuerMode::Slow => std::future::pending().await,
        IssuerMode::Huge => keys.push(json!({"kty": "oct", "k": "A".repeat(1 << 20)})),
        _ => {}
    }
    Json(json!({"keys": keys})).into_response()
}

async fn register(Json(mut client): Json<Value>) -> Response {
    client["client_id"] = json!("client");
    (StatusCode::CREATED, Json(client)).into_response()
}

async fn authorize(Query(asked): Query<HashMap<String, String>>) -> Response {
    let back = format!("{}?code=code&state={}", asked["redirect_uri"], asked["state"]);
    (StatusCode::FOUND, [(header::LOCATION, back)]).into_response()
}

async fn token(State(shared): State<Arc<Shared>>, form: String) -> Response {
    let asked = reqwest::Url::parse(&format!("http://form/?{form}")).unwrap();
    let resources = asked.query_pairs().filter(|(name, _)| name == "resource").map(|(_, value)| value.into_owned());
    shared.resources.lock().extend(resources);
    let claims = shared.claims_with(shared.claims.lock().clone());
    let token = shared.signer.sign(&json!({}), &claims);
    Json(json!({"access_token": token, "token_type": "Bearer", "expires_in": 600})).into_response()
}

/// How long a test waits for the service to fetch keys again.
pub(crate) const RENEWAL: Duration = Duration::from_mins(1);
