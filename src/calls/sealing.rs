//! Sealed states and ids that travel through clients.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ring::rand::{SecureRandom as _, SystemRandom};
use uuid::Uuid;

use crate::bridge::seal::{
    Continuation, Digest, ExpectedBinding, RequestState, SealError, Sealer, SealingKey,
    StateBinding, TaskLifetime, TaskRef,
};
use crate::bridge::task::Task;
use crate::id::{Principal, ServerName};
use crate::protocol::{ErrorKind, Failure};
use crate::store::{Store, StoreError, WallClock};
use crate::telemetry::rfc3339;

/// Seals states for clients and opens them when they come back. Cheap to clone.
#[derive(Clone)]
pub struct Sealing {
    sealer: Arc<Sealer>,
    clock: WallClock,
}

/// Where the key is in the store.
const KEY: &str = "sealing/key";

impl Sealing {
    /// With the key of the process before this one, so that what it sealed stays valid; the
    /// first one makes the key.
    ///
    /// # Errors
    ///
    /// Fails when the store cannot be used, or the system has no random bytes.
    pub async fn load(store: &dyn Store, clock: WallClock) -> Result<Self, StoreError> {
        let kept = store.get(KEY).await?;
        let kept = kept.and_then(|bytes| <[u8; 32]>::try_from(bytes.as_ref()).ok());
        let secret = match kept {
            Some(secret) => secret,
            None => {
                let secret =
                    random().map_err(|error| StoreError::Unavailable(error.to_string()))?;
                store
                    .put(KEY, Bytes::copy_from_slice(&secret), None)
                    .await?;
                secret
            }
        };
        Ok(Self::new(secret, clock))
    }

    pub fn new(secret: [u8; 32], clock: WallClock) -> Self {
        let key = SealingKey::from_secret(secret);
        let sealer = Arc::new(Sealer::new(&key, None));
        Self { sealer, clock }
    }

    /// The `requestState` of an answer that asks the client for something; it holds for
    /// `ttl_seconds`.
    ///
    /// # Errors
    ///
    /// Returns why the client cannot be asked.
    pub(crate) fn seal(
        &self,
        binding: StateBinding,
        server: &ServerName,
        round: u8,
        continuation: Continuation,
        ttl_seconds: u64,
    ) -> Result<String, SealError> {
        let now = self.now();
        let state = RequestState {
            binding,
            issued_at: now,
            expires_at: now.saturating_add(ttl_seconds),
            server: server.clone(),
            generation: 0,
            round,
            id: random()?,
            continuation,
        };
        self.sealer.seal(&state, random()?)
    }

    /// # Errors
    ///
    /// Returns the one failure that every wrong state is answered with.
    pub(crate) fn open(
        &self,
        text: &str,
        binding: &StateBinding,
        server: &ServerName,
    ) -> Result<RequestState, Failure> {
        let expected = ExpectedBinding {
            binding,
            server,
            generation: 0,
        };
        let state = self.sealer.open(text, &expected, self.now());
        state.map_err(|error| Failure::new(ErrorKind::InvalidParams, error.to_string()))
    }

    /// The id by which a client knows a task of a server; it holds for this principal only
    /// (S-TASK-X-12).
    pub(crate) fn seal_task(
        &self,
        server: &ServerName,
        native: &str,
        principal: &Principal,
    ) -> Option<String> {
        let task = TaskRef {
            server: server.clone(),
            native: native.to_owned(),
            session: None,
            lifetime: None,
        };
        self.seal_task_ref(&task, principal)
    }

    /// The same for a task that an actor of the gateway stands for; it is unknown after `ttl`.
    pub(crate) fn seal_bridged_task(
        &self,
        server: &ServerName,
        task: &Task,
        handle: Uuid,
        ttl: Duration,
        principal: &Principal,
    ) -> Option<String> {
        let task = TaskRef {
            server: server.clone(),
            native: task.id.clone(),
            session: Some(handle.to_string()),
            lifetime: Some(TaskLifetime {
                created_at: task.created_at.clone()?,
                expires_at: self.now().saturating_add(ttl.as_secs()),
            }),
        };
        self.seal_task_ref(&task, principal)
    }

    fn seal_task_ref(&self, task: &TaskRef, principal: &Principal) -> Option<String> {
        let principal = Digest::of_principal(principal.as_str());
        self.sealer.seal_task(task, &principal).ok()
    }

    /// The task behind an id, if it was given to this principal.
    pub(crate) fn open_task(&self, id: &str, principal: &Principal) -> Option<TaskRef> {
        let principal = Digest::of_principal(principal.as_str());
        self.sealer.open_task(id, &principal).ok()
    }

    /// The time for what the gateway says of a task.
    pub(crate) fn timestamp(&self) -> String {
        rfc3339((self.clock)())
    }

    /// In seconds since 1970.
    pub(crate) fn now(&self) -> u64 {
        (self.clock)() / 1000
    }
}

fn random<const N: usize>() -> Result<[u8; N], SealError> {
    let mut bytes = [0; N];
    let filled = SystemRandom::new().fill(&mut bytes);
    filled.map_err(|_| SealError::Random)?;
    Ok(bytes)
}

impl fmt::Debug for Sealing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sealing")
    }
}
