//! Encrypts state that travels through a client: `requestState` and task ids, bound to what they
//! were created for (S-MRTR-06, S-MRTR-07, S-MRTR-08).
//!
//! The format is `v1.KEY.SEALED` for states and `gt1.KEY.SEALED` for task ids: `KEY` names the key,
//! `SEALED` is unpadded base64url of nonce, ciphertext and tag (ChaCha20-Poly1305, RFC 8439). The
//! prefix and the data that the state is bound to are authenticated.

mod digest;
mod sealing_key;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::id::ServerName;
use crate::protocol::{Method, RawJson};

pub use digest::{AmbiguousArguments, Digest};
pub use sealing_key::{InvalidKey, SealingKey};

use sealing_key::DerivedKeys;

/// Maximum length of sealed text, in bytes, both issued and accepted.
pub const SEALED_MAX: usize = 32 * 1024;

/// Maximum number of times that a call can ask its client for input.
pub const ROUNDS_MAX: u8 = 10;

/// Tolerated clock difference to other replicas, in seconds.
const CLOCK_SKEW: u64 = 60;

const STATE: &str = "v1";
const TASK: &str = "gt1";

/// A presented state or task id is not ours, was modified, has expired, or belongs to a different
/// request or client. It does not state which, since that helps only an attacker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("invalid requestState")]
pub struct InvalidState;

/// Why a presented state is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RefusedState {
    #[error(transparent)]
    Invalid(#[from] InvalidState),
    /// The state belongs to a previous server with the same name.
    #[error("requestState of a server that was replaced")]
    Replaced,
}

/// Why a state cannot be sent to a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    #[error("state is larger than {SEALED_MAX} bytes when sealed")]
    TooLarge,
    #[error("call exceeded the limit of {ROUNDS_MAX} requests to its client")]
    Rounds,
    #[error("system cannot provide random bytes")]
    Random,
}

/// The properties of a request that a state is bound to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateBinding {
    pub method: Method,
    /// The caller.
    pub principal: Digest,
    /// The requested public name or URI, with the arguments.
    pub params: Digest,
    /// The capabilities that the client declares.
    pub capabilities: Digest,
}

impl StateBinding {
    /// `target` is the public name or URI.
    ///
    /// # Errors
    ///
    /// Returns [`AmbiguousArguments`] for arguments that can be read in two ways.
    pub fn new(
        method: Method,
        principal: &str,
        target: &str,
        arguments: Option<&RawJson>,
        capabilities: &Map<String, Value>,
    ) -> Result<Self, AmbiguousArguments> {
        Ok(Self {
            method,
            principal: Digest::of_principal(principal),
            params: Digest::of_params(target, arguments)?,
            capabilities: Digest::of_capabilities(capabilities),
        })
    }
}

/// The state that the gateway needs when a client returns with its responses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestState {
    pub binding: StateBinding,
    /// Creation time, as Unix time in seconds.
    pub issued_at: u64,
    /// Unix time in seconds, from which on the state is refused.
    pub expires_at: u64,
    /// The server that asked, and the digest of its declaration.
    pub server: ServerName,
    pub declaration: Digest,
    /// How often the client has been asked, including this time.
    pub round: u8,
    /// Random identifier of the state, which can be used only once.
    pub id: [u8; 16],
    pub continuation: Continuation,
}

/// How the call continues when the client returns (B-ASK-02). Two more kinds are reserved:
/// `portable`, a call that any replica can collect, and `replay`, a call that is run again with a
/// transcript of responses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "k", rename_all = "lowercase")]
pub enum Continuation {
    /// The server speaks this revision itself: its own state, verbatim, if it gave one.
    Pass { state: Option<String> },
    /// The call is sent again once the user has opened this many pages; their keys come from
    /// [`page_key`].
    Reissue { pages: usize },
    /// The call is parked in the process `owner` under `handle`.
    Owned { owner: String, handle: String },
}

/// The key under which a client confirms that its user opened this page.
pub fn page_key(index: usize) -> String {
    format!("u{index}")
}

/// The context in which a state is presented; it must match the context it was sealed for.
#[derive(Clone, Copy, Debug)]
pub struct ExpectedBinding<'a> {
    pub binding: &'a StateBinding,
    /// The server that currently receives the request.
    pub server: &'a ServerName,
    pub declaration: Digest,
}

/// A task of a server, as the gateway knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskRef {
    #[serde(rename = "s")]
    pub server: ServerName,
    /// Digest of the server's declaration, which another server with its name does not have.
    #[serde(rename = "d")]
    pub declaration: Digest,
    /// Task id that the server issued.
    #[serde(rename = "t")]
    pub native: String,
    /// Session with the server that the task belongs to, if there is one.
    #[serde(rename = "h", default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// Number of the replica whose process knows the task; `None` if any replica can ask for it.
    #[serde(rename = "r", default, skip_serializing_if = "Option::is_none")]
    pub replica: Option<u16>,
    /// Lifetime of a bridged task, by which the gateway finds the task after a restart.
    #[serde(rename = "l", default, skip_serializing_if = "Option::is_none")]
    pub lifetime: Option<TaskLifetime>,
}

/// Facts about a task that its server does not know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskLifetime {
    /// Creation time, RFC 3339.
    #[serde(rename = "c")]
    pub created_at: String,
    /// Unix time in seconds, from which on the task is unknown.
    #[serde(rename = "x")]
    pub expires_at: u64,
    /// Public name of the called tool.
    #[serde(rename = "n", default)]
    pub tool: String,
}

/// The encrypted part of a state; its method is authenticated separately.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SealedPayload {
    p: Digest,
    d: Digest,
    cap: Digest,
    i: u64,
    x: u64,
    s: ServerName,
    g: Digest,
    r: u8,
    c: [u8; 16],
    t: Continuation,
}

/// Seals with the newest key; opens with the newest and with others.
#[derive(Debug)]
pub struct Sealer {
    current: DerivedKeys,
    others: Box<[DerivedKeys]>,
}

impl Sealer {
    pub fn new<'k>(current: &SealingKey, others: impl IntoIterator<Item = &'k SealingKey>) -> Self {
        Self {
            current: DerivedKeys::derive(current),
            others: others.into_iter().map(DerivedKeys::derive).collect(),
        }
    }

    /// Seals a state into text for `requestState`. `nonce` is random and must never repeat: one key
    /// can seal 2^32 states before a collision is likely.
    ///
    /// # Errors
    ///
    /// Returns [`SealError`] if the client cannot be asked with this state.
    pub fn seal(&self, state: &RequestState, nonce: [u8; 12]) -> Result<String, SealError> {
        if state.round > ROUNDS_MAX {
            return Err(SealError::Rounds);
        }
        let wire = SealedPayload {
            p: state.binding.principal,
            d: state.binding.params,
            cap: state.binding.capabilities,
            i: state.issued_at,
            x: state.expires_at,
            s: state.server.clone(),
            g: state.declaration,
            r: state.round,
            c: state.id,
            t: state.continuation.clone(),
        };
        let plain = RawJson::from_value(&wire);
        let method = state.binding.method.as_str();
        let sealed = self.current.seal(STATE, method, plain.as_bytes(), nonce);
        sealed
            .filter(|text| text.len() <= SEALED_MAX)
            .ok_or(SealError::TooLarge)
    }

    /// Opens a state if it is authentic, not expired (`now`: Unix time in seconds) and was created
    /// for this very request. A parked call belongs to its original server, even if a different
    /// server has the name now.
    ///
    /// # Errors
    ///
    /// Returns [`RefusedState`], reported as -32602.
    pub fn open(
        &self,
        text: &str,
        expected: &ExpectedBinding<'_>,
        now: u64,
    ) -> Result<RequestState, RefusedState> {
        let binding = expected.binding;
        let wire = self.open_payload(text, &binding.method)?;
        let holds = wire.p == binding.principal
            && wire.d == binding.params
            && wire.cap == binding.capabilities
            && wire.s == *expected.server
            && wire.i <= now.saturating_add(CLOCK_SKEW)
            && now < wire.x
            && wire.r <= ROUNDS_MAX;
        if !holds {
            return Err(InvalidState.into());
        }
        let is_parked = matches!(wire.t, Continuation::Owned { .. });
        if wire.g != expected.declaration && !is_parked {
            return Err(RefusedState::Replaced);
        }
        Ok(RequestState {
            binding: binding.clone(),
            issued_at: wire.i,
            expires_at: wire.x,
            server: wire.s,
            declaration: wire.g,
            round: wire.r,
            id: wire.c,
            continuation: wire.t,
        })
    }

    /// Returns how the call of a state continues. The state is authentic, but it can have expired or
    /// belong to another request.
    ///
    /// # Errors
    ///
    /// Returns [`InvalidState`] for a state that was not sealed for this method.
    pub fn continuation(&self, text: &str, method: &Method) -> Result<Continuation, InvalidState> {
        Ok(self.open_payload(text, method)?.t)
    }

    fn open_payload(&self, text: &str, method: &Method) -> Result<SealedPayload, InvalidState> {
        let plain = self.unseal(STATE, method.as_str(), text)?;
        serde_json::from_slice(&plain).map_err(|_| InvalidState)
    }

    /// The public id of a task: deterministic, so that a client can compare ids. It never expires,
    /// and resolves while its key is one of the two.
    ///
    /// # Errors
    ///
    /// Returns [`SealError::TooLarge`] if the server's id is too long.
    pub fn seal_task(&self, task: &TaskRef, principal: &Digest) -> Result<String, SealError> {
        let plain = RawJson::from_value(task);
        let principal = Digest::as_bytes(principal);
        let nonce = self.current.task_nonce(principal, plain.as_bytes());
        let context = base64_of(principal);
        let sealed = self.current.seal(TASK, &context, plain.as_bytes(), nonce);
        sealed
            .filter(|text| text.len() <= SEALED_MAX)
            .ok_or(SealError::TooLarge)
    }

    /// The task behind a public id, for the principal that it was issued to (S-TASK-X-12).
    ///
    /// # Errors
    ///
    /// Returns [`InvalidState`] for every other id: the client sees an unknown task.
    pub fn open_task(&self, text: &str, principal: &Digest) -> Result<TaskRef, InvalidState> {
        let context = base64_of(Digest::as_bytes(principal));
        let plain = self.unseal(TASK, &context, text)?;
        serde_json::from_slice(&plain).map_err(|_| InvalidState)
    }

    fn unseal(&self, kind: &str, context: &str, text: &str) -> Result<Vec<u8>, InvalidState> {
        if text.len() > SEALED_MAX {
            return Err(InvalidState);
        }
        let mut parts = text.split('.');
        let (Some(head), Some(id), Some(sealed), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(InvalidState);
        };
        let mut generations = std::iter::once(&self.current).chain(&self.others);
        let keys = generations.find(|keys| keys.id() == id);
        keys.filter(|_| head == kind)
            .and_then(|keys| keys.open(kind, context, sealed))
            .ok_or(InvalidState)
    }
}

fn base64_of(bytes: &[u8]) -> String {
    use base64::Engine;
    base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(bytes)
}

#[cfg(test)]
mod tests;
