//! Events of a link that the owner of the link handles, because they belong to no call.

use crate::downstream::call_request::CallRequest;
use crate::protocol::{Notification, Request, Response};
use crate::transport::{LinkEnd, LinkError, SignInPlace};

/// An event of the link that belongs to no client's call.
pub(crate) enum UnhandledEvent {
    Response(Response),
    Notification(Notification),
    /// `of_ended_call`: it arrived on the stream of an ended call, so it belongs to no other call.
    Request {
        request: Request,
        of_ended_call: bool,
    },
    /// One of the connection's own requests failed in transport.
    Failed {
        number: u64,
        error: LinkError,
    },
    /// The server refused the session: for the connection's own request if `number` is set,
    /// otherwise for a call, which waits until it is known whether the session exists.
    SessionRefused {
        number: Option<u64>,
        error: LinkError,
    },
    SignIn(SignInPlace),
    Closed(LinkEnd),
    /// A subscription at a sessionless server, served by the connection's event stream.
    Subscription(Box<CallRequest>),
    /// A call's headers were refused: the call waits until the tools are listed again.
    HeadersRefused,
    /// The server no longer speaks the revision that it negotiated.
    RevisionRefused,
}
