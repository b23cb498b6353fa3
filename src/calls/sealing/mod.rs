//! Sealed states and ids that travel through clients.
//!
//! - `sealing_keys`: what is kept for it, from one process to the next
//! - `state_keys`: the keys of states, which change from time to time
//! - `used_states`: states that clients came back with

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

/// Seals states and task ids for clients and opens them when they come back. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Sealing {
    keys: Arc<SealingKeys>,
    servers: Downstreams,
}

/// The purpose that a state is sealed for.
pub(crate) struct NewState<'a> {
    pub(crate) binding: StateBinding,
    /// The server that asked, and its declaration.
    pub(crate) server: &'a ServerName,
    pub(crate) declaration: Digest,
    pub(crate) round: u8,
    pub(crate) continuation: Continuation,
}

impl Sealing {
    pub(crate) const fn new(keys: Arc<SealingKeys>, servers: Downstreams) -> Self {
        Self { keys, servers }
    }

    /// The declaration of the server of this name as it is now.
    pub(crate) fn declaration(&self, server: &ServerName) -> Digest {
        match self.servers.get(server) {
            Some(server) => server.settings().declaration(),
            // Of no server.
            None => Digest::of_declaration(&[]),
        }
    }

    /// The `requestState` of an answer that asks the client for something; it holds for
    /// `answer_timeout`.
    ///
    /// # Errors
    ///
    /// Returns why the client cannot be asked.
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

    /// # Errors
    ///
    /// Returns the failure for a state that is wrong, or of a server that was replaced.
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
                    "server `{server}` was replaced by another of its name since it asked; send the request again without `requestState`"
                ),
            };
            Failure::new(ErrorKind::InvalidParams, message)
        })
    }

    /// Uses a state up, at most `max` within the life of one: nobody else can come back with it.
    /// When the future has ended well, this holds also after a kill of the gateway.
    ///
    /// # Errors
    ///
    /// Returns the failure for a state that was used, or for which there is no place.
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
                    "clients came back with {max} states that have not expired, the limit (`sessions.used_states`); try again later"
                );
                Failure::new(ErrorKind::Overloaded, message).retry_after_ms(1000)
            }
        })?;
        let (keys, now) = (self.keys.clone(), self.now());
        Ok(async move {
            keys.used().keep(state, now).await.map_err(|error| {
                log::warn!(error:%; "a state that a client came back with could not be kept");
                let message = "these answers are not taken: the gateway's state cannot be written now (its log says why); try again later";
                Failure::new(ErrorKind::Overloaded, message).retry_after_ms(1000)
            })
        })
    }

    /// The id by which a client knows a task of a server; it holds for this principal only
    /// (S-TASK-X-12).
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

    /// The same for a task that an actor of the gateway stands for; it is unknown after `ttl`.
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

    /// The task behind an id, if it was given to this principal.
    pub(crate) fn open_task(&self, id: &str, principal: &Principal) -> Option<TaskRef> {
        let principal = Digest::of_principal(principal.as_str());
        self.keys.tasks().open_task(id, &principal).ok()
    }

    /// Whether the server of a task is not the one that made it, but another of its name.
    pub(crate) fn is_replaced(&self, task: &TaskRef) -> bool {
        self.declaration(&task.server) != task.declaration
    }

    /// The time for what the gateway says of a task.
    pub(crate) fn timestamp(&self) -> String {
        rfc3339(self.keys.millis())
    }

    /// In seconds since 1970.
    pub(crate) fn now(&self) -> u64 {
        self.keys.now()
    }
}

/// The failure for a client that comes back with a state a second time.
pub(crate) fn state_used() -> Failure {
    let message = "`requestState` was used already: each is good for one return; send the request again without it";
    Failure::new(ErrorKind::InvalidParams, message)
}

impl fmt::Debug for Sealing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sealing")
    }
}

#[cfg(test)]
mod tests;
