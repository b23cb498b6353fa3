//! Messages from the front and the registry to session actors.

use std::sync::Arc;

use actix::Message;
use tokio::sync::oneshot;

use crate::auth::{AuthSettings, GrantedScopes};
use crate::bridge::headers::ClientHeaders;
use crate::calls::ClientReply;
use crate::protocol::Envelope;
use crate::sessions::session_activity::SessionActivity;

/// A message of the client.
#[derive(Message)]
#[rtype(result = "()")]
pub struct FromClient {
    pub envelope: Envelope,
    /// Identifies the exchange; for a call, this is the call's number.
    pub number: u64,
    /// Whether the client accepts the answer as an event stream. A client that does not cannot be
    /// asked questions during the call, and receives no progress.
    pub accepts_stream: bool,
    /// The headers that are forwarded to servers.
    pub forwarded: Option<Arc<ClientHeaders>>,
    /// The scopes of the request's credentials.
    pub scopes: GrantedScopes,
    pub reply: oneshot::Sender<ClientReply>,
}

/// Requests that a call be answered as a stream, because it has been silent for `sse_after`.
#[derive(Message)]
#[rtype(result = "()")]
pub struct UpgradeToStream {
    pub number: u64,
}

/// Requests a stream for the client: a new one, or the remainder of an earlier one.
#[derive(Message)]
#[rtype(result = "()")]
pub struct OpenStream {
    pub last_event_id: Option<String>,
    /// The scopes of the request's credentials, if a request opens it.
    pub scopes: Option<GrantedScopes>,
    pub reply: oneshot::Sender<ClientReply>,
}

/// A command of the gateway to a session.
#[derive(Message, Debug)]
#[rtype(result = "()")]
pub(crate) enum SessionCommand {
    /// Save the record again, so that it does not expire while the session is in use.
    SaveRecord,
    /// End this actor, with everything that was started without credentials. The session now has an
    /// owner and continues with a new actor.
    HandOver,
    /// Apply the current scopes of the session's API key, after keys changed.
    UseKeyScopes(Arc<AuthSettings>),
    /// End the general stream. Calls continue.
    EndGeneralStream,
    /// End the session, whose client sent nothing for `idle_timeout`, unless it is in use.
    EndIfIdle,
    /// End the actor because the gateway stops. The record stays.
    Drain,
    /// End the actor if no call or question is open, so that another replica can take the session
    /// over. A message is sent once it has ended.
    Release(oneshot::Sender<()>),
    /// End the actor, because another replica took the session over. The record stays.
    Leave,
    /// Report the current activity to an operator.
    Describe(oneshot::Sender<SessionActivity>),
    /// End the session to free its place, unless it was ever used. A message is sent once its
    /// record is deleted.
    EndIfUnused(oneshot::Sender<()>),
    /// Delete the session, which its client has ended. A message is sent once its record is
    /// deleted.
    Delete(oneshot::Sender<()>),
}
