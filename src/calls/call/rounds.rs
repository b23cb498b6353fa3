//! The rounds of a call whose client has no session: it asks for input in its answers, and the
//! client returns with further requests.

use std::sync::Arc;

use bytes::Bytes;
use uuid::Uuid;

use super::hosted_task::AdoptedTask;
use crate::calls::call_context::CallContext;
use crate::calls::open_questions::OpenQuestions;
use crate::calls::parked_calls::{CallAddress, ParkedPermit};
use crate::calls::worker_inbox::WorkerInbox;
use crate::downstream::Caller;
use crate::id::{Holder, Peer, ServerName};
use crate::protocol::{ErrorKind, Failure, Request};

/// The requests with which a client without a session makes a call and answers its questions.
pub(super) struct ClientRounds {
    inbox: Arc<WorkerInbox>,
    peer: Peer,
    /// The number of the request that the client waits for.
    pub(super) request_number: u64,
    pub(super) arguments: Option<Bytes>,
    pub(super) questions: OpenQuestions,
    parked: Option<ParkedPermit>,
    pub(super) adopted: Option<Box<AdoptedTask>>,
}

impl ClientRounds {
    /// The round in which this request, with its number, makes the call or continues it.
    pub(super) fn new(
        (inbox, peer, round): (Arc<WorkerInbox>, Peer, u8),
        request: &Request,
        number: u64,
    ) -> Self {
        Self {
            inbox,
            peer,
            request_number: number,
            arguments: request.member(request.params.arguments.as_ref()),
            questions: OpenQuestions::of(round),
            parked: None,
            adopted: None,
        }
    }

    /// Ends the current round, so that its state is no longer accepted.
    pub(super) fn next(&mut self) {
        self.questions.round = self.questions.round.saturating_add(1);
    }

    /// The handle of the parked call, if it has a slot.
    pub(super) fn handle(&self) -> Option<Uuid> {
        self.parked.as_ref().map(|parked| parked.handle)
    }

    /// Takes a parking slot under this handle for the call with this number.
    ///
    /// # Errors
    ///
    /// Returns the failure for the client if no slot is free.
    pub(super) fn park(
        &mut self,
        (handle, number): (Uuid, u64),
        context: &CallContext,
        caller: &Caller,
        server: &ServerName,
    ) -> Result<Uuid, Failure> {
        let limit = context.settings.load().parked_calls();
        let inbox = self.inbox.clone();
        let call = CallAddress { inbox, number };
        let holder = Holder::of(&caller.principal, self.peer);
        let permit = context.parked.enter(handle, call, holder, &limit);
        self.parked = Some(permit.map_err(|why| {
            let message = format!(
                "server `{server}` has to ask the client, but {}; the call was taken back and may have partly run, so it is not repeated",
                limit.reason(why)
            );
            Failure::new(ErrorKind::ServerLost, message).server(server.as_str())
        })?);
        Ok(handle)
    }
}
