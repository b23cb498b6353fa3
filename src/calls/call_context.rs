//! The shared parts that every call uses.

use std::borrow::Cow;
use std::sync::Arc;

use arc_swap::{ArcSwap, ArcSwapOption};
use tokio::time::Instant;

use crate::auth::{CountedCall, Policy, RateLimits};
use crate::bridge::headers::ClientHeaders;
use crate::bridge::meta::TRACEPARENT;
use crate::calls::answer_decorator::AnswerDecorator;
use crate::calls::call_telemetry::CallTelemetry;
use crate::calls::kept_results::KeptResults;
use crate::calls::parked_calls::ParkedCalls;
use crate::calls::quota::{Quota, QuotaShare};
use crate::calls::request_trace::RequestTrace;
use crate::calls::sealing::Sealing;
use crate::calls::settings::SessionSettings;
use crate::catalog::{self, NameSettings};
use crate::cluster::{Mint, ReplicaNumber};
use crate::downstream::{Caller, Downstreams, Server};
use crate::history::{History, RecordedCaller};
use crate::id::{CallNumbers, Holder, ServerName, SessionId, ViewId};
use crate::metrics::Metrics;
use crate::protocol::{Era, Failure, Method, Request, Revision};
use crate::publisher::CatalogView;
use crate::telemetry::{Counter, Counters};
use crate::traces::Traces;

pub(crate) struct CallContext {
    pub(crate) settings: ArcSwap<SessionSettings>,
    pub(crate) downstreams: Downstreams,
    pub(crate) catalog: CatalogView,
    /// The policy in force; `None` allows everything.
    pub(crate) policy: ArcSwapOption<Box<dyn Policy>>,
    pub(crate) rate_limits: RateLimits,
    /// Calls in flight of clients with a limit on them.
    pub(crate) in_flight: Quota,
    pub(crate) numbers: CallNumbers,
    pub(crate) counters: Counters,
    pub(crate) history: History,
    pub(crate) metrics: Metrics,
    pub(crate) traces: Traces,
    pub(crate) sealing: Sealing,
    /// The decorator for clients whose view is the whole gateway.
    pub(crate) answer_decorator: AnswerDecorator,
    pub(crate) parked: ParkedCalls,
    pub(crate) kept_results: KeptResults,
    /// Mints ids that clients return.
    pub(crate) mint: Arc<dyn Mint>,
}

impl CallContext {
    /// The decorator for answers to a client: the gateway's, or the decorator of the only server in
    /// its view.
    pub(crate) fn decorator(&self, caller: &Caller) -> Cow<'_, AnswerDecorator> {
        match &caller.view {
            ViewId::Server(_) if caller.revision.era() == Era::Modern => {
                let catalog = self.catalog.of(caller);
                let server = catalog.one_server().cloned();
                server.map_or(Cow::Borrowed(&self.answer_decorator), |server| {
                    Cow::Owned(AnswerDecorator::Server(server))
                })
            }
            _ => Cow::Borrowed(&self.answer_decorator),
        }
    }

    /// Returns the other replica that a returned state or task id names; `None` for a request that
    /// this gateway serves, as a single one always does.
    pub(crate) fn elsewhere(&self, request: &Request, caller: &Caller) -> Option<ReplicaNumber> {
        let settings = self.settings.load();
        let found = (self.sealing).elsewhere(request, &caller.principal, &settings)?;
        // This replica represents a task whose replica is gone.
        let is_here = |handle| self.parked.find(handle).is_some();
        (!found.handle.is_some_and(is_here)).then_some(found.number)
    }

    /// The size above which clients of a view get a preview of a tool's result; `None` for never.
    pub(crate) fn preview_above(&self, server: &ServerName, view: &ViewId) -> Option<usize> {
        let of_server = || {
            self.downstreams
                .get(server)?
                .settings()
                .limits
                .results
                .preview_above
        };
        self.catalog.results(view).preview_above.or_else(of_server)
    }

    /// Starts the telemetry of a request that arrived on the worker thread with this index.
    pub(crate) fn observe(
        &self,
        request: &Request,
        revision: Revision,
        worker: usize,
        headers: Option<&Arc<ClientHeaders>>,
    ) -> Option<Box<CallTelemetry>> {
        let header = headers.and_then(|headers| headers.get(TRACEPARENT));
        let trace = RequestTrace::begin(&self.traces, request, revision, header);
        CallTelemetry::begin(&self.metrics, request, revision, worker, trace)
    }

    /// Starts the telemetry of a call, including its history record if calls are recorded.
    pub(crate) fn observe_call(
        &self,
        mut begun: Option<Box<CallTelemetry>>,
        request: &Request,
        caller: &Caller,
    ) -> Option<Box<CallTelemetry>> {
        if let Some(trace) = begun.as_mut().and_then(|begun| begun.trace()) {
            let session = caller.session.map(SessionId::handle);
            trace.of_caller(session.map(|it| it.to_string()), view_name(&caller.view));
        }
        let _log = CallTelemetry::log_scope(begun.as_deref());
        let record = self.history.begin(
            request,
            &RecordedCaller {
                session: caller.session.map(SessionId::handle),
                client: caller.client.as_ref(),
                revision: caller.revision,
                at_server: match &caller.view {
                    ViewId::Server(server) => Some(server),
                    ViewId::Default | ViewId::Named(_) => None,
                },
            },
        );
        CallTelemetry::of_call(begun, request, record)
    }

    /// Returns whether an unlisted name can belong to this server, as seen by the client.
    pub(crate) fn may_be_item_of(&self, name: &str, server: &Server, caller: &Caller) -> bool {
        let settings = server.settings();
        let names = self.names_of(server, &settings.names, &caller.view);
        let name = self.catalog.name_before(&caller.view, name);
        names.is_some_and(|names| catalog::may_belong_to(&name, server.name(), &names))
    }

    /// Returns the public names of a server's items in the client's view; `None` if the view does
    /// not show the server.
    pub(crate) fn names_of<'s>(
        &self,
        server: &Server,
        names: &'s NameSettings,
        view: &ViewId,
    ) -> Option<Cow<'s, NameSettings>> {
        match view {
            ViewId::Default => Some(Cow::Borrowed(names)),
            view => {
                let names = self.catalog.names_in(view, server.name());
                names.map(Cow::Owned)
            }
        }
    }

    /// Counts a call against the rate limits of its client. `item` is the requested item.
    ///
    /// # Errors
    ///
    /// Returns the failure that the client reads.
    pub(crate) fn count_call(
        &self,
        request: &Request,
        (holder, session): (&Holder, Option<SessionId>),
        (server, item): (&ServerName, &str),
    ) -> Result<(), Failure> {
        if !is_counted(&request.method) {
            return Ok(());
        }
        let arguments = request.params.arguments.clone();
        let arguments = arguments.and_then(|span| request.frame.as_bytes().get(span));
        let call = CountedCall {
            holder,
            server,
            tool: (request.method == Method::ToolsCall).then_some(item),
            arguments: arguments.unwrap_or_default(),
            session,
        };
        let settings = self.settings.load();
        let own = settings.by_client.find(holder).map(|own| &own.rates);
        let rates = &self.rate_limits;
        let counted = rates.count(&settings.rate_limits, own, call, Instant::now());
        counted.inspect_err(|_| self.counters.add(Counter::ShedForRate))
    }

    /// Takes a slot among the client's calls in flight; `None` if these calls are not limited.
    ///
    /// # Errors
    ///
    /// Returns the failure that the client reads.
    pub(crate) fn place_of_call(&self, holder: Holder) -> Result<Option<QuotaShare>, Failure> {
        let limit = self.settings.load().calls_in_flight(&holder);
        if limit.per_client.is_none() {
            return Ok(None);
        }
        let place = self.in_flight.take(holder, &limit);
        let place = place.map_err(|why| {
            self.counters.add(Counter::ShedForClient);
            limit.failure(why)
        })?;
        Ok(Some(place))
    }
}

/// Returns the name of a view other than the default one.
fn view_name(view: &ViewId) -> Option<String> {
    match view {
        ViewId::Default => None,
        ViewId::Named(name) => Some(name.to_string()),
        ViewId::Server(server) => Some(format!("server/{server}")),
    }
}

/// Returns whether a request counts as a call. Follow-up requests such as `tasks/get` do not.
fn is_counted(method: &Method) -> bool {
    matches!(
        method,
        Method::ToolsCall | Method::PromptsGet | Method::ResourcesRead | Method::CompletionComplete
    )
}
