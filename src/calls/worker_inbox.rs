//! How clients without a session reach their calls: the messages to the worker that has them.

use std::sync::Arc;

use actix::{Actor, Addr, Context, Handler, Message, Recipient};

use crate::calls::client_reply::ClientRequest;
use crate::downstream::Delivery;

/// An action of a client on one of its calls.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct ClientMessage {
    pub(crate) call: u64,
    pub(crate) action: ClientAction,
}

pub(crate) enum ClientAction {
    /// The client of a parked call is back: the same request as before, with answers to the
    /// questions of this round.
    Resume { request: ClientRequest, round: u8 },
    /// It asks for the task that the call stands for, answers its questions or cancels it.
    Task(ClientRequest),
    /// Its request of this number is long: it is to be answered as a stream.
    Upgrade(u64),
    /// It closed the connection of the request of this number.
    Close(u64),
}

/// The addresses of a worker, made once for all of its calls.
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
