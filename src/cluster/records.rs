//! The records of sessions in the engine: sealed, named by an HMAC of the id, fenced by owner and term.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf as _, BufMut as _, Bytes};
use uuid::Uuid;

use super::engine::{Engine, EngineError, RecordAnswer, RecordOrder};
use super::ids::{ReplicaRef, Term};
use super::membership::Own;
use super::sealing::Sealer;

/// How many records are released in one pipeline.
const RELEASED_AT_ONCE: usize = 1000;

const RECORD: &str = "record";
const FIELD: &str = "field";
const USED: &str = "used";

/// A record as it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredRecord {
    pub record: Bytes,
    /// Names and values of its fields.
    pub fields: Vec<(String, Bytes)>,
    /// `None` after a release.
    pub owner: Option<ReplicaRef>,
    pub term: Term,
}

/// Why a record was not written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SaveError {
    /// Another replica or a newer term has the session: this replica must end its copy.
    #[error("the session was taken over")]
    Stale,
    /// The engine lost the record: it must be saved as a whole.
    #[error("the engine does not have the session")]
    Missing,
    #[error(transparent)]
    Engine(#[from] EngineError),
}

/// Why a session was not claimed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ClaimError {
    #[error("another replica has the session")]
    Taken {
        /// `None` if it was released after the claimant read it: claim again.
        owner: Option<ReplicaRef>,
        term: Term,
    },
    /// The session ended or expired, or the engine lost it.
    #[error("the engine does not have the session")]
    Missing,
    #[error(transparent)]
    Engine(#[from] EngineError),
}

/// Reads and writes records as this replica. Every request takes at most 500 ms.
#[derive(Clone)]
pub struct Records {
    pub(super) engine: Arc<dyn Engine>,
    pub(super) sealer: Arc<Sealer>,
    pub(super) own: Arc<Own>,
}

impl fmt::Debug for Records {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Records")
    }
}

impl Records {
    /// Writes the record of a new session, whose owner this replica becomes.
    ///
    /// # Errors
    ///
    /// Fails if the engine is away. The session can be saved later under `Term(1)`.
    pub async fn open(&self, id: Uuid, record: Bytes, ttl: Duration) -> Result<Term, EngineError> {
        let order = RecordOrder::Open {
            owner: self.own.me(),
            record: self.sealer.seal(id, RECORD, &record)?,
            ttl,
        };
        match self.one(self.sealer.name(id), order).await? {
            RecordAnswer::Done(term) => Ok(term),
            _ => Err(EngineError::Refused("the id exists".to_owned())),
        }
    }

    /// Writes the record of a session of this replica and sets its lifetime. It also writes what
    /// the engine lost.
    ///
    /// # Errors
    ///
    /// [`SaveError::Stale`] if the session was taken over.
    pub async fn save(
        &self,
        id: Uuid,
        (owner, term): (ReplicaRef, Term),
        record: Bytes,
        ttl: Duration,
    ) -> Result<(), SaveError> {
        let order = RecordOrder::Save {
            owner,
            term,
            record: self.sealer.seal(id, RECORD, &record)?,
            ttl,
        };
        saved(self.one(self.sealer.name(id), order).await?)
    }

    /// Writes a record and all its fields, as after the engine lost them.
    ///
    /// # Errors
    ///
    /// As [`Self::save`].
    pub async fn save_whole(
        &self,
        id: Uuid,
        (owner, term): (ReplicaRef, Term),
        record: Bytes,
        fields: &[(String, Bytes)],
        ttl: Duration,
    ) -> Result<(), SaveError> {
        let key = self.sealer.name(id);
        let record = self.sealer.seal(id, RECORD, &record)?;
        let mut orders = vec![(
            key.clone(),
            RecordOrder::Save {
                owner,
                term,
                record,
                ttl,
            },
        )];
        for (name, value) in fields {
            let order = self.field_order(id, (owner, term), name, Some(value))?;
            orders.push((key.clone(), order));
        }
        let answers = self.engine.records(orders).await?;
        answers.into_iter().try_for_each(saved)
    }

    /// Writes or removes a field, such as a subscription.
    ///
    /// # Errors
    ///
    /// [`SaveError::Stale`] if the session was taken over, [`SaveError::Missing`] if the engine
    /// lost it.
    pub async fn save_field(
        &self,
        id: Uuid,
        holder: (ReplicaRef, Term),
        field: &str,
        value: Option<Bytes>,
    ) -> Result<(), SaveError> {
        let order = self.field_order(id, holder, field, value.as_ref())?;
        saved(self.one(self.sealer.name(id), order).await?)
    }

    /// Reads a record; `None` if there is none.
    ///
    /// # Errors
    ///
    /// Fails if the engine is away or the record cannot be opened.
    pub async fn read(&self, id: Uuid) -> Result<Option<StoredRecord>, EngineError> {
        let names = [Some(self.sealer.name(id)), self.sealer.other_name(id)];
        for name in names.into_iter().flatten() {
            if let RecordAnswer::Found {
                owner,
                term,
                record,
                fields,
                ..
            } = self.one(name, RecordOrder::Read).await?
            {
                let fields = fields.iter().map(|field| self.open_field(id, field));
                return Ok(Some(StoredRecord {
                    record: self.sealer.open(id, RECORD, &record)?,
                    fields: fields.collect::<Result<_, _>>()?,
                    owner,
                    term,
                }));
            }
        }
        Ok(None)
    }

    /// Makes this replica the owner of a session that has no owner, or that `expected` owns, which
    /// must be gone. A replica that claims twice, because an answer was lost, keeps its first term;
    /// it must not claim one session twice at the same time.
    ///
    /// # Errors
    ///
    /// [`ClaimError::Taken`] if another replica was faster.
    pub async fn claim(
        &self,
        id: Uuid,
        expected: Option<ReplicaRef>,
        term: Term,
    ) -> Result<Term, ClaimError> {
        let me = self.own.me();
        let order = RecordOrder::Claim {
            owner: me,
            expected,
            term,
        };
        let mut answer = self.one(self.sealer.name(id), order.clone()).await?;
        if answer == RecordAnswer::Missing
            && let Some(other) = self.sealer.other_name(id)
        {
            answer = self.one(other.clone(), order).await?;
            if let RecordAnswer::Done(term) = answer {
                self.move_to_first_secret(id, other, (me, term)).await?;
            }
        }
        match answer {
            RecordAnswer::Done(term) => Ok(term),
            RecordAnswer::Refused {
                owner: Some(owner),
                term,
            } if owner == me => Ok(term),
            RecordAnswer::Refused { owner, term } => Err(ClaimError::Taken { owner, term }),
            RecordAnswer::Missing | RecordAnswer::Found { .. } => Err(ClaimError::Missing),
        }
    }

    /// Seals a claimed record under the first secret, where its owner writes.
    async fn move_to_first_secret(
        &self,
        id: Uuid,
        other: String,
        (owner, term): (ReplicaRef, Term),
    ) -> Result<(), ClaimError> {
        let found = self.one(other.clone(), RecordOrder::Read).await?;
        let RecordAnswer::Found {
            record,
            fields,
            ttl,
            ..
        } = found
        else {
            return Err(ClaimError::Missing);
        };
        let record = self.sealer.open(id, RECORD, &record)?;
        let fields = fields.iter().map(|field| self.open_field(id, field));
        let fields = fields.collect::<Result<Vec<_>, _>>()?;
        let saved = self.save_whole(id, (owner, term), record, &fields, ttl);
        match saved.await {
            Ok(()) => {}
            Err(SaveError::Engine(error)) => return Err(error.into()),
            Err(SaveError::Stale | SaveError::Missing) => return Err(ClaimError::Missing),
        }
        // Should this fail, the record under the second secret expires.
        self.one(other, RecordOrder::End { owner, term }).await?;
        Ok(())
    }

    /// Gives up sessions, so that any replica can claim them. Sessions that were taken over stay.
    ///
    /// # Errors
    ///
    /// Fails if the engine is away; then the sessions move when this replica is gone.
    pub async fn release(&self, sessions: &[(Uuid, ReplicaRef, Term)]) -> Result<(), EngineError> {
        for chunk in sessions.chunks(RELEASED_AT_ONCE) {
            let order = |&(id, owner, term): &(Uuid, ReplicaRef, Term)| {
                (self.sealer.name(id), RecordOrder::Release { owner, term })
            };
            let orders = chunk.iter().map(order).collect();
            self.engine.records(orders).await?;
        }
        Ok(())
    }

    /// Deletes the record of a session that ended.
    ///
    /// # Errors
    ///
    /// [`SaveError::Stale`] if the session was taken over.
    pub async fn end(&self, id: Uuid, (owner, term): (ReplicaRef, Term)) -> Result<(), SaveError> {
        let order = RecordOrder::End { owner, term };
        match self.one(self.sealer.name(id), order).await? {
            RecordAnswer::Missing => Ok(()),
            answer => saved(answer),
        }
    }

    /// Marks an id that can be used once, for `ttl`. Returns false if any replica marked it before.
    ///
    /// # Errors
    ///
    /// Fails if the engine is away. The id can be marked all the same.
    pub async fn use_up(&self, id: Uuid, ttl: Duration) -> Result<bool, EngineError> {
        let names = [Some(self.sealer.name(id)), self.sealer.other_name(id)];
        let mut names: Vec<_> = names.into_iter().flatten().collect();
        // While the secret changes, replicas mark both names in the same order, so that one wins.
        names.sort_unstable();
        let record = self.sealer.seal(id, USED, &[])?;
        let orders = names.into_iter().map(|name| {
            let (owner, record) = (self.own.me(), record.clone());
            (name, RecordOrder::Open { owner, record, ttl })
        });
        let answers = self.engine.records(orders.collect()).await?;
        Ok((answers.iter()).all(|answer| matches!(answer, RecordAnswer::Done(_))))
    }

    fn field_order(
        &self,
        id: Uuid,
        (owner, term): (ReplicaRef, Term),
        field: &str,
        value: Option<&Bytes>,
    ) -> Result<RecordOrder, EngineError> {
        let seal = |value: &Bytes| {
            let mut plain = Vec::with_capacity(4 + field.len() + value.len());
            plain.put_u32(field.len() as u32);
            plain.put_slice(field.as_bytes());
            plain.put_slice(value);
            self.sealer.seal(id, FIELD, &plain)
        };
        Ok(RecordOrder::Field {
            owner,
            term,
            name: self.sealer.field_name(id, field),
            value: value.map(seal).transpose()?,
        })
    }

    fn open_field(&self, id: Uuid, sealed: &[u8]) -> Result<(String, Bytes), EngineError> {
        let mut plain = self.sealer.open(id, FIELD, sealed)?;
        let length = plain.try_get_u32().map_err(|_| EngineError::Damaged)? as usize;
        if length > plain.len() {
            return Err(EngineError::Damaged);
        }
        let name = plain.split_to(length);
        let name = String::from_utf8(name.into()).map_err(|_| EngineError::Damaged)?;
        Ok((name, plain))
    }

    async fn one(&self, name: String, order: RecordOrder) -> Result<RecordAnswer, EngineError> {
        let answers = self.engine.records(vec![(name, order)]).await?;
        answers.into_iter().next().ok_or(EngineError::Damaged)
    }
}

fn saved(answer: RecordAnswer) -> Result<(), SaveError> {
    match answer {
        RecordAnswer::Done(_) => Ok(()),
        RecordAnswer::Missing => Err(SaveError::Missing),
        RecordAnswer::Refused { .. } | RecordAnswer::Found { .. } => Err(SaveError::Stale),
    }
}
