//! The state of every request handler: the front, behind a gate that opens once the gateway is
//! built.

use std::sync::Arc;

use arc_swap::{ArcSwap, ArcSwapOption};
use tokio::sync::SetOnce;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use url::Url;

use super::http::guard::origin_is_allowed;
use super::legacy_sse::sse_channel::SseChannels;
use super::settings::FrontSettings;
use crate::auth::{TokenSettings, TokenVerifier};
use crate::calls::Quota;
use crate::credentials::{SubjectTokens, Web};
use crate::masking::LiveSecrets;
use crate::sessions::Sessions;
use crate::telemetry::Counters;
use crate::transport::{Tls, WebClient};

/// The state that request handlers share.
pub struct Front {
    pub(super) settings: ArcSwap<FrontSettings>,
    /// `None` where no tokens are taken.
    pub(super) tokens: ArcSwapOption<TokenVerifier>,
    /// Tokens of clients that servers get others for.
    subjects: SubjectTokens,
    /// Keys and tokens of clients are added to these.
    pub(super) secrets: LiveSecrets,
    pub(super) sessions: Sessions,
    pub(super) counters: Counters,
    /// Bytes of the bodies of all requests in flight.
    pub(super) bytes: Quota,
    /// Cancelled when the gateway stops.
    pub(super) draining: CancellationToken,
    /// Cancelled with `draining`, and earlier when the socket is handed over to another process:
    /// then requests are still answered, and streams end.
    pub(super) closing: CancellationToken,
    /// Open channels of HTTP+SSE.
    pub(super) channels: SseChannels,
    /// Requests and event streams that are not answered to their end.
    pub(super) in_flight: TaskTracker,
}

/// The front, once the gateway is built.
#[derive(Default)]
pub(super) struct FrontGate {
    pub(super) front: SetOnce<Front>,
}

impl FrontGate {
    /// Waits for the front: clients may connect a moment before it is there.
    pub(super) async fn front(&self) -> &Front {
        self.front.wait().await
    }

    pub(super) fn is_closing(&self) -> bool {
        self.front.get().is_some_and(Front::is_closing)
    }

    pub(super) fn allows_origin(&self, origin: &str) -> bool {
        let front = self.front.get();
        front.is_some_and(|front| origin_is_allowed(&front.settings.load().allowed_origins, origin))
    }
}

/// Index of the worker that handles a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct WorkerIndex(pub(super) usize);

impl Front {
    pub fn new(
        settings: FrontSettings,
        sessions: Sessions,
        counters: Counters,
        subjects: SubjectTokens,
        secrets: LiveSecrets,
    ) -> Self {
        subjects.set_wanted(settings.keeps_tokens);
        Self {
            tokens: ArcSwapOption::new(token_verifier(&settings.auth.tokens, &subjects)),
            subjects,
            secrets,
            settings: ArcSwap::from_pointee(settings),
            sessions,
            counters,
            bytes: Quota::default(),
            draining: CancellationToken::new(),
            closing: CancellationToken::new(),
            channels: SseChannels::default(),
            in_flight: TaskTracker::new(),
        }
    }

    /// Replaces what can change while the server runs. Tokens that were checked stay known while
    /// the same are taken.
    pub(super) fn configure(&self, settings: FrontSettings) {
        let tokens = self.tokens.load();
        let present = tokens.as_ref().map(|tokens| tokens.settings());
        if present.unwrap_or(&TokenSettings::default()) != &*settings.auth.tokens {
            let tokens = token_verifier(&settings.auth.tokens, &self.subjects);
            self.tokens.store(tokens);
        }
        self.subjects.set_wanted(settings.keeps_tokens);
        if !settings.auth.remember.by_session {
            self.sessions.forget_all_credentials();
        }
        self.settings.store(Arc::new(settings));
    }

    /// Cancelled when the gateway stops, or hands its socket over.
    pub fn closing(&self) -> CancellationToken {
        self.closing.clone()
    }

    pub(super) fn is_draining(&self) -> bool {
        self.draining.is_cancelled()
    }

    /// Whether streams are refused.
    pub(super) fn is_closing(&self) -> bool {
        self.closing.is_cancelled()
    }
}

/// Addresses from the configuration may be private ones.
fn token_verifier(
    settings: &TokenSettings,
    subjects: &SubjectTokens,
) -> Option<Arc<TokenVerifier>> {
    if !settings.is_enabled() {
        return None;
    }
    let trusted = settings.asked().filter_map(|url| Url::parse(url).ok());
    let web: Arc<dyn Web> = Arc::new(WebClient::new(Tls::system(), trusted.collect()));
    let verifier = TokenVerifier::new(settings.clone(), &web, subjects.clone());
    Some(Arc::new(verifier))
}
