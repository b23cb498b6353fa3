//! The keys that an issuer signs tokens with (RFC 7517), fetched when needed.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use jsonwebtoken::jwk::JwkSet;
use tokio::sync::Mutex;
use tokio::time::Instant;
use url::Url;

use super::JwtSettings;
use crate::credentials::{
    AuthorizationServer, Endpoint, Web, WebRequest, authorization_server_urls,
};

/// Age from which keys are fetched again.
const FRESH_FOR: Duration = Duration::from_secs(10 * 60);

/// Maximum age of keys that are used while the issuer is unavailable.
const KEPT_FOR: Duration = Duration::from_secs(24 * 60 * 60);

/// Minimum interval between two fetches, regardless of how many tokens name unknown keys.
const ASK_EVERY: Duration = Duration::from_secs(5);

/// The keys from one fetch.
pub(super) struct KeySet {
    pub(super) keys: JwkSet,
    fetched: Instant,
}

/// Fetches and caches the keys of one issuer. Callers that need them during a fetch wait for it.
pub(super) struct IssuerKeys {
    web: Arc<dyn Web>,
    issuer: String,
    /// The configured URL of the keys.
    jwks_url: Option<Url>,
    kept: ArcSwapOption<KeySet>,
    /// Time and outcome of the last fetch.
    asked: Mutex<Option<(Instant, Result<(), String>)>>,
}

impl IssuerKeys {
    pub(super) fn new(web: Arc<dyn Web>, settings: &JwtSettings) -> Self {
        let jwks_url = settings.jwks_url.as_deref();
        Self {
            web,
            issuer: settings.issuer.clone().unwrap_or_default(),
            jwks_url: jwks_url.and_then(|url| Url::parse(url).ok()),
            kept: ArcSwapOption::empty(),
            asked: Mutex::default(),
        }
    }

    /// Returns the keys, fetching them if there are none. Old keys are used while new ones are
    /// fetched.
    ///
    /// # Errors
    ///
    /// Returns why there are none.
    pub(super) async fn get(self: &Arc<Self>) -> Result<Arc<KeySet>, String> {
        let Some(kept) = self.kept.load_full() else {
            return self.fetch(None).await;
        };
        match kept.fetched.elapsed() {
            age if age < FRESH_FOR => Ok(kept),
            age if age < KEPT_FOR => {
                let (this, old) = (Arc::clone(self), Arc::clone(&kept));
                actix_rt::spawn(async move { drop(this.fetch(Some(&old)).await) });
                Ok(kept)
            }
            _ => self.fetch(None).await,
        }
    }

    /// Returns a newer key set, for a token whose key is not in this one. `None` if there is none.
    pub(super) async fn newer_than(&self, known: &Arc<KeySet>) -> Option<Arc<KeySet>> {
        let newer = self.fetch(Some(known)).await.ok();
        newer.filter(|newer| !Arc::ptr_eq(newer, known))
    }

    async fn fetch(&self, known: Option<&Arc<KeySet>>) -> Result<Arc<KeySet>, String> {
        let mut asked = self.asked.lock().await;
        // Another request has fetched them in the meantime.
        if let Some(kept) = self.kept.load_full()
            && kept.fetched.elapsed() < KEPT_FOR
            && known.is_none_or(|known| !Arc::ptr_eq(known, &kept))
        {
            return Ok(kept);
        }
        if let Some((at, outcome)) = &*asked
            && at.elapsed() < ASK_EVERY
        {
            return match (outcome, self.kept.load_full()) {
                (Ok(()), Some(kept)) => Ok(kept),
                (Err(why), _) => Err(why.clone()),
                (Ok(()), None) => Err("the issuer has no keys".to_owned()),
            };
        }
        let fetched = self.ask().await;
        if let Err(why) = &fetched {
            log::warn!("cannot fetch the keys of {}: {why}", self.issuer);
        }
        let outcome = fetched.as_ref().map(drop).map_err(Clone::clone);
        *asked = Some((Instant::now(), outcome));
        let set = Arc::new(KeySet {
            keys: fetched?,
            fetched: Instant::now(),
        });
        self.kept.store(Some(Arc::clone(&set)));
        Ok(set)
    }

    async fn ask(&self) -> Result<JwkSet, String> {
        let url = match &self.jwks_url {
            Some(url) => url.clone(),
            None => self.discover().await?,
        };
        let document = self.document(&url).await?;
        let document = document.ok_or_else(|| format!("{url} does not exist"))?;
        serde_json::from_slice(&document).map_err(|_| format!("{url} has no keys"))
    }

    /// Reads the URL of the keys from the issuer's metadata (RFC 8414, OpenID Connect Discovery).
    async fn discover(&self) -> Result<Url, String> {
        let endpoint: Endpoint = self.issuer.parse().map_err(|error| format!("{error}"))?;
        for url in authorization_server_urls(&endpoint) {
            let Some(document) = self.document(&url).await? else {
                continue;
            };
            let found = AuthorizationServer::parse(&document, &self.issuer);
            let found = found.map_err(|error| format!("{url}: {error}"))?;
            let keys = found
                .jwks_uri
                .ok_or_else(|| format!("{url} has no `jwks_uri`"))?;
            return Ok(keys.url().clone());
        }
        Err(format!(
            "{} has no metadata that names the URL of its keys",
            self.issuer
        ))
    }

    async fn document(&self, url: &Url) -> Result<Option<bytes::Bytes>, String> {
        let answer = self.web.send(WebRequest::get(url.clone())).await;
        let answer = answer.map_err(|why| format!("{url}: {why}"))?;
        match answer.status {
            200 => Ok(Some(answer.body)),
            400..=499 => Ok(None),
            status => Err(format!("{url} returns status {status}")),
        }
    }
}
