//! Senders of one HTTP session on several threads; the one place here where time is real.

use std::cell::Cell;
use std::num::NonZeroUsize;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use actix::System;
use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::LocalBoxFuture;
use mcpvisor::downstream::Sharing;
use mcpvisor::protocol::Revision;
use mcpvisor::supervision::Arbiters;
use mcpvisor::transport::{
    Connector, EventSink, HttpSession, Link, LinkError, LinkOpenError, OutgoingFrame, SendError,
};
use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::sim::client::{Client, Exchange};
use crate::sim::server::{Server, text};
use crate::sim::world::{Plan, World};

/// Gives a connection in memory what Streamable HTTP has: a session, and senders on other threads.
struct WithSenders(Arc<dyn Connector>);

struct SessionLink {
    inner: Box<dyn Link>,
    /// How often another session was begun.
    session: Cell<u32>,
    close_takes: Duration,
}

impl Connector for WithSenders {
    fn open(
        &self,
        sink: EventSink,
    ) -> LocalBoxFuture<'static, Result<Box<dyn Link>, LinkOpenError>> {
        let opening = self.0.open(sink);
        opening.map(|link| link.map(session_link)).boxed_local()
    }

    fn worker_link(&self, _: HttpSession, sink: EventSink) -> Option<Box<dyn Link>> {
        let opened = self.0.open(sink).now_or_never()?;
        opened.ok().map(session_link)
    }

    fn knows_call_of_requests(&self) -> bool {
        true
    }

    fn transport(&self) -> &'static str {
        "senders"
    }
}

fn session_link(inner: Box<dyn Link>) -> Box<dyn Link> {
    let close_takes = Duration::from_millis(200);
    Box::new(SessionLink {
        inner,
        session: Cell::new(0),
        close_takes,
    })
}

impl Link for SessionLink {
    fn send(&self, outgoing: OutgoingFrame) -> Result<(), SendError> {
        if String::from_utf8_lossy(&outgoing.frame).contains("poison") {
            // A panic on which nobody comments.
            std::panic::resume_unwind(Box::new("panic on demand"));
        }
        self.inner.send(outgoing)
    }

    fn forget(&self, call: u64) {
        self.inner.forget(call);
    }

    fn set_revision(&self, _: Revision) {}

    fn set_session(&self, session: HttpSession) {
        if session.id.is_none() {
            self.session.set(self.session.get() + 1);
        }
    }

    fn listen(&self) {}

    fn http_session(&self) -> Option<HttpSession> {
        let revision = Revision::NEWEST_LEGACY;
        Some(HttpSession {
            id: Some(self.session.get().to_string()),
            revision,
            cookies: Default::default(),
        })
    }

    /// As a goodbye over HTTP does, this one takes a moment and tells the server.
    fn close(self: Box<Self>, _: Duration) -> LocalBoxFuture<'static, ()> {
        async move {
            sleep(self.close_takes).await;
            let goodbye = Bytes::from(r#"{"jsonrpc":"2.0","method":"goodbye"}"#);
            let _ = self.inner.send(OutgoingFrame::new(None, goodbye));
            sleep(Duration::from_millis(50)).await;
        }
        .boxed_local()
    }
}

async fn until(what: &str, holds: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !holds() {
        assert!(Instant::now() < deadline, "it never came to hold: {what}");
        sleep(Duration::from_millis(1)).await;
    }
}

struct SenderFixture {
    world: Rc<World>,
    arbiters: Arbiters,
    server: Server,
}

impl SenderFixture {
    async fn start() -> Self {
        let arbiters = Arbiters::start(NonZeroUsize::new(2).unwrap()).unwrap();
        let world = Rc::new(World::on(arbiters.clone(), |_| {}));
        let server = world.start("a", true, |plan: &mut Plan| {
            plan.wrap = Some(Box::new(|inner| Arc::new(WithSenders(inner))));
            // A session of one client has one sender.
            plan.settings.sharing = Sharing::Shared;
        });
        until("listed", || world.catalog.snapshot().tools().count() == 3).await;
        until("senders", || server.links() == 2).await;
        Self {
            world,
            arbiters,
            server,
        }
    }

    /// One client on each thread.
    async fn clients(&self) -> [Client; 2] {
        [
            self.world.client_on(0, json!({})).await,
            self.world.client_on(1, json!({})).await,
        ]
    }

    /// A call of each client, which come on a link each.
    async fn held(&self, clients: &[Client; 2], before: usize) -> [Exchange; 2] {
        let exchanges = [
            clients[0].call("a__hold").await,
            clients[1].call("a__hold").await,
        ];
        until("calls", || self.server.held().len() == before + 2).await;
        exchanges
    }
}

fn run_real(test: impl Future<Output = ()>) {
    System::new().block_on(test);
}

#[test]
fn calls_of_each_thread_have_a_way_of_their_own() {
    run_real(async {
        let fixture = SenderFixture::start().await;
        let clients = fixture.clients().await;
        let exchanges = fixture.held(&clients, 0).await;
        let held = fixture.server.held();
        assert_ne!(held[0].link, held[1].link);
        assert_eq!(fixture.world.view("a").in_flight, 2);
        clients[1].cancel(&exchanges[1]).await;
        until("cancelled", || {
            fixture.server.of("notifications/cancelled").len() == 1
        })
        .await;
        let mine = held
            .iter()
            .find(|call| call.call == Some(exchanges[0].number));
        fixture.server.answer(mine.unwrap(), text(json!("done")));
        until("answered", || {
            exchanges[0].is_over() && exchanges[1].is_over()
        })
        .await;
        exchanges[0].result();
        assert!(exchanges[1].messages().is_empty());
        until("in flight", || fixture.world.view("a").in_flight == 0).await;
        fixture.arbiters.stop(Duration::from_secs(5)).await.unwrap();
    });
}

#[test]
fn a_renewal_resends_what_was_refused_at_every_sender() {
    run_real(async {
        let fixture = SenderFixture::start().await;
        let clients = fixture.clients().await;
        let exchanges = fixture.held(&clients, 0).await;
        fixture.server.forget_session(0);
        for call in fixture.server.held() {
            fixture.server.session_gone(&call);
        }
        until("sent again", || fixture.server.held().len() == 4).await;
        for call in &fixture.server.held()[2..] {
            fixture.server.answer(call, text(json!("done")));
        }
        until("answered", || exchanges.iter().all(Exchange::is_over)).await;
        exchanges[0].result();
        exchanges[1].result();
        assert_eq!(fixture.world.view("a").shared.generation, 1);
        fixture.arbiters.stop(Duration::from_secs(5)).await.unwrap();
    });
}

#[test]
fn a_sender_that_panics_restarts_the_connection_and_every_call_is_answered() {
    run_real(async {
        let fixture = SenderFixture::start().await;
        let clients = fixture.clients().await;
        let exchanges = fixture.held(&clients, 0).await;
        let other_thread = fixture.server.held().iter().map(|call| call.link).max();
        assert_eq!(other_thread, Some(1));
        let of_other = fixture.server.held().iter().position(|call| call.link == 1);
        let params = json!({"name": "a__hold", "poison": true});
        let poisoned = clients[of_other.unwrap()]
            .request("tools/call", params)
            .await;
        let all = [&exchanges[0], &exchanges[1], &poisoned];
        until("answered", || all.iter().all(|exchange| exchange.is_over())).await;
        for exchange in &exchanges {
            assert_eq!(exchange.failure()["code"], "server_lost");
        }
        // It died with its sender before it was sent: it certainly did not run.
        assert_eq!(poisoned.failure()["code"], "server_unavailable");
        until("up again", || {
            let view = fixture.world.view("a").shared;
            view.generation == 2 && view.phase.to_string() == "up"
        })
        .await;
        let view = fixture.world.view("a");
        assert_eq!((view.in_flight, view.shared.panics), (0, 1));
        for client in &clients {
            let exchange = client.call("a__echo").await;
            until("served again", || exchange.is_over()).await;
            exchange.result();
        }
        fixture.arbiters.stop(Duration::from_secs(5)).await.unwrap();
    });
}

#[test]
fn a_call_that_fails_at_a_sender_makes_the_connection_check_the_server() {
    run_real(async {
        let fixture = SenderFixture::start().await;
        let clients = fixture.clients().await;
        let exchanges = fixture.held(&clients, 0).await;
        for call in fixture.server.held() {
            let error = LinkError::NotSent("refused".into());
            fixture.server.fail(&call, error);
        }
        until("answered", || exchanges.iter().all(Exchange::is_over)).await;
        until("pinged", || !fixture.server.of("ping").is_empty()).await;
        fixture.arbiters.stop(Duration::from_secs(5)).await.unwrap();
    });
}

#[test]
fn a_close_takes_its_time_although_the_senders_are_gone() {
    run_real(async {
        let fixture = SenderFixture::start().await;
        let clients = fixture.clients().await;
        let exchanges = fixture.held(&clients, 0).await;
        fixture.world.downstreams.stop_all().await;
        until("answered", || exchanges.iter().all(Exchange::is_over)).await;
        for exchange in &exchanges {
            assert!(
                exchange
                    .sentence()
                    .contains("the gateway closed the connection")
            );
        }
        until("goodbye", || fixture.server.of("goodbye").len() == 1).await;
        fixture.arbiters.stop(Duration::from_secs(5)).await.unwrap();
    });
}
