//! One borrowed pass over a message: finds the members that the gateway acts on.

use std::borrow::Cow;
use std::fmt;
use std::sync::LazyLock;

use bytes::Bytes;
use memchr::memmem::Finder;
use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::{EnvelopeError, ParamSpans, span_in};
use crate::protocol::json;

#[derive(Deserialize)]
pub(super) struct EnvelopePeek<'a> {
    #[serde(borrow)]
    pub(super) jsonrpc: Option<&'a RawValue>,
    // `id: null` is not an absent id.
    #[serde(borrow, default, deserialize_with = "json::present")]
    pub(super) id: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "text")]
    pub(super) method: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub(super) params: Option<ParamsPeek<'a>>,
    #[serde(borrow, default, deserialize_with = "json::present")]
    pub(super) result: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) error: Option<&'a RawValue>,
}

/// Serde borrows a bare `Cow` only through an attribute; inside an `Option` it would allocate.
fn text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Cow<'de, str>>, D::Error> {
    #[derive(Deserialize)]
    struct JsonText<'a>(#[serde(borrow)] Cow<'a, str>);
    JsonText::deserialize(deserializer).map(|text| Some(text.0))
}

#[derive(Default)]
pub(super) struct ParamsPeek<'a> {
    name: Option<&'a RawValue>,
    uri: Option<&'a RawValue>,
    reference: Option<&'a RawValue>,
    meta: Option<&'a RawValue>,
    progress_token: Option<&'a RawValue>,
    progress: Option<&'a RawValue>,
    request_id: Option<&'a RawValue>,
    arguments: Option<&'a RawValue>,
    input_responses: Option<&'a RawValue>,
    request_state: Option<&'a RawValue>,
    task: Option<&'a RawValue>,
}

impl ParamsPeek<'_> {
    /// A request has its progress token in `_meta`, and a notification in `params`, also beside a
    /// `_meta`: progress of a task names the task there.
    pub(super) fn locate(
        &self,
        frame: &Bytes,
        is_request: bool,
    ) -> Result<Box<ParamSpans>, EnvelopeError> {
        #[derive(Deserialize)]
        struct MetaPeek<'a> {
            #[serde(borrow, rename = "progressToken")]
            progress_token: Option<&'a RawValue>,
        }
        let at = |raw: Option<&RawValue>| raw.map(|raw| span_in(frame, raw));
        let meta = self.meta.filter(|raw| raw.get().starts_with('{'));
        let progress_token = match meta {
            Some(raw) if is_request && !may_name_progress(raw.get()) => None,
            Some(raw) if is_request => {
                let peek: MetaPeek<'_> =
                    serde_json::from_str(raw.get()).map_err(EnvelopeError::json)?;
                at(peek.progress_token)
            }
            _ => at(self.progress_token),
        };
        Ok(Box::new(ParamSpans {
            name: at(self.name),
            uri: at(self.uri),
            reference: at(self.reference),
            meta: at(meta),
            progress_token,
            progress: at(self.progress),
            request_id: at(self.request_id),
            arguments: at(self.arguments),
            input_responses: at(self.input_responses),
            request_state: at(self.request_state),
            task: at(self.task),
        }))
    }
}

/// Whether `progressToken` may be a member of an object; with an escape, any name may be.
fn may_name_progress(object: &str) -> bool {
    static NAME: LazyLock<Finder<'_>> = LazyLock::new(|| Finder::new("\"progressToken\""));
    NAME.find(object.as_bytes()).is_some() || object.contains('\\')
}

/// By hand, because a derived one would also read an array by position.
impl<'de: 'a, 'a> Deserialize<'de> for ParamsPeek<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ParamsVisitor;

        impl<'de> Visitor<'de> for ParamsVisitor {
            type Value = ParamsPeek<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("`params` as an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut peek = ParamsPeek::default();
                while let Some(key) = map.next_key::<ParamsKey>()? {
                    let place = match key {
                        ParamsKey::Name => &mut peek.name,
                        ParamsKey::Uri => &mut peek.uri,
                        ParamsKey::Ref => &mut peek.reference,
                        ParamsKey::Meta => &mut peek.meta,
                        ParamsKey::ProgressToken => &mut peek.progress_token,
                        ParamsKey::Progress => &mut peek.progress,
                        ParamsKey::RequestId => &mut peek.request_id,
                        ParamsKey::Arguments => &mut peek.arguments,
                        ParamsKey::InputResponses => &mut peek.input_responses,
                        ParamsKey::RequestState => &mut peek.request_state,
                        ParamsKey::Task => &mut peek.task,
                        ParamsKey::Other => {
                            map.next_value::<IgnoredAny>()?;
                            continue;
                        }
                    };
                    if place.replace(map.next_value()?).is_some() {
                        return Err(serde::de::Error::custom(
                            "a member of `params` stands twice",
                        ));
                    }
                }
                Ok(peek)
            }
        }

        deserializer.deserialize_map(ParamsVisitor)
    }
}

#[derive(Deserialize)]
#[serde(field_identifier)]
enum ParamsKey {
    #[serde(rename = "name")]
    Name,
    #[serde(rename = "uri")]
    Uri,
    #[serde(rename = "ref")]
    Ref,
    #[serde(rename = "_meta")]
    Meta,
    #[serde(rename = "progressToken")]
    ProgressToken,
    #[serde(rename = "progress")]
    Progress,
    #[serde(rename = "requestId")]
    RequestId,
    #[serde(rename = "arguments")]
    Arguments,
    #[serde(rename = "inputResponses")]
    InputResponses,
    #[serde(rename = "requestState")]
    RequestState,
    #[serde(rename = "task")]
    Task,
    #[serde(other)]
    Other,
}
