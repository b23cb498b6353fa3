//! An engine in memory, for tests and simulations.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, ready};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::{
    BeatAnswer, BeatOutcome, Engine, EngineEpoch, EngineError, MemberRecord, RecordAnswer,
    RecordOrder,
};
use crate::cluster::ids::{Incarnation, ReplicaNumber, ReplicaRef, Term};

/// An engine that several replicas of one process share. Clones are the same engine.
#[derive(Debug, Clone, Default)]
pub struct MemoryEngine(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    records: HashMap<String, Expiring<Row>>,
    members: BTreeMap<ReplicaNumber, Expiring<MemberRecord>>,
    joined: BTreeMap<ReplicaNumber, (ReplicaRef, String)>,
    incarnation: u64,
    /// How often the engine has lost everything.
    emptied: u64,
    away: bool,
}

#[derive(Debug, Clone)]
struct Expiring<T> {
    value: T,
    expires: Instant,
}

#[derive(Debug, Clone)]
struct Row {
    owner: Option<ReplicaRef>,
    term: Term,
    record: Bytes,
    fields: BTreeMap<String, Bytes>,
    ttl: Duration,
}

impl MemoryEngine {
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes all requests fail, or work again.
    pub fn set_away(&self, away: bool) {
        self.0.lock().away = away;
    }

    /// Loses everything, as an engine without persistence that restarts.
    pub fn lose_all(&self) {
        let mut state = self.0.lock();
        *state = State {
            // The real engine's clock continues.
            incarnation: state.incarnation,
            emptied: state.emptied + 1,
            away: state.away,
            ..State::default()
        };
    }

    /// The number of records.
    pub fn len(&self) -> usize {
        self.0.lock().records.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn with<T: Send + 'static>(
        &self,
        act: impl FnOnce(&mut State) -> T,
    ) -> BoxFuture<'_, Result<T, EngineError>> {
        let mut state = self.0.lock();
        let result = if state.away {
            Err(EngineError::Away("it is switched off".to_owned()))
        } else {
            state.expire();
            Ok(act(&mut state))
        };
        ready(result).boxed()
    }
}

impl State {
    fn expire(&mut self) {
        let now = Instant::now();
        self.records.retain(|_, row| row.expires > now);
        self.members.retain(|_, member| member.expires > now);
    }

    fn carry_out(&mut self, key: String, order: RecordOrder) -> RecordAnswer {
        let found = self.records.get_mut(&key);
        match (order, found) {
            (RecordOrder::Open { owner, record, ttl }, None) => {
                self.write(key, owner, Term(1), record, ttl)
            }
            (
                RecordOrder::Save {
                    owner,
                    term,
                    record,
                    ttl,
                },
                _,
            ) => self.save(key, (owner, term), record, ttl),
            (_, None) => RecordAnswer::Missing,
            (RecordOrder::Open { .. }, Some(row)) => row.value.refused(),
            (RecordOrder::Read, Some(row)) => row.value.found(),
            (
                RecordOrder::Claim {
                    owner,
                    expected,
                    term,
                },
                Some(row),
            ) => {
                let answer = row.value.claim(owner, expected, term);
                if matches!(answer, RecordAnswer::Done(_)) {
                    row.expires = Instant::now() + row.value.ttl;
                }
                answer
            }
            (RecordOrder::End { owner, term }, Some(row)) => {
                if row.value.term > term
                    || (row.value.term == term && row.value.owner != Some(owner))
                {
                    return row.value.refused();
                }
                let stored = row.value.term;
                self.records.remove(&key);
                RecordAnswer::Done(stored)
            }
            (
                RecordOrder::Field {
                    owner,
                    term,
                    name,
                    value,
                },
                Some(row),
            ) if row.value.is_of(owner, term) => {
                match value {
                    Some(value) => row.value.fields.insert(name, value),
                    None => row.value.fields.remove(&name),
                };
                RecordAnswer::Done(term)
            }
            (RecordOrder::Release { owner, term }, Some(row)) if row.value.is_of(owner, term) => {
                row.value.owner = None;
                RecordAnswer::Done(term)
            }
            (RecordOrder::Field { .. } | RecordOrder::Release { .. }, Some(row)) => {
                row.value.refused()
            }
        }
    }

    fn save(
        &mut self,
        key: String,
        (owner, term): (ReplicaRef, Term),
        record: Bytes,
        ttl: Duration,
    ) -> RecordAnswer {
        match self.records.get_mut(&key) {
            Some(row) if row.value.is_of(owner, term) => {
                row.value.record = record;
                row.value.ttl = ttl;
                row.expires = Instant::now() + ttl;
                RecordAnswer::Done(term)
            }
            Some(row) if row.value.term >= term => row.value.refused(),
            Some(_) | None => self.write(key, owner, term, record, ttl),
        }
    }

    fn write(
        &mut self,
        key: String,
        owner: ReplicaRef,
        term: Term,
        record: Bytes,
        ttl: Duration,
    ) -> RecordAnswer {
        let row = Row {
            owner: Some(owner),
            term,
            record,
            fields: BTreeMap::new(),
            ttl,
        };
        let expires = Instant::now() + ttl;
        self.records.insert(
            key,
            Expiring {
                value: row,
                expires,
            },
        );
        RecordAnswer::Done(term)
    }
}

impl Row {
    fn is_of(&self, owner: ReplicaRef, term: Term) -> bool {
        self.owner == Some(owner) && self.term == term
    }

    fn refused(&self) -> RecordAnswer {
        RecordAnswer::Refused {
            owner: self.owner,
            term: self.term,
        }
    }

    fn found(&self) -> RecordAnswer {
        RecordAnswer::Found {
            owner: self.owner,
            term: self.term,
            record: self.record.clone(),
            fields: self.fields.values().cloned().collect(),
            ttl: self.ttl,
        }
    }

    fn claim(
        &mut self,
        owner: ReplicaRef,
        expected: Option<ReplicaRef>,
        term: Term,
    ) -> RecordAnswer {
        // A released record has no owner, whatever the claimant last read.
        if self.owner.is_some() && self.owner != expected {
            return self.refused();
        }
        self.owner = Some(owner);
        self.term = Term(self.term.max(term).0 + 1);
        RecordAnswer::Done(self.term)
    }
}

impl Engine for MemoryEngine {
    fn records(
        &self,
        orders: Vec<(String, RecordOrder)>,
    ) -> BoxFuture<'_, Result<Vec<RecordAnswer>, EngineError>> {
        self.with(|state| {
            let orders = orders.into_iter();
            orders
                .map(|(key, order)| state.carry_out(key, order))
                .collect()
        })
    }

    fn next_incarnation(&self) -> BoxFuture<'_, Result<Incarnation, EngineError>> {
        self.with(|state| {
            state.incarnation += 1;
            Incarnation(state.incarnation)
        })
    }

    fn joined(&self) -> BoxFuture<'_, Result<Vec<(ReplicaRef, String)>, EngineError>> {
        self.with(|state| state.joined.values().cloned().collect())
    }

    fn take_number(
        &self,
        member: MemberRecord,
        ttl: Duration,
    ) -> BoxFuture<'_, Result<bool, EngineError>> {
        self.with(move |state| {
            let holder = state.members.get(&member.number);
            let free = holder.is_none_or(|holder| {
                holder.value.instance == member.instance
                    && holder.value.incarnation < member.incarnation
            });
            if free {
                let joined = (member.replica(), member.address.clone());
                state.joined.insert(member.number, joined);
                state.put_member(member, ttl);
            }
            free
        })
    }

    fn beat(
        &self,
        member: MemberRecord,
        ttl: Duration,
    ) -> BoxFuture<'_, Result<BeatAnswer, EngineError>> {
        self.with(move |state| {
            let holder = state.members.get(&member.number);
            let outcome = match holder {
                None => BeatOutcome::Expired,
                Some(holder) if holder.value.incarnation != member.incarnation => {
                    BeatOutcome::Replaced
                }
                Some(_) => {
                    state.put_member(member, ttl);
                    BeatOutcome::Kept
                }
            };
            BeatAnswer {
                outcome,
                living: state.members.values().map(|it| it.value.clone()).collect(),
                joined: state.joined.values().cloned().collect(),
                epoch: EngineEpoch {
                    run: "memory".to_owned(),
                    mark: state.emptied.to_string(),
                },
            }
        })
    }

    fn member(
        &self,
        number: ReplicaNumber,
    ) -> BoxFuture<'_, Result<Option<MemberRecord>, EngineError>> {
        self.with(|state| state.members.get(&number).map(|it| it.value.clone()))
    }

    fn leave(&self, member: ReplicaRef) -> BoxFuture<'_, Result<(), EngineError>> {
        self.with(|state| {
            let holder = state.members.get(&member.number);
            if holder.is_none_or(|holder| holder.value.incarnation == member.incarnation) {
                state.members.remove(&member.number);
                state.joined.remove(&member.number);
            }
        })
    }

    fn own_address(&self) -> BoxFuture<'_, Result<Option<String>, EngineError>> {
        self.with(|_| None)
    }

    fn failures(&self) -> u64 {
        0
    }
}

impl State {
    fn put_member(&mut self, member: MemberRecord, ttl: Duration) {
        let number = member.number;
        let expires = Instant::now() + ttl;
        self.members.insert(
            number,
            Expiring {
                value: member,
                expires,
            },
        );
    }
}
