//! A model of the engine, in memory.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::ready;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::{join, secret, spec};
use crate::cluster::engine::{
    Asked, BeatOutcome, Engine, EngineEpoch, EngineError, MemberRecord, Members, RecordAct,
    RecordAnswer, RecordOrder, RecordRow,
};
use crate::cluster::ids::{Incarnation, ReplicaNumber, ReplicaRef, Term};
use crate::cluster::{Cluster, ClusterSpec};

/// An engine that several replicas of one process share. Clones are the same engine.
#[derive(Clone, Default)]
pub(crate) struct MemoryEngine(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    records: HashMap<String, Expiring<Stored>>,
    joined: BTreeMap<ReplicaNumber, MemberRecord>,
    /// Incarnation and instance of the members that beat.
    lives: BTreeMap<ReplicaNumber, Expiring<(Incarnation, String)>>,
    incarnation: u64,
    /// How often the engine has lost everything.
    emptied: u64,
    away: bool,
}

struct Expiring<T> {
    value: T,
    expires: Instant,
}

/// A record, whose `fields` are empty: they are kept by name.
struct Stored {
    row: RecordRow,
    fields: BTreeMap<String, Bytes>,
}

impl MemoryEngine {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Lets a replica join that has this data directory and these secrets.
    pub(crate) async fn join(&self, instance: u128, secrets: &[&str]) -> Cluster {
        let engine: Arc<dyn Engine> = Arc::new(self.clone());
        let spec = ClusterSpec {
            secret: secret(secrets),
            ..spec(instance)
        };
        join(&engine, spec).await
    }

    /// Makes all requests fail, or work again.
    pub(crate) fn set_away(&self, away: bool) {
        self.0.lock().away = away;
    }

    /// Loses everything, as an engine without persistence that restarts.
    pub(crate) fn lose_all(&self) {
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
    pub(super) fn len(&self) -> usize {
        self.0.lock().records.len()
    }

    fn with<T: Send + 'static>(&self, act: impl FnOnce(&mut State) -> T) -> Asked<'_, T> {
        let mut state = self.0.lock();
        let result = if state.away {
            Err(EngineError::Away("it is switched off".to_owned()))
        } else {
            let now = Instant::now();
            state.records.retain(|_, row| row.expires > now);
            state.lives.retain(|_, life| life.expires > now);
            Ok(act(&mut state))
        };
        ready(result).boxed()
    }
}

impl State {
    fn carry_out(&mut self, key: String, order: RecordOrder) -> RecordAnswer {
        let RecordOrder { replica, term, act } = order;
        let found = self.records.get_mut(&key);
        let is_open = matches!(act, RecordAct::Open { .. });
        if let RecordAct::Save { record, ttl } | RecordAct::Open { record, ttl } = act {
            let stored = found
                .as_ref()
                .map(|found| (found.value.row.term, found.value.row.owner));
            let is_own = stored == Some((term, Some(replica)));
            if let Some((stored, owner)) = stored
                && (is_open || stored >= term && !is_own)
            {
                return RecordAnswer::Refused {
                    owner,
                    term: stored,
                };
            }
            let fields = found
                .filter(|_| is_own)
                .map(|found| std::mem::take(&mut found.value.fields));
            let row = RecordRow {
                owner: Some(replica),
                term,
                record,
                fields: Vec::new(),
                ttl,
            };
            let value = Stored {
                row,
                fields: fields.unwrap_or_default(),
            };
            self.records.insert(
                key,
                Expiring {
                    value,
                    expires: Instant::now() + ttl,
                },
            );
            return RecordAnswer::Done(term);
        }
        let Some(found) = found else {
            return RecordAnswer::Missing;
        };
        let stored = &mut found.value;
        let is_own = (stored.row.term, stored.row.owner) == (term, Some(replica));
        let refused = RecordAnswer::Refused {
            owner: stored.row.owner,
            term: stored.row.term,
        };
        let done = RecordAnswer::Done(stored.row.term);
        match act {
            // A released record has no owner, whatever the claimant last read.
            RecordAct::Claim { expected } if [None, expected].contains(&stored.row.owner) => {
                stored.row.owner = Some(replica);
                stored.row.term = Term(stored.row.term.max(term).0 + 1);
                found.expires = Instant::now() + stored.row.ttl;
                return RecordAnswer::Done(stored.row.term);
            }
            RecordAct::End if is_own || stored.row.term < term => {
                self.records.remove(&key);
            }
            RecordAct::Release if is_own => stored.row.owner = None,
            RecordAct::Field { name, value } if is_own => {
                match value {
                    Some(value) => stored.fields.insert(name, value),
                    None => stored.fields.remove(&name),
                };
            }
            _ => return refused,
        }
        done
    }

    fn put_member(&mut self, member: MemberRecord, ttl: Duration) {
        let (number, expires) = (member.number, Instant::now() + ttl);
        let value = (member.incarnation, member.instance.clone());
        self.lives.insert(number, Expiring { value, expires });
        self.joined.insert(number, member);
    }

    fn incarnation(&self, number: ReplicaNumber) -> Option<Incarnation> {
        Some(self.lives.get(&number)?.value.0)
    }

    fn seen(&self) -> Members {
        let living = self.lives.iter().map(|(number, life)| ReplicaRef {
            number: *number,
            incarnation: life.value.0,
        });
        Members {
            joined: self.joined.values().cloned().collect(),
            living: living.collect(),
            epoch: EngineEpoch {
                run: "memory".to_owned(),
                mark: self.emptied.to_string(),
            },
        }
    }
}

impl Engine for MemoryEngine {
    fn records(&self, orders: Vec<(String, RecordOrder)>) -> Asked<'_, Vec<RecordAnswer>> {
        self.with(|state| {
            let orders = orders.into_iter();
            orders
                .map(|(key, order)| state.carry_out(key, order))
                .collect()
        })
    }

    fn record(&self, name: String) -> Asked<'_, Option<RecordRow>> {
        self.with(|state| {
            let found = &state.records.get(&name)?.value;
            let fields = found.fields.values().cloned().collect();
            Some(RecordRow {
                fields,
                ..found.row.clone()
            })
        })
    }

    fn next_incarnation(&self) -> Asked<'_, Incarnation> {
        self.with(|state| {
            state.incarnation += 1;
            Incarnation(state.incarnation)
        })
    }

    fn take_number(&self, member: MemberRecord, ttl: Duration) -> Asked<'_, bool> {
        self.with(move |state| {
            let holder = state.lives.get(&member.number).map(|life| &life.value);
            let is_free = holder.is_none_or(|(incarnation, instance)| {
                *instance == member.instance && *incarnation < member.incarnation
            });
            if is_free {
                state.put_member(member, ttl);
            }
            is_free
        })
    }

    fn beat(&self, member: MemberRecord, ttl: Duration) -> Asked<'_, (BeatOutcome, Members)> {
        self.with(move |state| {
            let outcome = match state.incarnation(member.number) {
                None => BeatOutcome::Expired,
                Some(holder) if holder != member.incarnation => BeatOutcome::Replaced,
                Some(_) => {
                    state.put_member(member, ttl);
                    BeatOutcome::Kept
                }
            };
            (outcome, state.seen())
        })
    }

    fn members(&self) -> Asked<'_, Members> {
        self.with(|state| state.seen())
    }

    fn leave(&self, member: ReplicaRef) -> Asked<'_, ()> {
        self.with(|state| {
            let holder = state.incarnation(member.number);
            if holder.is_none_or(|holder| holder == member.incarnation) {
                state.lives.remove(&member.number);
                state.joined.remove(&member.number);
            }
        })
    }

    fn own_address(&self) -> Asked<'_, Option<String>> {
        self.with(|_| None)
    }

    fn failures(&self) -> u64 {
        0
    }
}
