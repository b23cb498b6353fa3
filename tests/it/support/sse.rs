//! Reading an event stream.

use serde_json::Value;

use super::http::Body;
use super::soon;

/// One event with its fields as they came.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Event {
    pub(crate) id: Option<String>,
    pub(crate) data: String,
}

impl Event {
    /// The event's message; a priming event has none.
    pub(crate) fn message(&self) -> Option<Value> {
        (!self.data.is_empty()).then(|| serde_json::from_str(&self.data).unwrap())
    }
}

/// An event stream that is open.
#[derive(Debug)]
pub(crate) struct Events {
    body: Body,
    text: Vec<u8>,
    /// Id of the last event that was read.
    pub(crate) last_id: Option<String>,
}

impl Events {
    pub(crate) fn new(body: Body) -> Self {
        Self {
            body,
            text: Vec::new(),
            last_id: None,
        }
    }

    /// The next event, comments left out; `None` when the stream ended.
    #[track_caller]
    pub(crate) fn next(&mut self) -> impl Future<Output = Option<Event>> {
        soon("the next event of a stream", self.read())
    }

    /// The next event that holds a message.
    #[track_caller]
    pub(crate) fn message(&mut self) -> impl Future<Output = Option<Value>> {
        soon("the next message of a stream", async {
            loop {
                if let Some(message) = self.read().await?.message() {
                    return Some(message);
                }
            }
        })
    }

    /// The next message with this method, others left out.
    #[track_caller]
    pub(crate) fn method(&mut self, method: &str) -> impl Future<Output = Value> {
        let what = format!("`{method}` on a stream");
        soon(&what.clone(), async move {
            loop {
                let event = self.read().await.unwrap_or_else(|| panic!("no {what}"));
                if let Some(message) = event.message()
                    && message["method"] == method
                {
                    return message;
                }
            }
        })
    }

    /// All messages up to the end of the stream.
    #[track_caller]
    pub(crate) fn rest(mut self) -> impl Future<Output = Vec<Value>> {
        soon("the end of a stream", async move {
            let mut messages = Vec::new();
            while let Some(event) = self.read().await {
                messages.extend(event.message());
            }
            messages
        })
    }

    async fn read(&mut self) -> Option<Event> {
        loop {
            while let Some(end) = self.text.windows(2).position(|two| two == b"\n\n") {
                let block: Vec<u8> = self.text.drain(..end + 2).collect();
                let block = String::from_utf8(block).unwrap();
                if let Some(event) = parse(&block) {
                    self.last_id.clone_from(&event.id);
                    return Some(event);
                }
            }
            let part = self.body.next().await?;
            self.text.extend(part);
        }
    }
}

/// Comments are no events.
fn parse(block: &str) -> Option<Event> {
    let mut event = Event::default();
    let mut any = false;
    for line in block.lines() {
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match name {
            "id" => event.id = Some(value.to_owned()),
            "data" => event.data.push_str(value),
            _ => continue,
        }
        any = true;
    }
    any.then_some(event)
}
