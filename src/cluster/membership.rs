//! Which replicas are alive: what this replica knows, and the decisions that follow. No I/O.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::RwLock;
use tokio::time::Instant;

use super::engine::{BeatAnswer, BeatOutcome, EngineEpoch, MemberRecord};
use super::ids::{Incarnation, ReplicaNumber, ReplicaRef};

/// Another replica, as the last beat showed it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Member {
    Living {
        address: String,
        incarnation: Incarnation,
        leaving: bool,
    },
    /// It does not beat any more, but it can still be alive.
    Expired {
        address: String,
        incarnation: Incarnation,
    },
    /// It left, or was never seen.
    Gone,
}

/// Whether the sessions of a replica can be taken over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Gone,
    Alive,
    /// The engine does not answer, or the replica has not been a member for long enough to know.
    Unknown,
}

/// This replica's reference, which changes when it could not beat for too long.
#[derive(Debug, Default)]
pub(super) struct Own(RwLock<ReplicaRef>);

impl Own {
    pub(super) fn me(&self) -> ReplicaRef {
        *self.0.read()
    }

    pub(super) fn set(&self, me: ReplicaRef) {
        *self.0.write() = me;
    }
}

/// A replica that joined and did not leave.
#[derive(Debug, Clone)]
pub(super) struct KnownReplica {
    pub(super) replica: ReplicaRef,
    pub(super) address: String,
    /// The row of its last beat; `None` if this replica has never seen one.
    pub(super) record: Option<MemberRecord>,
    pub(super) is_living: bool,
    /// When it was last seen living.
    pub(super) seen: Option<Instant>,
}

/// All replicas that this replica knows.
#[derive(Debug, Default)]
pub(super) struct MemberTable {
    pub(super) rows: BTreeMap<ReplicaNumber, KnownReplica>,
    epoch: EngineEpoch,
    /// Since when the engine has shown one continuous epoch.
    settled: Option<Instant>,
}

impl MemberTable {
    /// Takes over what a beat showed.
    pub(super) fn learn(&mut self, answer: &BeatAnswer, now: Instant) {
        let is_same_epoch = self.settled.is_some() && self.epoch == answer.epoch;
        if is_same_epoch {
            let joined = |number| answer.joined.iter().any(|(it, _)| it.number == number);
            self.rows.retain(|number, _| joined(*number));
        } else {
            self.settled = Some(now);
            self.epoch = answer.epoch.clone();
        }
        for row in self.rows.values_mut() {
            row.is_living = false;
        }
        for (replica, address) in &answer.joined {
            let row = self
                .rows
                .entry(replica.number)
                .or_insert_with(|| KnownReplica {
                    replica: *replica,
                    address: address.clone(),
                    record: None,
                    is_living: false,
                    seen: None,
                });
            row.replica = *replica;
            row.address.clone_from(address);
        }
        for record in &answer.living {
            let known = KnownReplica {
                replica: record.replica(),
                address: record.address.clone(),
                record: Some(record.clone()),
                is_living: true,
                seen: Some(now),
            };
            self.rows.insert(record.number, known);
        }
    }

    pub(super) fn member(&self, number: ReplicaNumber) -> Member {
        let Some(known) = self.rows.get(&number) else {
            return Member::Gone;
        };
        let (address, incarnation) = (known.address.clone(), known.replica.incarnation);
        if known.is_living {
            Member::Living {
                address,
                incarnation,
                leaving: known.record.as_ref().is_some_and(|it| it.leaving),
            }
        } else {
            Member::Expired {
                address,
                incarnation,
            }
        }
    }

    /// Whether each living replica has certainly shown itself: the engine kept its state for a
    /// whole `ttl`.
    pub(super) fn is_settled(&self, now: Instant, ttl: Duration) -> bool {
        self.settled.is_some_and(|since| now - since >= ttl)
    }
}

/// The next step towards knowing whether a replica is gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Judgement {
    Decided(Verdict),
    /// Its beat expired: the answer at this address decides.
    Ask(String),
}

/// Judges a replica by its row in the engine, which is missing if its beat expired.
pub(super) fn judge(
    who: ReplicaRef,
    stored: Option<&MemberRecord>,
    known: Option<(ReplicaRef, &str)>,
    is_settled: bool,
) -> Judgement {
    let decided = Judgement::Decided;
    if let Some(stored) = stored {
        return decided(if stored.incarnation > who.incarnation {
            Verdict::Gone
        } else if stored.incarnation == who.incarnation {
            Verdict::Alive
        } else {
            Verdict::Unknown
        });
    }
    match known {
        Some((known, address)) if known == who => Judgement::Ask(address.to_owned()),
        Some((known, _)) if known.incarnation > who.incarnation => decided(Verdict::Gone),
        // It left, or the engine lost its members and it has not beaten since.
        _ if is_settled => decided(Verdict::Gone),
        _ => decided(Verdict::Unknown),
    }
}

/// Judges a replica whose beat expired by its own answer, the second condition.
pub(super) fn judge_answer(who: ReplicaRef, answer: Option<ReplicaRef>) -> Verdict {
    if answer == Some(who) {
        Verdict::Alive
    } else {
        Verdict::Gone
    }
}

/// The reaction of a replica to the outcome of its beat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AfterBeat {
    Continue,
    /// Writes its row again under the same incarnation, because the engine lost it.
    Retake,
    /// Others may have taken its sessions: it claims them before it serves them.
    TakeIncarnation,
    /// Another replica has its number.
    JoinAgain,
}

pub(super) fn after_beat(
    outcome: BeatOutcome,
    engine_lost_writes: bool,
    since_last: Duration,
    ttl: Duration,
) -> AfterBeat {
    match outcome {
        BeatOutcome::Kept => AfterBeat::Continue,
        BeatOutcome::Replaced => AfterBeat::JoinAgain,
        BeatOutcome::Expired if engine_lost_writes && since_last < ttl => AfterBeat::Retake,
        BeatOutcome::Expired => AfterBeat::TakeIncarnation,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(number: u16, incarnation: u64) -> MemberRecord {
        MemberRecord {
            number: ReplicaNumber(number),
            incarnation: Incarnation(incarnation),
            instance: String::new(),
            address: format!("host:{number}"),
            name: format!("gw-{number}"),
            version: "1".to_owned(),
            leaving: false,
            sessions: 0,
        }
    }

    fn answer(living: &[(u16, u64)], joined: &[(u16, u64)], mark: &str) -> BeatAnswer {
        let joined = joined.iter().map(|(number, incarnation)| {
            let replica = ReplicaRef::of(*number, *incarnation);
            (replica, format!("host:{number}"))
        });
        BeatAnswer {
            outcome: BeatOutcome::Kept,
            living: living.iter().map(|(n, i)| record(*n, *i)).collect(),
            joined: joined.collect(),
            epoch: EngineEpoch {
                run: "run".to_owned(),
                mark: mark.to_owned(),
            },
        }
    }

    #[test]
    fn a_replica_is_gone_by_two_conditions_only() {
        use Judgement::{Ask, Decided};
        let who = ReplicaRef::of(2, 10);
        let at = |incarnation| Some((ReplicaRef::of(2, incarnation), "host:2"));
        let table = [
            // Its beat is valid, whatever else is known.
            (Some(record(2, 10)), at(10), true, Decided(Verdict::Alive)),
            // A newer incarnation replaced it.
            (Some(record(2, 11)), at(10), true, Decided(Verdict::Gone)),
            (None, at(11), true, Decided(Verdict::Gone)),
            // An older row than what was read elsewhere proves nothing.
            (Some(record(2, 9)), at(10), true, Decided(Verdict::Unknown)),
            // Its beat expired: it is asked.
            (None, at(10), true, Ask("host:2".to_owned())),
            (None, at(10), false, Ask("host:2".to_owned())),
            // It left, unless the engine lost its members.
            (None, None, true, Decided(Verdict::Gone)),
            (None, at(9), true, Decided(Verdict::Gone)),
            (None, None, false, Decided(Verdict::Unknown)),
        ];
        for (stored, known, is_settled, expected) in table {
            let judged = judge(who, stored.as_ref(), known, is_settled);
            assert_eq!(judged, expected, "{stored:?} {known:?} {is_settled}");
        }
        let answers = [
            (Some(who), Verdict::Alive),
            (Some(ReplicaRef::of(2, 11)), Verdict::Gone),
            (Some(ReplicaRef::of(3, 10)), Verdict::Gone),
            (None, Verdict::Gone),
        ];
        for (answer, expected) in answers {
            assert_eq!(judge_answer(who, answer), expected);
        }
    }

    #[test]
    fn an_expired_beat_costs_the_incarnation_unless_the_engine_lost_it() {
        let ttl = Duration::from_secs(5);
        let (soon, late) = (Duration::from_secs(2), ttl);
        use BeatOutcome::{Expired, Kept, Replaced};
        let table = [
            (Kept, false, soon, AfterBeat::Continue),
            (Kept, true, late, AfterBeat::Continue),
            (Expired, true, soon, AfterBeat::Retake),
            (Expired, true, late, AfterBeat::TakeIncarnation),
            (Expired, false, soon, AfterBeat::TakeIncarnation),
            (Expired, false, late, AfterBeat::TakeIncarnation),
            (Replaced, false, soon, AfterBeat::JoinAgain),
            (Replaced, true, late, AfterBeat::JoinAgain),
        ];
        for (outcome, lost, since, expected) in table {
            assert_eq!(after_beat(outcome, lost, since, ttl), expected);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_table_follows_the_beats() {
        let mut table = MemberTable::default();
        let (start, ttl) = (Instant::now(), Duration::from_secs(5));
        table.learn(
            &answer(&[(1, 10), (2, 20)], &[(1, 10), (2, 20)], "a"),
            start,
        );
        let living = |number, incarnation| Member::Living {
            address: format!("host:{number}"),
            incarnation: Incarnation(incarnation),
            leaving: false,
        };
        let expired = |number, incarnation| Member::Expired {
            address: format!("host:{number}"),
            incarnation: Incarnation(incarnation),
        };
        assert_eq!(table.member(ReplicaNumber(2)), living(2, 20));
        assert!(!table.is_settled(start, ttl) && table.is_settled(start + ttl, ttl));
        // Expired, then replaced, then left.
        table.learn(&answer(&[(1, 10)], &[(1, 10), (2, 20)], "a"), start + ttl);
        assert_eq!(table.member(ReplicaNumber(2)), expired(2, 20));
        table.learn(&answer(&[(1, 10)], &[(1, 10), (2, 30)], "a"), start + ttl);
        assert_eq!(table.member(ReplicaNumber(2)), expired(2, 30));
        table.learn(&answer(&[(1, 10)], &[(1, 10)], "a"), start + ttl);
        assert_eq!(table.member(ReplicaNumber(2)), Member::Gone);
        // An engine that lost its members does not make them gone.
        table.learn(&answer(&[(3, 40)], &[(3, 40)], "b"), start + ttl);
        assert_eq!(table.member(ReplicaNumber(1)), expired(1, 10));
        assert_eq!(table.member(ReplicaNumber(3)), living(3, 40));
        assert!(!table.is_settled(start + ttl, ttl));
    }
}
