//! Which era a server speaks: asked once, remembered for a while (B-ERA-01).

pub(crate) mod modern;

use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex as StdMutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::{Mutex, mpsc};
use tokio::time::{Instant, timeout_at};

use crate::downstream::connection::spec::ConnectionSpec;
use crate::downstream::settings::EraChoice;
use crate::protocol::{Envelope, Era, Outcome, RawJson, RequestId, Revision, code};
use crate::telemetry::Counter;
use crate::transport::{LinkError, LinkEvent};

/// Where verdicts are in the store.
const ERAS: &str = "era/";

/// The reply to a `server/discover` that may have been the first message of the newest
/// revision that a server ever saw.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ProbeReply<'a> {
    Answer(&'a Outcome),
    Failed(&'a LinkError),
    /// No answer in time, or the process ended.
    Nothing,
}

/// The verdict on the era.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum EraVerdict {
    Modern,
    Legacy,
    /// Nothing of the era: an outage, or a lack of authorization.
    None(String),
}

/// The era that a reply proves (B-ERA-01, C-LIFE-08, C-LIFE-09, C-LIFE-10, C-LIFE-11).
pub(crate) fn verdict(probed: ProbeReply<'_>, is_http: bool) -> EraVerdict {
    match probed {
        ProbeReply::Answer(Outcome::Result(result)) => of_result(result),
        ProbeReply::Answer(Outcome::Error(error)) => of_error(error),
        ProbeReply::Failed(LinkError::Status { status, text }) => match status {
            401 | 403 | 500.. => EraVerdict::None(format!("HTTP status {status}: {text}")),
            _ => EraVerdict::Legacy,
        },
        ProbeReply::Failed(LinkError::NotSent(_) | LinkError::Lost(_)) | ProbeReply::Nothing
            if is_http =>
        {
            let why = match probed {
                ProbeReply::Failed(error) => error.to_string(),
                _ => "no answer in time".to_owned(),
            };
            EraVerdict::None(why)
        }
        ProbeReply::Failed(_) | ProbeReply::Nothing => EraVerdict::Legacy,
    }
}

fn of_result(result: &RawJson) -> EraVerdict {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct DiscoveredVersions {
        supported_versions: Vec<String>,
    }
    match result.parse::<DiscoveredVersions>() {
        Ok(discovered) => of_versions(&discovered.supported_versions),
        // It answers anything with something.
        Err(_) => EraVerdict::Legacy,
    }
}

fn of_error(error: &RawJson) -> EraVerdict {
    #[derive(Deserialize)]
    struct UnsupportedVersionError {
        code: i64,
        #[serde(default)]
        data: Option<UnsupportedVersionData>,
    }
    #[derive(Deserialize)]
    struct UnsupportedVersionData {
        #[serde(default)]
        supported: Vec<String>,
    }
    #[derive(Deserialize)]
    struct CodeOnly {
        code: i64,
    }
    let found = error.parse::<CodeOnly>().map(|error| error.code);
    match found {
        Ok(code::HEADER_MISMATCH | code::MISSING_CAPABILITY) => EraVerdict::Modern,
        Ok(code::UNSUPPORTED_VERSION) => {
            let data = error
                .parse::<UnsupportedVersionError>()
                .ok()
                .filter(|it| it.code < 0);
            let supported = data.and_then(|error| error.data).map(|data| data.supported);
            of_versions(&supported.unwrap_or_default())
        }
        _ => EraVerdict::Legacy,
    }
}

/// A server that names versions is modern, unless all that both sides know are of the other era.
fn of_versions(versions: &[String]) -> EraVerdict {
    let mut known = versions.iter().filter_map(|it| it.parse::<Revision>().ok());
    let mut known_at_all = false;
    let modern = known.any(|revision| {
        known_at_all = true;
        revision.era() == Era::Modern
    });
    if modern || !known_at_all {
        EraVerdict::Modern
    } else {
        EraVerdict::Legacy
    }
}

/// The era of one server, as far as it is known. Shared by all its connections.
#[derive(Debug, Default)]
pub(crate) struct ServerEra {
    known: StdMutex<EraMemory>,
    /// Connections beside which no process may be started to ask.
    living: AtomicUsize,
    /// Held while the era is found out: once for all connections.
    probe_lock: Mutex<()>,
}

#[derive(Debug, Default)]
struct EraMemory {
    era: Option<Era>,
    until: Option<Instant>,
    /// It proved wrong: what the store has is not asked.
    is_doubted: bool,
}

/// A connection that lives; dropped when it is gone.
#[derive(Debug)]
pub(crate) struct LiveConnection(Arc<ServerEra>);

impl Drop for LiveConnection {
    fn drop(&mut self) {
        self.0.living.fetch_sub(1, Ordering::SeqCst);
    }
}

/// How a connection begins.
pub(crate) struct ConnectionStart {
    /// `None`: the first answer on the link will tell.
    pub(crate) era: Option<Era>,
    pub(crate) living: LiveConnection,
}

#[derive(Serialize, Deserialize)]
struct StoredEra {
    /// [`crate::downstream::ServerSettings::identity`]: a verdict on what was once another server
    /// is none.
    identity: String,
    era: Era,
}

impl ServerEra {
    /// The era, as far as it is known.
    pub(crate) fn current(&self) -> Option<Era> {
        self.known().era
    }

    /// A verdict was reached; it holds for `remembered`.
    pub(crate) fn found(&self, era: Era, remembered: Duration) {
        *self.known() = EraMemory {
            era: Some(era),
            until: Some(Instant::now() + remembered),
            is_doubted: false,
        };
    }

    /// The verdict failed in use: the next connection asks again.
    pub(crate) fn forget_era(&self) {
        let mut known = self.known();
        known.until = None;
        known.is_doubted = true;
    }

    fn usable(&self) -> Option<Era> {
        let known = self.known();
        let fresh = known.until.is_some_and(|until| until > Instant::now());
        known
            .era
            .filter(|_| fresh || self.living.load(Ordering::SeqCst) > 0)
    }

    fn live(self: &Arc<Self>) -> LiveConnection {
        self.living.fetch_add(1, Ordering::SeqCst);
        LiveConnection(self.clone())
    }

    fn known(&self) -> MutexGuard<'_, EraMemory> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Finds out how to begin: what was configured, is remembered, or a process that is started for
/// nothing else says. Over HTTP the question is no harm, and the connection asks it itself.
///
/// # Errors
///
/// Returns why the server cannot be reached at all.
pub(crate) async fn begin(spec: &ConnectionSpec) -> Result<ConnectionStart, String> {
    let era = &spec.era;
    let settings = spec.settings();
    let _one_at_a_time = era.probe_lock.lock().await;
    let begin = |known| ConnectionStart {
        era: known,
        living: era.live(),
    };
    match settings.era {
        EraChoice::Legacy => return Ok(begin(Some(Era::Legacy))),
        EraChoice::Modern => return Ok(begin(Some(Era::Modern))),
        EraChoice::Auto => {}
    }
    // That transport ended with the older era.
    if spec.connector.transport() == "sse" {
        return Ok(begin(Some(Era::Legacy)));
    }
    if let Some(known) = era.usable() {
        return Ok(begin(Some(known)));
    }
    let is_doubted = era.known().is_doubted;
    if !is_doubted && let Some((known, left)) = recall(spec).await {
        era.found(known, left);
        return Ok(begin(Some(known)));
    }
    if spec.connector.knows_call_of_requests() {
        return Ok(begin(None));
    }
    let found = probe(spec).await?;
    remember(spec, found);
    Ok(begin(Some(found)))
}

/// The remembered era of a server that is not started yet, for those who choose its connections.
pub(crate) async fn preload(spec: &ConnectionSpec) {
    let era = &spec.era;
    let _one_at_a_time = era.probe_lock.lock().await;
    if era.usable().is_none()
        && !era.known().is_doubted
        && let Some((known, left)) = recall(spec).await
    {
        era.found(known, left);
    }
}

async fn recall(spec: &ConnectionSpec) -> Option<(Era, Duration)> {
    let key = format!("{ERAS}{}", spec.server());
    let entries = spec.store.scan(&key).await.ok()?;
    let entry = entries.into_iter().find(|entry| entry.key == key)?;
    let kept: StoredEra = serde_json::from_slice(&entry.value).ok()?;
    let same = kept.identity == spec.settings().identity();
    same.then_some((kept.era, entry.expires_in?))
}

/// Keeps a verdict; nothing waits for the store.
pub(crate) fn remember(spec: &ConnectionSpec, era: Era) {
    let settings = spec.settings();
    if settings.era != EraChoice::Auto {
        return;
    }
    let ttl = settings.limits.era_remembered;
    spec.era.found(era, ttl);
    let kept = StoredEra {
        identity: settings.identity(),
        era,
    };
    let value = RawJson::from_value(&kept).as_bytes().clone();
    let (store, server) = (spec.store.clone(), spec.server().clone());
    actix_rt::spawn(async move {
        let key = format!("{ERAS}{server}");
        if let Err(error) = store.put(&key, value, Some(ttl)).await {
            log::warn!(server = server.as_str(), error:%; "its era could not be kept");
        }
    });
}

/// Asks a process that is started for nothing else, and is gone afterwards: some servers end on
/// any message before `initialize`.
async fn probe(spec: &ConnectionSpec) -> Result<Era, String> {
    const NUMBER: u64 = 0;
    let (sender, mut events) = mpsc::unbounded_channel();
    let sink = Rc::new(move |event| {
        // Nobody listens any more.
        let _ = sender.send(event);
    });
    let settings = spec.settings();
    spec.counters.add(Counter::ErasProbed);
    let link = spec.connector.open(sink).await;
    let link = link.map_err(|error| error.to_string())?;
    let by = Instant::now() + settings.limits.era_probe_timeout;
    let answer = match link.send(modern::discover(NUMBER)) {
        Ok(()) => timeout_at(by, answer_to(NUMBER, &mut events)).await,
        Err(_) => Ok(None),
    };
    let answer = answer.ok().flatten();
    let probed = answer
        .as_ref()
        .map_or(ProbeReply::Nothing, ProbeReply::Answer);
    let verdict = verdict(probed, false);
    log::info!(server = spec.server().as_str(), verdict:?; "server was asked which era it speaks");
    link.close(settings.supervision.shutdown_timeout / 3).await;
    match verdict {
        EraVerdict::Modern => Ok(Era::Modern),
        EraVerdict::Legacy => Ok(Era::Legacy),
        EraVerdict::None(why) => Err(why),
    }
}

/// The answer to the request of this number; `None` when the server ended first.
async fn answer_to(
    number: u64,
    events: &mut mpsc::UnboundedReceiver<LinkEvent>,
) -> Option<Outcome> {
    while let Some(event) = events.recv().await {
        match event {
            LinkEvent::Received {
                envelope: Envelope::Response(response),
                ..
            } => {
                let id = response.id.as_ref();
                let is_error = matches!(response.outcome, Outcome::Error(_));
                // One that could not read the request names no id in its error.
                if id.and_then(RequestId::as_number) == Some(number) || id.is_none() && is_error {
                    return Some(response.outcome);
                }
            }
            LinkEvent::Received { .. } | LinkEvent::SessionGone { .. } => {}
            LinkEvent::Failed { .. } | LinkEvent::Closed(_) => return None,
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn raw(text: &str) -> RawJson {
        RawJson::try_new(Bytes::from(text.to_owned())).unwrap()
    }

    #[test]
    fn c_life_09_everything_but_a_modern_answer_is_the_older_era() {
        let result = |text: &str| Outcome::Result(raw(text));
        let error = |text: &str| Outcome::Error(raw(text));
        let table = [
            (result(r#"{"supportedVersions":["2026-07-28"]}"#), true),
            (
                result(r#"{"supportedVersions":["2025-11-25","2026-07-28"]}"#),
                true,
            ),
            (result(r#"{"supportedVersions":["2030-01-01"]}"#), true),
            (result(r#"{"supportedVersions":["2025-11-25"]}"#), false),
            (result("{}"), false),
            (error(r#"{"code":-32020,"message":"x"}"#), true),
            (error(r#"{"code":-32021,"message":"x","data":{}}"#), true),
            (error(r#"{"code":-32022,"message":"x"}"#), true),
            (
                error(r#"{"code":-32022,"message":"x","data":{"supported":["2026-07-28"]}}"#),
                true,
            ),
            (
                error(r#"{"code":-32022,"message":"x","data":{"supported":["2025-11-25"]}}"#),
                false,
            ),
            (error(r#"{"code":-32601,"message":"x"}"#), false),
            (error(r#"{"code":-32602,"message":"x"}"#), false),
            (error(r#"{"code":"odd"}"#), false),
        ];
        for (outcome, modern) in table {
            let expected = if modern {
                EraVerdict::Modern
            } else {
                EraVerdict::Legacy
            };
            for is_http in [true, false] {
                let found = verdict(ProbeReply::Answer(&outcome), is_http);
                assert_eq!(found, expected, "{outcome:?}");
            }
        }
    }

    #[test]
    fn an_outage_is_no_verdict_over_http_and_the_older_era_on_stdio() {
        let status = |status| LinkError::Status {
            status,
            text: String::new(),
        };
        let lost = LinkError::Lost("gone".to_owned());
        let odd = LinkError::Protocol("odd".to_owned());
        let refused = LinkError::NotSent("refused".to_owned());
        let table = [
            (ProbeReply::Failed(&status(404)), true),
            (ProbeReply::Failed(&status(400)), true),
            (ProbeReply::Failed(&status(405)), true),
            (ProbeReply::Failed(&status(401)), false),
            (ProbeReply::Failed(&status(403)), false),
            (ProbeReply::Failed(&status(503)), false),
            (ProbeReply::Failed(&odd), true),
            (ProbeReply::Failed(&lost), false),
            (ProbeReply::Failed(&refused), false),
            (ProbeReply::Nothing, false),
        ];
        for (probed, legacy) in table {
            assert_eq!(
                verdict(probed, true) == EraVerdict::Legacy,
                legacy,
                "{probed:?}"
            );
        }
        assert_eq!(verdict(ProbeReply::Nothing, false), EraVerdict::Legacy);
        assert_eq!(
            verdict(ProbeReply::Failed(&lost), false),
            EraVerdict::Legacy
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_verdict_expires_but_not_beside_a_living_connection() {
        let era = Arc::new(ServerEra::default());
        assert_eq!(era.usable(), None);
        era.found(Era::Modern, Duration::from_secs(10));
        let living = era.live();
        tokio::time::advance(Duration::from_secs(11)).await;
        assert_eq!(era.usable(), Some(Era::Modern));
        drop(living);
        assert_eq!(era.usable(), None);
        era.found(Era::Legacy, Duration::from_secs(10));
        era.forget_era();
        assert_eq!((era.usable(), era.current()), (None, Some(Era::Legacy)));
    }
}
