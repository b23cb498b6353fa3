//! The state of every request handler: the front, behind a gate that opens once the gateway is
//! built.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::{ArcSwap, ArcSwapOption};
use tokio::sync::SetOnce;
use tokio::time::error::Elapsed;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use url::Url;

use super::hop::KnownSessions;
use super::http::guard::origin_is_allowed;
use super::legacy_sse::sse_channel::SseChannels;
use super::settings::FrontSettings;
use crate::auth::{SeenProofs, TokenSettings, TokenVerifier};
use crate::calls::Quota;
use crate::credentials::{SubjectTokens, Web};
use crate::masking::LiveSecrets;
use crate::sessions::Sessions;
use crate::telemetry::Counters;
use crate::transport::{Tls, WebClient};

/// The state that request handlers share.
pub struct Front {
    pub(super) settings: ArcSwap<FrontSettings>,
    /// Verifies client tokens; `None` if tokens are disabled.
    pub(super) tokens: ArcSwapOption<TokenVerifier>,
    /// The proofs of clients whose tokens are bound to a key.
    pub(super) proofs: Arc<SeenProofs>,
    /// Client tokens that are exchanged for server tokens.
    subjects: SubjectTokens,
    /// Secrets to mask, to which the keys and tokens of clients are added.
    pub(super) secrets: LiveSecrets,
    pub(super) sessions: Sessions,
    pub(super) counters: Counters,
    /// Quota for the bodies of all requests in flight.
    pub(super) bytes: Quota,
    /// Cancelled when the gateway stops.
    pub(super) draining: CancellationToken,
    /// Cancelled with `draining`, or earlier when the socket is handed over to another process.
    /// After that, requests are still answered, but streams end.
    pub(super) closing: CancellationToken,
    /// The open channels of HTTP+SSE.
    pub(super) channels: SseChannels,
    /// Caches about sessions of other replicas; `None` for a single gateway.
    pub(super) known_sessions: Option<Box<KnownSessions>>,
    /// Tracks requests and event streams until they are completely answered.
    pub(super) in_flight: TaskTracker,
}

/// The front, once the gateway is built.
#[derive(Default)]
pub(super) struct FrontGate {
    pub(super) front: SetOnce<Front>,
    /// Whether requests are refused until then, because joining a cluster can take long.
    pub(super) is_replica: bool,
}

impl FrontGate {
    /// Waits until the front is built, because clients can connect shortly before.
    pub(super) async fn front(&self) -> &Front {
        self.front.wait().await
    }

    /// Whether this replica has not joined its cluster yet.
    pub(super) fn is_joining(&self) -> bool {
        self.is_replica && self.front.get().is_none()
    }

    /// Waits until the front is built.
    ///
    /// # Errors
    ///
    /// Fails if that takes longer than `within`.
    pub(super) async fn opens_within(&self, within: Duration) -> Result<(), Elapsed> {
        timeout(within, self.front.wait()).await.map(drop)
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
            proofs: Arc::default(),
            subjects,
            secrets,
            settings: ArcSwap::from_pointee(settings),
            known_sessions: sessions.moves().map(|_| Box::default()),
            sessions,
            counters,
            bytes: Quota::default(),
            draining: CancellationToken::new(),
            closing: CancellationToken::new(),
            channels: SseChannels::default(),
            in_flight: TaskTracker::new(),
        }
    }

    /// Replaces the settings that can change while the server runs. Verified tokens stay cached
    /// unless the token settings have changed. If the authentication settings have changed, general
    /// streams and HTTP+SSE channels end, so that clients authenticate again.
    pub(super) fn configure(&self, settings: FrontSettings) {
        let tokens = self.tokens.load();
        let present = tokens.as_ref().map(|tokens| tokens.settings());
        if present.unwrap_or(&TokenSettings::default()) != &*settings.auth.tokens {
            let tokens = token_verifier(&settings.auth.tokens, &self.subjects);
            self.tokens.store(tokens);
        }
        self.subjects.set_wanted(settings.keeps_tokens);
        if !settings.auth.remember.by_session {
            self.sessions.registry().forget_all_credentials();
        }
        let auth = settings.auth.clone();
        let before = self.settings.swap(Arc::new(settings));
        if before.auth != auth {
            // This ends only general streams; clients that are still authorized reopen them.
            self.sessions.use_credentials(auth);
            self.channels.close_all();
        }
    }

    /// Returns the token that is cancelled when the gateway stops or hands its socket over.
    pub fn closing(&self) -> CancellationToken {
        self.closing.clone()
    }

    pub(super) fn is_draining(&self) -> bool {
        self.draining.is_cancelled()
    }

    /// Returns whether new streams are refused.
    pub(super) fn is_closing(&self) -> bool {
        self.closing.is_cancelled()
    }
}

/// Creates a token verifier. It may connect to private addresses that the configuration names.
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
