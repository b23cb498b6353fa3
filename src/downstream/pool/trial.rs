//! Tries out the settings of a server: it is started beside the servers, listed and ended. No client
//! sees it.

use std::sync::Arc;

use actix::Message;

use crate::catalog::ServerPart;
use crate::downstream::pool::Downstreams;
use crate::downstream::pool::plain_process::has_listed;
use crate::downstream::pool::rollout::start_behind_door;
use crate::downstream::pool::server::Server;
use crate::downstream::pool::server_builder::ServerBuilder;
use crate::downstream::settings::ServerSettings;
use crate::protocol::{ErrorKind, Failure};

/// Maximum servers that are tried out at the same time.
pub(super) const TRIALS_MAX: usize = 4;

/// Starts a server beside the others.
#[derive(Message, Clone)]
#[rtype(result = "TriedServer")]
pub(crate) struct BeginTrial(Arc<ServerSettings>);

impl BeginTrial {
    pub(super) fn begin(&self, builder: &ServerBuilder) -> TriedServer {
        TriedServer(start_behind_door(builder, &self.0).0)
    }
}

/// A server that ends with this value.
pub(crate) struct TriedServer(Arc<Server>);

impl Drop for TriedServer {
    fn drop(&mut self) {
        self.0.shared.stop();
    }
}

/// Starts a server with these settings beside the others, and returns its lists once it has
/// ended. It has `start_timeout` and `connect_timeout` to list.
///
/// # Errors
///
/// Returns why it did not start or list.
pub async fn try_out(
    downstreams: &Downstreams,
    settings: Arc<ServerSettings>,
) -> Result<Arc<ServerPart>, Failure> {
    let unavailable = |why| Failure::new(ErrorKind::ServerUnavailable, why);
    let Ok(_place) = downstreams.trials.try_acquire() else {
        let why = format!("{TRIALS_MAX} servers are being tried out; try again in a moment");
        return Err(Failure::new(ErrorKind::Overloaded, why));
    };
    let begun = downstreams.ask(BeginTrial(settings.clone()), 1).await;
    let tried = begun.ok_or_else(|| unavailable("the gateway is busy".to_owned()))?;
    let Server { spec, shared, .. } = &*tried.0;
    let is_listed = has_listed(&settings, spec, shared).await;
    let snapshot = shared.snapshot();
    let trouble = spec.session.trouble();
    let part = spec.last_part.load_full().filter(|_| is_listed);
    shared.stop();
    shared.stopped().await;
    match (part, trouble, snapshot.last_exit) {
        (Some(part), None, _) => Ok(part),
        (_, Some(trouble), _) => Err(unavailable(trouble)),
        (None, None, Some(exit)) => Err(unavailable(exit.to_string())),
        (None, None, None) => {
            let why = "it did not list its items within `start_timeout` and `connect_timeout`";
            Err(unavailable(why.to_owned()))
        }
    }
}
