//! Progress of a call, on its way to the client that asked for it.

use bytes::Bytes;

use crate::bridge::projection::project_progress;
use crate::id::ViewId;
use crate::protocol::{Notification, Request, Revision, splice};

/// The progress that a client asked for, with its token.
#[derive(Clone)]
pub(crate) struct Progress {
    /// Its token, raw; `None` when it wants none.
    token: Option<Bytes>,
    last: f64,
    /// The client sees one server only.
    is_of_only_server: bool,
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
            is_of_only_server: false,
        }
    }

    /// The same for a client of this view. A view of one server behaves like that server, so it passes
    /// progress as the server wrote it.
    pub(crate) fn of_view(mut self, view: &ViewId) -> Self {
        self.is_of_only_server = matches!(view, ViewId::Server(_));
        self
    }

    pub(crate) fn is_wanted(&self) -> bool {
        self.token.is_some()
    }

    /// The server's notification with the client's token; `None` when the client wants none, or
    /// the progress does not increase and the view has several servers (S-PROG-02).
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

    /// What of these values reaches a client of a view.
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
