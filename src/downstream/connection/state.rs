//! The states of a connection, with the data of each.

use tokio::time::Instant;

use crate::downstream::connection::era_probe::EraProbe;
use crate::downstream::connection::handshake::Negotiated;
use crate::downstream::in_flight::CallsInFlight;
use crate::downstream::worker_channel::{WorkerChannelCommand, WorkerChannelHandle};
use crate::protocol::Revision;

pub(super) enum ConnectionState {
    /// The link is being opened.
    Opening,
    /// The first question was sent.
    Handshaking {
        calls: Box<CallsInFlight>,
        era_probe: Box<EraProbe>,
    },
    Ready(Box<OpenConnection>),
    /// The server lost the session: a new handshake is in progress on the same link.
    Renewing(Box<OpenConnection>),
    /// The connection is closing, or its end was reported.
    Ending,
}

/// A connection whose handshake is done.
pub(super) struct OpenConnection {
    pub(super) calls: CallsInFlight,
    pub(super) negotiated: Negotiated,
    pub(super) worker_channels: Vec<WorkerChannelHandle>,
}

impl ConnectionState {
    /// Moves to the final state, and returns the previous one.
    pub(super) fn end(&mut self) -> Self {
        std::mem::replace(self, Self::Ending)
    }

    pub(super) const fn is_ready(&self) -> bool {
        matches!(self, Self::Ready(_))
    }

    pub(super) const fn is_ending(&self) -> bool {
        matches!(self, Self::Ending)
    }

    /// Calls over the link, while it is open.
    pub(super) fn calls(&self) -> Option<&CallsInFlight> {
        match self {
            Self::Handshaking { calls, .. } => Some(calls),
            Self::Ready(open) | Self::Renewing(open) => Some(&open.calls),
            Self::Opening | Self::Ending => None,
        }
    }

    pub(super) fn calls_mut(&mut self) -> Option<&mut CallsInFlight> {
        match self {
            Self::Handshaking { calls, .. } => Some(calls),
            Self::Ready(open) | Self::Renewing(open) => Some(&mut open.calls),
            Self::Opening | Self::Ending => None,
        }
    }

    /// The era probe, until the handshake is done.
    pub(super) fn era_probe(&mut self) -> Option<&mut EraProbe> {
        match self {
            Self::Handshaking { era_probe, .. } => Some(era_probe),
            Self::Opening | Self::Ready(_) | Self::Renewing(_) | Self::Ending => None,
        }
    }

    /// The result of the handshake; `None` before it.
    pub(super) fn negotiated(&self) -> Option<&Negotiated> {
        match self {
            Self::Ready(open) | Self::Renewing(open) => Some(&open.negotiated),
            Self::Opening | Self::Handshaking { .. } | Self::Ending => None,
        }
    }

    pub(super) fn revision(&self) -> Option<Revision> {
        self.negotiated().map(|negotiated| negotiated.revision)
    }

    /// Whether the server has read everything that was sent, if the transport can tell.
    pub(super) fn is_read(&self) -> Option<bool> {
        self.calls()?.link().is_read()
    }

    /// When the next step of the opening is due.
    pub(super) fn opening_deadline(&self) -> Option<Instant> {
        match self {
            Self::Handshaking { calls, era_probe } => {
                let tells_reading = calls.link().is_read().is_some();
                Some(era_probe.deadline(tells_reading))
            }
            Self::Opening | Self::Ready(_) | Self::Renewing(_) | Self::Ending => None,
        }
    }

    pub(super) fn worker_channels(&self) -> &[WorkerChannelHandle] {
        match self {
            Self::Ready(open) | Self::Renewing(open) => &open.worker_channels,
            Self::Opening | Self::Handshaking { .. } | Self::Ending => &[],
        }
    }

    pub(super) fn is_modern(&self) -> bool {
        self.negotiated().is_some_and(Negotiated::is_modern)
    }
}

impl OpenConnection {
    pub(super) fn channel(&self, arbiter: usize) -> Option<&WorkerChannelHandle> {
        let mut channels = self.worker_channels.iter();
        channels.find(|channel| channel.arbiter == arbiter)
    }

    /// Resends the requests that the server refused, now that the new handshake is done.
    pub(super) fn renewed(&mut self, wants_events: bool) {
        if !self.negotiated.is_modern() && wants_events {
            self.calls.link().listen();
        }
        self.calls.resend(Instant::now());
        if let Some(session) = self.calls.link().http_session() {
            for worker_channel in &self.worker_channels {
                let renewed = WorkerChannelCommand::Renewed(session.clone());
                worker_channel.address.do_send(renewed);
            }
        }
    }
}
