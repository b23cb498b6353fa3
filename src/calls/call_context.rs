//! The shared parts that every call uses.

use std::sync::Arc;

use arc_swap::ArcSwap;
use uuid::Uuid;

use crate::auth::Policy;
use crate::calls::answer_decorator::AnswerDecorator;
use crate::calls::parked_calls::ParkedCalls;
use crate::calls::sealing::Sealing;
use crate::calls::settings::SessionSettings;
use crate::catalog::Snapshot;
use crate::downstream::{Caller, Downstreams};
use crate::history::{History, PendingCall, RecordedCaller};
use crate::id::{CallNumbers, SessionId};
use crate::protocol::Request;
use crate::publisher::CatalogView;
use crate::telemetry::Counters;

pub(crate) struct CallContext {
    pub(crate) settings: ArcSwap<SessionSettings>,
    pub(crate) downstreams: Downstreams,
    pub(crate) catalog: CatalogView,
    pub(crate) policy: Arc<dyn Policy>,
    pub(crate) numbers: CallNumbers,
    pub(crate) counters: Counters,
    pub(crate) history: History,
    pub(crate) sealing: Sealing,
    pub(crate) answer_decorator: AnswerDecorator,
    pub(crate) parked: ParkedCalls,
    /// Mints random UUIDs.
    pub(crate) mint: fn() -> Uuid,
}

impl CallContext {
    /// Begins the record of a call in the history, if there is one.
    pub(crate) fn record(&self, request: &Request, caller: &Caller) -> Option<Box<PendingCall>> {
        self.history.begin(
            request,
            &RecordedCaller {
                session: caller.session.map(SessionId::handle),
                client: caller.client.as_ref(),
                revision: caller.revision,
            },
        )
    }

    /// The catalog that a client sees.
    pub(crate) fn catalog_of(&self, caller: &Caller) -> Arc<Snapshot> {
        let own = self.catalog.own(caller);
        own.unwrap_or_else(|| self.catalog.snapshot())
    }
}
