//! The shared parts that every call uses.

use std::sync::Arc;

use arc_swap::ArcSwap;
use uuid::Uuid;

use crate::auth::Policy;
use crate::calls::answer_decorator::AnswerDecorator;
use crate::calls::call_target;
use crate::calls::parked_calls::ParkedCalls;
use crate::calls::sealing::Sealing;
use crate::calls::settings::SessionSettings;
use crate::catalog::{ItemKind, Snapshot};
use crate::downstream::{Caller, Downstreams};
use crate::id::CallNumbers;
use crate::protocol::{Method, Request};
use crate::publisher::CatalogView;
use crate::telemetry::Counters;

pub(crate) struct CallContext {
    pub(crate) settings: ArcSwap<SessionSettings>,
    pub(crate) downstreams: Downstreams,
    pub(crate) catalog: CatalogView,
    pub(crate) policy: Arc<dyn Policy>,
    pub(crate) numbers: CallNumbers,
    pub(crate) counters: Counters,
    pub(crate) sealing: Sealing,
    pub(crate) answer_decorator: AnswerDecorator,
    pub(crate) parked: ParkedCalls,
    /// Mints random UUIDs.
    pub(crate) mint: fn() -> Uuid,
}

impl CallContext {
    /// The catalog that a client sees.
    pub(crate) fn catalog_of(&self, caller: &Caller) -> Arc<Snapshot> {
        let own = self.catalog.own(caller);
        own.unwrap_or_else(|| self.catalog.snapshot())
    }

    /// Whether a request needs the lists of servers that were never listed: right after the start
    /// it waits for them for a moment (B-LIST-01).
    pub(crate) fn must_wait_for_lists(&self, request: &Request, caller: &Caller) -> bool {
        if self.catalog.is_listed() {
            return false;
        }
        match &request.method {
            Method::Discover | Method::Listen => true,
            Method::Ping | Method::Initialize | Method::LoggingSetLevel => false,
            method if ItemKind::listed_by(method).is_some() => true,
            _ => call_target::target(request, &self.catalog_of(caller)).is_err(),
        }
    }
}
