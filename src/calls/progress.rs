//! Progress of a call, on its way to the client that asked for it.

use bytes::Bytes;

use crate::bridge::projection::project_progress;
use crate::protocol::{Notification, Request, Revision, splice};

/// The progress that a client asked for, with its token.
#[derive(Clone)]
pub(crate) struct Progress {
    /// Its token, raw; `None` when it wants none.
    token: Option<Bytes>,
    last: f64,
    /// The revision of the client.
    to: Revision,
}

impl Progress {
    /// As the client asks for it in its request.
    pub(crate) fn of(request: &Request, to: Revision) -> Self {
        Self {
            to,
            token: request.member(request.params.progress_token.as_ref()),
            last: f64::NEG_INFINITY,
        }
    }

    pub(crate) fn is_wanted(&self) -> bool {
        self.token.is_some()
    }

    /// The server's notification with the client's token; `None` when the client wants none, or
    /// the progress does not go forward (S-PROG-02).
    pub(crate) fn frame(&mut self, notification: &Notification) -> Option<Bytes> {
        let token = self.token.clone()?;
        let progress = notification.member(notification.params.progress.as_ref())?;
        let progress: f64 = serde_json::from_slice(&progress).ok()?;
        if progress <= self.last {
            return None;
        }
        self.last = progress;
        let span = notification.params.progress_token.clone()?;
        let mut edits = project_progress(notification, self.to);
        edits.push((span, token));
        Some(splice(notification.frame.as_bytes(), &mut edits))
    }
}
