//! The process of a program that clients of any capabilities share: compares its lists with those
//! that the program shows to a client without capabilities, and restarts it once it serves only such
//! clients (B-SHARE-01).

use std::sync::Arc;

use serde_json::Value;
use tokio::time::{Instant, sleep, timeout};

use crate::catalog::ServerPart;
use crate::downstream::caller::Caller;
use crate::downstream::connection_key::{ConnectionKey, ConnectionOwner};
use crate::downstream::pool::Downstreams;
use crate::downstream::pool::closing::close;
use crate::downstream::pool::server::{LOOK_EVERY, Server};
use crate::downstream::separation::SeparationReason;
use crate::protocol::{DeclaredCapabilities, Era};
use crate::supervision::ChildPhase;
use crate::telemetry::LogSource;

impl Downstreams {
    /// Finds out in the background, once per version of a program, whether its lists depend on
    /// capabilities. Called when a client lists; the client does not wait.
    pub(crate) fn compare_lists(&self, caller: &Caller, arbiter: usize) {
        let servers = self.servers.load();
        let is_due = |server: &&Arc<Server>| {
            let separation = &server.parts.separation;
            separation.is_comparison_due() && comparable_part(server).is_some()
        };
        let mut due = servers.values().filter(is_due);
        let Some(first) = due.next() else {
            return;
        };
        // To such clients, the program lists exactly what it lists to everybody.
        if caller.profile == DeclaredCapabilities::all() {
            return;
        }
        for server in std::iter::once(first).chain(due) {
            if server.parts.separation.take_comparison() {
                actix_rt::spawn(self.clone().compare(server.clone(), arbiter));
            }
        }
    }

    async fn compare(self, server: Arc<Server>, arbiter: usize) {
        let _comparing = Comparing(server.clone());
        let _one_at_a_time = self.comparing.lock().await;
        let separation = &server.parts.separation;
        let Some(shared) = comparable_part(&server) else {
            return separation.put_comparison_off();
        };
        let version = version_of(&shared);
        if separation.is_compared(version) {
            return;
        }
        // A comparison takes no client's place.
        if server.own.len() >= server.settings().entries_max() {
            return separation.put_comparison_off();
        }
        let key = ConnectionKey {
            owner: ConnectionOwner::Comparison,
            ..ConnectionKey::shared()
        };
        let limits = &server.settings().limits;
        let within = limits.start_timeout + server.settings().supervision.connect_timeout;
        let listed = self.listed_over(&server, &key, arbiter);
        let plain = timeout(within, listed).await.ok().flatten();
        let opened = server.own.take_out(|own| *own == key);
        close(&self.listener, &server, opened);
        match plain {
            Some(plain) if plain.offers_the_same(&shared) => separation.lists_equally(version),
            Some(_) => {
                separation.require(SeparationReason::ListsDiffer);
                renew_outdated(&server);
            }
            None => {
                log::debug!(server = server.name().as_str(); "could not compare the server's lists");
            }
        }
    }

    /// The lists of a connection that is opened for them; `None` if it fails.
    async fn listed_over(
        &self,
        server: &Arc<Server>,
        key: &ConnectionKey,
        arbiter: usize,
    ) -> Option<Arc<ServerPart>> {
        let (name, of_nobody) = (server.name().clone(), None);
        let opening = self.open(name, key.clone(), arbiter, of_nobody);
        let child = opening.await.ok()?;
        let spec = server.own.spec(key)?;
        let mut listed = spec.listed.subscribe();
        let mut changes = child.subscribe();
        let failed = changes.wait_for(|snapshot| {
            let phase = snapshot.status.phase();
            !matches!(
                phase,
                ChildPhase::Idle | ChildPhase::Starting | ChildPhase::Up
            )
        });
        tokio::select! {
            _ = failed => return None,
            listed = listed.wait_for(|listed| *listed) => drop(listed.ok()?),
        }
        // Of a list that failed, only the shared one is known.
        let is_whole = spec.session.trouble().is_none();
        spec.first_part.load_full().filter(|_| is_whole)
    }
}

/// Marks a server whose lists are being compared, until it is dropped.
struct Comparing(Arc<Server>);

impl Drop for Comparing {
    fn drop(&mut self) {
        self.0.parts.separation.end_comparison();
    }
}

impl Server {
    /// Whether a comparison decides what a client without some capabilities sees in the lists of the
    /// shared process, or showed that the process must be replaced first.
    pub(crate) fn is_settling(&self) -> bool {
        self.parts.separation.is_comparing() || self.is_renewed_soon()
    }

    /// Completes when the shared process lists what clients without some capabilities see. This may
    /// never happen.
    pub(crate) async fn settled(&self) {
        self.parts.separation.compared().await;
        while self.is_renewed_soon() {
            sleep(LOOK_EVERY).await;
        }
    }

    fn is_renewed_soon(&self) -> bool {
        self.parts.separation.is_outdated() && !self.is_halted() && !self.has_calls()
    }
}

/// What a server's shared process listed first, if it runs and was declared capabilities.
fn comparable_part(server: &Server) -> Option<Arc<ServerPart>> {
    let is_up = server.shared.phase() == ChildPhase::Up && !server.is_halted();
    let part = server.spec.first_part.load_full().filter(|_| is_up)?;
    (part.revision.era() == Era::Legacy).then_some(part)
}

fn version_of(part: &ServerPart) -> &str {
    let version = part.info.get("version").and_then(Value::as_str);
    version.unwrap_or_default()
}

/// Restarts a shared process as soon as it has no calls, if clients with capabilities do not use it
/// any more, or it has the roots of one that was there for a call.
pub(crate) fn renew_outdated(server: &Arc<Server>) {
    if !server.parts.separation.is_outdated() || server.is_halted() {
        return;
    }
    match server.shared.phase() {
        ChildPhase::Up => {
            let used = server.clone();
            server.shared.idle_if(move || {
                let is_used = used.has_calls() || used.spec.client_tasks.any(Instant::now());
                if !is_used {
                    let why = "restarts because clients that used its process need others";
                    log::info!(server = used.name().as_str(); "{why}");
                    used.parts.log.push(LogSource::Gateway, why);
                }
                !is_used
            });
        }
        ChildPhase::Idle => server.shared.wake(),
        _ => {}
    }
}
