//! The HTTP server for clients: its routes, its worker threads, and how it drains, hands over and
//! stops.

use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener};
use std::os::unix::net::UnixListener;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use actix_rt::{Arbiter, ArbiterHandle};
use actix_server::GracefulShutdownSignal;
use actix_web::dev::ServerHandle;
use actix_web::web;
use futures_util::future::FutureExt as _;
use rustls::ServerConfig;
use socket2::SockRef;
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::application::{AppParts, OperatorCheck, RequestCheck};
use super::handler::{authenticate, check_host, check_host_and_origin, record_denial};
use super::new_connections::NewConnections;
use super::tcp_server::{self, Listening, Plain};
use super::worker_numbers::WorkerNumbers;
use crate::auth::ADMIN_SCOPE;
use crate::front::hop::PingAnswer;
use crate::front::settings::FrontSettings;
use crate::front::state::{Front, FrontGate};
use crate::front::tls::{FrontTls, Handshakes};
use crate::protocol::{ErrorKind, Failure};
use crate::store::SocketFile;

/// How long a handover waits for the first request of connected clients, and how often it checks.
const FIRST_REQUEST_WAIT_MAX: Duration = Duration::from_secs(1);
const FIRST_REQUEST_POLL: Duration = Duration::from_millis(20);

/// The socket at which clients connect.
pub enum FrontListener {
    Tcp(TcpListener),
    Unix(UnixListener, SocketFile),
}

impl FrontListener {
    fn address(&self) -> io::Result<Option<SocketAddr>> {
        match self {
            Self::Tcp(listener) => listener.local_addr().map(Some),
            Self::Unix(..) => Ok(None),
        }
    }

    /// A second handle of a TCP socket.
    fn duplicate(&self) -> Option<TcpListener> {
        match self {
            Self::Tcp(listener) => listener.try_clone().ok(),
            Self::Unix(..) => None,
        }
    }
}

/// Waits until all workers have started, and returns them in the order of their numbers.
async fn started(
    registered: &mut mpsc::UnboundedReceiver<(usize, ArbiterHandle)>,
    count: usize,
) -> io::Result<Vec<ArbiterHandle>> {
    let mut workers = Vec::new();
    while workers.len() < count {
        let ended = || io::Error::other("a worker thread did not start");
        workers.push(registered.recv().await.ok_or_else(ended)?);
    }
    workers.sort_by_key(|(index, _)| *index);
    Ok(workers.into_iter().map(|(_, handle)| handle).collect())
}

/// Returns what creates the acceptor of a worker.
fn handshakes(
    tls: FrontTls,
    gate: web::Data<FrontGate>,
) -> impl Fn(GracefulShutdownSignal) -> Rc<Handshakes> + Clone + Send + 'static {
    move |stopping| Handshakes::new(tls.clone(), gate.clone(), stopping)
}

/// The socket at which other replicas connect, with the key of the cluster.
pub struct PeerListener {
    pub listener: TcpListener,
    pub tls: Arc<ServerConfig>,
    pub ping: PingAnswer,
}

/// The running HTTP server and its worker threads, which also run sessions and connections.
pub struct FrontServer {
    /// `None` without a listener.
    handle: Option<ServerHandle>,
    /// Workers that were started without an HTTP server.
    own_workers: Vec<Arbiter>,
    pub(in crate::front) gate: web::Data<FrontGate>,
    new_connections: NewConnections,
    pub address: Option<SocketAddr>,
    /// A second handle of the TCP socket for clients, which closes it before the server stops.
    listener: Option<TcpListener>,
    /// The file of a Unix socket, which is removed at the end.
    _file: Option<SocketFile>,
    pub workers: Vec<ArbiterHandle>,
}

impl FrontServer {
    /// Starts the workers. MCP requests wait until [`FrontServer::open`] is called. With `tls`,
    /// clients must use TLS. With `peers`, the same workers serve other replicas at a listener of
    /// their own. `routes` adds routes of other modules, which must call the checks themselves.
    ///
    /// # Errors
    ///
    /// Returns the system's error if the listener or the threads cannot be used.
    pub async fn start(
        (listener, tls): (FrontListener, Option<FrontTls>),
        peers: Option<PeerListener>,
        settings: &FrontSettings,
        routes: impl Fn(&mut web::ServiceConfig, &RequestCheck, &OperatorCheck) + Clone + Send + 'static,
    ) -> io::Result<Self> {
        let address = listener.address()?;
        let gate = web::Data::new(FrontGate {
            is_replica: peers.is_some(),
            ..FrontGate::default()
        });
        let (register, mut registered) = mpsc::unbounded_channel();
        let numbers = WorkerNumbers::default();
        let new_connections = NewConnections::default();
        let parts = AppParts {
            gate: gate.clone(),
            endpoint: settings.endpoint.clone(),
            ping: peers
                .as_ref()
                .map(|peers| web::Data::new(peers.ping.clone())),
            checks: (request_check(gate.clone()), operator_check(gate.clone())),
            routes,
        };
        let app = move |is_of_peers: bool| {
            let index = numbers.of_this_thread(|index| {
                // Sending fails only if the start has already failed.
                let _ = register.send((index, Arbiter::current()));
            });
            parts.app(index, is_of_peers)
        };
        let of_clients = app.clone();
        let of_clients = move || of_clients(false);
        let arriving = new_connections.clone();
        let listening = Listening::of_clients(settings, gate.clone(), arriving);
        let connections_max = listening.connections_max();
        let peers = peers.map(|it| (Listening::of_peers(settings, gate.clone()), it));
        let of_peers = peers.as_ref().map_or(0, |(it, _)| it.connections_max());
        let server = tcp_server::server(settings, connections_max.saturating_add(of_peers));
        let (mut file, kept) = (None, listener.duplicate());
        let server = match (listener, tls) {
            (FrontListener::Tcp(listener), None) => {
                let plain = |_| Plain::<TcpStream>::new();
                listening.listen(server, listener, plain, of_clients)?
            }
            (FrontListener::Unix(listener, socket), _) => {
                file = Some(socket);
                let plain = |_| Plain::<UnixStream>::new();
                listening.listen(server, listener, plain, of_clients)?
            }
            (FrontListener::Tcp(listener), Some(tls)) => {
                let tls = handshakes(tls, gate.clone());
                listening.listen(server, listener, tls, of_clients)?
            }
        };
        let server = match peers {
            Some((listening, PeerListener { listener, tls, .. })) => {
                let tls = handshakes(FrontTls::fixed(tls), gate.clone());
                listening.listen(server, listener, tls, move || app(true))?
            }
            None => server,
        };
        let server = server.run();
        let handle = server.handle();
        actix_rt::spawn(server);
        let workers = started(&mut registered, settings.workers).await?;
        Ok(Self {
            handle: Some(handle),
            own_workers: Vec::new(),
            gate,
            new_connections,
            address,
            listener: kept,
            _file: file,
            workers,
        })
    }

    /// Starts a worker without a listener, for a client on stdin and stdout.
    ///
    /// # Errors
    ///
    /// Returns the system's error if the thread cannot be created.
    pub fn without_listener() -> io::Result<Self> {
        let worker = Arbiter::try_new()?;
        Ok(Self {
            handle: None,
            gate: web::Data::new(FrontGate::default()),
            new_connections: NewConnections::default(),
            address: None,
            listener: None,
            _file: None,
            workers: vec![worker.handle()],
            own_workers: vec![worker],
        })
    }

    /// Whether clients connect over HTTP.
    pub fn is_http(&self) -> bool {
        self.handle.is_some()
    }

    /// Starts handling requests.
    pub fn open(&self, front: Front) {
        // On a second call, the first `front` stays in use.
        let _ = self.gate.front.set(front);
    }

    /// Replaces the settings that can change while the server runs: origins, hosts, body limits,
    /// and stream timings.
    pub fn configure(&self, settings: FrontSettings) {
        if let Some(front) = self.gate.front.get() {
            front.configure(settings);
        }
    }

    /// Leaves new connections to the next process, which shares the socket. This process accepts no
    /// further connections, and open ones close after their next response. Completes when every
    /// open connection has sent a request, or after a timeout.
    ///
    /// With `closes`, no process serves the socket any more: it is closed at once, so that a
    /// balancer chooses another replica for each connection.
    pub async fn hand_over(&self, closes: bool) {
        if let Some(front) = self.gate.front.get() {
            front.closing.cancel();
        }
        let Some(handle) = &self.handle else { return };
        handle.pause().await;
        if closes {
            self.close_listener();
        }
        let deadline = Instant::now() + FIRST_REQUEST_WAIT_MAX;
        // Checked twice, because a connection can be in transit from the accepting thread to a
        // worker.
        let mut quiet = 0;
        while quiet < 2 && Instant::now() < deadline {
            tokio::time::sleep(FIRST_REQUEST_POLL).await;
            quiet = if self.new_connections.is_any_open() {
                0
            } else {
                quiet + 1
            };
        }
    }

    fn close_listener(&self) {
        if let Some(listener) = &self.listener
            && let Err(error) = SockRef::from(listener).shutdown(Shutdown::Both)
        {
            log::warn!(error:%; "could not close the socket for clients");
        }
    }

    /// Starts refusing new requests with 503. Answers to questions and cancellations are still
    /// accepted, because they help calls in flight to complete.
    pub fn drain(&self) {
        if let Some(front) = self.gate.front.get() {
            front.draining.cancel();
            front.closing.cancel();
        }
    }

    /// Waits for the requests and streams in flight.
    pub async fn drained(&self) {
        if let Some(front) = self.gate.front.get() {
            front.in_flight.close();
            front.in_flight.wait().await;
        }
    }

    /// Stops the workers once all requests in flight are answered, at the latest after `within`.
    pub async fn stop(&self, within: Duration) {
        for worker in &self.own_workers {
            worker.stop();
        }
        let Some(handle) = &self.handle else { return };
        if tokio::time::timeout(within, handle.stop(true))
            .await
            .is_err()
        {
            handle.stop(false).await;
        }
    }
}

/// Returns the check for routes of other modules. It refuses all requests until the front is open.
/// For the dashboard it skips the origin, because the dashboard itself only accepts its own pages.
fn request_check(gate: web::Data<FrontGate>) -> RequestCheck {
    let is_dashboard = |path: &str| path == "/ui" || path.starts_with("/ui/");
    Arc::new(move |request| {
        let Some(front) = gate.front.get() else {
            let message = "the gateway is starting; retry shortly";
            return Err(Failure::new(ErrorKind::ShuttingDown, message));
        };
        let settings = front.settings.load();
        let checked = match is_dashboard(request.path()) {
            true => check_host(request, &settings),
            false => check_host_and_origin(request, &settings),
        };
        checked.inspect_err(|refused| record_denial(request, refused, &front.counters))
    })
}

fn operator_check(gate: web::Data<FrontGate>) -> OperatorCheck {
    Arc::new(move |request| {
        let identifying = gate.front.get().and_then(|front| {
            let settings = front.settings.load();
            authenticate(request, front, &settings).ok()
        });
        async move {
            let Some(identifying) = identifying else {
                return false;
            };
            let identity = identifying.await;
            identity.is_ok_and(|identity| identity.has_scope(ADMIN_SCOPE))
        }
        .boxed_local()
    })
}
