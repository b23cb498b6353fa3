//! How clients without a session reach their calls: the messages to the worker that has them.

use std::sync::Arc;

use actix::{Addr, Handler, Message, Recipient};
use tokio::sync::oneshot;

use crate::calls::client_reply::ClientReply;
use crate::downstream::Delivery;
use crate::protocol::Request;

/// The client of a parked call is back with answers.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct ResumeCall {
    pub(crate) call: u64,
    /// The same request as before, with answers.
    pub(crate) request: Request,
    /// The round whose questions it answers.
    pub(crate) round: u8,
    /// The number of this request.
    pub(crate) request_number: u64,
    pub(crate) accepts_stream: bool,
    pub(crate) reply: oneshot::Sender<ClientReply>,
}

/// A client asks for a task, answers its questions or cancels it.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct TaskRequest {
    /// The call that stands for the task.
    pub(crate) call: u64,
    pub(crate) request: Request,
    pub(crate) reply: oneshot::Sender<ClientReply>,
}

/// A change in the wait for one request of a client.
#[derive(Message, Clone, Copy, Debug)]
#[rtype(result = "()")]
pub(crate) struct ClientRequestEvent {
    /// The call, or 0 for what has an actor of its own.
    pub(crate) call: u64,
    /// The number of the client's request: means something only while that waits.
    pub(crate) request_number: u64,
    pub(crate) change: ClientRequestChange,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum ClientRequestChange {
    /// It is long: it is to be answered as a stream.
    Upgrade,
    /// The client closed its connection.
    Closed,
}

/// The addresses of a worker, made once for all of its calls.
pub(crate) struct WorkerInbox {
    deliveries: Arc<Recipient<Delivery>>,
    client_requests: Arc<Recipient<ClientRequestEvent>>,
    resumptions: Recipient<ResumeCall>,
    task_requests: Recipient<TaskRequest>,
}

impl WorkerInbox {
    pub(crate) fn new<A>(worker: &Addr<A>) -> Self
    where
        A: actix::Actor<Context = actix::Context<A>>
            + Handler<Delivery>
            + Handler<ClientRequestEvent>
            + Handler<ResumeCall>
            + Handler<TaskRequest>,
    {
        Self {
            deliveries: Arc::new(worker.clone().recipient()),
            client_requests: Arc::new(worker.clone().recipient()),
            resumptions: worker.clone().recipient(),
            task_requests: worker.clone().recipient(),
        }
    }

    pub(crate) fn deliveries(&self) -> Arc<Recipient<Delivery>> {
        self.deliveries.clone()
    }

    pub(crate) fn client_requests(&self) -> Arc<Recipient<ClientRequestEvent>> {
        self.client_requests.clone()
    }

    pub(crate) fn resume(&self, resume: ResumeCall) {
        self.resumptions.do_send(resume);
    }

    pub(crate) fn request_task(&self, request: TaskRequest) {
        self.task_requests.do_send(request);
    }
}
