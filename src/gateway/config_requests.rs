//! Requests to change the configuration file, which whoever runs the gateway carries out.

use super::{Gateway, server_times};
use crate::admin::{ConfigAnswer, ConfigRequest, ConfigView};
use crate::config::{FileOutcome, Loaded};
use crate::telemetry::unix_millis;

impl Gateway {
    /// The next request to read or change the configuration file.
    pub async fn config_request(&mut self) -> Option<ConfigRequest> {
        self.config_requests.recv().await
    }

    /// Whether this content of the file is in force already, and was not refused since.
    pub fn has_applied(&self, loaded: &Loaded) -> bool {
        self.fingerprint == loaded.fingerprint && self.state.config.load().refused.is_none()
    }

    /// The configuration that is in force, and how the last reload went.
    pub fn config_view(&self) -> ConfigView {
        ConfigView::clone(&self.state.config.load())
    }

    /// Notes when a server was changed, and shows it.
    pub async fn with_times(&self, outcome: FileOutcome) -> ConfigAnswer {
        let FileOutcome {
            mut answer,
            changed,
        } = outcome;
        if let Some(id) = changed {
            let is_removed = answer.body.is_null();
            let noted = server_times::note(&*self.store, &id, is_removed, unix_millis());
            if let Err(error) = noted.await {
                log::warn!(error:%; "the time of a change of the configuration cannot be kept");
            }
        }
        server_times::add(&*self.store, &mut answer.body).await;
        answer
    }
}
