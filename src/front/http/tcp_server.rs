//! The server of TCP or a Unix socket below the HTTP server. It replaces `actix_web::HttpServer` to use our own
//! sockets, which enforce further limits and timeouts.

use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixListener;
use std::rc::Rc;
use std::time::Duration;

use actix_http::error::DispatchError;
use actix_http::{HttpService, Request, Response};
use actix_server::{FromStream, GracefulShutdownSignal, ServerBuilder, ServerServiceFactory};
use actix_service::{IntoServiceFactory, ServiceFactoryExt as _, fn_service, map_config};
use actix_web::body::MessageBody;
use actix_web::dev::{AppConfig, Server, Service, ServiceFactory};
use actix_web::{Error, web};
#[cfg(target_os = "linux")]
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};

use super::client_seats::{ClientSeats, seats_of_process};
use super::client_socket::{ClientSocket, ClientStream, SocketLimits, UnreadAnswers};
use super::new_connections::NewConnections;
use crate::front::settings::FrontSettings;
use crate::front::state::FrontGate;
use crate::id::Principal;

/// How long a client may take to close its end of the connection after a refused body.
const DISCONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// Maximum number of unsent bytes that the kernel buffers per connection.
#[cfg(target_os = "linux")]
const UNSENT_MAX: u32 = 256 * 1024;

/// Maximum connections of all other replicas.
const PEER_CONNECTIONS_MAX: usize = 8192;

/// Idle time after which the connection of another replica is closed. Replicas close their idle
/// connections much earlier, so that no request meets the close.
const PEER_KEEP_ALIVE: Duration = Duration::from_secs(60);

/// Turns accepted TCP connections into streams that carry HTTP; each worker has one acceptor.
pub(in crate::front) trait Acceptor: 'static {
    /// A connection as it is accepted.
    type Socket: AcceptedSocket;
    type Stream: AsyncRead + AsyncWrite + ClientStream + Unpin + 'static;

    /// Returns the stream for a connection; `None` if the connection was closed.
    fn accept(
        self: Rc<Self>,
        stream: Self::Socket,
    ) -> impl Future<Output = Option<Self::Stream>> + 'static;
}

/// A socket that actix-server accepts.
pub(in crate::front) trait AcceptedSocket: FromStream {
    type Listener;

    /// Serves the listener with a service for each connection.
    ///
    /// # Errors
    ///
    /// Returns the system's error if the listener cannot be used.
    fn listen<F: ServerServiceFactory<Self>>(
        server: ServerBuilder,
        listener: Self::Listener,
        factory: F,
    ) -> io::Result<ServerBuilder>;

    /// Prepares the socket, and returns the address of its peer.
    fn prepare(&self) -> Option<SocketAddr>;
}

impl AcceptedSocket for TcpStream {
    type Listener = TcpListener;

    fn listen<F: ServerServiceFactory<Self>>(
        server: ServerBuilder,
        listener: TcpListener,
        factory: F,
    ) -> io::Result<ServerBuilder> {
        server.listen("mcp", listener, factory)
    }

    fn prepare(&self) -> Option<SocketAddr> {
        set_options(self);
        self.peer_addr().ok()
    }
}

impl AcceptedSocket for UnixStream {
    type Listener = UnixListener;

    fn listen<F: ServerServiceFactory<Self>>(
        server: ServerBuilder,
        listener: UnixListener,
        factory: F,
    ) -> io::Result<ServerBuilder> {
        server.listen_uds("mcp", listener, factory)
    }

    fn prepare(&self) -> Option<SocketAddr> {
        None
    }
}

/// The principal that a connection proves: by its certificate, or as the user of a Unix socket.
pub(in crate::front) struct CertifiedClient(pub(in crate::front) Principal);

/// Accepts HTTP without TLS.
pub(super) struct Plain<S>(PhantomData<fn(S)>);

impl<S> Plain<S> {
    pub(super) fn new() -> Rc<Self> {
        Rc::new(Self(PhantomData))
    }
}

impl<S> Acceptor for Plain<S>
where
    S: AcceptedSocket + AsyncRead + AsyncWrite + ClientStream + Unpin + 'static,
{
    type Socket = S;
    type Stream = S;

    async fn accept(self: Rc<Self>, stream: S) -> Option<S> {
        Some(stream)
    }
}

/// Creates the server of all listeners.
pub(super) fn server(settings: &FrontSettings, connections_max: usize) -> ServerBuilder {
    Server::build()
        .workers(settings.workers)
        .max_concurrent_connections(connections_max)
        .disable_signals()
        .shutdown_timeout(1)
}

/// The settings of one listener, and what its connections share.
pub(super) struct Listening {
    settings: FrontSettings,
    seats: ClientSeats,
    gate: web::Data<FrontGate>,
    new_connections: NewConnections,
}

impl Listening {
    pub(super) fn of_clients(
        settings: &FrontSettings,
        gate: web::Data<FrontGate>,
        new_connections: NewConnections,
    ) -> Self {
        Self {
            settings: settings.clone(),
            seats: seats_of_process(settings),
            gate,
            new_connections,
        }
    }

    pub(super) fn of_peers(settings: &FrontSettings, gate: web::Data<FrontGate>) -> Self {
        Self {
            settings: FrontSettings {
                keep_alive: PEER_KEEP_ALIVE,
                connections_max: None,
                ..settings.clone()
            },
            seats: ClientSeats::new(PEER_CONNECTIONS_MAX),
            gate,
            // Other replicas keep idle connections, for which a handover must not wait.
            new_connections: NewConnections::default(),
        }
    }

    /// Maximum number of connections per worker.
    pub(super) fn connections_max(&self) -> usize {
        let of_worker = self.seats.of_worker(self.settings.workers);
        let configured = self.settings.connections_max.unwrap_or(of_worker);
        configured.min(of_worker)
    }

    /// Serves an application at a listener on each worker. `acceptor` creates the acceptor of a
    /// worker. Its type is a parameter, so that reads need no check for TLS.
    ///
    /// # Errors
    ///
    /// Returns the system's error if the listener cannot be used.
    pub(super) fn listen<A, F, I, S, B>(
        self,
        server: ServerBuilder,
        listener: <A::Socket as AcceptedSocket>::Listener,
        acceptor: impl Fn(GracefulShutdownSignal) -> Rc<A> + Clone + Send + 'static,
        app: F,
    ) -> io::Result<ServerBuilder>
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
        let stopping = server.graceful_shutdown_signal();
        let unread = UnreadAnswers::default();
        let Self {
            settings,
            seats,
            gate,
            new_connections,
        } = self;
        let factory = move || {
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
                    if let Some(principal) = socket.principal() {
                        data.insert(CertifiedClient(principal));
                    }
                })
                .h1(map_config(app, |()| AppConfig::default()));
            fn_service(move |stream: A::Socket| sockets.accept(stream)).and_then(http)
        };
        A::Socket::listen(server, listener, factory)
    }
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
        stream: A::Socket,
    ) -> impl Future<Output = Result<Accepted<A>, DispatchError>> + use<A> {
        let peer = stream.prepare();
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
type Accepted<A> = (ClientSocket<<A as Acceptor>::Stream>, Option<SocketAddr>);

/// Sets socket options. Errors are ignored, because both options only improve performance.
fn set_options(stream: &TcpStream) {
    let _ = stream.set_nodelay(true);
    // Otherwise the kernel buffers megabytes, and a client that reads slowly seems to read nothing.
    #[cfg(target_os = "linux")]
    let _ = SockRef::from(stream).set_tcp_notsent_lowat(UNSENT_MAX);
}
