//! The alarms of a call. The call table drives the alarms of all its calls with a single timer.

use std::time::Duration;

use tokio::time::Instant;

/// The event that a call waits for until a deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Alarm {
    /// The window for collecting further questions of the server has closed.
    QuestionsGathered,
    /// The client has not returned with its answers in time.
    ClientAbsent,
    /// The call is due to be sent again.
    Retry,
    /// The call's task has expired.
    TaskExpired,
    /// The server has not updated its task's status in time.
    TaskQuiet,
}

/// The alarms that a call has set, at most one of each kind.
#[derive(Default)]
pub(crate) struct Alarms(Vec<(Alarm, Instant)>);

impl Alarms {
    /// Sets an alarm, replacing an earlier setting of the same alarm.
    pub(crate) fn set(&mut self, alarm: Alarm, after: Duration) {
        self.clear(alarm);
        self.0.push((alarm, Instant::now() + after));
    }

    pub(crate) fn clear(&mut self, alarm: Alarm) {
        self.0.retain(|(set, _)| *set != alarm);
    }

    pub(crate) fn is_set(&self, alarm: Alarm) -> bool {
        self.0.iter().any(|(set, _)| *set == alarm)
    }

    pub(crate) fn earliest(&self) -> Option<Instant> {
        self.0.iter().map(|(_, at)| *at).min()
    }

    /// Removes and returns an alarm that is due.
    pub(crate) fn take_due(&mut self, now: Instant) -> Option<Alarm> {
        let due = self.0.iter().position(|(_, at)| *at <= now)?;
        Some(self.0.remove(due).0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn each_rings_once_when_it_is_due() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut alarms = Alarms::default();
        assert_eq!(alarms.earliest(), None);
        alarms.set(Alarm::ClientAbsent, Duration::from_secs(9));
        alarms.set(Alarm::TaskExpired, Duration::from_secs(5));
        alarms.set(Alarm::ClientAbsent, Duration::from_secs(3));
        alarms.set(Alarm::Retry, Duration::from_secs(1));
        alarms.clear(Alarm::Retry);
        assert_eq!(alarms.earliest(), Some(at(3)));
        assert_eq!(alarms.take_due(at(2)), None);
        assert!(alarms.is_set(Alarm::ClientAbsent));
        assert_eq!(alarms.take_due(at(3)), Some(Alarm::ClientAbsent));
        assert!(!alarms.is_set(Alarm::ClientAbsent));
        assert_eq!(alarms.take_due(at(100)), Some(Alarm::TaskExpired));
        assert_eq!(alarms.take_due(at(100)), None);
    }
}
