//! Finds the members that the gateway acts on, in a single pass without copying.

use std::borrow::Cow;
use std::fmt;

use bytes::Bytes;
use serde::de::{Error, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::{EnvelopeError, ParamSpans, span_in};
use crate::protocol::folding::misspelled;

const TWICE: &str = "`params` has a duplicate member";

/// Declares the member names of an object and their parser. Known names are compared exactly; only
/// unknown names are checked for being a misspelling that some reader accepts.
macro_rules! member_names {
    ($Key:ident, $NAMES:ident: $($variant:ident = $name:literal,)*) => {
        enum $Key {
            $($variant,)*
            Other(Misspelled),
        }

        pub(super) const $NAMES: &[&str] = &[$($name,)*];

        impl<'de> Deserialize<'de> for $Key {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct KeyVisitor;

                impl Visitor<'_> for KeyVisitor {
                    type Value = $Key;

                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str("the name of a member")
                    }

                    fn visit_str<E>(self, name: &str) -> Result<$Key, E> {
                        Ok(match name {
                            $($name => $Key::$variant,)*
                            other => $Key::Other(misspelled(other, $NAMES)),
                        })
                    }
                }

                deserializer.deserialize_identifier(KeyVisitor)
            }
        }
    };
}

member_names! { EnvelopeKey, ENVELOPE_NAMES:
    Jsonrpc = "jsonrpc",
    Id = "id",
    Method = "method",
    Params = "params",
    Result = "result",
    Error = "error",
}

member_names! { ParamsKey, PARAMS_NAMES:
    Name = "name",
    Uri = "uri",
    Ref = "ref",
    Meta = "_meta",
    ProgressToken = "progressToken",
    Progress = "progress",
    RequestId = "requestId",
    Arguments = "arguments",
    InputResponses = "inputResponses",
    RequestState = "requestState",
    Task = "task",
    Notifications = "notifications",
    TaskId = "taskId",
    Cursor = "cursor",
    Level = "level",
    ProtocolVersion = "protocolVersion",
    Capabilities = "capabilities",
    ClientInfo = "clientInfo",
}

impl ParamsKey {
    /// A bit for each member of which only the name is read.
    const fn bit(&self) -> u8 {
        match self {
            Self::TaskId => 1,
            Self::Cursor => 2,
            Self::Level => 4,
            Self::ProtocolVersion => 8,
            Self::Capabilities => 16,
            Self::ClientInfo => 32,
            _ => 0,
        }
    }
}

member_names! { MetaKey, META_NAMES:
    ProgressToken = "progressToken",
    Version = "io.modelcontextprotocol/protocolVersion",
    ClientInfo = "io.modelcontextprotocol/clientInfo",
    Capabilities = "io.modelcontextprotocol/clientCapabilities",
    ServerInfo = "io.modelcontextprotocol/serverInfo",
    LogLevel = "io.modelcontextprotocol/logLevel",
    SubscriptionId = "io.modelcontextprotocol/subscriptionId",
    RelatedTask = "io.modelcontextprotocol/related-task",
    Traceparent = "traceparent",
    Tracestate = "tracestate",
    Baggage = "baggage",
}

member_names! { NestedKey, NESTED_NAMES:
    Type = "type",
    Name = "name",
    Uri = "uri",
    Ttl = "ttl",
    TaskId = "taskId",
    TaskIds = "taskIds",
    ResourceSubscriptions = "resourceSubscriptions",
    Tools = "toolsListChanged",
    Prompts = "promptsListChanged",
    Resources = "resourcesListChanged",
}

/// The name that some reader would recognise in a misspelled member.
type Misspelled = Option<&'static str>;

#[derive(Default)]
pub(super) struct EnvelopePeek<'a> {
    pub(super) jsonrpc: Option<&'a RawValue>,
    /// Keeps `id: null` distinct from an absent id.
    pub(super) id: Option<&'a RawValue>,
    pub(super) method: Option<Cow<'a, str>>,
    pub(super) params: Option<ParamsPeek<'a>>,
    pub(super) result: Option<&'a RawValue>,
    pub(super) error: Option<&'a RawValue>,
    misspelled: Misspelled,
}

impl EnvelopePeek<'_> {
    /// Finds the parts of `params`. With `is_strict`, fails on a member that some reader mistakes
    /// for another one.
    pub(super) fn locate(
        &self,
        frame: &Bytes,
        is_strict: bool,
    ) -> Result<Option<Box<ParamSpans>>, EnvelopeError> {
        if let (true, Some(meant)) = (is_strict, self.misspelled) {
            return Err(EnvelopeError::Misspelled(meant));
        }
        let params = self.params.as_ref();
        let located = params.map(|params| params.locate(frame, self.id.is_some(), is_strict));
        located.transpose()
    }
}

/// Written by hand, because a derived implementation skips unknown names without checking them.
impl<'de: 'a, 'a> Deserialize<'de> for EnvelopePeek<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct EnvelopeVisitor;

        impl<'de> Visitor<'de> for EnvelopeVisitor {
            type Value = EnvelopePeek<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON-RPC message")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                #[derive(Deserialize)]
                struct JsonText<'a>(#[serde(borrow)] Cow<'a, str>);

                let mut peek = EnvelopePeek::default();
                let (mut params, mut error) = (None, None);
                while let Some(key) = map.next_key::<EnvelopeKey>()? {
                    let is_second = match key {
                        EnvelopeKey::Jsonrpc => peek.jsonrpc.replace(map.next_value()?).is_some(),
                        EnvelopeKey::Id => peek.id.replace(map.next_value()?).is_some(),
                        EnvelopeKey::Method => {
                            let JsonText(method) = map.next_value()?;
                            peek.method.replace(method).is_some()
                        }
                        EnvelopeKey::Params => params.replace(map.next_value()?).is_some(),
                        EnvelopeKey::Result => peek.result.replace(map.next_value()?).is_some(),
                        EnvelopeKey::Error => error.replace(map.next_value()?).is_some(),
                        EnvelopeKey::Other(misspelled) => {
                            map.next_value::<IgnoredAny>()?;
                            peek.misspelled = peek.misspelled.or(misspelled);
                            false
                        }
                    };
                    if is_second {
                        return Err(A::Error::custom("the message has a duplicate member"));
                    }
                }
                peek.params = params.flatten();
                peek.error = error.flatten();
                Ok(peek)
            }
        }

        deserializer.deserialize_map(EnvelopeVisitor)
    }
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
    notifications: Option<&'a RawValue>,
    misspelled: Misspelled,
}

impl ParamsPeek<'_> {
    /// Locates the progress token: requests have it in `_meta`, notifications in `params`, even
    /// beside a `_meta`, in which progress of a task names the task.
    pub(super) fn locate(
        &self,
        frame: &Bytes,
        is_request: bool,
        is_strict: bool,
    ) -> Result<Box<ParamSpans>, EnvelopeError> {
        let at = |raw: Option<&RawValue>| raw.map(|raw| span_in(frame, raw));
        let meta = self.meta.filter(is_object);
        let read = meta.filter(|_| is_request || is_strict);
        let in_meta = read.map(MetaPeek::read).transpose()?.unwrap_or_default();
        if is_strict && let Some(meant) = self.misspelled.or(in_meta.misspelled) {
            return Err(EnvelopeError::Misspelled(meant));
        }
        if is_strict {
            self.check_nested()?;
        }
        let progress_token = match meta {
            Some(_) if is_request => in_meta.progress_token,
            _ => self.progress_token,
        };
        Ok(Box::new(ParamSpans {
            name: at(self.name),
            uri: at(self.uri),
            reference: at(self.reference),
            meta: at(meta),
            claims_revision: is_request && in_meta.claims_revision,
            progress_token: at(progress_token),
            progress: at(self.progress),
            request_id: at(self.request_id),
            arguments: at(self.arguments),
            input_responses: at(self.input_responses),
            request_state: at(self.request_state),
            task: at(self.task),
        }))
    }

    /// Refuses a misspelled member in an object whose members the gateway reads.
    fn check_nested(&self) -> Result<(), EnvelopeError> {
        let nested = [self.reference, self.task, self.notifications];
        for object in nested.into_iter().flatten().filter(is_object) {
            let NestedPeek(found) =
                serde_json::from_str(object.get()).map_err(EnvelopeError::json)?;
            if let Some(meant) = found {
                return Err(EnvelopeError::Misspelled(meant));
            }
        }
        Ok(())
    }
}

fn is_object(raw: &&RawValue) -> bool {
    raw.get().starts_with('{')
}

/// Written by hand, because a derived implementation would also read an array by position.
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
                let mut seen = 0_u8;
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
                        ParamsKey::Notifications => &mut peek.notifications,
                        ParamsKey::Other(misspelled) => {
                            map.next_value::<IgnoredAny>()?;
                            peek.misspelled = peek.misspelled.or(misspelled);
                            continue;
                        }
                        // Some methods read these members later.
                        later => {
                            map.next_value::<IgnoredAny>()?;
                            let bit = later.bit();
                            if seen & bit != 0 {
                                return Err(A::Error::custom(TWICE));
                            }
                            seen |= bit;
                            continue;
                        }
                    };
                    if place.replace(map.next_value()?).is_some() {
                        return Err(A::Error::custom(TWICE));
                    }
                }
                Ok(peek)
            }
        }

        deserializer.deserialize_map(ParamsVisitor)
    }
}

/// The members of `_meta`.
#[derive(Default)]
struct MetaPeek<'a> {
    progress_token: Option<&'a RawValue>,
    /// Whether it names a revision, as requests without a session do.
    claims_revision: bool,
    misspelled: Misspelled,
}

impl<'a> MetaPeek<'a> {
    fn read(object: &'a RawValue) -> Result<Self, EnvelopeError> {
        serde_json::from_str(object.get()).map_err(EnvelopeError::json)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for MetaPeek<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct MetaVisitor;

        impl<'de> Visitor<'de> for MetaVisitor {
            type Value = MetaPeek<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("`_meta` as an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut peek = MetaPeek::default();
                while let Some(key) = map.next_key::<MetaKey>()? {
                    match key {
                        MetaKey::ProgressToken => {
                            if peek.progress_token.replace(map.next_value()?).is_some() {
                                let why = "`_meta` has a duplicate `progressToken`";
                                return Err(A::Error::custom(why));
                            }
                            continue;
                        }
                        MetaKey::Other(misspelled) => {
                            peek.misspelled = peek.misspelled.or(misspelled);
                        }
                        MetaKey::Version => peek.claims_revision = true,
                        _ => {}
                    }
                    map.next_value::<IgnoredAny>()?;
                }
                Ok(peek)
            }
        }

        deserializer.deserialize_map(MetaVisitor)
    }
}

/// A misspelled member of `ref`, `task` or `notifications`.
struct NestedPeek(Misspelled);

impl<'de> Deserialize<'de> for NestedPeek {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct NestedVisitor;

        impl<'de> Visitor<'de> for NestedVisitor {
            type Value = NestedPeek;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut found = None;
                while let Some(key) = map.next_key::<NestedKey>()? {
                    map.next_value::<IgnoredAny>()?;
                    if let NestedKey::Other(misspelled) = key {
                        found = found.or(misspelled);
                    }
                }
                Ok(NestedPeek(found))
            }
        }

        deserializer.deserialize_map(NestedVisitor)
    }
}
