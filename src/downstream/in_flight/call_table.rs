//! The calls of a link by number, with their ids on the wire and their due times.

use tokio::time::Instant;

use crate::downstream::in_flight::call::InFlightCall;
use crate::id::QuickMap;
use crate::memory::TimerTable;

/// Messages on the link carry a request id, which differs from the call's number once the call was
/// resent.
#[derive(Default)]
pub(super) struct CallTable {
    calls: QuickMap<u64, InFlightCall>,
    /// The numbers of repeated calls, by their current id on the wire.
    renumbered: QuickMap<u64, u64>,
    /// Deadlines and other due times: by number for a call, by wire id for an abandoned request.
    pub(super) deadlines: TimerTable<u64>,
}

impl CallTable {
    pub(super) fn insert(&mut self, call: InFlightCall) {
        let (number, wire_id) = (call.number, call.wire_id);
        self.deadlines.set(number, call.due());
        if wire_id != number {
            self.renumbered.insert(wire_id, number);
        }
        self.calls.insert(number, call);
    }

    pub(super) fn remove(&mut self, number: u64) -> Option<InFlightCall> {
        let call = self.calls.remove(&number)?;
        self.deadlines.remove(&number);
        if call.wire_id != number {
            self.renumbered.remove(&call.wire_id);
        }
        Some(call)
    }

    /// Removes everything, and returns the calls.
    pub(super) fn take_all(&mut self) -> impl Iterator<Item = InFlightCall> + use<> {
        std::mem::take(self).calls.into_values()
    }

    pub(super) fn len(&self) -> usize {
        self.calls.len()
    }

    pub(super) fn get(&self, number: u64) -> Option<&InFlightCall> {
        self.calls.get(&number)
    }

    /// A call. Its wire id and its due time are changed with [`Self::update`] only.
    pub(super) fn get_mut(&mut self, number: u64) -> Option<&mut InFlightCall> {
        self.calls.get_mut(&number)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &InFlightCall> {
        self.calls.values()
    }

    /// Changes a call, which can get another wire id or another due time.
    pub(super) fn update<T>(
        &mut self,
        number: u64,
        change: impl FnOnce(&mut InFlightCall) -> T,
    ) -> Option<T> {
        let call = self.calls.get_mut(&number)?;
        let wire_id = call.wire_id;
        let changed = change(call);
        if call.wire_id != wire_id {
            self.renumbered.remove(&wire_id);
            self.renumbered.insert(call.wire_id, number);
        }
        let due = call.due();
        if self.deadlines.get(&number).is_none_or(|(at, _)| at != due) {
            self.deadlines.set(number, due);
        }
        Some(changed)
    }

    /// Numbers of the calls that meet a condition.
    pub(super) fn numbers(&self, matches: impl Fn(&InFlightCall) -> bool) -> Vec<u64> {
        let calls = self.calls.values().filter(|call| matches(call));
        calls.map(|call| call.number).collect()
    }

    /// The number of the call whose last request has this id.
    pub(super) fn by_wire_id(&self, wire_id: u64) -> Option<u64> {
        match self.calls.get(&wire_id) {
            Some(call) => (call.wire_id == wire_id).then_some(wire_id),
            None => self.renumbered.get(&wire_id).copied(),
        }
    }

    /// The call that continues as the task with this id.
    pub(super) fn by_task(&self, id: &str) -> Option<u64> {
        let mut calls = self.calls.values();
        let has_task = |call: &&InFlightCall| call.task.as_ref().is_some_and(|it| it.task.id == id);
        calls.find(has_task).map(|call| call.number)
    }

    pub(super) fn newest(&self) -> Option<&InFlightCall> {
        self.calls.values().max_by_key(|call| call.wire_id)
    }

    /// The newest call, if all calls belong to one client.
    pub(super) fn newest_of_sole_client(&self) -> Option<u64> {
        let newest = self.newest()?;
        let is_of_client = |call: &InFlightCall| {
            call.number == newest.number || call.caller.is_same_client(&newest.caller)
        };
        self.calls
            .values()
            .all(is_of_client)
            .then_some(newest.number)
    }

    /// The only call that requested log lines.
    pub(super) fn sole_logging_call(&self) -> Option<u64> {
        let logs = |call: &&InFlightCall| call.caller.level_of_calls().is_some();
        let mut logging = self.calls.values().filter(logs);
        let call = logging.next()?;
        logging.next().is_none().then_some(call.number)
    }

    /// The next number or wire id whose time has come.
    pub(super) fn pop_due(&mut self, now: Instant) -> Option<u64> {
        self.deadlines.pop_due(now).map(|(number, ())| number)
    }
}
