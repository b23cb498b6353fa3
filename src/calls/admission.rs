//! Admission of calls: the one place where limits, policies and returned answers are checked before
//! a call starts.

use futures_util::FutureExt;
use futures_util::future::LocalBoxFuture;

use crate::bridge::headers::{HeaderMismatch, McpHeaders, ParamHeaders, PassedHeaders};
use crate::calls::answer_decorator::call_lost;
use crate::calls::call_context::CallContext;
use crate::calls::call_target::CallTarget;
use crate::calls::input_requests::ReturnedRound;
use crate::calls::parked_calls::CallAddress;
use crate::calls::peer_places::PeerPlace;
use crate::calls::tasks;
use crate::catalog::Snapshot;
use crate::downstream::Caller;
use crate::id::{Holder, ServerName};
use crate::protocol::{ErrorKind, Failure, RawJson, Request};

/// The client that makes a call, and what it sees.
pub(crate) struct CallClient<'a> {
    pub(crate) caller: &'a Caller,
    /// The holder of the quotas that the call counts for.
    pub(crate) holder: Holder,
    pub(crate) catalog: &'a Snapshot,
    /// The server that named the URI of the request to this client.
    pub(crate) linked: Option<&'a ServerName>,
    /// HTTP headers that must agree with the arguments of the tool.
    pub(crate) headers: Option<&'a McpHeaders<'a>>,
}

/// A call that is allowed and within the limits of its client.
pub(crate) struct AdmittedCall {
    /// The request to send instead, without the state that its client returned.
    pub(crate) rewritten: Option<Request>,
    pub(crate) target: CallTarget,
    /// The place among the client's calls in flight, where these are limited.
    pub(crate) place: Option<PeerPlace>,
    /// How often the client was asked for input already.
    pub(crate) round: u8,
    /// The parked call that the request resumes.
    pub(crate) parked: Option<CallAddress>,
    /// Ends when the store keeps that the returned state is used up. The call starts after that.
    pub(crate) state_used_up: Option<LocalBoxFuture<'static, Result<(), Failure>>>,
}

impl CallContext {
    /// Finds the server of a call, asks the policies, and counts the call for the quotas and rate
    /// limits of its client.
    ///
    /// # Errors
    ///
    /// Returns the failure that the client reads.
    pub(crate) fn admit(
        &self,
        request: &Request,
        client: &CallClient<'_>,
    ) -> Result<AdmittedCall, Failure> {
        let CallClient {
            caller,
            catalog,
            linked,
            ..
        } = *client;
        let mut target = self.allowed_target(request, caller, catalog, linked)?;
        if let Some(headers) = client.headers {
            target.headers = check_params(headers, request, &target)?;
        }
        let item = request.item().unwrap_or_default();
        let mut returned =
            ReturnedRound::read(request, caller, &target.server, &item, &self.sealing)?;
        // A parked call has its place.
        let place = match returned.parked {
            Some(_) => None,
            None => self.place_of_call(client.holder.clone())?,
        };
        // A later round continues a call that was counted already.
        if returned.round == 0 {
            let counted = target.counted_as(&item);
            self.count_call(&request.method, &client.holder, &target.server, counted)?;
        }
        let state_used_up = returned.use_up_state(self)?;
        let parked = returned.parked.map(|handle| self.parked.find(handle));
        let parked = parked.map(|call| call.ok_or_else(|| call_lost(&target.server)));
        if let Some(rewritten) = &returned.rewritten {
            // The edits belong to the bytes of the request that is sent.
            target = CallTarget {
                headers: target.headers,
                ..tasks::target(rewritten, catalog, caller, &self.sealing, linked)?
            };
        }
        Ok(AdmittedCall {
            target,
            place,
            round: returned.round,
            parked: parked.transpose()?,
            state_used_up: state_used_up.map(FutureExt::boxed_local),
            rewritten: returned.rewritten,
        })
    }
}

/// Arguments that a tool wants repeated in headers must be the same there (S-HDR-08); other
/// parameter headers are passed to the server.
fn check_params(
    headers: &McpHeaders<'_>,
    request: &Request,
    target: &CallTarget,
) -> Result<PassedHeaders, Failure> {
    let mismatch =
        |error: HeaderMismatch| Failure::new(ErrorKind::HeaderMismatch, error.to_string());
    let none = ParamHeaders::default();
    let known = target.tool.as_ref().map_or(&none, |tool| &tool.headers);
    if !known.is_empty() {
        let arguments = request.member(request.params.arguments.as_ref());
        let arguments = arguments.and_then(|bytes| RawJson::try_new(bytes).ok());
        known.check(headers, arguments.as_ref()).map_err(mismatch)?;
    }
    headers.unknown_params(known).map_err(mismatch)
}
