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
use crate::bridge::task::{Task, id_span};
use crate::calls::kept_results;
use crate::calls::settings::SessionSettings;
use crate::cluster::{Birthplace, ReplicaNumber};
use crate::downstream::{Downstreams, TransportSettings};
use crate::id::{Principal, ServerName};
use crate::protocol::{ErrorKind, Failure, Method, Request, json::text};
use crate::telemetry::rfc3339;

pub use sealing_keys::SealingKeys;
pub(crate) use used_states::ReturnedState;

use sealing_keys::random;
use used_states::{KeepError, TakeError};

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

/// The replica that parks a call, represents a task, or keeps a result.
pub(crate) struct Elsewhere {
    pub(crate) number: ReplicaNumber,
    /// The handle of the call or result; `None` for a task that only the process of a server knows.
    pub(crate) handle: Option<Uuid>,
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
        settings: &SessionSettings,
    ) -> Result<RequestState, Failure> {
        self.keys.change_if_due(settings);
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
        Ok(async move { keys.used().keep(state, now).await.map_err(not_kept) })
    }

    /// Marks the used states again, after the engine of the cluster can have lost their marks.
    pub(crate) async fn mark_again(self) {
        self.keys.used().mark_again(self.keys.now()).await;
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
            replica: self.replica_of_tasks(server),
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
            // The handle names it.
            replica: None,
            lifetime: Some(TaskLifetime {
                created_at: task.created_at.clone()?,
                expires_at: self.now().saturating_add(ttl.as_secs()),
                tool: tool.to_owned(),
            }),
        };
        self.seal_task_ref(&task, principal)
    }

    /// Returns this replica's number if a server's tasks are known only to the process that this
    /// replica runs.
    fn replica_of_tasks(&self, server: &ServerName) -> Option<u16> {
        let cluster = self.keys.cluster()?;
        let settings = self.servers.get(server)?.settings();
        let is_local = matches!(settings.transport, TransportSettings::Stdio(_));
        is_local.then(|| cluster.me().number.0)
    }

    /// Returns the other replica that a returned state, a task id or the URI of a kept result names;
    /// `None` if it names this one or none. The other properties of the request are not checked.
    pub(crate) fn elsewhere(
        &self,
        request: &Request,
        principal: &Principal,
        settings: &SessionSettings,
    ) -> Option<Elsewhere> {
        let cluster = self.keys.cluster()?;
        let handle = match request.request_state() {
            Some(state) => {
                self.keys.change_if_due(settings);
                let sealer = &self.keys.states().sealer;
                match sealer.continuation(&state, &request.method).ok()? {
                    Continuation::Owned { handle, .. } => handle,
                    // Any replica can continue the call.
                    Continuation::Pass { .. } | Continuation::Reissue { .. } => return None,
                }
            }
            None if request.method == Method::ResourcesRead => kept_results::id_in(request)?,
            None => {
                let span = id_span(request)?;
                let id = text(request.frame.as_str().get(span)?)?;
                let task = self.open_task(&id, principal)?;
                if let Some(number) = task.replica.map(ReplicaNumber) {
                    let handle = None;
                    let is_other = number != cluster.me().number;
                    return is_other.then_some(Elsewhere { number, handle });
                }
                task.session?
            }
        };
        let handle = Uuid::try_parse(&handle).ok()?;
        match cluster.birthplace(handle) {
            Birthplace::Replica(number) => Some(Elsewhere {
                number,
                handle: Some(handle),
            }),
            Birthplace::Here | Birthplace::Foreign => None,
        }
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

/// Returns the failure that the client reads when the use of its state was not recorded, so that
/// its call does not start.
fn not_kept(error: KeepError) -> Failure {
    let (kind, message) = match error {
        KeepError::Used => return state_used(),
        KeepError::Store(_) => (
            ErrorKind::Overloaded,
            "answers refused: the gateway cannot write to its store (see its log); try again later",
        ),
        KeepError::Engine(_) => (
            ErrorKind::ReplicaUnavailable,
            "answers refused: the engine of the cluster, which knows whether another replica used them, is unavailable; try again later",
        ),
    };
    log::warn!(error:%; "could not record that a request state was used; refusing the answers");
    Failure::new(kind, message).retry_after_ms(1000)
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
