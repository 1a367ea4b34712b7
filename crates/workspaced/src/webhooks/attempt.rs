//! One attempt to deliver a message: the signed request, and what the answer means.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use reqwest::{Response, StatusCode};
use sha2::Sha256;

use config::WebhookConfig;

/// How long a request may take, to the end of the answer.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(10);
/// The bytes of an answer after which its connection is closed. Its content has no meaning.
const MAX_ANSWER_BYTES: usize = 4096;

/// What an attempt results in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AttemptOutcome {
    /// The receiver has accepted the message.
    Delivered(u16),
    /// The receiver wants no more messages.
    Gone,
    /// The receiver has not accepted the message.
    Failed {
        /// The status of its answer, if it answered.
        status: Option<u16>,
        /// Why, without anything that the receiver sent.
        error: String,
    },
}

/// Sends a message once.
pub(crate) async fn send(
    http: &reqwest::Client,
    webhook: &WebhookConfig,
    id: &str,
    timestamp: i64,
    body: &str,
) -> AttemptOutcome {
    let request = http
        .post(webhook.url.clone())
        .header("content-type", "application/json")
        .header("webhook-id", id)
        .header("webhook-timestamp", timestamp)
        .header("webhook-signature", signatures(&webhook.secrets, id, timestamp, body))
        .body(body.to_owned());
    match request.send().await {
        Ok(response) => {
            let status = response.status();
            discard(response).await;
            outcome_of(status)
        }
        Err(error) => {
            let error = if error.is_timeout() {
                "no answer within 10 seconds"
            } else if error.is_connect() {
                "the connection failed"
            } else {
                "the connection ended without an answer"
            };
            AttemptOutcome::Failed { status: None, error: error.to_owned() }
        }
    }
}

/// Reads the rest of a small answer, so that the connection can be used again. The status is known already.
async fn discard(mut response: Response) {
    let mut bytes = 0;
    while let Ok(Some(chunk)) = response.chunk().await {
        bytes += chunk.len();
        if bytes > MAX_ANSWER_BYTES {
            return;
        }
    }
}

fn outcome_of(status: StatusCode) -> AttemptOutcome {
    if status.is_success() {
        return AttemptOutcome::Delivered(status.as_u16());
    }
    if status == StatusCode::GONE {
        return AttemptOutcome::Gone;
    }
    let error = if status.is_redirection() {
        format!("the receiver answered {}: redirects are not followed", status.as_u16())
    } else {
        format!("the receiver answered {}", status.as_u16())
    };
    AttemptOutcome::Failed { status: Some(status.as_u16()), error }
}

/// Returns the value of `webhook-signature`: a signature for each secret, with spaces between them.
fn signatures(secrets: &[Vec<u8>], id: &str, timestamp: i64, body: &str) -> String {
    let sign = |secret: &Vec<u8>| {
        // A key of any length is accepted.
        let mut mac = Hmac::<Sha256>::new_from_slice(secret).ok()?;
        mac.update(format!("{id}.{timestamp}.{body}").as_bytes());
        Some(format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes())))
    };
    secrets.iter().filter_map(sign).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signatures_are_those_of_the_specification() {
        // The example of the specification.
        let secret = STANDARD.decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        let (id, timestamp, body) = ("msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, r#"{"test": 2432232314}"#);
        let one = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";
        assert_eq!(signatures(std::slice::from_ref(&secret), id, timestamp, body), one);
        let two = signatures(&[secret, b"another secret of 24 byte".to_vec()], id, timestamp, body);
        assert_eq!(two.split(' ').next(), Some(one));
        assert_eq!(two.split(' ').count(), 2);
    }

    #[test]
    fn only_2xx_is_accepted() {
        let of = |status| outcome_of(StatusCode::from_u16(status).unwrap());
        assert_eq!([of(200), of(204)], [AttemptOutcome::Delivered(200), AttemptOutcome::Delivered(204)]);
        assert_eq!(of(410), AttemptOutcome::Gone);
        for status in [301, 302, 307, 308, 400, 404, 429, 500, 503] {
            assert!(
                matches!(of(status), AttemptOutcome::Failed { status: Some(known), .. } if known == status),
                "{status}"
            );
        }
    }
}
