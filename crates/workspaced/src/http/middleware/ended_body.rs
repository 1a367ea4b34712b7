//! The body of an answer that ends with what it comes from.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use futures_util::future::BoxFuture;
use hyper::body::{Frame, SizeHint};

/// A body that fails once `lost` completes, so that its receiver knows that it is not whole.
pub(crate) struct EndedBody {
    body: Body,
    lost: BoxFuture<'static, ()>,
}

impl EndedBody {
    /// Returns `body`, which fails once `lost` completes.
    pub(crate) fn new(body: Body, lost: BoxFuture<'static, ()>) -> Self {
        Self { body, lost }
    }
}

impl hyper::body::Body for EndedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) {
            return Poll::Ready(frame);
        }
        let lost = self.lost.as_mut().poll(cx);
        lost.map(|()| Some(Err(axum::Error::new(io::Error::other("the node that owns the run is another one now")))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
