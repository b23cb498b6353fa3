//! One source: asks its API from time to time, keeps what it says, and reports.

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

/// Of two requests, the part of the time between them that is left to chance.
const JITTER: f64 = 0.1;

/// Notices to operators about each source, by its name; none of one that is fine. Clones
/// share it.
#[derive(Clone, Debug, Default)]
pub struct SourceStates(Arc<Mutex<BTreeMap<ServerName, Vec<String>>>>);

impl SourceStates {
    /// A sentence for everything that is wrong.
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
            log::info!("source `{name}` is fine again");
        }
        for sentence in sentences {
            log::warn!("source `{name}`: {sentence}");
        }
    }
}

/// The lists of the server that has an id.
pub type PartOf = Box<dyn Fn(&str) -> Option<Arc<ServerPart>>>;

/// A source and what it needs to run.
pub struct Source {
    pub settings: SourceSettings,
    pub web: Arc<dyn Web>,
    pub states: SourceStates,
    pub random: Arc<dyn Random>,
    pub parts: PartOf,
    /// Called when other servers are kept than before.
    pub changed: Box<dyn Fn()>,
}

impl Source {
    /// Asks for ever. A failure leaves the last good answer in force, unless the API refuses the
    /// key: then its servers are gone at once, as they may hold credentials of the key's owner.
    pub async fn run(self) {
        let settings = &self.settings;
        let api = Api::new(
            settings.url.clone(),
            settings.key.clone(),
            Arc::clone(&self.web),
        );
        // Servers that cannot be read are fetched again.
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

    /// Returns what is wrong.
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
                Err(error) => wrong.push(format!("its servers cannot be kept: {error}")),
            }
        }
        if profile.wants_reports
            && let Err(error) = self.report(api, &profile, reported).await
        {
            wrong.push(format!("it cannot be told of the tools: {error}"));
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
            (true, _) => "it has no servers until the key is good",
            (false, Some(_)) => "its last good answer stays in force",
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

    /// Tells the API of the lists that are others than at the last time.
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
