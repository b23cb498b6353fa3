//! The states of a connection, with the data of each.

use std::rc::Rc;

use tokio::time::Instant;

use crate::downstream::call_sender::Senders;
use crate::downstream::connection::era_probe::EraProbe;
use crate::downstream::connection::handshake::Negotiated;
use crate::downstream::shared_link::SharedLink;
use crate::protocol::Revision;

pub(super) enum ConnectionState {
    /// The link is being opened.
    Opening,
    /// The first question was sent.
    Handshaking {
        senders: Box<Senders>,
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
    pub(super) senders: Senders,
    pub(super) negotiated: Negotiated,
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

    /// The senders over the link, while it is open.
    pub(super) fn senders(&self) -> Option<&Senders> {
        match self {
            Self::Handshaking { senders, .. } => Some(senders),
            Self::Ready(open) | Self::Renewing(open) => Some(&open.senders),
            Self::Opening | Self::Ending => None,
        }
    }

    pub(super) fn link(&self) -> Option<&Rc<SharedLink>> {
        self.senders().map(|senders| &senders.link)
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
        self.link()?.with(|link| link.is_read())?
    }

    /// When the next step of the opening is due.
    pub(super) fn opening_deadline(&self) -> Option<Instant> {
        match self {
            Self::Handshaking { era_probe, .. } => {
                Some(era_probe.deadline(self.is_read().is_some()))
            }
            Self::Opening | Self::Ready(_) | Self::Renewing(_) | Self::Ending => None,
        }
    }

    pub(super) fn is_modern(&self) -> bool {
        self.negotiated().is_some_and(Negotiated::is_modern)
    }
}
