//! Faults on demand: a connector whose links misbehave as their settings say.
//!
//! It stands around any other connector, so that whatever is above meets delays, losses, garbage,
//! silence and crashes as it would meet them for real. Off unless it is configured.

mod link;
mod settings;

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use bytes::Bytes;
use futures_util::future::{FutureExt as _, LocalBoxFuture};

use super::{Connector, EventSink, HttpSession, Link, OpenError};
use crate::protocol::{Envelope, Method};
use crate::supervision::Random;
use crate::telemetry::{Counter, Counters, LogRing, LogSource};

use link::FaultyLink;
pub use settings::FaultSettings;

/// What faults are made with.
#[derive(Clone, Debug)]
pub struct FaultParts {
    pub random: Arc<dyn Random>,
    /// Told of every garbled message.
    pub log: LogRing,
    pub counters: Counters,
}

/// Opens links that misbehave.
pub struct FaultyConnector {
    inner: Arc<dyn Connector>,
    shared: Arc<Shared>,
}

struct Shared {
    settings: FaultSettings,
    parts: FaultParts,
    /// Connections whose session is known, so that their lanes share their fate.
    runs: Mutex<Vec<(HttpSession, Weak<Run>)>>,
}

/// One connection, with its lanes.
#[derive(Debug, Default)]
struct Run {
    calls: AtomicU64,
    /// Nothing comes or goes any more.
    silent: AtomicBool,
}

/// What becomes of a frame on its way to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Pass,
    Lost,
    /// The connection breaks as it arrives.
    Crash,
}

impl FaultyConnector {
    pub fn new(inner: Arc<dyn Connector>, settings: FaultSettings, parts: FaultParts) -> Self {
        let shared = Arc::new(Shared {
            settings,
            parts,
            runs: Mutex::default(),
        });
        Self { inner, shared }
    }
}

impl fmt::Debug for FaultyConnector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FaultyConnector")
            .field("settings", &self.shared.settings)
            .finish_non_exhaustive()
    }
}

impl Connector for FaultyConnector {
    fn open(&self, sink: EventSink) -> LocalBoxFuture<'static, Result<Box<dyn Link>, OpenError>> {
        let (inner, shared) = (self.inner.clone(), self.shared.clone());
        async move {
            if shared.happens(shared.settings.refuse) {
                let reason = "refused by fault injection (`faults.refuse`)".to_owned();
                return Err(OpenError::Other(reason));
            }
            let attributes = inner.attributes();
            let (link, events) =
                FaultyLink::new(shared, Arc::new(Run::default()), attributes, sink);
            let opened = inner.open(events).await?;
            Ok(Box::new(link.around(opened)) as Box<dyn Link>)
        }
        .boxed_local()
    }

    fn lane(&self, session: HttpSession, sink: EventSink) -> Option<Box<dyn Link>> {
        let run = self.shared.run_of(&session);
        let attributes = self.inner.attributes();
        let (link, events) = FaultyLink::new(self.shared.clone(), run, attributes, sink);
        let lane = self.inner.lane(session, events)?;
        Some(Box::new(link.around(lane)))
    }

    fn attributes(&self) -> bool {
        self.inner.attributes()
    }

    fn transport(&self) -> &'static str {
        self.inner.transport()
    }
}

impl Shared {
    /// Whether a fault with this share of all cases happens now.
    fn happens(&self, share: f64) -> bool {
        let happens = share > 0.0 && self.parts.random.chance() < share;
        if happens {
            self.count();
        }
        happens
    }

    fn count(&self) {
        self.parts.counters.add(Counter::FaultsInjected);
    }

    fn remember(&self, session: HttpSession, run: &Arc<Run>) {
        let mut runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        runs.retain(|(known, run)| *known != session && run.strong_count() > 0);
        runs.push((session, Arc::downgrade(run)));
    }

    fn run_of(&self, session: &HttpSession) -> Arc<Run> {
        let runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        let found = runs.iter().find(|(known, _)| known == session);
        found.and_then(|(_, run)| run.upgrade()).unwrap_or_default()
    }

    fn fate(&self, run: &Run, frame: &Bytes) -> Fate {
        if run.silent.load(Ordering::Relaxed) {
            return Fate::Lost;
        }
        if is_call(frame) {
            let earlier = run.calls.fetch_add(1, Ordering::Relaxed);
            let is_over = |max: Option<u64>| max.is_some_and(|max| earlier >= max);
            let crashes = is_over(self.settings.crash_after);
            if crashes || is_over(self.settings.half_open_after) {
                run.silent.store(true, Ordering::Relaxed);
                self.count();
                return if crashes { Fate::Crash } else { Fate::Lost };
            }
        }
        if self.happens(self.settings.drop) {
            Fate::Lost
        } else {
            Fate::Pass
        }
    }

    /// Bytes in the place of a message: its beginning, or nothing that anybody would send.
    fn garbled(&self, message: &[u8]) -> Vec<u8> {
        let chance = || self.parts.random.chance();
        let below = |max: usize| (chance() * max as f64) as usize;
        if chance() < 0.5 {
            // Without its last byte an object has no end.
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

/// Longest noise in the place of a message, in bytes.
const NOISE_MAX: usize = 200;

/// A client's call, as opposed to what the gateway asks for itself.
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
    use crate::supervision::Seeded;

    #[test]
    fn garbage_is_never_a_message() {
        let (inner, _) = crate::transport::MemoryConnector::new(1, false);
        let parts = FaultParts {
            random: Arc::new(Seeded::new(1)),
            log: LogRing::default(),
            counters: Counters::default(),
        };
        let settings = FaultSettings::default();
        let connector = FaultyConnector::new(Arc::new(inner), settings, parts);
        let message = br#"{"jsonrpc":"2.0","id":1,"result":{}}"#;
        let mut lengths = std::collections::BTreeSet::new();
        for _ in 0..10_000 {
            let garbled = connector.shared.garbled(message);
            lengths.insert(garbled.len());
            let read = crate::transport::messages::each(garbled.into(), |_| {});
            assert!(read.is_err());
        }
        assert!(lengths.len() > 100, "{lengths:?}");
    }
}
