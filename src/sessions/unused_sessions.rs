//! Sessions that were opened but never used. They are ended to free slots before a client is
//! refused.

use std::collections::BTreeSet;

use parking_lot::Mutex;

use crate::id::{Holder, SessionId};

/// Minimum age, in seconds, at which an unused session can be ended. Younger ones may be used soon.
const AGE_MIN: u32 = 10;

/// The unused sessions, ordered by the second in which each was opened.
#[derive(Default)]
pub(crate) struct UnusedSessions(Mutex<OrderedSessions>);

#[derive(Default)]
struct OrderedSessions {
    by_age: BTreeSet<(u32, SessionId)>,
    by_holder: BTreeSet<(Holder, u32, SessionId)>,
}

impl UnusedSessions {
    pub(crate) fn add(&self, holder: &Holder, opened: u32, id: SessionId) {
        let mut sessions = self.0.lock();
        sessions.by_age.insert((opened, id));
        sessions.by_holder.insert((holder.clone(), opened, id));
    }

    /// Removes a session that was used or has ended.
    pub(crate) fn remove(&self, holder: &Holder, opened: u32, id: SessionId) {
        let mut sessions = self.0.lock();
        sessions.by_age.remove(&(opened, id));
        sessions.by_holder.remove(&(holder.clone(), opened, id));
    }

    /// Returns the oldest unused session of one client or of all.
    pub(crate) fn oldest(&self, of: Option<&Holder>, now: u32) -> Option<SessionId> {
        let sessions = self.0.lock();
        let oldest = match of {
            None => sessions.by_age.first().copied(),
            Some(holder) => {
                let mut own = sessions
                    .by_holder
                    .range((holder.clone(), 0, SessionId::FIRST)..);
                let own = own.next().filter(|(found, ..)| found == holder);
                own.map(|(_, opened, id)| (*opened, *id))
            }
        };
        let (_, id) = oldest.filter(|(opened, _)| opened.saturating_add(AGE_MIN) <= now)?;
        Some(id)
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::id::Peer;

    #[test]
    fn the_oldest_makes_room_first_and_no_young_one_does() {
        let unused = UnusedSessions::default();
        let peers = [1, 2].map(|last| Holder::Peer(Peer::of([10, 0, 0, last].into())));
        let id = |number| SessionId::new(Uuid::from_u128(number));
        unused.add(&peers[1], 100, id(3));
        unused.add(&peers[0], 101, id(2));
        unused.add(&peers[1], 102, id(1));
        let oldest = |of, now| unused.oldest(of, now);
        assert_eq!(oldest(None, 109), None);
        assert_eq!(oldest(None, 110), Some(id(3)));
        assert_eq!(oldest(Some(&peers[0]), 110), None);
        assert_eq!(oldest(Some(&peers[0]), 111), Some(id(2)));
        assert_eq!(oldest(Some(&peers[1]), 111), Some(id(3)));
        assert_eq!(oldest(Some(&Holder::Peer(Peer::Local)), 200), None);
        unused.remove(&peers[1], 100, id(3));
        assert_eq!(oldest(None, 200), Some(id(2)));
        assert_eq!(oldest(Some(&peers[1]), 200), Some(id(1)));
    }
}
