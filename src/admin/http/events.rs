//! `/api/events`: gateway events as server-sent events.

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{Stream, unfold};
use tokio::time::timeout;

use super::answer::ApiAnswer;
use super::request::{ApiRequest, invalid};
use crate::protocol::{ErrorKind, Failure};
use crate::telemetry::{EventBatch, EventKind, EventListener};

/// Interval after which an idle stream sends a comment, so that proxies do not close it.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Delay before a client reconnects, in milliseconds.
const RETRY_MS: u32 = 1000;

pub(super) async fn stream(call: ApiRequest<'_>) -> Result<ApiAnswer, Failure> {
    let kinds = match call.query.text("types") {
        None => EventKind::ALL.to_vec(),
        Some(names) => kinds(names)?,
    };
    let after = call.last_event_id.as_deref();
    let listener = call.operator.state.log.events().listen(after);
    let listener = listener.ok_or_else(|| {
        let message =
            "too many event streams are open, or the gateway is shutting down; retry later";
        Failure::new(ErrorKind::Overloaded, message).retry_after_ms(1000)
    })?;
    Ok(ApiAnswer::events(bytes(listener, kinds)))
}

/// The kinds in a comma-separated list.
fn kinds(names: &str) -> Result<Vec<EventKind>, Failure> {
    let kind = |name: &str| {
        EventKind::ALL
            .into_iter()
            .find(|kind| kind.as_str() == name)
    };
    let kinds: Option<Vec<EventKind>> = names.split(',').map(|name| kind(name.trim())).collect();
    kinds.ok_or_else(|| {
        invalid("query: `types` must be a comma-separated list of server, call, log and pin")
    })
}

fn bytes(
    listener: EventListener,
    kinds: Vec<EventKind>,
) -> impl Stream<Item = Result<Bytes, Infallible>> {
    let first = Bytes::from(format!("retry: {RETRY_MS}\n\n"));
    unfold(
        (Some(first), listener, kinds),
        |(first, mut listener, kinds)| async {
            let next = match first {
                Some(first) => first,
                None => match timeout(KEEP_ALIVE, listener.next()).await {
                    Ok(batch) => written(&batch?, &kinds),
                    Err(_) => Bytes::from_static(b":\n\n"),
                },
            };
            Some((Ok(next), (None, listener, kinds)))
        },
    )
}

/// Events of these kinds as text, or a comment if there are none, so that each batch produces
/// output.
fn written(batch: &EventBatch, kinds: &[EventKind]) -> Bytes {
    let mut text = String::new();
    if batch.missed > 0 {
        text.push_str(&format!("event: missed\ndata: {}\n\n", batch.missed_data()));
    }
    for event in batch
        .events
        .iter()
        .filter(|event| kinds.contains(&event.kind))
    {
        let (kind, id, data) = (event.kind.as_str(), &event.id, &event.data);
        text.push_str(&format!("event: {kind}\nid: {id}\ndata: {data}\n\n"));
    }
    if text.is_empty() {
        text.push_str(":\n\n");
    }
    Bytes::from(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::Event;

    #[test]
    fn events_are_written_by_their_kind() {
        let event = |id: &str, kind| Event {
            id: id.to_owned(),
            kind,
            data: "{}".into(),
        };
        let batch = EventBatch {
            missed: 2,
            events: vec![event("1-1", EventKind::Log), event("1-2", EventKind::Call)],
        };
        let expected = "event: missed\ndata: {\"atLeast\":2}\n\nevent: call\nid: 1-2\ndata: {}\n\n";
        assert_eq!(written(&batch, &[EventKind::Call]), expected);
        let other = EventBatch { missed: 0, ..batch };
        assert_eq!(written(&other, &[EventKind::Server]), ":\n\n");
    }

    #[test]
    fn kinds_are_named_by_commas() {
        let all = kinds("server, call,log,pin").unwrap();
        assert_eq!(all, EventKind::ALL);
        for wrong in ["", "calls", "call,", "call;log"] {
            assert!(kinds(wrong).is_err(), "{wrong}");
        }
    }
}
