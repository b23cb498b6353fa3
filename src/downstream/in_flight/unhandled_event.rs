//! Events of a link that its connection handles, because they belong to no call.

use crate::downstream::call_request::CallRequest;
use crate::downstream::in_flight::unowned_messages::UnownedMessage;
use crate::protocol::{Notification, Response};
use crate::transport::{HttpSession, LinkEnd, LinkError, SignInPlace};

/// An event of the link that belongs to no client's call.
pub(crate) enum UnhandledEvent {
    /// The server sent something during a handshake.
    Heard,
    /// A call ended in a way that raises doubt about the server.
    Suspicion,
    Response(Response),
    Notification(Notification),
    /// A message that can concern a call of another sender.
    Unowned(UnownedMessage),
    /// One of the connection's own requests failed in transport.
    Failed {
        number: u64,
        error: LinkError,
    },
    /// The server refused the session: for the connection's own request if `number` is set,
    /// otherwise for a call, which waits until it is known whether the session exists. `session` is
    /// the sender's current one.
    SessionRefused {
        number: Option<u64>,
        session: Option<HttpSession>,
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
