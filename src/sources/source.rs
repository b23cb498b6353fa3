//! One source: polls its API, stores the response, and reports tools.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::Value;
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use super::SourceSettings;
use super::api::{Api, ApiError, Profile};
use super::report::Reported;
use crate::catalog::ServerPart;
use crate::credentials::Web;
use crate::id::ServerName;
use crate::supervision::Random;

/// Random share of the interval between two requests.
const JITTER: f64 = 0.1;

/// Notices for operators about each source, by its name; sources without problems have none. Clones
/// share them.
#[derive(Clone, Debug, Default)]
pub struct SourceStates(Arc<Mutex<BTreeMap<ServerName, Vec<String>>>>);

impl SourceStates {
    /// One sentence for each problem.
    pub fn notices(&self) -> Vec<String> {
        let states = self.0.lock();
        let each = states.iter();
        let each = each.flat_map(|(name, all)| all.iter().map(move |it| (name, it)));
        each.map(|(name, what)| format!("source `{name}`: {what}"))
            .collect()
    }

    /// Forgets a source.
    pub fn remove(&self, name: &ServerName) {
        self.0.lock().remove(name);
    }

    fn set(&self, name: &ServerName, sentences: Vec<String>) {
        let before = self.0.lock().insert(name.clone(), sentences.clone());
        if before.unwrap_or_default() == sentences {
            return;
        }
        if sentences.is_empty() {
            log::info!("source `{name}` works again");
        }
        for sentence in sentences {
            log::warn!("source `{name}`: {sentence}");
        }
    }
}

/// Returns the lists of the server with an id.
pub type PartOf = Box<dyn Fn(&str) -> Option<Arc<ServerPart>>>;

/// A source and everything it needs to run.
pub struct Source {
    pub settings: SourceSettings,
    pub web: Arc<dyn Web>,
    pub states: SourceStates,
    pub random: Arc<dyn Random>,
    pub parts: PartOf,
    /// Called when the stored servers change.
    pub changed: Box<dyn Fn()>,
}

impl Source {
    /// Polls forever. After a failure the last valid response stays in force, unless the API
    /// rejects the key: then its servers are removed immediately, because they can contain
    /// credentials of the key's owner.
    pub async fn run(self) {
        let settings = &self.settings;
        let api = Api::new(
            settings.url.clone(),
            settings.key.clone(),
            Arc::clone(&self.web),
        );
        // Unreadable servers are fetched again.
        let mut kept = settings.servers().unwrap_or_default();
        let mut reported = HashMap::new();
        loop {
            let wrong = match api.profile().await {
                Ok(profile) => self.take(&api, profile, &mut kept, &mut reported).await,
                Err(error) => self.fail(&error, &mut kept).await,
            };
            self.states.set(&settings.name, wrong);
            sleep(self.pause()).await;
        }
    }

    fn pause(&self) -> Duration {
        let spread = JITTER * (self.random.chance() - 0.5);
        self.settings.interval.mul_f64(1.0 + spread)
    }

    /// Returns the problems.
    async fn take(
        &self,
        api: &Api,
        profile: Profile,
        kept: &mut Option<Value>,
        reported: &mut HashMap<String, Reported>,
    ) -> Vec<String> {
        let mut wrong = profile.servers.left_out.clone();
        if kept.as_ref() != Some(&profile.servers.file) {
            match self.keep(Some(&profile.servers.file)).await {
                Ok(()) => {
                    *kept = Some(profile.servers.file.clone());
                    (self.changed)();
                }
                Err(error) => wrong.push(format!("its servers cannot be stored: {error}")),
            }
        }
        if profile.wants_reports
            && let Err(error) = self.report(api, &profile, reported).await
        {
            wrong.push(format!("reporting the tools failed: {error}"));
        }
        wrong
    }

    async fn fail(&self, error: &ApiError, kept: &mut Option<Value>) -> Vec<String> {
        let refused = matches!(error, ApiError::KeyRefused(_));
        if refused && kept.is_some() {
            if let Err(error) = self.keep(None).await {
                return vec![format!("its servers cannot be removed: {error}")];
            }
            *kept = None;
            (self.changed)();
        }
        let outcome = match (refused, kept) {
            (true, _) => "it has no servers until the key is valid",
            (false, Some(_)) => "its last valid response stays in force",
            (false, None) => "it has no servers yet",
        };
        vec![format!("{error}; {outcome}")]
    }

    async fn keep(&self, file: Option<&Value>) -> io::Result<()> {
        let (kept, name) = (self.settings.kept.clone(), self.settings.name.clone());
        let text = file.map(Value::to_string);
        let done = spawn_blocking(move || match text {
            Some(text) => kept.write(name.as_str(), text.as_bytes()),
            None => kept.remove(name.as_str()),
        });
        done.await.map_err(io::Error::other)?
    }

    /// Reports the lists that changed since the last report.
    async fn report(
        &self,
        api: &Api,
        profile: &Profile,
        reported: &mut HashMap<String, Reported>,
    ) -> Result<(), ApiError> {
        let servers = profile.servers.file["mcpServers"].as_object();
        let ids = servers.into_iter().flat_map(|servers| servers.values());
        for id in ids.filter_map(|server| server["id"].as_str()) {
            let Some(part) = (self.parts)(id) else {
                continue;
            };
            let now = Reported::new(part, id, &profile.inactive);
            if reported.get(id) == Some(&now) {
                continue;
            }
            for report in now.reports(id) {
                api.post(report.path, &report.body).await?;
            }
            reported.insert(id.to_owned(), now);
        }
        Ok(())
    }
}
