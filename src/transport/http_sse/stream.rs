//! The event stream on which all of a server's messages arrive.

use std::rc::Rc;
use std::sync::Arc;

use awc::ClientResponse;
use awc::http::Method;
use awc::http::header::{ACCEPT, CACHE_CONTROL, HeaderMap, HeaderValue};
use bytes::Bytes;
use url::Url;

use super::endpoint;
use super::message_poster::MessagePoster;
use crate::telemetry::unix_millis;
use crate::transport::http::body::{BodyKind, body_kind, next_chunk};
use crate::transport::http::request_factory::{RequestFactory, freeze};
use crate::transport::http::sending::link_error;
use crate::transport::http::sse::{SseDecoder, SseEvent};
use crate::transport::http::{redirect, refusals};
use crate::transport::large_answers::{MessageRoom, SHARED_WAIT_MAX};
use crate::transport::streamable_http::CommonParts;
use crate::transport::{HttpSettings, LargeAnswers, LinkEvent, LinkOpenError, messages};

/// Maximum bytes of a faulty event that are logged.
const FAULT_MAX: usize = 200;

/// Maximum events before the one that names the address; with more, the server is not an HTTP+SSE
/// server.
const EVENTS_BEFORE_MAX: u64 = 16;

/// A stream whose server has named the address for messages.
pub(super) struct OpenedStream {
    /// Creates requests to the address for messages.
    pub(super) factory: RequestFactory,
    pub(super) stream: EventStream,
}

pub(super) struct EventStream {
    settings: Arc<HttpSettings>,
    answers: LargeAnswers,
    response: ClientResponse,
    decoder: SseDecoder,
    /// Reservation for the event that is being read, if it is large.
    room: MessageRoom,
    /// Events that arrived together with the address.
    early: Vec<SseEvent>,
}

/// Opens the stream and reads the address for messages. The caller sets the deadline.
///
/// # Errors
///
/// Returns [`LinkOpenError::Other`] if the server has no such stream, or its address cannot be
/// used.
pub(super) async fn open(common: CommonParts<'_>) -> Result<OpenedStream, LinkOpenError> {
    let settings = common.settings;
    let mut factory = RequestFactory::new(settings, common.tls)?;
    let request = factory
        .request(factory.for_streams(), Method::GET)
        .insert_header((ACCEPT, HeaderValue::from_static("text/event-stream")))
        .insert_header((CACHE_CONTROL, HeaderValue::from_static("no-store")));
    let request = freeze(request)?;
    let none = HeaderMap::new();
    let sent = factory
        .authorized(&request, &none, Bytes::new())
        .send()
        .await;
    let (response, url) =
        sent.map_err(|error| LinkOpenError::Other(link_error(&error).to_string()))?;
    let status = response.status();
    if !status.is_success() || body_kind(&response) != BodyKind::Events {
        let mut text = format!(
            "GET was answered with HTTP status {} and no event stream",
            status.as_u16()
        );
        if let Some(refusal) = redirect::refusal(&response) {
            text = format!("{text}: {refusal}");
        }
        let retry_after = refusals::retry_after(response.headers(), unix_millis());
        return Err(LinkOpenError::Refused { text, retry_after });
    }
    let mut stream = EventStream {
        decoder: SseDecoder::new(settings.event_max),
        settings: Arc::clone(settings),
        answers: common.answers.clone(),
        room: MessageRoom::default(),
        response,
        early: Vec::new(),
    };
    let url = url.unwrap_or_else(|| settings.url.clone());
    let endpoint = stream.endpoint(&url).await;
    let endpoint = endpoint.map_err(LinkOpenError::Other)?;
    factory.set_url(&endpoint)?;
    Ok(OpenedStream { factory, stream })
}

impl EventStream {
    /// Reads up to the `endpoint` event of the stream at `url`; the same bytes can contain messages
    /// after it.
    async fn endpoint(&mut self, url: &Url) -> Result<Url, String> {
        let idle_max = self.settings.stream_idle_timeout;
        while let Some(chunk) = next_chunk(&mut self.response, idle_max).await? {
            let early = &mut self.early;
            let mut found = None;
            self.decoder.feed(&chunk, |event| match event {
                SseEvent::Message(message) if found.is_none() && message.kind == "endpoint" => {
                    found = Some(endpoint::resolve(url, &message.data));
                }
                event if found.is_some() => early.push(event),
                // Events before it have no meaning.
                _ => {}
            });
            if let Some(found) = found {
                return found;
            }
            if self.decoder.count() > EVENTS_BEFORE_MAX {
                return Err("the event stream does not begin with `endpoint`".to_owned());
            }
        }
        Err("the event stream ended before it named an address for messages".to_owned())
    }

    /// Delivers messages until the stream ends, and then reports its end.
    pub(super) async fn follow(mut self, message_poster: Rc<MessagePoster>) {
        for event in std::mem::take(&mut self.early) {
            let room = MessageRoom::default();
            take(&message_poster, event, room, self.settings.event_max);
        }
        let idle_max = self.settings.stream_idle_timeout;
        let reason = loop {
            match next_chunk(&mut self.response, idle_max).await {
                Ok(Some(chunk)) => {
                    let event_max = self.settings.event_max;
                    let Self {
                        answers,
                        decoder,
                        room,
                        ..
                    } = &mut self;
                    decoder.feed(&chunk, |event| {
                        take(&message_poster, event, room.take(), event_max);
                    });
                    if let Err(error) = room.wait(answers, decoder, SHARED_WAIT_MAX).await {
                        log::warn!(error:%; "an event of a server was discarded");
                    }
                }
                Ok(None) => break "the server ended the event stream".to_owned(),
                Err(reason) => break reason,
            }
        };
        message_poster.closed(reason);
    }
}

fn take(message_poster: &MessagePoster, event: SseEvent, room: MessageRoom, event_max: usize) {
    match event {
        // Only events of the default kind are messages; empty ones keep a stream open.
        SseEvent::Message(message) if !message.kind.is_empty() || message.data.is_empty() => {}
        SseEvent::Message(message) => {
            let mut room = room.settle(message.data.len());
            let received = messages::for_each_message(message.data.clone(), |mut envelope| {
                let call = None;
                envelope.take_room(&mut room);
                message_poster
                    .tasks
                    .emit(LinkEvent::Received { call, envelope });
            });
            if let Err(error) = received {
                let text = messages::excerpt(&message.data, FAULT_MAX);
                log::debug!(error:%, text = text.as_str(); "event is not a message");
            }
        }
        SseEvent::TooLarge { response_id } => {
            log::warn!(limit = event_max; "an event over the limit (`limits.event`) was discarded");
            if let Some(call) = response_id {
                message_poster
                    .tasks
                    .fail(Some(call), room.discarded("limits.event", event_max));
            }
        }
    }
}
