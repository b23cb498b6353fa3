//! Which replicas are alive: what this replica knows, and the decisions that follow. No I/O.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::engine::{BeatOutcome, EngineEpoch, MemberRecord, Members};
#[cfg(test)]
use super::ids::Incarnation;
use super::ids::{ReplicaNumber, ReplicaRef};

/// A replica that joined and did not leave, as the last beat showed it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    pub(super) record: MemberRecord,
    /// Whether its beat is valid. If it has expired, the replica can still be alive.
    pub is_living: bool,
    /// When it was last seen living.
    pub(super) seen: Option<Instant>,
}

impl Member {
    pub fn replica(&self) -> ReplicaRef {
        self.record.replica()
    }

    /// Host and port where other replicas connect.
    pub fn address(&self) -> &str {
        &self.record.address
    }

    pub fn is_leaving(&self) -> bool {
        self.record.leaving
    }
}

/// Whether the sessions of a replica can be taken over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Gone,
    Alive,
    /// The engine does not answer, or the replica has not been a member for long enough to know.
    Unknown,
}

/// All replicas that this replica knows.
#[derive(Debug, Default)]
pub(super) struct MemberTable {
    pub(super) rows: BTreeMap<ReplicaNumber, Arc<Member>>,
    epoch: EngineEpoch,
    /// Since when the engine has shown one continuous epoch.
    settled: Option<Instant>,
}

impl MemberTable {
    /// Takes over what a beat showed.
    pub(super) fn learn(&mut self, members: &Members, now: Instant) {
        let mut former = std::mem::take(&mut self.rows);
        for record in &members.joined {
            let seen = former.remove(&record.number).and_then(|it| it.seen);
            let is_living = members.living.contains(&record.replica());
            let member = Member {
                record: record.clone(),
                is_living,
                seen: if is_living { Some(now) } else { seen },
            };
            self.rows.insert(record.number, Arc::new(member));
        }
        if self.settled.is_none() || self.epoch != members.epoch {
            self.settled = Some(now);
            self.epoch = members.epoch.clone();
            // An engine that lost its members does not make them gone.
            for (number, member) in former {
                let mut member = Arc::unwrap_or_clone(member);
                member.is_living = false;
                self.rows.insert(number, Arc::new(member));
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

/// Judges a replica by the incarnation of its number that lives.
pub(super) fn beside(who: ReplicaRef, living: ReplicaRef) -> Verdict {
    match who.incarnation.cmp(&living.incarnation) {
        Ordering::Less => Verdict::Gone,
        Ordering::Equal => Verdict::Alive,
        Ordering::Greater => Verdict::Unknown,
    }
}

/// Judges a replica by the engine: which incarnation of its number lives, unless its beat expired.
pub(super) fn judge(
    who: ReplicaRef,
    living: Option<ReplicaRef>,
    known: Option<&Member>,
    is_settled: bool,
) -> Judgement {
    let verdict = match (living, known) {
        (Some(living), _) => beside(who, living),
        (None, Some(known)) if known.replica() == who => {
            return Judgement::Ask(known.address().to_owned());
        }
        (None, Some(known)) if known.replica().incarnation > who.incarnation => Verdict::Gone,
        // It left, or the engine lost its members and it has not beaten since.
        (None, _) if is_settled => Verdict::Gone,
        (None, _) => Verdict::Unknown,
    };
    Judgement::Decided(verdict)
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
impl Member {
    /// A replica at `host:NUMBER`.
    pub(super) fn of(number: u16, incarnation: u64, is_living: bool) -> Self {
        let record = MemberRecord {
            number: ReplicaNumber(number),
            incarnation: Incarnation(incarnation),
            instance: String::new(),
            address: format!("host:{number}"),
            name: format!("gw-{number}"),
            version: "1".to_owned(),
            leaving: false,
            sessions: 0,
        };
        Self {
            record,
            is_living,
            seen: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members(living: &[(u16, u64)], joined: &[(u16, u64)], mark: &str) -> Members {
        let living = living.iter().map(|(n, i)| ReplicaRef::of(*n, *i));
        let joined = joined.iter().map(|(n, i)| Member::of(*n, *i, true).record);
        Members {
            joined: joined.collect(),
            living: living.collect(),
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
        let at = |incarnation| Some(Member::of(2, incarnation, false));
        let table = [
            // Its beat is valid, whatever else is known.
            (
                Some(ReplicaRef::of(2, 10)),
                at(10),
                true,
                Decided(Verdict::Alive),
            ),
            // A newer incarnation replaced it.
            (
                Some(ReplicaRef::of(2, 11)),
                at(10),
                true,
                Decided(Verdict::Gone),
            ),
            (None, at(11), true, Decided(Verdict::Gone)),
            // An older incarnation than what was read elsewhere proves nothing.
            (
                Some(ReplicaRef::of(2, 9)),
                at(10),
                true,
                Decided(Verdict::Unknown),
            ),
            // Its beat expired: it is asked.
            (None, at(10), true, Ask("host:2".to_owned())),
            (None, at(10), false, Ask("host:2".to_owned())),
            // It left, unless the engine lost its members.
            (None, None, true, Decided(Verdict::Gone)),
            (None, at(9), true, Decided(Verdict::Gone)),
            (None, None, false, Decided(Verdict::Unknown)),
        ];
        for (living, known, is_settled, expected) in table {
            let judged = judge(who, living, known.as_ref(), is_settled);
            assert_eq!(judged, expected, "{living:?} {known:?} {is_settled}");
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
        let both = [(1, 10), (2, 20)];
        table.learn(&members(&both, &both, "a"), start);
        let found = |table: &MemberTable, number| {
            let member = table.rows.get(&ReplicaNumber(number))?;
            Some((member.replica().incarnation.0, member.is_living))
        };
        assert_eq!(found(&table, 2), Some((20, true)));
        assert!(!table.is_settled(start, ttl) && table.is_settled(start + ttl, ttl));
        // Expired, then replaced, then left.
        table.learn(&members(&[(1, 10)], &both, "a"), start + ttl);
        assert_eq!(found(&table, 2), Some((20, false)));
        table.learn(&members(&[(1, 10)], &[(1, 10), (2, 30)], "a"), start + ttl);
        assert_eq!(found(&table, 2), Some((30, false)));
        table.learn(&members(&[(1, 10)], &[(1, 10)], "a"), start + ttl);
        assert_eq!(found(&table, 2), None);
        // An engine that lost its members does not make them gone.
        table.learn(&members(&[(3, 40)], &[(3, 40)], "b"), start + ttl);
        assert_eq!(found(&table, 1), Some((10, false)));
        assert_eq!(found(&table, 3), Some((40, true)));
        assert!(!table.is_settled(start + ttl, ttl));
    }
}
