//! Requests without a clock of their own.
//!
//! awc 3.11 gives each request over HTTP/1 a clock for the `Date` header, as a server has one: a
//! task with a timer that rings at once. A client never reads it, and the ring costs each call a
//! system call to wake its own worker and a needless round of the worker's loop, a tenth of its
//! time. Here requests are polled in a set of tasks that nobody runs, so that it never rings.

use std::cell::{Cell, RefCell};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use actix_service::Service;
use awc::ConnectRequest;
use awc::middleware::Transform;
use tokio::task::LocalSet;

/// After so many requests the tasks that they left are dropped, with the connections that awc
/// wanted to close: those that were idle for too long.
const REQUESTS_PER_SET: usize = 32;

/// Middleware of an awc client. Not for HTTP/2, whose connections are tasks that must run.
pub(super) struct Clockless;

impl<S: Service<ConnectRequest>> Transform<S, ConnectRequest> for Clockless {
    type Transform = ClocklessService<S>;

    fn new_transform(self, service: S) -> Self::Transform {
        ClocklessService {
            service,
            never_run: RefCell::default(),
            requests: Cell::new(0),
        }
    }
}

pub(super) struct ClocklessService<S> {
    service: S,
    never_run: RefCell<Rc<LocalSet>>,
    /// Since the set is new.
    requests: Cell<usize>,
}

impl<S: Service<Request>, Request> Service<Request> for ClocklessService<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = ClocklessFuture<S::Future>;

    fn poll_ready(&self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.service.poll_ready(cx)
    }

    fn call(&self, request: Request) -> Self::Future {
        if self.requests.replace(self.requests.get() + 1) == REQUESTS_PER_SET {
            self.requests.set(1);
            self.never_run.take();
        }
        ClocklessFuture {
            never_run: Rc::clone(&self.never_run.borrow()),
            answer: self.service.call(request),
        }
    }
}

pin_project_lite::pin_project! {
    pub(super) struct ClocklessFuture<F> {
        never_run: Rc<LocalSet>,
        #[pin]
        answer: F,
    }
}

impl<F: Future> Future for ClocklessFuture<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let _entered = this.never_run.enter();
        this.answer.poll(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::future::{Ready, pending, ready};

    use super::*;

    /// Does with each request what awc does: spawns a task, and ends it some time later.
    struct Spawning {
        tasks: Rc<()>,
        ran: Rc<Cell<bool>>,
    }

    impl Service<()> for Spawning {
        type Response = ();
        type Error = Infallible;
        type Future = futures_util::future::LocalBoxFuture<'static, Result<(), Infallible>>;

        fn poll_ready(&self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
            Poll::Ready(Ok(()))
        }

        fn call(&self, (): ()) -> Self::Future {
            let (task, ran) = (Rc::clone(&self.tasks), Rc::clone(&self.ran));
            Box::pin(async move {
                let clock = actix_rt::spawn(async move {
                    let _task = task;
                    ran.set(true);
                    pending::<()>().await;
                });
                tokio::task::yield_now().await;
                clock.abort();
                Ok(())
            })
        }
    }

    #[actix::test]
    async fn what_a_request_spawns_never_runs_and_is_dropped() {
        let (tasks, ran) = (Rc::new(()), Rc::new(Cell::new(false)));
        let service = ClocklessService {
            service: Spawning {
                tasks: Rc::clone(&tasks),
                ran: Rc::clone(&ran),
            },
            never_run: RefCell::default(),
            requests: Cell::new(0),
        };
        for _ in 0..10 * REQUESTS_PER_SET {
            let Ok(()) = service.call(()).await;
            assert!(Rc::strong_count(&tasks) <= 2 + REQUESTS_PER_SET);
        }
        assert!(!ran.get());
        drop(service);
        assert_eq!(Rc::strong_count(&tasks), 1);
    }

    #[actix::test]
    async fn what_others_spawn_runs() {
        let done: Ready<()> = ready(());
        let request = ClocklessFuture {
            never_run: Rc::default(),
            answer: done,
        };
        request.await;
        assert!(actix_rt::spawn(ready(7)).await.is_ok_and(|it| it == 7));
    }
}
