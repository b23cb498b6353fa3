//! The handle of the publisher.

use std::collections::BTreeMap;
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

/// Carries server events to sessions and into the catalog. Cheap to clone.
#[derive(Clone)]
pub struct CatalogPublisher {
    core: Arc<PublisherCore>,
    dispatcher: ChildRef<()>,
}

impl CatalogPublisher {
    /// Starts the dispatcher on the calling arbiter, and keeps it. What the process before this one
    /// listed last is shown until servers are listed again.
    ///
    /// # Errors
    ///
    /// Fails when the calling thread is no arbiter.
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

    /// Where servers speak to.
    pub fn listener(&self) -> ServerEventListener {
        let core = self.core.clone();
        Arc::new(move |message| core.receive(message))
    }

    /// The sessions that receive events; given once they exist.
    pub fn attach(&self, sessions: Arc<dyn Subscribers>) {
        // Nobody attaches others.
        let _ = self.core.sessions.set(sessions);
    }

    /// A fingerprint of each server's configuration, for the stored parts.
    pub fn identify(&self, identities: BTreeMap<ServerName, String>) {
        if let Some(part_store) = &mut self.core.state().part_store {
            part_store.configure(identities);
        }
    }

    /// The servers that there are from now on.
    pub fn arrange(&self, arrangement: Arrangement) {
        let mut state = self.core.state();
        state.arrange(arrangement, Instant::now());
        self.core.arrange_views(&state);
        self.core.publish_freshness(&state);
        drop(state);
        if !self.core.inbox.put(DispatcherInput::Arranged) {
            log::error!("a change of the catalog waits for the next one: too many events wait");
        }
    }

    /// The pins of all servers, and the texts that are not approved.
    pub fn pins(&self) -> Vec<PinView> {
        self.core.pin_views()
    }

    /// One pin with its definitions and their difference.
    ///
    /// # Errors
    ///
    /// Returns the failure that the operator is to read: there is no such pin.
    pub fn pin(&self, server: &ServerName, of: (PinKind, &str)) -> Result<PinDetail, Failure> {
        self.core.pin_view(server, of)
    }

    /// Approves what a server lists under a name, or everything that it lists; with a digest only
    /// that definition. Returns the names of which something was approved.
    ///
    /// # Errors
    ///
    /// Returns the failure that the operator is to read: there is no such pin or definition, or
    /// the approval holds only until the gateway ends.
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
                format!("it is approved until the gateway ends, since it cannot be kept: {error}");
            Failure::new(ErrorKind::Internal, message)
        })
    }

    /// The dispatcher, as one sees it.
    pub fn view(&self) -> ChildView {
        ChildView {
            waiting: self.core.inbox.len(),
            ..self.dispatcher.view()
        }
    }
}
