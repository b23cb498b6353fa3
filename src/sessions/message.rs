//! Messages between the front and a session.

use std::sync::Arc;

use actix::Message;
use tokio::sync::oneshot;

use crate::auth::{AuthSettings, GrantedScopes};
use crate::bridge::headers::ClientHeaders;
use crate::calls::ClientReply;
use crate::protocol::Envelope;
use crate::sessions::session_activity::SessionActivity;

/// One message of the client.
#[derive(Message)]
#[rtype(result = "()")]
pub struct FromClient {
    pub envelope: Envelope,
    /// Names the exchange; if the message is a call, it is the call's number.
    pub number: u64,
    /// Whether the client accepts the answer as an event stream. One that does not cannot be
    /// asked anything, and receives no progress.
    pub accepts_stream: bool,
    /// The headers that servers may read.
    pub forwarded: Option<Arc<ClientHeaders>>,
    /// The scopes of the request's credentials.
    pub scopes: GrantedScopes,
    pub reply: oneshot::Sender<ClientReply>,
}

/// The call has been silent for `sse_after`: answer it as a stream from now on.
#[derive(Message)]
#[rtype(result = "()")]
pub struct UpgradeToStream {
    pub number: u64,
}

/// GET: the client wants a stream, a new one or the rest of an old one.
#[derive(Message)]
#[rtype(result = "()")]
pub struct OpenStream {
    pub last_event_id: Option<String>,
    /// The scopes of the request's credentials, if a request opens it.
    pub scopes: Option<GrantedScopes>,
    pub reply: oneshot::Sender<ClientReply>,
}

/// An order of the gateway to a session.
#[derive(Message, Debug)]
#[rtype(result = "()")]
pub(crate) enum SessionCommand {
    /// The session is in use: its record must not expire.
    SaveRecord,
    /// The session got its owner and continues with a new actor: this one ends with everything that was
    /// started without credentials.
    HandOver,
    /// Keys changed: the session goes by the scopes that its key has now.
    UseKeyScopes(Arc<AuthSettings>),
    /// The stream that belongs to no call ends now; calls go on.
    EndGeneralStream,
    /// The client sent nothing for `idle_timeout`; a session that is in use stays.
    EndIfIdle,
    /// The gateway stops; the record stays.
    Drain,
    /// An operator asks what it does.
    Describe(oneshot::Sender<SessionActivity>),
    /// Its place is needed; one that was used stays. A message is sent once its record is deleted.
    EndIfUnused(oneshot::Sender<()>),
    /// The client ended the session. A message is sent once its record is deleted.
    Delete(oneshot::Sender<()>),
}
