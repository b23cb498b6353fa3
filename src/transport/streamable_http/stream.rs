//! Event streams: the answer to a call, and the stream for messages that belong to no call. A
//! broken stream is resumed after the last event with an id (C-HTTP-12, C-HTTP-13).

use std::rc::Rc;
use std::time::Duration;

use awc::ClientResponse;
use awc::http::header::{HeaderMap, HeaderValue};
use bytes::Bytes;
use tokio::time::{Instant, sleep, timeout};

use super::link_state::HttpLinkState;
use super::reconnects::Reconnects;
use super::requests::{LAST_EVENT_ID, SessionRequests};
use crate::masking::public_url;
use crate::telemetry::{Counter, Reason};
use crate::transport::http::body::{BodyKind, body_kind, next_chunk};
use crate::transport::http::sending::link_error;
use crate::transport::http::sse::{SseDecoder, SseEvent};
use crate::transport::large_answers::{CALL_WAIT_MAX, MessageRoom, SHARED_WAIT_MAX};
use crate::transport::{LinkError, SessionRefusal, messages};

/// Maximum attempts in a row to resume a call's stream without new events.
const RESUME_MAX: u32 = 6;

/// Maximum bytes of a faulty event that are logged.
const FAULT_MAX: usize = 200;

/// How long to wait for an answered stream to end, so that its connection can be reused.
const TAIL_MAX: Duration = Duration::from_millis(500);

/// Follows the stream that answers `call`, over several connections if necessary. A stream of the
/// sessionless revision is not resumed.
pub(super) async fn answer(
    link_state: &Rc<HttpLinkState>,
    call: u64,
    response: ClientResponse,
    may_resume: bool,
) {
    let mut stream = ResumableStream::new(link_state, Some(call));
    let mut next = Some(response);
    loop {
        if let Some(response) = next.take() {
            match stream.follow(response).await {
                FollowOutcome::Answered(response) => {
                    return drain(link_state, call, response).await;
                }
                FollowOutcome::Failed(error) => return link_state.tasks.fail(Some(call), error),
                FollowOutcome::Broken(reason) => stream.reason = reason,
            }
        }
        if let Some(fault) = stream.fault.take() {
            return link_state
                .tasks
                .fail(Some(call), LinkError::Protocol(fault));
        }
        let Some(last_id) = stream
            .last_id()
            .filter(|_| may_resume && stream.reconnects.fruitless() < RESUME_MAX)
        else {
            return link_state
                .tasks
                .fail(Some(call), LinkError::Lost(stream.reason));
        };
        stream.pause().await;
        let requests = link_state.requests();
        match get(link_state, &requests, Some(last_id)).await {
            GetOutcome::ResumableStream(response) => next = Some(response),
            GetOutcome::Failed(reason) => stream.reason = reason,
            GetOutcome::NoStream(status) => {
                let text = format!(
                    "{}; resuming was refused with HTTP status {status}",
                    stream.reason
                );
                return link_state.tasks.fail(Some(call), LinkError::Lost(text));
            }
            GetOutcome::Doubtful(refusal) => {
                // The server accepted this call, which may have run.
                let text = format!("{}; {}", stream.reason, refusal.error);
                link_state.tasks.fail(Some(call), LinkError::Lost(text));
                return link_state.session_gone(None, refusal);
            }
        }
    }
}

/// Reads the rest of a stream after the call was answered.
async fn drain(link_state: &HttpLinkState, call: u64, mut response: ClientResponse) {
    link_state.tasks.finish(call);
    let tail = async { while let Ok(Some(_)) = next_chunk(&mut response, TAIL_MAX).await {} };
    let _ = timeout(TAIL_MAX, tail).await;
}

/// Opens the stream for messages that belong to no call, and keeps it open (C-HTTP-11).
pub(super) fn listen(link_state: &Rc<HttpLinkState>) {
    link_state.start_listening(run_listen(Rc::clone(link_state)));
}

async fn run_listen(link_state: Rc<HttpLinkState>) {
    let mut stream = ResumableStream::new(&link_state, None);
    loop {
        let requests = link_state.requests();
        let got = get(&link_state, &requests, stream.last_id()).await;
        link_state.stream_answered();
        match got {
            GetOutcome::ResumableStream(response) => {
                if let FollowOutcome::Broken(reason)
                | FollowOutcome::Failed(LinkError::Lost(reason)) = stream.follow(response).await
                {
                    stream.reason = reason;
                }
            }
            GetOutcome::Failed(reason) => stream.reason = reason,
            GetOutcome::NoStream(status) => {
                log::debug!(status; "server offers no stream of its own");
                return;
            }
            GetOutcome::Doubtful(refusal) => return link_state.session_gone(None, refusal),
        }
        stream.pause().await;
    }
}

enum GetOutcome {
    ResumableStream(ClientResponse),
    /// The server does not offer the stream.
    NoStream(u16),
    /// The server may no longer know the session.
    Doubtful(SessionRefusal),
    /// The attempt failed and can be repeated.
    Failed(String),
}

async fn get(
    link_state: &HttpLinkState,
    requests: &SessionRequests,
    last_id: Option<HeaderValue>,
) -> GetOutcome {
    let request = match requests.listen() {
        Ok(request) => request,
        Err(error) => return GetOutcome::Failed(error.to_string()),
    };
    let mut extra = HeaderMap::new();
    if let Some(id) = last_id {
        extra.insert(LAST_EVENT_ID, id);
    }
    let answer = link_state.authorized(request, &extra, Bytes::new()).send();
    let idle_max = link_state.settings.stream_idle_timeout;
    let response = match timeout(idle_max, answer).await {
        Ok(Ok((response, _))) => response,
        Ok(Err(error)) => return GetOutcome::Failed(link_error(&error).to_string()),
        Err(_) => return GetOutcome::Failed("no answer to GET".to_owned()),
    };
    let status = response.status();
    let code = status.as_u16();
    let may_change = matches!(code, 408 | 425 | 429 | 500 | 502..=599);
    if status.is_success() {
        match body_kind(&response) {
            BodyKind::Events => GetOutcome::ResumableStream(response),
            BodyKind::Json | BodyKind::Missing | BodyKind::Other => GetOutcome::NoStream(code),
        }
    } else if requests.has_session() && !may_change && !is_unsupported(code) {
        let is_stale = link_state.is_stale(requests);
        let error = LinkError::status(code, "");
        GetOutcome::Doubtful(SessionRefusal {
            is_stale,
            ..SessionRefusal::new(error)
        })
    } else if may_change {
        GetOutcome::Failed(format!("HTTP status {code}"))
    } else {
        GetOutcome::NoStream(code)
    }
}

/// Whether a status states that the server does not offer the stream at all.
fn is_unsupported(code: u16) -> bool {
    !(400..500).contains(&code) || matches!(code, 405 | 406)
}

/// One logical stream, over several connections.
struct ResumableStream<'a> {
    link_state: &'a HttpLinkState,
    call: Option<u64>,
    decoder: SseDecoder,
    /// Reservation for the event that is being read, if it is large.
    room: MessageRoom,
    /// Fault of an event that was not a message, possibly the answer.
    fault: Option<Reason>,
    /// Why the last connection ended.
    reason: String,
    reconnects: Reconnects,
}

enum FollowOutcome {
    Answered(ClientResponse),
    /// The connection ended; the stream can be resumed.
    Broken(String),
    Failed(LinkError),
}

impl<'a> ResumableStream<'a> {
    fn new(link_state: &'a HttpLinkState, call: Option<u64>) -> Self {
        Self {
            link_state,
            call,
            decoder: SseDecoder::new(link_state.settings.event_max),
            room: MessageRoom::default(),
            fault: None,
            reason: String::new(),
            reconnects: Reconnects::default(),
        }
    }

    /// Reads one connection until its end or the answer.
    async fn follow(&mut self, response: ClientResponse) -> FollowOutcome {
        let (began, before) = (Instant::now(), self.decoder.count());
        let outcome = self.read(response).await;
        let brought_events = self.decoder.count() != before;
        self.reconnects.ended(began.elapsed(), brought_events);
        outcome
    }

    async fn read(&mut self, mut response: ClientResponse) -> FollowOutcome {
        self.decoder.reconnected();
        self.room = MessageRoom::default();
        loop {
            let idle_max = self.link_state.settings.stream_idle_timeout;
            match next_chunk(&mut response, idle_max).await {
                Ok(Some(chunk)) => match self.take(&chunk) {
                    Ok(true) => return FollowOutcome::Answered(response),
                    Ok(false) => self.wait_for_room().await,
                    Err(error) => return FollowOutcome::Failed(error),
                },
                Ok(None) => return FollowOutcome::Broken("the stream ended".to_owned()),
                Err(reason) => return FollowOutcome::Broken(reason),
            }
        }
    }

    /// Reads a large event only while there is room for it.
    async fn wait_for_room(&mut self) {
        let wait_max = match self.call {
            Some(_) => CALL_WAIT_MAX,
            None => SHARED_WAIT_MAX,
        };
        let answers = &self.link_state.answers;
        let waited = self.room.wait(answers, &mut self.decoder, wait_max);
        if let Err(error) = waited.await {
            log::warn!(error:%; "an event of a server was discarded");
        }
    }

    /// Delivers the events that a chunk completes. Returns whether the answer was among them.
    fn take(&mut self, chunk: &[u8]) -> Result<bool, LinkError> {
        let Self {
            link_state,
            call,
            decoder,
            room,
            fault,
            ..
        } = self;
        let mut outcome = Ok(false);
        decoder.feed(chunk, |event| {
            if matches!(outcome, Ok(false)) {
                outcome = take_event(link_state, *call, event, room.take(), fault);
            } else {
                room.take();
            }
        });
        outcome
    }

    /// Id after which a new connection continues; `None` if the server sent none.
    fn last_id(&self) -> Option<HeaderValue> {
        let id = self.decoder.last_id()?;
        HeaderValue::from_bytes(id.as_bytes()).ok()
    }

    /// Waits before the stream is reopened.
    async fn pause(&mut self) {
        let delay = self.reconnects.next_delay(self.decoder.retry());
        let reason = self.reason.as_str();
        log::debug!(reason, delay:?; "reopening the stream");
        sleep(delay).await;
        self.link_state.counters.add(Counter::StreamsReopened);
    }
}

/// Delivers one event. Returns whether it was the answer. An invalid message is stored in `fault`.
fn take_event(
    link_state: &HttpLinkState,
    call: Option<u64>,
    event: SseEvent,
    room: MessageRoom,
    fault: &mut Option<Reason>,
) -> Result<bool, LinkError> {
    match event {
        // Only events of the default kind are messages.
        SseEvent::Message(message) if message.data.is_empty() || !message.kind.is_empty() => {
            Ok(false)
        }
        SseEvent::Message(message) => {
            let room = room.settle(message.data.len());
            let received = link_state.receive(call, message.data.clone(), false, room);
            received.or_else(|error| {
                let text = messages::excerpt(&message.data, FAULT_MAX);
                log::debug!(error:%, text = text.as_str(); "event is not a message");
                *fault = Some(messages::fault(&error));
                Ok(false)
            })
        }
        SseEvent::TooLarge { .. } if call.is_some() => {
            Err(room.discarded("limits.event", link_state.settings.event_max))
        }
        SseEvent::TooLarge { .. } => {
            let url = public_url(&link_state.settings.url);
            log::warn!(url, limit = link_state.settings.event_max; "an event over the limit (`limits.event`) was discarded");
            Ok(false)
        }
    }
}
