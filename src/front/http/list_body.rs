//! The body of a long answer of which the middle is shared: a list is kept ready-made, and only
//! the id before it differs from client to client.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use actix_web::body::{BodySize, MessageBody};
use bytes::Bytes;

pub(super) struct ListBody(std::array::IntoIter<Bytes, 3>);

impl ListBody {
    pub(super) fn new(parts: [Bytes; 3]) -> Self {
        Self(parts.into_iter())
    }
}

impl MessageBody for ListBody {
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
