//! Requests to change the configuration file, which the process running the gateway carries out.

use super::{Gateway, server_times};
use crate::admin::{ConfigAnswer, ConfigRequest, ConfigView};
use crate::config::{FileOutcome, Loaded};
use crate::telemetry::unix_millis;

impl Gateway {
    /// The next request to read or change the configuration file.
    pub async fn config_request(&mut self) -> Option<ConfigRequest> {
        self.config_requests.recv().await
    }

    /// Whether this content of the file is already active, and was not refused since.
    pub fn has_applied(&self, loaded: &Loaded) -> bool {
        self.fingerprint == loaded.fingerprint && self.state.config.load().refused.is_none()
    }

    /// The active configuration, and the result of the last reload.
    pub fn config_view(&self) -> ConfigView {
        ConfigView::clone(&self.state.config.load())
    }

    /// Records the time of a server change, and adds it to the answer.
    pub async fn with_times(&self, outcome: FileOutcome) -> ConfigAnswer {
        let FileOutcome {
            mut answer,
            changed,
        } = outcome;
        if let Some(id) = changed {
            let is_removed = answer.body.is_null();
            let noted = server_times::note(&*self.store, &id, is_removed, unix_millis());
            if let Err(error) = noted.await {
                log::warn!(error:%; "could not persist the server's modification time");
            }
        }
        server_times::add(&*self.store, &mut answer.body).await;
        answer
    }
}
