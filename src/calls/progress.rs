//! Progress notifications of a call, translated for the client that asked for them.

use bytes::Bytes;

use crate::bridge::projection::project_progress;
use crate::id::ViewId;
use crate::protocol::{Notification, Request, Revision, splice};

/// A client's request for progress.
#[derive(Clone)]
pub(crate) struct Progress {
    /// The raw progress token; `None` if the client did not ask for progress.
    token: Option<Bytes>,
    last: f64,
    /// Whether the client's view has a single server.
    is_of_only_server: bool,
    /// The revision of the client.
    to: Revision,
}

impl Progress {
    /// Reads the progress token from a client's request.
    pub(crate) fn of(request: &Request, to: Revision) -> Self {
        Self {
            to,
            token: request.member(request.params.progress_token.as_ref()),
            last: f64::NEG_INFINITY,
            is_of_only_server: false,
        }
    }

    /// Adapts the progress to the client's view. A single-server view behaves like that server, so
    /// it forwards progress unchanged.
    pub(crate) fn of_view(mut self, view: &ViewId) -> Self {
        self.is_of_only_server = matches!(view, ViewId::Server(_));
        self
    }

    pub(crate) fn is_wanted(&self) -> bool {
        self.token.is_some()
    }

    /// Returns the server's notification with the client's token; `None` if the client did not ask
    /// for progress, or if the value does not increase and the view has several servers
    /// (S-PROG-02).
    pub(crate) fn frame(&mut self, notification: &Notification) -> Option<Bytes> {
        let token = self.token.clone()?;
        let progress = notification.member(notification.params.progress.as_ref())?;
        let progress: f64 = serde_json::from_slice(&progress).ok()?;
        if progress <= self.last && !self.is_of_only_server {
            return None;
        }
        self.last = progress;
        let span = notification.params.progress_token.clone()?;
        let mut edits = project_progress(notification, self.to);
        edits.push((span, token));
        Some(splice(notification.frame.as_bytes(), &mut edits))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::id::ServerName;
    use crate::protocol::Envelope;

    fn progress() -> Progress {
        let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call",
            "params": {"name": "x", "_meta": {"progressToken": "t"}}});
        match Envelope::parse(Bytes::from(call.to_string())) {
            Ok(Envelope::Request(call)) => Progress::of(&call, Revision::V2025_11_25),
            other => panic!("{other:?}"),
        }
    }

    /// Returns the progress values that a client of this view receives.
    fn reached(view: &ViewId, values: &[u64]) -> Vec<u64> {
        let mut progress = progress().of_view(view);
        let shown = values.iter().filter_map(|value| {
            let message = json!({"jsonrpc": "2.0", "method": "notifications/progress",
                "params": {"progressToken": 7, "progress": value}});
            let Ok(Envelope::Notification(said)) =
                Envelope::parse(Bytes::from(message.to_string()))
            else {
                panic!("{message}")
            };
            let frame: Value = serde_json::from_slice(&progress.frame(&said)?).unwrap();
            assert_eq!(frame["params"]["progressToken"], "t");
            frame["params"]["progress"].as_u64()
        });
        shown.collect()
    }

    #[test]
    fn s_prog_02_progress_goes_forward_except_of_the_only_server_of_a_view() {
        let values = [1, 3, 3, 2, 4];
        assert_eq!(reached(&ViewId::Default, &values), [1, 3, 4]);
        let one = ViewId::Server(ServerName::try_new("one").unwrap());
        assert_eq!(reached(&one, &values), values);
    }
}
