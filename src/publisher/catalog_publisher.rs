//! The publisher's handle.

use std::io;
use std::sync::Arc;

use tokio::time::Instant;

use crate::catalog::PinKind;
use crate::downstream::ServerEventListener;
use crate::id::ServerName;
use crate::protocol::{ErrorKind, Failure};
use crate::publisher::catalog_view::CatalogView;
use crate::publisher::dispatcher::Dispatcher;
use crate::publisher::pin_views::{PinDetail, PinView};
use crate::publisher::publisher_core::{DispatcherInput, PublisherCore, RestoredCatalog};
use crate::publisher::server_parts::Arrangement;
use crate::publisher::subscribers::Subscribers;
use crate::supervision::{Arbiters, ChildRef, ChildSpec, ChildView, Settings, Start, Supervisor};
use crate::telemetry::Counters;

/// Delivers server events to sessions and to the catalog. Cheap to clone.
#[derive(Clone)]
pub struct CatalogPublisher {
    core: Arc<PublisherCore>,
    dispatcher: ChildRef<()>,
}

impl CatalogPublisher {
    /// Starts and keeps the dispatcher on the calling arbiter. The lists of the previous process
    /// are shown until servers are listed again.
    ///
    /// # Errors
    ///
    /// Fails if the calling thread is not an arbiter.
    pub fn start(
        counters: Counters,
        restored: Option<RestoredCatalog>,
    ) -> io::Result<(Self, CatalogView)> {
        let core = Arc::new(PublisherCore::new(counters, restored));
        let of_actor = core.clone();
        let start = Start::new(move |_, link| Dispatcher::new(of_actor.clone(), link));
        let mut spec = ChildSpec::new("dispatcher", &Arbiters::current()?, start);
        spec.settings = Settings::prompt();
        let dispatcher = Supervisor::supervise(spec);
        let view = core.view();
        Ok((Self { core, dispatcher }, view))
    }

    /// The listener for server events.
    pub fn listener(&self) -> ServerEventListener {
        let core = self.core.clone();
        Arc::new(move |message| core.receive(message))
    }

    /// Sets the sessions that receive events; called once they exist.
    pub fn attach(&self, sessions: Arc<dyn Subscribers>) {
        // Sessions are attached only once.
        let _ = self.core.sessions.set(sessions);
    }

    /// Sets the configured servers. Must be called before new servers are started, because lists
    /// of unknown servers are ignored.
    pub fn configure(&self, arrangement: Arrangement) {
        let mut state = self.core.state();
        state.arrange(arrangement, Instant::now());
        self.core.arrange_views(&state);
        self.core.publish_freshness(&state);
        drop(state);
        if !self.core.inbox.put(DispatcherInput::Arranged) {
            log::error!("event queue is full; the catalog change is applied with the next one");
        }
    }

    /// The pins of all servers, and the unapproved texts.
    pub fn pins(&self) -> Vec<PinView> {
        self.core.pin_views()
    }

    /// One pin with its definitions and their diff.
    ///
    /// # Errors
    ///
    /// Returns the failure for the operator if the pin does not exist.
    pub fn pin(&self, server: &ServerName, of: (PinKind, &str)) -> Result<PinDetail, Failure> {
        self.core.pin_view(server, of)
    }

    /// Approves what a server lists under a name, or everything that it lists; if a digest is
    /// given, only that definition. Returns the names of which something was approved.
    ///
    /// # Errors
    ///
    /// Returns the failure for the operator: the pin or definition does not exist, or the approval
    /// could not be stored and lasts only until the gateway ends.
    pub async fn approve(
        &self,
        server: &ServerName,
        of: Option<(PinKind, &str)>,
        digest: Option<&str>,
    ) -> Result<Vec<String>, Failure> {
        let approved = self.core.approve(server, of, digest)?;
        if approved.is_empty() {
            return Ok(approved);
        }
        let pins = self.core.state().parts.pins().clone();
        let kept = pins.keep(server).await.map(|()| approved);
        kept.map_err(|error| {
            let message =
                format!("approved only until the gateway ends, because the approval cannot be stored: {error}");
            Failure::new(ErrorKind::Internal, message)
        })
    }

    /// The dispatcher's observable state.
    pub fn view(&self) -> ChildView {
        ChildView {
            waiting: self.core.inbox.len(),
            ..self.dispatcher.view()
        }
    }
}
