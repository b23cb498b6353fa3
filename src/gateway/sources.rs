//! Runs one polling task per source of the configuration.

use std::rc::Rc;
use std::sync::Arc;

use tokio_util::task::AbortOnDropHandle;

use crate::admin::GatewayState;
use crate::id::ServerName;
use crate::sources::{ANSWER_MAX, Source, SourceSettings};
use crate::supervision::SystemRandom;
use crate::transport::{Tls, WebClient};

/// The tasks for one configuration's sources.
#[derive(Default)]
pub(super) struct SourceTasks {
    tasks: Vec<(SourceSettings, AbortOnDropHandle<()>)>,
    /// Called when a source's servers change.
    changed: Option<Rc<dyn Fn()>>,
}

impl SourceTasks {
    /// Sets the callback for changes of a source's servers.
    pub(super) fn notify(&mut self, changed: Rc<dyn Fn()>) {
        self.changed = Some(changed);
    }

    /// Switches to these sources, on the calling arbiter. Unchanged sources keep running.
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
