//! Runs one polling task per source of the configuration.

use std::sync::Arc;

use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;

use crate::admin::GatewayState;
use crate::config::watch::Changed;
use crate::id::ServerName;
use crate::sources::{ANSWER_MAX, Source, SourceSettings};
use crate::supervision::SystemRandom;
use crate::transport::{Tls, WebClient};

/// The tasks for one configuration's sources.
pub(super) struct SourceTasks {
    tasks: Vec<(SourceSettings, AbortOnDropHandle<()>)>,
    /// Receives a report when a source's servers change, which the next read of the configuration
    /// then includes.
    report: mpsc::Sender<Changed>,
}

impl SourceTasks {
    pub(super) fn new(report: mpsc::Sender<Changed>) -> Self {
        let tasks = Vec::new();
        Self { tasks, report }
    }

    /// Switches to these sources, on the calling arbiter. Unchanged sources keep running.
    pub(super) fn configure(&mut self, sources: &[SourceSettings], state: &Arc<GatewayState>) {
        self.tasks.retain(|(running, _)| {
            let stays = sources.contains(running);
            if !stays {
                state.sources.remove(&running.name);
            }
            stays
        });
        for settings in sources {
            if self.tasks.iter().all(|(running, _)| running != settings) {
                let source = source(settings, state, self.report.clone());
                let task = AbortOnDropHandle::new(actix_rt::spawn(source.run()));
                self.tasks.push((settings.clone(), task));
            }
        }
    }
}

fn source(
    settings: &SourceSettings,
    state: &Arc<GatewayState>,
    report: mpsc::Sender<Changed>,
) -> Source {
    let web = WebClient::new(Tls::system(), vec![settings.url.clone()]);
    let state = Arc::clone(state);
    Source {
        settings: settings.clone(),
        web: Arc::new(web.with_answer_max(ANSWER_MAX)),
        states: state.sources.clone(),
        random: Arc::new(SystemRandom::new()),
        parts: Box::new(move |id| {
            let servers = state.servers.load();
            let server = servers.iter().find(|server| server.id == id)?;
            let name = ServerName::try_new(&server.name).ok()?;
            state.catalog.snapshot().part(&name).cloned()
        }),
        changed: Box::new(move || {
            // If the channel is full, a report is already pending.
            let _ = report.try_send(Changed);
        }),
    }
}
