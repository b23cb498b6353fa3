//! Connectors that do what no good one does.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::LocalBoxFuture;
use mcpvisor::protocol::Revision;
use mcpvisor::transport::{
    Connector, EventSink, HttpSession, Link, LinkOpenError, OutgoingFrame, SendError,
};

/// Its links panic when they are given a frame with the word "poison".
pub(crate) struct PanickingConnector(pub(crate) Arc<dyn Connector>);

struct PanickingLink(Box<dyn Link>);

impl Connector for PanickingConnector {
    fn open(
        &self,
        sink: EventSink,
    ) -> LocalBoxFuture<'static, Result<Box<dyn Link>, LinkOpenError>> {
        let opening = self.0.open(sink);
        opening
            .map(|link| link.map(|link| Box::new(PanickingLink(link)) as Box<dyn Link>))
            .boxed_local()
    }

    fn starts_process(&self) -> bool {
        self.0.starts_process()
    }

    fn knows_call_of_requests(&self) -> bool {
        self.0.knows_call_of_requests()
    }

    fn transport(&self) -> &'static str {
        self.0.transport()
    }
}

impl Link for PanickingLink {
    fn send(&self, outgoing: OutgoingFrame) -> Result<(), SendError> {
        let text = String::from_utf8_lossy(&outgoing.frame);
        if text.contains("poison") {
            // A panic on which nobody comments.
            std::panic::resume_unwind(Box::new("panic on demand"));
        }
        self.0.send(outgoing)
    }

    fn forget(&self, call: u64) {
        self.0.forget(call);
    }

    fn set_revision(&self, _: Revision) {}

    fn set_session(&self, _: HttpSession) {}

    fn http_session(&self) -> Option<HttpSession> {
        None
    }

    fn listen(&self) {}

    fn close(self: Box<Self>, grace: Duration) -> LocalBoxFuture<'static, ()> {
        self.0.close(grace)
    }
}
