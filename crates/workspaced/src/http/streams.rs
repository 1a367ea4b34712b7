//! Answers that are sent while they are made: each ends with the token that asked for it.

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

/// The hash of the good token that a request came with, once that is known. Goes along with the request.
#[derive(Clone, Debug, Default)]
pub(super) struct GoodToken(Arc<OnceLock<Sha256>>);

impl GoodToken {
    /// Notes the token: the first one, as there is no second.
    pub(super) fn set(&self, hash: Sha256) {
        self.0.get_or_init(|| hash);
    }

    /// Its hash, if the request came with one.
    pub(super) fn hash(&self) -> Option<Sha256> {
        self.0.get().copied()
    }
}

/// `response`, cut off once the token that asked for it is revoked or has expired, where its body is not all there yet.
pub(super) fn end_with_token(service: &Service, token: &GoodToken, response: Response) -> Response {
    let hash = token.0.get().copied().filter(|_| response.body().size_hint().exact().is_none());
    let Some(hash) = hash else { return response };
    let event_stream = HeaderValue::from_static("text/event-stream");
    let may_just_end = response.headers().get(header::CONTENT_TYPE) == Some(&event_stream);
    let service = service.clone();
    let token_ended = Box::pin(async move { service.token_ended(&hash).await });
    response.map(|body| Body::new(WhileGood { body, token_ended, may_just_end, has_ended: false }))
}

/// A body for as long as a token is good.
struct WhileGood {
    body: Body,
    token_ended: BoxFuture<'static, ()>,
    /// Whether nobody takes a part for the whole, as with events.
    may_just_end: bool,
    has_ended: bool,
}

impl HttpBody for WhileGood {
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
            tracing::info!("an answer under way was ended: its token was revoked or has expired");
            self.has_ended = true;
            let cut_off = || axum::Error::new(io::Error::other("the token that asked for it is good no more"));
            return Poll::Ready((!self.may_just_end).then(|| Err(cut_off())));
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
