//! Breakers that say so when they open and close.

use std::sync::Arc;

use crate::downstream::resilience::breakers::breaker::BreakerTransition;
use crate::downstream::resilience::breakers::{BreakerEvent, Breakers};
use crate::downstream::settings::ServerSettings;
use crate::telemetry::{Counter, Counters, LogRing, LogSource};

impl Breakers {
    /// Those of a server: what becomes of them is counted, and stands in both logs.
    pub(crate) fn of_server(
        settings: &ServerSettings,
        log: &LogRing,
        counters: &Counters,
    ) -> Arc<Self> {
        let (server, log, counters) = (settings.name.clone(), log.clone(), counters.clone());
        let on_event = move |turned: &BreakerEvent| {
            let (counter, state) = match turned.turn {
                BreakerTransition::Opened => (Counter::BreakersOpened, "open"),
                BreakerTransition::Closed => (Counter::BreakersClosed, "closed"),
            };
            counters.add(counter);
            let tool = turned.tool.as_deref();
            log::warn!(server = server.as_str(), tool, state; "breaker turned");
            let whose = tool.map(|tool| format!(" of tool {tool:?}"));
            let whose = whose.unwrap_or_default();
            log.push(
                LogSource::Gateway,
                &format!("its breaker{whose} is {state}"),
            );
        };
        let settings = settings.resilience.breaker;
        Arc::new(Self::new(settings, Box::new(on_event)))
    }
}
