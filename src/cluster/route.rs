//! Decides what a replica does with a request that names a session: the request belongs here, to
//! another replica, or has to wait until a replica claims the session. Pure.

use std::sync::Arc;

use super::{Birthplace, Member, ReplicaNumber, ReplicaRef, Verdict};

/// Everything that a replica knows about the session of a request.
#[derive(Clone, Copy, Debug)]
pub struct Finding {
    /// This replica.
    pub me: ReplicaRef,
    /// Whether this replica leaves, so that it takes over no session.
    pub is_leaving: bool,
    /// Which replica minted the session's id.
    pub birthplace: Birthplace,
    pub copy: OwnCopy,
    /// The owner that the last request of the session found.
    pub known_owner: Option<ReplicaRef>,
    pub record: FoundRecord,
    /// The last attempt to forward the request.
    pub attempt: Option<(ReplicaRef, Attempt)>,
}

/// This replica's copy of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnCopy {
    None,
    /// The session is being opened, taken over or released here.
    Moving,
    /// This replica was away: another one can have taken the session over.
    Unconfirmed,
    Confirmed,
}

/// The session's record in the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FoundRecord {
    Unread,
    /// The engine did not answer.
    EngineAway,
    Missing,
    /// The engine has no record, but it can have lost it shortly before; its owner writes it again.
    Unsettled,
    /// The session was released and has no owner.
    Free,
    Owned(ReplicaRef),
}

/// How forwarding a request ended without an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attempt {
    /// The replica does not own the session (421).
    NotOwner,
    /// The replica could not be reached; the verdict says whether it is gone.
    Unreachable(Verdict),
    /// The replica was asked instead of tried, because its beat has expired.
    Probed(Verdict),
}

/// The next step of a replica with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Serve it as a single gateway would: the session is here, or does not exist.
    Serve,
    /// Forward it to this replica.
    Hop(ReplicaRef),
    /// Read the session's record.
    ReadRecord,
    /// Probe a replica whose beat has expired.
    Probe(ReplicaRef),
    /// Take the session over.
    Claim,
    /// Claim this replica's own copy again.
    Confirm,
    /// Let a replica that stays take the session over.
    HandOn,
    /// Hold the request, and look again shortly.
    Wait,
    /// Answer 503: no replica can decide it at the moment.
    Unavailable,
}

impl Finding {
    /// Decides the next step. `member` tells the state of a replica as of the last beat.
    pub fn action(&self, member: impl Fn(ReplicaNumber) -> Option<Arc<Member>>) -> Action {
        match (self.copy, self.birthplace) {
            (OwnCopy::Confirmed, _) => return Action::Serve,
            (OwnCopy::Unconfirmed, _) => return Action::Confirm,
            (OwnCopy::Moving, _) => return Action::Wait,
            (OwnCopy::None, Birthplace::Foreign) => return Action::Serve,
            (OwnCopy::None, Birthplace::Here | Birthplace::Replica(_)) => {}
        }
        match self.record {
            FoundRecord::Missing => Action::Serve,
            FoundRecord::EngineAway => Action::Unavailable,
            FoundRecord::Unsettled => Action::Wait,
            FoundRecord::Free => self.take(),
            // A former incarnation of this replica, or a claim that was not completed.
            FoundRecord::Owned(owner) if owner.number == self.me.number => {
                match owner.incarnation <= self.me.incarnation {
                    true => self.take(),
                    // Another process has this replica's number, which the next beat shows.
                    false => Action::Wait,
                }
            }
            FoundRecord::Owned(owner) => self.at(owner.number, Some(owner), member),
            FoundRecord::Unread => match (self.known_owner, self.birthplace) {
                (Some(owner), _) if owner.number != self.me.number => {
                    self.at(owner.number, Some(owner), member)
                }
                (None, Birthplace::Replica(number)) if number != self.me.number => {
                    self.at(number, None, member)
                }
                _ => Action::ReadRecord,
            },
        }
    }

    /// Decides what to do with a session that is probably at another replica. `owner` is `None` if
    /// only the number is known.
    fn at(
        &self,
        number: ReplicaNumber,
        owner: Option<ReplicaRef>,
        member: impl Fn(ReplicaNumber) -> Option<Arc<Member>>,
    ) -> Action {
        let Some(member) = member(number) else {
            return self.unlisted(owner);
        };
        let replica = member.replica();
        if owner.is_some_and(|owner| owner.incarnation < replica.incarnation) {
            return self.without_owner();
        }
        match self.attempt.filter(|(tried, _)| *tried == replica) {
            None if member.is_living => Action::Hop(replica),
            None => Action::Probe(replica),
            Some((_, Attempt::Probed(Verdict::Alive))) => Action::Hop(replica),
            Some((_, Attempt::NotOwner)) => match self.record {
                FoundRecord::Unread => Action::ReadRecord,
                // The record changed in the meantime, or is about to.
                _ => Action::Wait,
            },
            Some((_, Attempt::Unreachable(verdict) | Attempt::Probed(verdict))) => match verdict {
                Verdict::Gone => self.without_owner(),
                Verdict::Alive => Action::Wait,
                Verdict::Unknown => Action::Unavailable,
            },
        }
    }

    /// Decides what to do with a session whose owner was not a member at the last beat. It left, or
    /// it has joined since: only the engine knows.
    fn unlisted(&self, owner: Option<ReplicaRef>) -> Action {
        let Some(owner) = owner.filter(|_| self.record != FoundRecord::Unread) else {
            return Action::ReadRecord;
        };
        let attempt = self.attempt.filter(|(tried, _)| *tried == owner);
        match attempt.map(|(_, attempt)| attempt) {
            None | Some(Attempt::NotOwner) => Action::Probe(owner),
            Some(Attempt::Unreachable(verdict) | Attempt::Probed(verdict)) => match verdict {
                Verdict::Gone => self.take(),
                Verdict::Unknown => Action::Unavailable,
                Verdict::Alive => Action::Wait,
            },
        }
    }

    /// Decides what to do with a session whose supposed owner is certainly gone.
    fn without_owner(&self) -> Action {
        match self.record {
            FoundRecord::Unread => Action::ReadRecord,
            _ => self.take(),
        }
    }

    fn take(&self) -> Action {
        match self.is_leaving {
            true => Action::HandOn,
            false => Action::Claim,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Replica 2 lives in its incarnation 20, the beat of replica 3 has expired, and no other
    /// replica is a member.
    fn member(number: ReplicaNumber) -> Option<Arc<Member>> {
        match number.0 {
            2 => Some(Arc::new(Member::of(2, 20, true))),
            3 => Some(Arc::new(Member::of(3, 30, false))),
            _ => None,
        }
    }

    /// The knowledge of replica 1 about a session that replica 2 minted, before it did anything.
    fn minted_by(birthplace: Birthplace) -> Finding {
        Finding {
            me: ReplicaRef::of(1, 10),
            is_leaving: false,
            birthplace,
            copy: OwnCopy::None,
            known_owner: None,
            record: FoundRecord::Unread,
            attempt: None,
        }
    }

    const HERE: Birthplace = Birthplace::Here;
    const OF_2: Birthplace = Birthplace::Replica(ReplicaNumber(2));
    const OF_3: Birthplace = Birthplace::Replica(ReplicaNumber(3));
    const OF_4: Birthplace = Birthplace::Replica(ReplicaNumber(4));

    #[test]
    fn the_own_copy_decides_first() {
        let table = [
            (OwnCopy::Confirmed, OF_2, Action::Serve),
            (OwnCopy::Unconfirmed, OF_2, Action::Confirm),
            (OwnCopy::Moving, OF_2, Action::Wait),
            (OwnCopy::Moving, HERE, Action::Wait),
            // An id that no replica minted is a 404 without I/O.
            (OwnCopy::None, Birthplace::Foreign, Action::Serve),
        ];
        for (copy, birthplace, expected) in table {
            let finding = Finding {
                copy,
                ..minted_by(birthplace)
            };
            assert_eq!(finding.action(member), expected, "{copy:?} {birthplace:?}");
        }
    }

    #[test]
    fn a_request_goes_to_the_known_owner_or_to_the_birthplace() {
        let (two, three) = (ReplicaRef::of(2, 20), ReplicaRef::of(3, 30));
        let table = [
            (HERE, None, Action::ReadRecord),
            (OF_2, None, Action::Hop(two)),
            (OF_3, None, Action::Probe(three)),
            (OF_4, None, Action::ReadRecord),
            (HERE, Some(two), Action::Hop(two)),
            (OF_4, Some(two), Action::Hop(two)),
            (OF_2, Some(three), Action::Probe(three)),
            // A newer incarnation replaced the known owner.
            (HERE, Some(ReplicaRef::of(2, 19)), Action::ReadRecord),
            // This replica does not have it any more.
            (OF_2, Some(ReplicaRef::of(1, 10)), Action::ReadRecord),
        ];
        for (birthplace, known_owner, expected) in table {
            let finding = Finding {
                known_owner,
                ..minted_by(birthplace)
            };
            let action = finding.action(member);
            assert_eq!(action, expected, "{birthplace:?} {known_owner:?}");
        }
    }

    #[test]
    fn the_record_decides_when_the_birthplace_does_not() {
        use FoundRecord::{EngineAway, Free, Missing, Owned, Unsettled};
        let (two, three) = (ReplicaRef::of(2, 20), ReplicaRef::of(3, 30));
        let table = [
            // The only 404: the engine has no record.
            (Missing, false, Action::Serve),
            (EngineAway, false, Action::Unavailable),
            (Unsettled, false, Action::Wait),
            (Free, false, Action::Claim),
            (Free, true, Action::HandOn),
            (Owned(two), false, Action::Hop(two)),
            (Owned(two), true, Action::Hop(two)),
            (Owned(three), false, Action::Probe(three)),
            // It left, or it joined after the last beat.
            (
                Owned(ReplicaRef::of(4, 40)),
                false,
                Action::Probe(ReplicaRef::of(4, 40)),
            ),
            // A newer incarnation replaced it.
            (Owned(ReplicaRef::of(2, 19)), false, Action::Claim),
            (Owned(ReplicaRef::of(2, 19)), true, Action::HandOn),
            (Owned(ReplicaRef::of(3, 29)), false, Action::Claim),
            // A former or the present incarnation of this replica, which has no copy.
            (Owned(ReplicaRef::of(1, 9)), false, Action::Claim),
            (Owned(ReplicaRef::of(1, 10)), false, Action::Claim),
            // Another process has this replica's number.
            (Owned(ReplicaRef::of(1, 11)), false, Action::Wait),
            // The members are older than the record.
            (Owned(ReplicaRef::of(2, 21)), false, Action::Hop(two)),
        ];
        for (record, is_leaving, expected) in table {
            let finding = Finding {
                record,
                is_leaving,
                ..minted_by(HERE)
            };
            assert_eq!(finding.action(member), expected, "{record:?} {is_leaving}");
        }
    }

    #[test]
    fn a_session_moves_only_when_its_owner_is_certainly_gone() {
        use Attempt::{NotOwner, Probed, Unreachable};
        use FoundRecord::{Owned, Unread};
        use Verdict::{Alive, Gone, Unknown};
        let (two, three, four) = (
            ReplicaRef::of(2, 20),
            ReplicaRef::of(3, 30),
            ReplicaRef::of(4, 40),
        );
        let table = [
            (Unread, (two, NotOwner), Action::ReadRecord),
            (Owned(two), (two, NotOwner), Action::Wait),
            // A failed connection alone moves nothing.
            (Unread, (two, Unreachable(Alive)), Action::Wait),
            (Owned(two), (two, Unreachable(Alive)), Action::Wait),
            (Unread, (two, Unreachable(Unknown)), Action::Unavailable),
            (Unread, (two, Unreachable(Gone)), Action::ReadRecord),
            (Owned(two), (two, Unreachable(Gone)), Action::Claim),
            // An expired beat alone moves nothing.
            (Owned(three), (three, Probed(Alive)), Action::Hop(three)),
            (Owned(three), (three, Probed(Gone)), Action::Claim),
            (Owned(three), (three, Probed(Unknown)), Action::Unavailable),
            (Owned(three), (three, Unreachable(Gone)), Action::Claim),
            (Owned(three), (three, Unreachable(Alive)), Action::Wait),
            // A replica that was no member at the last beat can have joined since.
            (Owned(four), (four, Unreachable(Gone)), Action::Claim),
            (
                Owned(four),
                (four, Unreachable(Unknown)),
                Action::Unavailable,
            ),
            (Owned(four), (four, Probed(Alive)), Action::Wait),
            // The record names another owner than the one that was tried.
            (Owned(three), (two, NotOwner), Action::Probe(three)),
            (
                Owned(two),
                (ReplicaRef::of(2, 19), Unreachable(Gone)),
                Action::Hop(two),
            ),
        ];
        for (record, attempt, expected) in table {
            let finding = Finding {
                record,
                attempt: Some(attempt),
                ..minted_by(OF_2)
            };
            assert_eq!(finding.action(member), expected, "{record:?} {attempt:?}");
        }
    }
}
