//! Drops the clock task that awc spawns for each request.
//!
//! awc 3.11 creates a clock for the `Date` header for each HTTP/1 request, as a server does: a task
//! with a timer that fires at once. A client never reads it, yet it costs each call a system call
//! to wake its own worker and an extra round of the worker's loop, about a tenth of the call's
//! time. The task is spawned when a request starts, and tasks spawned at that moment are dropped
//! here.

use std::pin::Pin;
use std::task::{Context, Poll};

use actix_service::Service;
use awc::ConnectRequest;
use awc::middleware::Transform;
use tokio::task::LocalSet;

/// Middleware of an awc client. As a side effect, expired idle connections are closed at once
/// rather than in a task. Not for HTTP/2, whose connections are tasks that must run.
pub(super) struct NoDateTimer;

impl<S: Service<ConnectRequest>> Transform<S, ConnectRequest> for NoDateTimer {
    type Transform = NoDateTimerService<S>;

    fn new_transform(self, service: S) -> Self::Transform {
        NoDateTimerService(service)
    }
}

pub(super) struct NoDateTimerService<S>(S);

impl<S: Service<Request>, Request> Service<Request> for NoDateTimerService<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = NoDateTimerFuture<S::Future>;

    fn poll_ready(&self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&self, request: Request) -> Self::Future {
        NoDateTimerFuture {
            has_begun: false,
            answer: self.0.call(request),
        }
    }
}

pin_project_lite::pin_project! {
    pub(super) struct NoDateTimerFuture<F> {
        has_begun: bool,
        #[pin]
        answer: F,
    }
}

impl<F: Future> Future for NoDateTimerFuture<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        // A request that has to wait for a new connection keeps its clock, which is rare.
        if std::mem::replace(this.has_begun, true) {
            return this.answer.poll(cx);
        }
        let dropped = LocalSet::new();
        let _entered = dropped.enter();
        this.answer.poll(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::convert::Infallible;
    use std::future::pending;
    use std::rc::Rc;

    use futures_util::FutureExt;
    use futures_util::future::LocalBoxFuture;
    use tokio::task::yield_now;

    use super::*;

    /// Spawns one task when a request starts, as awc does, and another one later.
    struct Spawning {
        task: Rc<()>,
        ran: Rc<Cell<u32>>,
    }

    impl Spawning {
        fn spawn(task: &Rc<()>, ran: &Rc<Cell<u32>>) {
            let (task, ran) = (Rc::clone(task), Rc::clone(ran));
            actix_rt::spawn(async move {
                let _task = task;
                ran.set(ran.get() + 1);
                pending::<()>().await;
            });
        }
    }

    impl Service<()> for Spawning {
        type Response = ();
        type Error = Infallible;
        type Future = LocalBoxFuture<'static, Result<(), Infallible>>;

        fn poll_ready(&self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
            Poll::Ready(Ok(()))
        }

        fn call(&self, (): ()) -> Self::Future {
            let (task, ran) = (Rc::clone(&self.task), Rc::clone(&self.ran));
            Box::pin(async move {
                Self::spawn(&task, &ran);
                yield_now().await;
                Self::spawn(&task, &ran);
                Ok(())
            })
        }
    }

    #[actix::test]
    async fn tasks_spawned_as_a_request_begins_are_dropped_and_never_run() {
        let (task, ran) = (Rc::new(()), Rc::default());
        let service = NoDateTimerService(Spawning {
            task: Rc::clone(&task),
            ran: Rc::clone(&ran),
        });
        let mut request = service.call(());
        assert!((&mut request).now_or_never().is_none());
        // References: ours, the service's and the request's.
        assert_eq!(Rc::strong_count(&task), 3);
        let Ok(()) = request.await;
        yield_now().await;
        assert_eq!(ran.get(), 1);
    }
}
