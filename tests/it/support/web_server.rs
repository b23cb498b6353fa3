//! HTTP servers of these tests.

use std::net::TcpListener;

use actix_web::{App, FromRequest, Handler, Responder, web};
use tokio::sync::oneshot;

/// Serves HTTP on a thread of its own until the test ends.
pub(crate) async fn serve_in_thread<F, Args, D>(
    listener: TcpListener,
    data: web::Data<D>,
    handler: F,
) where
    F: Handler<Args> + Send + Sync + 'static,
    F::Output: Responder + 'static,
    Args: FromRequest + 'static,
    D: Send + Sync + 'static,
{
    let (started, running) = oneshot::channel();
    std::thread::spawn(move || {
        actix_web::rt::System::new().block_on(async move {
            let app = move || {
                App::new()
                    .app_data(data.clone())
                    .default_service(web::to(handler.clone()))
            };
            let server = actix_web::HttpServer::new(app).workers(1).disable_signals();
            let server = server.listen(listener).unwrap().run();
            let _ = started.send(());
            server.await.unwrap();
        });
    });
    running.await.unwrap();
}
