//! Sealed states and task ids that travel through clients; used by calls and task requests.
//!
//! - `sealing_keys`: the keys and used states that are persisted across restarts
//! - `state_keys`: the keys for states, which are rotated
//! - `used_states`: the states that clients have returned

mod sealing_keys;
mod state_keys;
mod used_states;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use uuid::Uuid;

use crate::bridge::seal::{
    Continuation, Digest, ExpectedBinding, RefusedState, RequestState, SealError, StateBinding,
    TaskLifetime, TaskRef,
};
use crate::bridge::task::Task;
use crate::calls::settings::SessionSettings;
use crate::downstream::Downstreams;
use crate::id::{Principal, ServerName};
use crate::protocol::{ErrorKind, Failure};
use crate::telemetry::rfc3339;

pub use sealing_keys::SealingKeys;
pub(crate) use used_states::ReturnedState;

use sealing_keys::random;
use used_states::TakeError;

/// Seals states and task ids for clients, and opens them when clients return them. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Sealing {
    keys: Arc<SealingKeys>,
    servers: Downstreams,
}

/// The contents of a state to seal.
pub(crate) struct NewState<'a> {
    pub(crate) binding: StateBinding,
    /// The server that asks for input.
    pub(crate) server: &'a ServerName,
    /// The digest of that server's program with arguments, or of its URL.
    pub(crate) declaration: Digest,
    pub(crate) round: u8,
    pub(crate) continuation: Continuation,
}

impl Sealing {
    pub(crate) const fn new(keys: Arc<SealingKeys>, servers: Downstreams) -> Self {
        Self { keys, servers }
    }

    /// Returns the digest of the current program or URL of the server with this name. It reveals
    /// whether a server was replaced by another one with the same name.
    pub(crate) fn declaration(&self, server: &ServerName) -> Digest {
        match self.servers.get(server) {
            Some(server) => server.settings().declaration(),
            // A digest that no server has.
            None => Digest::of_declaration(&[]),
        }
    }

    /// Returns the `requestState` for an answer that asks the client for input. The state is valid
    /// for `answer_timeout`.
    ///
    /// # Errors
    ///
    /// Returns the reason why the client cannot be asked.
    pub(crate) fn seal(
        &self,
        new: NewState<'_>,
        settings: &SessionSettings,
    ) -> Result<String, SealError> {
        let now = self.now();
        let lifetime = settings.answer_timeout.as_secs().max(1);
        let state = RequestState {
            binding: new.binding,
            issued_at: now,
            expires_at: now.saturating_add(lifetime),
            server: new.server.clone(),
            declaration: new.declaration,
            round: new.round,
            id: random()?,
            continuation: new.continuation,
        };
        self.keys.change_if_due(settings);
        self.keys.states().sealer.seal(&state, random()?)
    }

    /// Opens a `requestState` that a client returned.
    ///
    /// # Errors
    ///
    /// Returns the failure that the client reads for an invalid state, or for a state of a server
    /// that was replaced.
    pub(crate) fn open(
        &self,
        text: &str,
        binding: &StateBinding,
        server: &ServerName,
    ) -> Result<RequestState, Failure> {
        let declaration = self.declaration(server);
        let expected = ExpectedBinding {
            binding,
            server,
            declaration,
        };
        let state = self.keys.states().sealer.open(text, &expected, self.now());
        state.map_err(|refused| {
            let message = match refused {
                RefusedState::Invalid(_) => refused.to_string(),
                RefusedState::Replaced => format!(
                    "server `{server}` was replaced by another server with the same name; send the request again without `requestState`"
                ),
            };
            Failure::new(ErrorKind::InvalidParams, message)
        })
    }

    /// Marks a state as used, so that it is not accepted again. At most `max` unexpired states are
    /// remembered. Once the future completes successfully, the mark also survives a kill of the
    /// gateway.
    ///
    /// # Errors
    ///
    /// Returns the failure that the client reads for a state that was already used, or when too
    /// many used states are remembered.
    pub(crate) fn use_up(
        &self,
        state: ReturnedState,
        max: usize,
    ) -> Result<impl Future<Output = Result<(), Failure>> + use<>, Failure> {
        let taken = self.keys.used().take(state, max, self.now());
        taken.map_err(|error| match error {
            TakeError::Used => state_used(),
            TakeError::Full => {
                let message = format!(
                    "limit of {max} used request states reached (`sessions.used_states`); try again later"
                );
                Failure::new(ErrorKind::Overloaded, message).retry_after_ms(1000)
            }
        })?;
        let (keys, now) = (self.keys.clone(), self.now());
        Ok(async move {
            keys.used().keep(state, now).await.map_err(|error| {
                log::warn!(error:%; "could not persist that a request state was used; refusing the answers");
                let message = "answers refused: the gateway cannot write to its store (see its log); try again later";
                Failure::new(ErrorKind::Overloaded, message).retry_after_ms(1000)
            })
        })
    }

    /// Returns the public id of a server's task. It is valid only for this principal (S-TASK-X-12);
    /// `None` if sealing failed.
    pub(crate) fn seal_task(
        &self,
        server: &ServerName,
        declaration: Digest,
        native: &str,
        principal: &Principal,
    ) -> Option<String> {
        let task = TaskRef {
            server: server.clone(),
            declaration,
            native: native.to_owned(),
            session: None,
            lifetime: None,
        };
        self.seal_task_ref(&task, principal)
    }

    /// Returns the public id of a task that a call of the gateway represents. The id expires after
    /// `ttl`; `None` if sealing failed.
    pub(crate) fn seal_bridged_task(
        &self,
        (server, declaration): (&ServerName, Digest),
        (task, tool): (&Task, &str),
        handle: Uuid,
        ttl: Duration,
        principal: &Principal,
    ) -> Option<String> {
        let task = TaskRef {
            server: server.clone(),
            declaration,
            native: task.id.clone(),
            session: Some(handle.to_string()),
            lifetime: Some(TaskLifetime {
                created_at: task.created_at.clone()?,
                expires_at: self.now().saturating_add(ttl.as_secs()),
                tool: tool.to_owned(),
            }),
        };
        self.seal_task_ref(&task, principal)
    }

    fn seal_task_ref(&self, task: &TaskRef, principal: &Principal) -> Option<String> {
        let principal = Digest::of_principal(principal.as_str());
        self.keys.tasks().seal_task(task, &principal).ok()
    }

    /// Returns the task behind a public id, if the id was issued to this principal.
    pub(crate) fn open_task(&self, id: &str, principal: &Principal) -> Option<TaskRef> {
        let principal = Digest::of_principal(principal.as_str());
        self.keys.tasks().open_task(id, &principal).ok()
    }

    /// Returns whether the server that created a task was replaced by another one with the same
    /// name.
    pub(crate) fn is_replaced(&self, task: &TaskRef) -> bool {
        self.declaration(&task.server) != task.declaration
    }

    /// Returns the current time in the format of task timestamps (RFC 3339).
    pub(crate) fn timestamp(&self) -> String {
        rfc3339(self.keys.millis())
    }

    /// Returns the current time in seconds since 1970.
    pub(crate) fn now(&self) -> u64 {
        self.keys.now()
    }
}

/// Returns the failure for a client that returns a state for the second time.
pub(crate) fn state_used() -> Failure {
    let message = "`requestState` was already used; restart the request without it";
    Failure::new(ErrorKind::InvalidParams, message)
}

impl fmt::Debug for Sealing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sealing")
    }
}

#[cfg(test)]
mod tests;
