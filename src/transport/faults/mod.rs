//! Fault injection: a connector whose links misbehave as configured.
//!
//! It wraps any other connector, so that the code above it meets delays, losses, garbage, silence
//! and crashes as in real failures. Disabled by default.

mod link;

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use bytes::Bytes;
use futures_util::future::{FutureExt as _, LocalBoxFuture};
use parking_lot::Mutex;

use super::{Connector, EventSink, FaultSettings, HttpSession, Link, LinkOpenError, Pressure};
use crate::credentials::Credential;
use crate::protocol::{Envelope, Method};
use crate::supervision::Random;
use crate::telemetry::{Counter, Counters, LogRing, LogSource};

use link::{FaultyLink, LinkFaults};

/// The settings and state of injected faults.
#[derive(Clone, Debug)]
pub struct FaultParts {
    pub random: Arc<dyn Random>,
    /// Receives a remark about every garbled message.
    pub log: LogRing,
    pub counters: Counters,
}

/// Opens links that inject faults.
pub struct FaultyConnector {
    inner: Arc<dyn Connector>,
    state: Arc<FaultState>,
}

struct FaultState {
    settings: FaultSettings,
    parts: FaultParts,
    /// Connections whose session is known, so that their worker links have the same faults.
    connections: Mutex<Vec<(HttpSession, Weak<FaultyConnection>)>>,
}

/// State of one connection, with its worker links.
#[derive(Debug, Default)]
struct FaultyConnection {
    calls: AtomicU64,
    /// Whether messages in both directions are dropped.
    silent: AtomicBool,
}

/// Outcome of a frame for the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FrameFate {
    Pass,
    Lost,
    /// The connection breaks when the frame arrives.
    Crash,
}

impl FaultyConnector {
    pub fn new(inner: Arc<dyn Connector>, settings: FaultSettings, parts: FaultParts) -> Self {
        let state = Arc::new(FaultState::new(settings, parts));
        Self { inner, state }
    }
}

impl fmt::Debug for FaultyConnector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FaultyConnector")
            .field("settings", &self.state.settings)
            .finish_non_exhaustive()
    }
}

impl Connector for FaultyConnector {
    fn open(
        &self,
        sink: EventSink,
    ) -> LocalBoxFuture<'static, Result<Box<dyn Link>, LinkOpenError>> {
        let (inner, state) = (self.inner.clone(), self.state.clone());
        async move {
            if state.should_inject(state.settings.refuse) {
                let reason = "refused by fault injection (`faults.refuse`)".to_owned();
                return Err(LinkOpenError::Other(reason));
            }
            let (connection, knows) = (Arc::default(), inner.knows_call_of_requests());
            let (faults, events) = LinkFaults::new(&state, connection, knows, sink);
            let inner = inner.open(events).await?;
            Ok(Box::new(FaultyLink { inner, faults }) as Box<dyn Link>)
        }
        .boxed_local()
    }

    fn worker_link(&self, session: HttpSession, sink: EventSink) -> Option<Box<dyn Link>> {
        let connection = self.state.connection_of(&session);
        let knows = self.inner.knows_call_of_requests();
        let (faults, events) = LinkFaults::new(&self.state, connection, knows, sink);
        let inner = self.inner.worker_link(session, events)?;
        Some(Box::new(FaultyLink { inner, faults }))
    }

    fn resume(&self, session: HttpSession, sink: EventSink) -> Option<Box<dyn Link>> {
        let connection = self.state.connection_of(&session);
        let knows = self.inner.knows_call_of_requests();
        let (faults, events) = LinkFaults::new(&self.state, connection, knows, sink);
        let inner = self.inner.resume(session, events)?;
        Some(Box::new(FaultyLink { inner, faults }))
    }

    fn process_groups(&self) -> Vec<u32> {
        self.inner.process_groups()
    }

    fn pressure(&self) -> Option<Pressure> {
        self.inner.pressure()
    }

    fn starts_process(&self) -> bool {
        self.inner.starts_process()
    }

    fn access(&self) -> Vec<String> {
        self.inner.access()
    }

    fn knows_call_of_requests(&self) -> bool {
        self.inner.knows_call_of_requests()
    }

    fn credential(&self) -> Option<&Arc<Credential>> {
        self.inner.credential()
    }

    fn transport(&self) -> &'static str {
        self.inner.transport()
    }
}

impl FaultState {
    fn new(settings: FaultSettings, parts: FaultParts) -> Self {
        Self {
            settings,
            parts,
            connections: Mutex::default(),
        }
    }

    /// Whether a fault with this probability happens now.
    fn should_inject(&self, share: f64) -> bool {
        let happens = share > 0.0 && self.parts.random.chance() < share;
        if happens {
            self.count();
        }
        happens
    }

    fn count(&self) {
        self.parts.counters.add(Counter::FaultsInjected);
    }

    fn remember(&self, session: HttpSession, connection: &Arc<FaultyConnection>) {
        let mut connections = self.connections.lock();
        connections.retain(|(known, of)| *known != session && of.strong_count() > 0);
        connections.push((session, Arc::downgrade(connection)));
    }

    fn connection_of(&self, session: &HttpSession) -> Arc<FaultyConnection> {
        let connections = self.connections.lock();
        let found = connections.iter().find(|(known, _)| known == session);
        found.and_then(|(_, of)| of.upgrade()).unwrap_or_default()
    }

    fn fate(&self, connection: &FaultyConnection, frame: &Bytes) -> FrameFate {
        if connection.silent.load(Ordering::Relaxed) {
            return FrameFate::Lost;
        }
        if is_call(frame) {
            let earlier = connection.calls.fetch_add(1, Ordering::Relaxed);
            let is_over = |max: Option<u64>| max.is_some_and(|max| earlier >= max);
            let crashes = is_over(self.settings.crash_after);
            if crashes || is_over(self.settings.half_open_after) {
                connection.silent.store(true, Ordering::Relaxed);
                self.count();
                return if crashes {
                    FrameFate::Crash
                } else {
                    FrameFate::Lost
                };
            }
        }
        if self.should_inject(self.settings.drop) {
            FrameFate::Lost
        } else {
            FrameFate::Pass
        }
    }

    /// Garbage in place of a message: the start of the message, or random bytes.
    fn garbled(&self, message: &[u8]) -> Vec<u8> {
        let chance = || self.parts.random.chance();
        let below = |max: usize| (chance() * max as f64) as usize;
        if chance() < 0.5 {
            // An object without its last byte is incomplete.
            let length = below(message.len());
            return message.get(..length).unwrap_or_default().to_vec();
        }
        let noise = std::iter::repeat_with(|| below(256) as u8);
        std::iter::once(b'\xff')
            .chain(noise.take(below(NOISE_MAX)))
            .collect()
    }

    fn note(&self, text: &str) {
        self.parts.log.push(LogSource::Gateway, text);
    }
}

/// Longest random garbage, in bytes.
const NOISE_MAX: usize = 200;

/// Whether a frame is a client's call rather than a request of the gateway's own.
fn is_call(frame: &Bytes) -> bool {
    let Ok(Envelope::Request(request)) = Envelope::parse(frame.clone()) else {
        return false;
    };
    let calls = [
        Method::ToolsCall,
        Method::PromptsGet,
        Method::ResourcesRead,
        Method::CompletionComplete,
    ];
    calls.contains(&request.method)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::supervision::SeededRandom;

    #[test]
    fn garbage_is_never_a_message() {
        let parts = FaultParts {
            random: Arc::new(SeededRandom::new(1)),
            log: LogRing::default(),
            counters: Counters::default(),
        };
        let faults = FaultState::new(FaultSettings::default(), parts);
        let message = br#"{"jsonrpc":"2.0","id":1,"result":{}}"#;
        let mut lengths = std::collections::BTreeSet::new();
        for _ in 0..10_000 {
            let garbled = faults.garbled(message);
            lengths.insert(garbled.len());
            let read = crate::transport::messages::for_each_message(garbled.into(), |_| {});
            assert!(read.is_err());
        }
        assert!(lengths.len() > 100, "{lengths:?}");
    }
}
