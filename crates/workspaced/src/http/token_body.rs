//! Response bodies that end when the token of their request is revoked or expires.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};

use axum::body::{Body, Bytes, HttpBody};
use axum::http::{HeaderValue, header};
use axum::response::Response;
use futures_util::future::BoxFuture;
use hyper::body::{Frame, SizeHint};
use model::Sha256;

use crate::service::Service;

/// The hash of the verified token of a request. A request extension; empty until the token is verified.
#[derive(Clone, Debug, Default)]
pub(crate) struct VerifiedToken(Arc<OnceLock<Sha256>>);

impl VerifiedToken {
    /// Sets the hash. Only the first call has an effect.
    pub(crate) fn set(&self, hash: Sha256) {
        self.0.get_or_init(|| hash);
    }

    /// Returns the hash of the token, if one was verified.
    pub(crate) fn hash(&self) -> Option<Sha256> {
        self.0.get().copied()
    }
}

/// Makes a streamed `response` end once `token` is revoked or expires. Leaves complete bodies alone.
pub(crate) fn end_with_token(service: &Service, token: &VerifiedToken, response: Response) -> Response {
    let hash = token.hash().filter(|_| response.body().size_hint().exact().is_none());
    let Some(hash) = hash else { return response };
    let event_stream = HeaderValue::from_static("text/event-stream");
    let is_event_stream = response.headers().get(header::CONTENT_TYPE) == Some(&event_stream);
    let service = service.clone();
    let token_ended = Box::pin(async move { service.operators.token_ended(&hash).await });
    response.map(|body| Body::new(TokenBody { body, token_ended, is_event_stream, has_ended: false }))
}

/// A body that ends with its token.
struct TokenBody {
    body: Body,
    token_ended: BoxFuture<'static, ()>,
    /// An event stream may simply end. Any other body fails instead, so that no client takes a part for the whole.
    is_event_stream: bool,
    has_ended: bool,
}

impl HttpBody for TokenBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.has_ended {
            return Poll::Ready(None);
        }
        if self.token_ended.as_mut().poll(context).is_ready() {
            tracing::info!("response cut off: its token was revoked or has expired");
            self.has_ended = true;
            let cut_off = || axum::Error::new(io::Error::other("the token was revoked or has expired"));
            return Poll::Ready((!self.is_event_stream).then(|| Err(cut_off())));
        }
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        self.has_ended = frame.is_none();
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.has_ended || self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
