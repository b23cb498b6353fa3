//! The TCP server below the HTTP server. It replaces `actix_web::HttpServer` to use our own
//! sockets, which enforce further limits and timeouts.

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::rc::Rc;
use std::time::Duration;

use actix_http::error::DispatchError;
use actix_http::{HttpService, Request, Response};
use actix_server::GracefulShutdownSignal;
use actix_service::{IntoServiceFactory, ServiceFactoryExt as _, fn_service, map_config};
use actix_web::body::MessageBody;
use actix_web::dev::{AppConfig, Server, Service, ServiceFactory};
use actix_web::{Error, web};
#[cfg(target_os = "linux")]
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use super::client_seats::seats_of_process;
use super::client_socket::{ClientSocket, ClientStream, SocketLimits, UnreadAnswers};
use super::new_connections::NewConnections;
use crate::auth::AuthSettings;
use crate::front::settings::FrontSettings;
use crate::front::state::FrontGate;
use crate::id::Principal;

/// How long a client may take to close its end of the connection after a refused body.
const DISCONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// Maximum number of unsent bytes that the kernel buffers per connection.
#[cfg(target_os = "linux")]
const UNSENT_MAX: u32 = 256 * 1024;

/// Turns accepted TCP connections into streams that carry HTTP; each worker has one acceptor.
pub(in crate::front) trait Acceptor: 'static {
    type Stream: AsyncRead + AsyncWrite + ClientStream + Unpin + 'static;

    /// Returns the stream for a connection; `None` if the connection was closed.
    fn accept(
        self: Rc<Self>,
        stream: TcpStream,
    ) -> impl Future<Output = Option<Self::Stream>> + 'static;
}

/// The principal named in the client certificate of a connection.
pub(in crate::front) struct CertifiedClient(pub(super) Principal);

/// Accepts HTTP over plain TCP.
pub(super) struct Plain;

impl Acceptor for Plain {
    type Stream = TcpStream;

    async fn accept(self: Rc<Self>, stream: TcpStream) -> Option<TcpStream> {
        Some(stream)
    }
}

/// Serves an application on each worker. `acceptor` creates the acceptor of a worker. Its type is a
/// parameter, so that reads need no check for TLS.
///
/// # Errors
///
/// Returns the system's error if the listener cannot be used.
pub(super) fn serve<A, F, I, S, B>(
    listener: TcpListener,
    settings: &FrontSettings,
    acceptor: impl Fn(GracefulShutdownSignal) -> Rc<A> + Clone + Send + 'static,
    gate: web::Data<FrontGate>,
    new_connections: NewConnections,
    app: F,
) -> io::Result<Server>
where
    A: Acceptor,
    F: Fn() -> I + Clone + Send + 'static,
    I: IntoServiceFactory<S, Request>,
    S: ServiceFactory<Request, Config = AppConfig> + 'static,
    S::Error: Into<Error> + 'static,
    S::InitError: fmt::Debug,
    S::Response: Into<Response<B>> + 'static,
    S::Future: 'static,
    S::Service: 'static,
    <S::Service as Service<Request>>::Future: 'static,
    B: MessageBody + 'static,
{
    let seats = seats_of_process(settings);
    let of_worker = seats.of_worker(settings.workers);
    let connections_max = settings.connections_max.unwrap_or(of_worker);
    let server = Server::build()
        .workers(settings.workers)
        .max_concurrent_connections(connections_max.min(of_worker))
        .disable_signals()
        .shutdown_timeout(1);
    let stopping = server.graceful_shutdown_signal();
    let (settings, unread) = (settings.clone(), UnreadAnswers::default());
    let server = server.listen("mcp", listener, move || {
        let (gate, unread) = (gate.clone(), unread.clone());
        let limits = SocketLimits::new(settings.clone(), gate, unread, seats.clone());
        let sockets = Rc::new(WorkerSockets {
            limits: Rc::new(limits),
            acceptor: acceptor(stopping.clone()),
            connecting: new_connections.clone(),
        });
        let (stopping, arriving) = (stopping.clone(), new_connections.clone());
        let app = app().into_factory();
        let app = app.map_err(|error| error.into().error_response());
        let http = HttpService::build()
            .graceful_shutdown_signal(move || {
                let stopping = stopping.clone();
                async move { stopping.notified().await }
            })
            .keep_alive(settings.keep_alive)
            .client_request_timeout(settings.head_timeout)
            .client_disconnect_timeout(DISCONNECT_TIMEOUT)
            // This detects immediately that a client has disconnected.
            .h1_allow_half_closed(false)
            .on_connect_ext(move |socket: &ClientSocket<A::Stream>, data| {
                arriving.on_connect(data);
                data.insert(socket.clock());
                if let Some(name) = socket.certified_name() {
                    data.insert(CertifiedClient(AuthSettings::certified(&name)));
                }
            })
            .h1(map_config(app, |()| AppConfig::default()));
        fn_service(move |stream| sockets.accept(stream)).and_then(http)
    })?;
    Ok(server.run())
}

/// Accepts the sockets of one worker.
struct WorkerSockets<A> {
    limits: Rc<SocketLimits>,
    acceptor: Rc<A>,
    connecting: NewConnections,
}

impl<A: Acceptor> WorkerSockets<A> {
    /// Accepts a socket if there is a seat for it, and otherwise closes it immediately.
    fn accept(
        &self,
        stream: TcpStream,
    ) -> impl Future<Output = Result<AcceptedSocket<A>, DispatchError>> + use<A> {
        let peer = stream.peer_addr().ok();
        set_options(&stream);
        let limits = Rc::clone(&self.limits);
        let seat = limits.take_seat();
        let accepting = seat.map(|seat| (seat, Rc::clone(&self.acceptor).accept(stream)));
        let connecting = self.connecting.arrive();
        async move {
            let ended = || DispatchError::Io(io::ErrorKind::ConnectionAborted.into());
            let (seat, accepting) = accepting.ok_or_else(ended)?;
            let stream = accepting.await.ok_or_else(ended)?;
            drop(connecting);
            Ok((ClientSocket::new(stream, limits, seat), peer))
        }
    }
}

/// A socket and the address of its peer.
type AcceptedSocket<A> = (ClientSocket<<A as Acceptor>::Stream>, Option<SocketAddr>);

/// Sets socket options. Errors are ignored, because both options only improve performance.
fn set_options(stream: &TcpStream) {
    let _ = stream.set_nodelay(true);
    // Otherwise the kernel buffers megabytes, and a client that reads slowly seems to read nothing.
    #[cfg(target_os = "linux")]
    let _ = SockRef::from(stream).set_tcp_notsent_lowat(UNSENT_MAX);
}
