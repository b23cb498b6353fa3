//! When to look at which session again: buckets of one second, one wheel per arbiter, so that an
//! idle session costs no timer.

use std::collections::BTreeMap;

use crate::id::SessionId;

#[derive(Default)]
pub(crate) struct IdleWheel(BTreeMap<u32, Vec<SessionId>>);

impl IdleWheel {
    pub(crate) fn schedule(&mut self, session: SessionId, at_second: u32) {
        self.0.entry(at_second).or_default().push(session);
    }

    /// Takes out everything that is due.
    pub(crate) fn due(&mut self, now_second: u32) -> Vec<SessionId> {
        let later = self.0.split_off(&(now_second + 1));
        std::mem::replace(&mut self.0, later)
            .into_values()
            .flatten()
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn sessions_come_due_once_and_in_time() {
        let mut wheel = IdleWheel::default();
        let [a, b] = [1, 2].map(|n| SessionId::new(Uuid::from_u128(n)));
        wheel.schedule(a, 10);
        wheel.schedule(b, 12);
        assert_eq!(wheel.due(9), []);
        assert_eq!(wheel.due(11), [a]);
        assert_eq!(wheel.due(12), [b]);
        assert_eq!(wheel.due(100), []);
    }
}
