//! The persisted part of a session, from which it is rebuilt after its actor or the gateway has
//! ended.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use ring::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::auth::GrantedScopes;
use crate::downstream::{Caller, ClientInfo};
use crate::id::{Holder, Peer, Principal, ServerName, SessionId, SessionOwner, ViewId};
use crate::protocol::{CAPABILITIES_BYTES_MAX, DeclaredCapabilities, LogLevel, Request, Revision};
use crate::store::StoredEntry;

/// The state of a session. Scopes are not persisted, and subscriptions are stored in entries of
/// their own.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SessionRecord {
    pub revision: Revision,
    pub principal: Principal,
    /// The scopes of the latest request. Not persisted, because each request has its own.
    #[serde(skip)]
    pub scopes: GrantedScopes,
    /// The address from which the client connected.
    #[serde(default)]
    pub peer: Peer,
    pub view: ViewId,
    /// Whether the session was opened without credentials, so that other clients can know its id.
    #[serde(default)]
    pub is_adopted: bool,
    pub profile: DeclaredCapabilities,
    #[serde(default)]
    pub client: ClientInfo,
    /// When the session was opened, in milliseconds since 1970.
    #[serde(default)]
    pub opened_at: Option<u64>,
    pub level: Option<LogLevel>,
    /// The client's subscriptions. Each is stored in a separate entry below the record, so that a
    /// change writes only one entry.
    #[serde(skip)]
    pub subscriptions: Vec<Subscription>,
}

/// A resource that a client subscribed to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Subscription {
    /// The URI that the client uses.
    pub public: String,
    /// The server that owns the resource.
    pub server: ServerName,
    /// The server's own URI. Persisted because a new process cannot translate `public` before it
    /// has a catalog.
    pub native: String,
}

/// Maximum length of a subscription's URI, in bytes.
pub(crate) const SUBSCRIPTION_URI_MAX: usize = 4096;

impl Subscription {
    pub(crate) fn to_bytes(&self) -> Bytes {
        Bytes::from(serde_json::to_vec(self).unwrap_or_default())
    }

    /// Returns the approximate memory usage in bytes.
    pub(crate) fn size(&self) -> usize {
        size_of::<Self>() + self.public.len() + self.native.len()
    }
}

/// Maximum length of the `params` of `initialize`, in bytes.
const INITIALIZE_PARAMS_MAX: usize = 64 * 1024;

impl SessionRecord {
    /// Creates a record from the parameters of `initialize`.
    ///
    /// # Errors
    ///
    /// Returns a description of the invalid parameter.
    pub fn from_initialize(request: &Request, owner: SessionOwner) -> Result<Self, String> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct InitializeParams<'a> {
            protocol_version: String,
            #[serde(borrow)]
            capabilities: Option<&'a RawValue>,
            client_info: Option<Box<RawValue>>,
        }
        let text = request.params_text().map_err(|error| error.to_string())?;
        let text = text.unwrap_or("{}");
        if text.len() > INITIALIZE_PARAMS_MAX {
            return Err(too_long(text, INITIALIZE_PARAMS_MAX));
        }
        let params: InitializeParams<'_> =
            serde_json::from_str(text).map_err(|error| error.to_string())?;
        let declared = params
            .capabilities
            .map_or(Ok(Map::new()), read_capabilities)?;
        let client = params.client_info;
        if client
            .as_ref()
            .is_some_and(|info| !info.get().starts_with('{'))
        {
            return Err("`clientInfo` must be an object".to_owned());
        }
        Ok(Self {
            revision: Revision::negotiate(&params.protocol_version),
            principal: owner.principal,
            scopes: None,
            peer: Peer::default(),
            view: owner.view,
            is_adopted: false,
            profile: DeclaredCapabilities::from_declared(&declared),
            client: ClientInfo::new(client),
            opened_at: None,
            level: None,
            subscriptions: Vec::new(),
        })
    }

    /// Returns the client whose quota the session counts against.
    pub(crate) fn holder(&self) -> Holder {
        Holder::of(&self.principal, self.peer)
    }

    /// Returns the principal and view that the session belongs to.
    pub(crate) fn owner(&self) -> SessionOwner {
        SessionOwner {
            principal: self.principal.clone(),
            view: self.view.clone(),
        }
    }

    /// Returns the caller of the session's requests.
    pub(crate) fn caller(&self, session: SessionId) -> Caller {
        Caller {
            principal: self.principal.clone(),
            scopes: self.scopes.clone(),
            view: self.view.clone(),
            session: Some(session),
            revision: self.revision,
            profile: self.profile.clone(),
            level: self.level,
            client: self.client.name(),
            info: self.client.clone(),
        }
    }

    pub(crate) fn to_bytes(&self) -> Bytes {
        Bytes::from(serde_json::to_vec(self).unwrap_or_default())
    }

    /// Parses a stored record; `None` if another release wrote it in an incompatible format.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        serde_json::from_slice(bytes).ok()
    }
}

fn read_capabilities(raw: &RawValue) -> Result<Map<String, Value>, String> {
    let text = raw.get();
    if text.len() > CAPABILITIES_BYTES_MAX {
        let why = too_long(text, CAPABILITIES_BYTES_MAX);
        return Err(format!("`capabilities`: {why}"));
    }
    serde_json::from_str(text).map_err(|error| format!("`capabilities`: {error}"))
}

fn too_long(text: &str, max: usize) -> String {
    format!("{} bytes exceed the limit of {max}", text.len())
}

/// Key prefix of all session records in the store.
pub(crate) const RECORDS: &str = "session/";

/// Returns the store key of a session's record.
pub(crate) fn record_key(id: SessionId) -> String {
    [RECORDS, &id.expose()].concat()
}

/// Returns the store key of a subscription: below its session's record, with a digest of the URI to
/// keep keys short.
pub(crate) fn subscription_key(id: SessionId, public: &str) -> String {
    let digest = digest(&SHA256, public.as_bytes());
    let (short, _) = digest.as_ref().split_at(SUBSCRIPTION_DIGEST);
    format!("{}/{}", record_key(id), URL_SAFE_NO_PAD.encode(short))
}

/// Length of the digest in a subscription's key, in bytes; enough to be unique within a session.
const SUBSCRIPTION_DIGEST: usize = 16;

/// A session as read from the store.
pub(crate) struct StoredSession {
    pub(crate) id: SessionId,
    pub(crate) record: SessionRecord,
    /// Time until the record expires.
    pub(crate) expires_in: Option<Duration>,
}

/// Parses store entries, which must be sorted by key, so that each record precedes its
/// subscriptions. Returns the sessions, and the keys of useless entries: unreadable ones, and
/// subscriptions whose session has ended.
pub(crate) fn stored_sessions(entries: Vec<StoredEntry>) -> (Vec<StoredSession>, Vec<String>) {
    let mut sessions: Vec<StoredSession> = Vec::new();
    let mut useless = Vec::new();
    for entry in entries {
        let path = entry.key.strip_prefix(RECORDS).unwrap_or_default();
        let (id, is_record) = match path.split_once('/') {
            Some((id, _)) => (SessionId::parse(id), false),
            None => (SessionId::parse(path), true),
        };
        let above = sessions.last_mut().filter(|above| Some(above.id) == id);
        if is_record
            && let Some(id) = id
            && let Some(record) = SessionRecord::from_bytes(&entry.value)
        {
            let expires_in = entry.expires_in;
            sessions.push(StoredSession {
                id,
                record,
                expires_in,
            });
        } else if !is_record
            && let Some(above) = above
            && let Ok(subscription) = serde_json::from_slice(&entry.value)
        {
            above.record.subscriptions.push(subscription);
        } else {
            useless.push(entry.key);
        }
    }
    (sessions, useless)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Envelope;

    fn record(params: &str) -> Result<SessionRecord, String> {
        let frame =
            format!(r#"{{"jsonrpc":"2.0","id":1,"method":"initialize","params":{params}}}"#);
        match Envelope::parse(Bytes::from(frame)) {
            Ok(Envelope::Request(request)) => {
                SessionRecord::from_initialize(&request, SessionOwner::default())
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_record_survives_the_store() {
        let params = r#"{"protocolVersion":"2025-06-18","capabilities":{"sampling":{}},"clientInfo":{"name":"c","x":1}}"#;
        let record = record(params).unwrap();
        assert_eq!(record.revision, Revision::V2025_06_18);
        assert!(record.profile.has_sampling());
        let bytes = record.to_bytes();
        assert_eq!(SessionRecord::from_bytes(&bytes).unwrap().to_bytes(), bytes);
        let client = record.client.as_str();
        assert_eq!(client, Some(r#"{"name":"c","x":1}"#));
    }

    #[test]
    fn subscriptions_are_read_with_the_record_that_they_are_below() {
        let record = record(r#"{"protocolVersion":"2025-06-18"}"#).unwrap();
        let [one, other] = [1, 2].map(|number| SessionId::new(uuid::Uuid::from_u128(number)));
        let entry = |key: String, value: Bytes| StoredEntry {
            key,
            value,
            expires_in: None,
        };
        let about = |id, public: &str| {
            let subscription = Subscription {
                public: public.to_owned(),
                server: ServerName::try_new("a").unwrap(),
                native: public.to_owned(),
            };
            entry(subscription_key(id, public), subscription.to_bytes())
        };
        let broken = entry(subscription_key(one, "x://3"), Bytes::from_static(b"{"));
        let mut entries = vec![
            entry(record_key(one), record.to_bytes()),
            about(one, "x://1"),
            about(one, "x://2"),
            broken.clone(),
            // The session of this subscription has no record.
            about(other, "x://1"),
        ];
        entries.sort_by(|left, right| left.key.cmp(&right.key));
        let (sessions, useless) = stored_sessions(entries);
        let [session] = &sessions[..] else {
            panic!("{}", sessions.len())
        };
        assert_eq!(session.id, one);
        let subscriptions = session.record.subscriptions.iter();
        let mut public: Vec<_> = subscriptions.map(|one| one.public.as_str()).collect();
        public.sort_unstable();
        assert_eq!(public, ["x://1", "x://2"]);
        assert_eq!(useless, [broken.key, subscription_key(other, "x://1")]);
    }

    #[test]
    fn the_name_of_a_client_is_kept_when_it_is_short() {
        let kept = |info: &str| {
            record(&format!(
                r#"{{"protocolVersion":"2025-06-18","clientInfo":{info}}}"#
            ))
        };
        let client = kept(r#"{"name":"c"}"#).unwrap().client;
        assert_eq!(client.as_str(), Some(r#"{"name":"c"}"#));
        let long = format!(r#"{{"name":"{}"}}"#, "x".repeat(4096));
        assert_eq!(kept(&long).unwrap().client.as_str(), None);
        assert!(kept("3").unwrap_err().contains("clientInfo"));
    }

    #[test]
    fn capabilities_of_16_mib_are_refused_before_they_are_read() {
        let declaring = |bytes: usize| {
            let text = "x".repeat(bytes);
            let params = format!(
                r#"{{"protocolVersion":"2025-06-18","capabilities":{{"experimental":{{"a":"{text}"}}}}}}"#
            );
            record(&params)
        };
        assert!(declaring(8000).is_ok());
        let error = declaring(CAPABILITIES_BYTES_MAX).unwrap_err();
        assert!(error.contains("`capabilities`"), "{error}");
        assert!(error.contains("8192"), "{error}");
        // Parameters beyond the overall limit are refused without parsing them.
        let error = declaring(16 << 20).unwrap_err();
        assert!(error.contains("65536"), "{error}");
    }

    #[test]
    fn missing_params_of_initialize_are_named() {
        let error = record("{}").unwrap_err();
        assert!(error.contains("protocolVersion"), "{error}");
    }
}
