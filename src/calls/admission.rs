//! Admission of calls: checks limits, policies and returned answers before a call starts. Sessions
//! and requests without a session share it.

use futures_util::FutureExt;
use futures_util::future::LocalBoxFuture;

use crate::bridge::headers::{HeaderMismatch, McpHeaders, ParamHeaders, PassedHeaders};
use crate::calls::answer_decorator::{call_lost, replica_lost};
use crate::calls::call_context::CallContext;
use crate::calls::call_target::CallTarget;
use crate::calls::open_questions::ReturnedRound;
use crate::calls::parked_calls::CallAddress;
use crate::calls::quota::QuotaShare;
use crate::calls::tasks;
use crate::catalog::Snapshot;
use crate::downstream::Caller;
use crate::id::{Holder, ServerName};
use crate::protocol::{ErrorKind, Failure, RawJson, Request};

/// The client that makes a call, with the catalog and headers that apply to the call.
pub(crate) struct CallClient<'a> {
    pub(crate) caller: &'a Caller,
    /// The client whose quotas the call counts against.
    pub(crate) holder: Holder,
    pub(crate) catalog: &'a Snapshot,
    /// The server whose earlier result mentioned the requested URI to this client.
    pub(crate) linked: Option<&'a ServerName>,
    /// HTTP headers that must match the tool's arguments.
    pub(crate) headers: Option<&'a McpHeaders<'a>>,
}

/// A call that passed the policies and is within its client's limits.
pub(crate) struct AdmittedCall {
    /// The request to send in place of the original, without the state that the client returned.
    pub(crate) rewritten: Option<Request>,
    pub(crate) target: CallTarget,
    /// The slot among the client's calls in flight; `None` for a parked call, which already has
    /// one, and if these calls are not limited.
    pub(crate) place: Option<QuotaShare>,
    /// Number of times that the client was already asked for input.
    pub(crate) round: u8,
    /// The parked call that the request resumes.
    pub(crate) parked: Option<CallAddress>,
    /// Completes once the store has recorded the returned state as used. The call starts after
    /// that.
    pub(crate) state_used_up: Option<LocalBoxFuture<'static, Result<(), Failure>>>,
}

impl CallClient<'_> {
    /// Finds the server for a call, evaluates the policies, and counts the call against its
    /// client's quotas and rate limits.
    ///
    /// # Errors
    ///
    /// Returns the failure that the client reads.
    pub(crate) fn admit(
        &self,
        request: &Request,
        calls: &CallContext,
    ) -> Result<AdmittedCall, Failure> {
        let Self {
            caller,
            catalog,
            linked,
            ..
        } = *self;
        let mut target = calls.allowed_target(request, caller, catalog, linked)?;
        if let Some(headers) = self.headers {
            target.headers = check_params(headers, request, &target)?;
        }
        let item = request.item().unwrap_or_default();
        let mut returned = ReturnedRound::read(request, caller, &target.server, &item, calls)?;
        // A parked call already holds a slot.
        let place = match returned.parked {
            Some(_) => None,
            None => calls.place_of_call(self.holder.clone())?,
        };
        // The first round of this call was already counted.
        if returned.round == 0 {
            let counted = target.counted_as(&item);
            let client = (&self.holder, caller.session);
            calls.count_call(request, client, (&target.server, counted))?;
        }
        let state_used_up = returned.use_up_state(calls)?;
        let parked = returned.parked.map(|handle| {
            let call = calls.parked.find(handle);
            call.ok_or_else(|| match calls.mint.is_own(handle) {
                true => call_lost(&target.server),
                false => replica_lost(),
            })
        });
        if let Some(rewritten) = &returned.rewritten {
            // Edits are byte ranges, so they must be computed for the bytes that are sent.
            target = CallTarget {
                headers: target.headers,
                ..tasks::target(rewritten, catalog, caller, &calls.sealing, linked)?
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

/// Checks that parameter headers match the arguments that the tool mirrors in headers (S-HDR-08).
/// Returns the remaining parameter headers, which are passed to the server.
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
