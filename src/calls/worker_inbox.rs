//! The inbox through which clients without a session reach their calls on a worker.

use std::sync::Arc;

use actix::{Actor, Addr, Context, Handler, Message, Recipient};

use crate::calls::client_reply::ClientRequest;
use crate::downstream::Delivery;

/// A client's action, and the number of the call that it is for.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct ClientMessage {
    pub(crate) call: u64,
    pub(crate) action: ClientAction,
}

/// An action of a client on one of its calls.
pub(crate) enum ClientAction {
    /// The client resumes a parked call: it repeats the request, with answers to the questions of
    /// this round.
    Resume { request: ClientRequest, round: u8 },
    /// The client polls, answers or cancels the task that the call represents.
    Task(ClientRequest),
    /// The request with this number takes long and should be answered as a stream.
    Upgrade(u64),
    /// The client closed the connection of the request with this number.
    Close(u64),
}

/// The addresses of a worker, created once for all of its calls.
pub(crate) struct WorkerInbox {
    deliveries: Arc<Recipient<Delivery>>,
    clients: Recipient<ClientMessage>,
}

impl WorkerInbox {
    pub(crate) fn new<A>(worker: &Addr<A>) -> Self
    where
        A: Actor<Context = Context<A>> + Handler<Delivery> + Handler<ClientMessage>,
    {
        Self {
            deliveries: Arc::new(worker.clone().recipient()),
            clients: worker.clone().recipient(),
        }
    }

    pub(crate) fn deliveries(&self) -> Arc<Recipient<Delivery>> {
        self.deliveries.clone()
    }

    pub(crate) fn send(&self, call: u64, action: ClientAction) {
        self.clients.do_send(ClientMessage { call, action });
    }
}
