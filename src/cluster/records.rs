//! The records of sessions in the engine: sealed, named by an HMAC of the id, fenced by owner and term.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf as _, BufMut as _, Bytes};
use parking_lot::RwLock;
use uuid::Uuid;

use super::engine::{Engine, EngineError, RecordAct, RecordAnswer, RecordOrder, RecordRow};
use super::ids::{ReplicaRef, Term};
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

/// A replica that holds a session, and the term under which it does.
pub type Holder = (ReplicaRef, Term);

/// Reads and writes records as this replica. Every request takes at most 500 ms.
#[derive(Clone)]
pub struct Records {
    pub(super) engine: Arc<dyn Engine>,
    pub(super) sealer: Arc<Sealer>,
    pub(super) own: Arc<RwLock<ReplicaRef>>,
}

impl fmt::Debug for Records {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Records")
    }
}

impl Records {
    /// Writes a record with fields and sets its lifetime: a new one, one of its holder, or one that
    /// the engine lost.
    ///
    /// # Errors
    ///
    /// [`SaveError::Stale`] if the session was taken over.
    pub async fn save(
        &self,
        id: Uuid,
        holder: Holder,
        record: Bytes,
        fields: &[(String, Bytes)],
        ttl: Duration,
    ) -> Result<(), SaveError> {
        let record = self.sealer.seal(id, RECORD, &record)?;
        let mut orders = vec![order(holder, RecordAct::Save { record, ttl })];
        for (name, value) in fields {
            orders.push(order(holder, self.field(id, name, Some(value))?));
        }
        let key = self.sealer.name(id);
        let orders = orders.into_iter().map(|order| (key.clone(), order));
        let answers = self.engine.records(orders.collect()).await?;
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
        holder: Holder,
        field: &str,
        value: Option<Bytes>,
    ) -> Result<(), SaveError> {
        let act = self.field(id, field, value.as_ref())?;
        saved(self.one(self.sealer.name(id), order(holder, act)).await?)
    }

    /// Reads a record; `None` if there is none.
    ///
    /// # Errors
    ///
    /// Fails if the engine is away or the record cannot be opened.
    pub async fn read(&self, id: Uuid) -> Result<Option<StoredRecord>, EngineError> {
        let names = [Some(self.sealer.name(id)), self.sealer.other_name(id)];
        for name in names.into_iter().flatten() {
            if let Some(row) = self.engine.record(name).await? {
                return self.open(id, row).map(Some);
            }
        }
        Ok(None)
    }

    fn open(&self, id: Uuid, row: RecordRow) -> Result<StoredRecord, EngineError> {
        let fields = row.fields.iter().map(|field| self.open_field(id, field));
        Ok(StoredRecord {
            record: self.sealer.open(id, RECORD, &row.record)?,
            fields: fields.collect::<Result<_, _>>()?,
            owner: row.owner,
            term: row.term,
        })
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
        let me = *self.own.read();
        let claim = order((me, term), RecordAct::Claim { expected });
        let mut answer = self.one(self.sealer.name(id), claim.clone()).await?;
        if answer == RecordAnswer::Missing
            && let Some(other) = self.sealer.other_name(id)
        {
            answer = self.one(other.clone(), claim).await?;
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
            RecordAnswer::Missing => Err(ClaimError::Missing),
        }
    }

    /// Seals a claimed record under the first secret, where its owner writes.
    async fn move_to_first_secret(
        &self,
        id: Uuid,
        other: String,
        holder: Holder,
    ) -> Result<(), ClaimError> {
        let row = self.engine.record(other.clone()).await?;
        let row = row.ok_or(ClaimError::Missing)?;
        let ttl = row.ttl;
        let StoredRecord { record, fields, .. } = self.open(id, row)?;
        match self.save(id, holder, record, &fields, ttl).await {
            Ok(()) => {}
            Err(SaveError::Engine(error)) => return Err(error.into()),
            Err(SaveError::Stale | SaveError::Missing) => return Err(ClaimError::Missing),
        }
        // Should this fail, the record under the second secret expires.
        self.one(other, order(holder, RecordAct::End)).await?;
        Ok(())
    }

    /// Gives up sessions, so that any replica can claim them. Sessions that were taken over stay.
    ///
    /// # Errors
    ///
    /// Fails if the engine is away; then the sessions move when this replica is gone.
    pub async fn release(&self, sessions: &[(Uuid, Holder)]) -> Result<(), EngineError> {
        let release = |&(id, holder): &(Uuid, Holder)| {
            (self.sealer.name(id), order(holder, RecordAct::Release))
        };
        for chunk in sessions.chunks(RELEASED_AT_ONCE) {
            let orders = chunk.iter().map(release).collect();
            self.engine.records(orders).await?;
        }
        Ok(())
    }

    /// Deletes the record of a session that ended.
    ///
    /// # Errors
    ///
    /// [`SaveError::Stale`] if the session was taken over.
    pub async fn end(&self, id: Uuid, holder: Holder) -> Result<(), SaveError> {
        let ended = order(holder, RecordAct::End);
        match self.one(self.sealer.name(id), ended).await? {
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
        let holder = (*self.own.read(), Term(1));
        let orders = names.into_iter().map(|name| {
            let record = record.clone();
            (name, order(holder, RecordAct::Open { record, ttl }))
        });
        let answers = self.engine.records(orders.collect()).await?;
        Ok((answers.iter()).all(|answer| matches!(answer, RecordAnswer::Done(_))))
    }

    fn field(
        &self,
        id: Uuid,
        field: &str,
        value: Option<&Bytes>,
    ) -> Result<RecordAct, EngineError> {
        let seal = |value: &Bytes| {
            let mut plain = Vec::with_capacity(4 + field.len() + value.len());
            plain.put_u32(field.len() as u32);
            plain.put_slice(field.as_bytes());
            plain.put_slice(value);
            self.sealer.seal(id, FIELD, &plain)
        };
        Ok(RecordAct::Field {
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

fn order((replica, term): Holder, act: RecordAct) -> RecordOrder {
    RecordOrder { replica, term, act }
}

fn saved(answer: RecordAnswer) -> Result<(), SaveError> {
    match answer {
        RecordAnswer::Done(_) => Ok(()),
        RecordAnswer::Missing => Err(SaveError::Missing),
        RecordAnswer::Refused { .. } => Err(SaveError::Stale),
    }
}
