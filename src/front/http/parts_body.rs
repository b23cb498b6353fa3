//! The body of an answer in parts: inserts the id of the client's request without copying a
//! prepared list or a large result.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use actix_web::body::{BodySize, MessageBody};
use bytes::Bytes;

/// The body of an answer, written part by part.
pub(super) struct PartsBody(std::array::IntoIter<Bytes, 3>);

impl PartsBody {
    pub(super) fn new(parts: [Bytes; 3]) -> Self {
        Self(parts.into_iter())
    }
}

impl MessageBody for PartsBody {
    type Error = Infallible;

    fn size(&self) -> BodySize {
        BodySize::Sized(self.0.as_slice().iter().map(|part| part.len() as u64).sum())
    }

    fn poll_next(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, Self::Error>>> {
        Poll::Ready(self.get_mut().0.next().map(Ok))
    }
}
