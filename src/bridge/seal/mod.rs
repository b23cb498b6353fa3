//! State that travels through a client: `requestState` and task ids, encrypted and bound to what
//! they were made for (S-MRTR-06, S-MRTR-07, S-MRTR-08).
//!
//! The text is `v1.KEY.SEALED` for states and `gt1.KEY.SEALED` for task ids: `KEY` names the key,
//! `SEALED` is base64url without padding of nonce, ciphertext and tag (ChaCha20-Poly1305,
//! RFC 8439). The head of the text, and what the state is bound to, are authenticated with it.

mod digest;
mod sealing_key;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::id::ServerName;
use crate::protocol::{Method, RawJson};

pub use digest::{AmbiguousArguments, Digest};
pub use sealing_key::{InvalidKey, SealingKey};

use sealing_key::DerivedKeys;

/// Longest sealed text, in bytes: what a client may have to carry, and what it may present.
pub const SEALED_MAX: usize = 32 * 1024;

/// How often a call may ask its client.
pub const ROUNDS_MAX: u8 = 10;

/// How far the clock of another replica may be ahead of ours, in seconds.
const CLOCK_SKEW: u64 = 60;

const STATE: &str = "v1";
const TASK: &str = "gt1";

/// A presented state or task id is not ours, was changed, has expired, or is not meant for this
/// request of this client. It does not say which, since that helps only an attacker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("invalid requestState")]
pub struct InvalidState;

/// Why a presented state is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RefusedState {
    #[error(transparent)]
    Invalid(#[from] InvalidState),
    /// It is of another server that had the same name.
    #[error("requestState of a server that was replaced")]
    Replaced,
}

/// Why a state cannot be handed to a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    #[error("state is larger than {SEALED_MAX} bytes when sealed")]
    TooLarge,
    #[error("call asked its client {ROUNDS_MAX} times and asks again")]
    Rounds,
    #[error("system has no random bytes")]
    Random,
}

/// The properties of a request to which a state is bound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateBinding {
    pub method: Method,
    /// Who asks.
    pub principal: Digest,
    /// The public name or URI that the request asks for.
    pub params: Digest,
    /// The capabilities that the client declares.
    pub capabilities: Digest,
}

impl StateBinding {
    /// `target` is the public name or URI.
    ///
    /// # Errors
    ///
    /// Returns [`AmbiguousArguments`] for arguments that could be read in two ways.
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

/// The state that the gateway needs when a client comes back with its answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestState {
    pub binding: StateBinding,
    /// Unix time in seconds.
    pub issued_at: u64,
    /// Unix time in seconds; from then on the state is refused.
    pub expires_at: u64,
    /// The server that asked, and its declaration.
    pub server: ServerName,
    pub declaration: Digest,
    /// How often the client was asked, this time included.
    pub round: u8,
    /// Random: it names the state, which is good for one return.
    pub id: [u8; 16],
    pub continuation: Continuation,
}

/// How the call goes on when the client comes back (B-ASK-02). Two more kinds have their
/// place here: `portable`, a call that any replica can collect, and `replay`, one that is run
/// again with a transcript of answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "k", rename_all = "lowercase")]
pub enum Continuation {
    /// The server speaks this revision itself: its own state, as it wrote it, if it gave one.
    Pass { state: Option<String> },
    /// The call is sent again, once the user has opened so many pages; their keys are those of
    /// [`page_key`].
    Reissue { pages: usize },
    /// The call is parked in the process `owner` under `handle`.
    Owned { owner: String, handle: String },
}

/// The key under which a client answers whether its user opened this page.
pub fn page_key(index: usize) -> String {
    format!("u{index}")
}

/// With what a state is presented: it must have been sealed for the same.
#[derive(Clone, Copy, Debug)]
pub struct ExpectedBinding<'a> {
    pub binding: &'a StateBinding,
    /// The server that the request goes to now.
    pub server: &'a ServerName,
    pub declaration: Digest,
}

/// A task of a server, as the gateway knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskRef {
    #[serde(rename = "s")]
    pub server: ServerName,
    /// That of the server, which another one of its name does not have.
    #[serde(rename = "d")]
    pub declaration: Digest,
    /// Its id in the server's own words.
    #[serde(rename = "t")]
    pub native: String,
    /// The session with the server that the task belongs to, where there is one.
    #[serde(rename = "h", default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// The lifetime of a bridged task, by which the gateway finds the task after a restart.
    #[serde(rename = "l", default, skip_serializing_if = "Option::is_none")]
    pub lifetime: Option<TaskLifetime>,
}

/// The facts about a task that its server does not know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskLifetime {
    /// RFC 3339.
    #[serde(rename = "c")]
    pub created_at: String,
    /// In seconds since 1970: from then on it is unknown.
    #[serde(rename = "x")]
    pub expires_at: u64,
    /// The tool that was called, as clients name it.
    #[serde(rename = "n", default)]
    pub tool: String,
}

/// The part of a state that is encrypted; its method is authenticated beside it.
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

/// Seals with the newest key and opens with that and the one before.
#[derive(Debug)]
pub struct Sealer {
    current: DerivedKeys,
    previous: Option<DerivedKeys>,
}

impl Sealer {
    pub fn new(current: &SealingKey, previous: Option<&SealingKey>) -> Self {
        Self {
            current: DerivedKeys::derive(current),
            previous: previous.map(DerivedKeys::derive),
        }
    }

    /// The text for `requestState`. `nonce` is random and never used again: one key may seal 2^32
    /// states before two equal nonces are to be expected.
    ///
    /// # Errors
    ///
    /// Returns [`SealError`] when the client cannot be asked with this state.
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

    /// The state in `text`, if it is ours, unchanged, in time (`now`: Unix time in seconds) and
    /// was made for this very request. A parked call is with its server, whatever stands under the
    /// server's name now.
    ///
    /// # Errors
    ///
    /// Returns [`RefusedState`], which is answered with -32602.
    pub fn open(
        &self,
        text: &str,
        expected: &ExpectedBinding<'_>,
        now: u64,
    ) -> Result<RequestState, RefusedState> {
        let binding = expected.binding;
        let plain = self.unseal(STATE, binding.method.as_str(), text)?;
        let wire: SealedPayload = serde_json::from_slice(&plain).map_err(|_| InvalidState)?;
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

    /// The public id of a task: the same each time, so that a client may compare ids. It never
    /// expires, and resolves as long as its key is one of the two.
    ///
    /// # Errors
    ///
    /// Returns [`SealError::TooLarge`] when the server's id is too long.
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

    /// The task behind a public id, for the principal that it was given to (S-TASK-X-12).
    ///
    /// # Errors
    ///
    /// Returns [`InvalidState`] for every other id: to the client it is an unknown task.
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
        let mut generations = std::iter::once(&self.current).chain(&self.previous);
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
