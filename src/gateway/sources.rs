//! The sources of the configuration, each asked by a task of its own.

use std::rc::Rc;
use std::sync::Arc;

use tokio_util::task::AbortOnDropHandle;

use crate::admin::GatewayState;
use crate::id::ServerName;
use crate::sources::{ANSWER_MAX, Source, SourceSettings};
use crate::supervision::SystemRandom;
use crate::transport::{Tls, WebClient};

/// Runs the sources of one configuration.
#[derive(Default)]
pub(super) struct SourceTasks {
    tasks: Vec<(SourceSettings, AbortOnDropHandle<()>)>,
    /// Called when the answer of a source is another.
    changed: Option<Rc<dyn Fn()>>,
}

impl SourceTasks {
    /// Calls `changed` from now on when the servers of a source are others.
    pub(super) fn notify(&mut self, changed: Rc<dyn Fn()>) {
        self.changed = Some(changed);
    }

    /// Goes over to these sources, on the calling arbiter; one that stays as it was goes on.
    pub(super) fn follow(&mut self, sources: &[SourceSettings], state: &Arc<GatewayState>) {
        let Some(changed) = &self.changed else {
            return;
        };
        self.tasks.retain(|(running, _)| {
            let stays = sources.contains(running);
            if !stays {
                state.sources.remove(&running.name);
            }
            stays
        });
        for settings in sources {
            if self.tasks.iter().all(|(running, _)| running != settings) {
                let source = source(settings, state, changed);
                let task = AbortOnDropHandle::new(actix_rt::spawn(source.run()));
                self.tasks.push((settings.clone(), task));
            }
        }
    }
}

fn source(settings: &SourceSettings, state: &Arc<GatewayState>, changed: &Rc<dyn Fn()>) -> Source {
    let web = WebClient::new(Tls::system(), vec![settings.url.clone()]);
    let (state, changed) = (Arc::clone(state), Rc::clone(changed));
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
        changed: Box::new(move || changed()),
    }
}
