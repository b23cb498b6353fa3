//! Sink to which the tasks of a link report events.

use std::cell::Cell;

use super::{EventSink, LinkEvent};

/// Forwards events until the link is muted.
pub(super) struct LinkSink {
    events: EventSink,
    is_muted: Cell<bool>,
}

impl LinkSink {
    pub(super) fn new(events: EventSink) -> Self {
        Self {
            events,
            is_muted: Cell::new(false),
        }
    }

    pub(super) fn send(&self, event: LinkEvent) {
        if !self.is_muted() {
            (self.events)(event);
        }
    }

    pub(super) fn mute(&self) {
        self.is_muted.set(true);
    }

    pub(super) fn is_muted(&self) -> bool {
        self.is_muted.get()
    }
}
