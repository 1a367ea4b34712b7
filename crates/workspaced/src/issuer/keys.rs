//! Public keys of an issuer (RFC 7517), and the algorithms that they verify (RFC 7518). Others are no keys here: neither `none` nor those
//! whose secret both sides know.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use model::Sha256;
use ring::signature::{self, RsaPublicKeyComponents, UnparsedPublicKey, VerificationAlgorithm};
use serde::Deserialize;
use serde_json::Value;

/// Maximum number of keys of a set.
const MAX_KEYS: usize = 100;

/// A public key of the issuer.
#[derive(Debug)]
pub(crate) struct IssuerKey {
    pub(crate) id: Option<String>,
    /// The algorithm that it is for, if it is for one only.
    algorithm: Option<Algorithm>,
    material: Material,
    /// SHA-256 of the key.
    pub(crate) fingerprint: Sha256,
}

#[derive(Debug)]
enum Material {
    Rsa { modulus: Vec<u8>, exponent: Vec<u8> },
    P256(Vec<u8>),
    P384(Vec<u8>),
    Ed25519(Vec<u8>),
}

/// The algorithms that are accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub(crate) enum Algorithm {
    #[serde(rename = "RS256")]
    Rs256,
    #[serde(rename = "RS384")]
    Rs384,
    #[serde(rename = "RS512")]
    Rs512,
    #[serde(rename = "PS256")]
    Ps256,
    #[serde(rename = "PS384")]
    Ps384,
    #[serde(rename = "PS512")]
    Ps512,
    #[serde(rename = "ES256")]
    Es256,
    #[serde(rename = "ES384")]
    Es384,
    #[serde(rename = "EdDSA", alias = "Ed25519")]
    EdDsa,
}

#[derive(Deserialize)]
struct Jwk {
    kty: String,
    kid: Option<String>,
    alg: Option<String>,
    #[serde(rename = "use")]
    usage: Option<String>,
    key_ops: Option<Vec<String>>,
    crv: Option<String>,
    n: Option<String>,
    e: Option<String>,
    x: Option<String>,
    y: Option<String>,
}

/// Parses a set of keys. Those of other kinds, and for other uses, are left out; `None` if it is no set, or too large.
pub(crate) fn parse(set: &Value) -> Option<Vec<IssuerKey>> {
    let keys = set["keys"].as_array().filter(|keys| keys.len() <= MAX_KEYS)?;
    Some(keys.iter().filter_map(IssuerKey::parse).collect())
}

impl IssuerKey {
    fn parse(value: &Value) -> Option<Self> {
        let jwk = Jwk::deserialize(value).ok()?;
        let is_for_signatures = jwk.usage.as_deref().is_none_or(|usage| usage == "sig")
            && jwk.key_ops.as_ref().is_none_or(|ops| ops.iter().any(|op| op == "verify"));
        let algorithm = jwk.alg.as_deref().map(Algorithm::parse);
        // A key for another algorithm.
        if !is_for_signatures || algorithm == Some(None) {
            return None;
        }
        let bytes = |member: &Option<String>| URL_SAFE_NO_PAD.decode(member.as_deref()?).ok();
        let point = |length: usize| {
            let (x, y) = (bytes(&jwk.x)?, bytes(&jwk.y)?);
            let uncompressed = [&[4_u8][..], &x, &y].concat();
            (x.len() == length && y.len() == length).then_some(uncompressed)
        };
        let material = match (jwk.kty.as_str(), jwk.crv.as_deref()) {
            ("RSA", _) => {
                Material::Rsa { modulus: without_zeros(&bytes(&jwk.n)?), exponent: without_zeros(&bytes(&jwk.e)?) }
            }
            ("EC", Some("P-256")) => Material::P256(point(32)?),
            ("EC", Some("P-384")) => Material::P384(point(48)?),
            ("OKP", Some("Ed25519")) => Material::Ed25519(bytes(&jwk.x)?),
            _ => return None,
        };
        let fingerprint = Sha256::of(format!("{:?} {material:?}", jwk.kid).as_bytes());
        Some(Self { id: jwk.kid, algorithm: algorithm.flatten(), material, fingerprint })
    }

    /// Whether the key can verify signatures of `algorithm`.
    pub(crate) fn is_for(&self, algorithm: Algorithm) -> bool {
        self.algorithm.is_none_or(|own| own == algorithm) && self.material.is_for(algorithm)
    }

    /// Whether `signature` is one of `message` by this key. RSA keys below 2,048 bits verify none.
    pub(crate) fn verifies(&self, algorithm: Algorithm, message: &[u8], signature: &[u8]) -> bool {
        let by = |kind: &'static dyn VerificationAlgorithm, key: &[u8]| {
            UnparsedPublicKey::new(kind, key).verify(message, signature).is_ok()
        };
        self.is_for(algorithm)
            && match &self.material {
                Material::Rsa { modulus, exponent } => {
                    let key = RsaPublicKeyComponents { n: modulus, e: exponent };
                    let parameters = match algorithm {
                        Algorithm::Rs256 => &signature::RSA_PKCS1_2048_8192_SHA256,
                        Algorithm::Rs384 => &signature::RSA_PKCS1_2048_8192_SHA384,
                        Algorithm::Rs512 => &signature::RSA_PKCS1_2048_8192_SHA512,
                        Algorithm::Ps256 => &signature::RSA_PSS_2048_8192_SHA256,
                        Algorithm::Ps384 => &signature::RSA_PSS_2048_8192_SHA384,
                        Algorithm::Ps512 => &signature::RSA_PSS_2048_8192_SHA512,
                        Algorithm::Es256 | Algorithm::Es384 | Algorithm::EdDsa => return false,
                    };
                    key.verify(parameters, message, signature).is_ok()
                }
                Material::P256(point) => by(&signature::ECDSA_P256_SHA256_FIXED, point),
                Material::P384(point) => by(&signature::ECDSA_P384_SHA384_FIXED, point),
                Material::Ed25519(key) => by(&signature::ED25519, key),
            }
    }
}

impl Material {
    fn is_for(&self, algorithm: Algorithm) -> bool {
        match algorithm {
            Algorithm::Rs256
            | Algorithm::Rs384
            | Algorithm::Rs512
            | Algorithm::Ps256
            | Algorithm::Ps384
            | Algorithm::Ps512 => matches!(self, Self::Rsa { .. }),
            Algorithm::Es256 => matches!(self, Self::P256(_)),
            Algorithm::Es384 => matches!(self, Self::P384(_)),
            Algorithm::EdDsa => matches!(self, Self::Ed25519(_)),
        }
    }
}

impl Algorithm {
    pub(crate) fn parse(name: &str) -> Option<Self> {
        serde_json::from_value(name.into()).ok()
    }
}

fn without_zeros(bytes: &[u8]) -> Vec<u8> {
    let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
    bytes[zeros..].to_vec()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_keys_for_accepted_algorithms_are_keys() {
        let (coordinate, modulus) = (URL_SAFE_NO_PAD.encode([7; 32]), URL_SAFE_NO_PAD.encode([9; 256]));
        let ec = json!({"kty": "EC", "crv": "P-256", "kid": "a", "x": coordinate, "y": coordinate});
        let with = |member: &str, value: Value| {
            let mut key = ec.clone();
            key[member] = value;
            key
        };
        let rsa = json!({"kty": "RSA", "n": modulus, "e": "AQAB", "use": "sig"});
        for (key, is_key) in [
            (ec.clone(), true),
            (rsa.clone(), true),
            (with("alg", json!("ES256")), true),
            (with("key_ops", json!(["verify"])), true),
            (with("alg", json!("ECDH-ES")), false),
            (with("alg", json!("none")), false),
            (with("use", json!("enc")), false),
            (with("key_ops", json!(["encrypt"])), false),
            (with("crv", json!("secp256k1")), false),
            (with("x", json!("AAAA")), false),
            (with("kid", json!(7)), false),
            (json!({"kty": "oct", "k": coordinate, "alg": "HS256"}), false),
            (json!({"kty": "RSA"}), false),
            (json!("RSA"), false),
        ] {
            assert_eq!(IssuerKey::parse(&key).is_some(), is_key, "{key}");
        }
        let keys = parse(&json!({"keys": [rsa, {"kty": "oct"}, ec]})).unwrap();
        let fits: Vec<_> =
            keys.iter().map(|key| [key.is_for(Algorithm::Rs256), key.is_for(Algorithm::Es256)]).collect();
        assert_eq!(fits, [[true, false], [false, true]]);
        assert!(parse(&json!({"keys": vec![json!({}); MAX_KEYS + 1]})).is_none() && parse(&json!({})).is_none());
        for name in ["none", "HS256", "HS512", "RS1", "es256", "ES256K", ""] {
            assert_eq!(Algorithm::parse(name), None, "{name}");
        }
    }
}
