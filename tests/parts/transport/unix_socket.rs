//! Streamable HTTP over a Unix socket.

use actix_web::{App, HttpRequest, HttpServer, web};
use mcpvisor::transport::OutgoingFrame;

use crate::transport::http_peer::{call, json, open, result, settings};
use crate::transport::support::run;

#[test]
fn a_server_is_reached_over_a_unix_socket() {
    run(async {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("a server.sock");
        let server = HttpServer::new(|| {
            App::new().default_service(web::to(|request: HttpRequest| async move {
                let host = request.headers().get("host").unwrap().to_str().unwrap();
                assert_eq!((request.path(), host), ("/tools", "localhost"));
                json(result(1))
            }))
        });
        let server = server
            .workers(1)
            .disable_signals()
            .bind_uds(&socket)
            .unwrap()
            .run();
        let handle = server.handle();
        actix_web::rt::spawn(server);
        let url = format!("unix:{}:/tools", socket.display());
        let (link, mut events) = open(settings(&url)).await;
        for number in 1..=2 {
            let frame = call(number, "initialize");
            link.send(OutgoingFrame::new(Some(number), frame)).unwrap();
            assert_eq!(events.next().await, format!("result of {number} 1 {{}}"));
        }
        handle.stop(false).await;
    });
}
