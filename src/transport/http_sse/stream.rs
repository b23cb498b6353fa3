//! The stream that carries everything that the server says.

use std::rc::Rc;
use std::sync::Arc;

use awc::http::Method;
use awc::http::header::{ACCEPT, CACHE_CONTROL, HeaderValue};
use awc::{Client, ClientResponse};
use url::Url;

use super::endpoint;
use super::posts::Posts;
use crate::transport::sse::{Decoder, Event};
use crate::transport::streamable_http::body::next_chunk;
use crate::transport::streamable_http::post::{Kind, kind_of, link_error};
use crate::transport::streamable_http::requests::{client, parts};
use crate::transport::{HttpSettings, OpenError, Tls, messages};

/// Bytes of a faulty event that are logged.
const FAULT_MAX: usize = 200;

/// Events before the one that names the address; more are no HTTP+SSE server.
const EVENTS_BEFORE_MAX: u64 = 16;

/// A stream whose server has said where messages go.
pub(super) struct Opened {
    pub(super) endpoint: Url,
    pub(super) stream: Stream,
}

pub(super) struct Stream {
    settings: Arc<HttpSettings>,
    /// Its connections end with it.
    _client: Client,
    response: ClientResponse,
    decoder: Decoder,
    /// Events that came together with the address.
    early: Vec<Event>,
}

/// Opens the stream and reads up to the address for messages. The caller limits the time.
///
/// # Errors
///
/// Returns [`OpenError::Other`] when there is no such stream, or no address that may be used.
pub(super) async fn open(settings: &Arc<HttpSettings>, tls: &Tls) -> Result<Opened, OpenError> {
    let (uri, headers) = parts(settings)?;
    let client = client(settings, tls, 0);
    let mut request = client
        .request(Method::GET, uri)
        .camel_case()
        .no_decompress()
        .insert_header((ACCEPT, HeaderValue::from_static("text/event-stream")))
        .insert_header((CACHE_CONTROL, HeaderValue::from_static("no-store")));
    for (name, value) in headers {
        request.headers_mut().append(name, value);
    }
    let response = request.send().await;
    let response = response.map_err(|error| OpenError::Other(link_error(&error).to_string()))?;
    let status = response.status();
    if !status.is_success() || kind_of(&response) != Kind::Events {
        let text = format!(
            "GET was answered with HTTP status {} and no event stream",
            status.as_u16()
        );
        return Err(OpenError::Other(text));
    }
    let mut stream = Stream {
        decoder: Decoder::new(settings.event_max),
        settings: Arc::clone(settings),
        _client: client,
        response,
        early: Vec::new(),
    };
    let endpoint = stream.endpoint().await.map_err(OpenError::Other)?;
    Ok(Opened { endpoint, stream })
}

impl Stream {
    /// Reads up to the `endpoint` event; messages may follow it in the same bytes.
    async fn endpoint(&mut self) -> Result<Url, String> {
        let idle_max = self.settings.stream_idle_timeout;
        while let Some(chunk) = next_chunk(&mut self.response, idle_max).await? {
            let (url, early) = (&self.settings.url, &mut self.early);
            let mut found = None;
            self.decoder.feed(&chunk, |event| match event {
                Event::Message(message) if found.is_none() && message.kind == "endpoint" => {
                    found = Some(endpoint::resolve(url, &message.data));
                }
                event if found.is_some() => early.push(event),
                // What comes before it has no meaning.
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

    /// Hands on what comes until the stream ends, and then says so.
    pub(super) async fn follow(mut self, posts: Rc<Posts>) {
        for event in std::mem::take(&mut self.early) {
            take(&posts, event, self.settings.event_max);
        }
        let idle_max = self.settings.stream_idle_timeout;
        let reason = loop {
            match next_chunk(&mut self.response, idle_max).await {
                Ok(Some(chunk)) => {
                    let event_max = self.settings.event_max;
                    self.decoder
                        .feed(&chunk, |event| take(&posts, event, event_max));
                }
                Ok(None) => break "the server ended the event stream".to_owned(),
                Err(reason) => break reason,
            }
        };
        posts.closed(reason);
    }
}

fn take(posts: &Posts, event: Event, event_max: usize) {
    match event {
        // Events of another kind are no messages of the protocol; empty ones keep a stream open.
        Event::Message(message) if !message.kind.is_empty() || message.data.is_empty() => {}
        Event::Message(message) => {
            let received =
                messages::each(message.data.clone(), |envelope| posts.received(envelope));
            if let Err(error) = received {
                let text = messages::excerpt(&message.data, FAULT_MAX);
                log::debug!(error:%, text = text.as_str(); "event is no message");
            }
        }
        Event::TooLarge => {
            log::warn!(limit = event_max; "an event over the limit (`limits.event`) was discarded");
        }
    }
}
