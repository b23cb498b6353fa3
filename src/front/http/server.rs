//! The HTTP server for clients: its routes, its worker threads, and how it drains, hands over and
//! stops.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixListener;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use actix_rt::{Arbiter, ArbiterHandle};
use actix_web::body::{BodySize, MessageBody};
use actix_web::dev::{ResponseHead, ServerHandle, Service, ServiceRequest, ServiceResponse};
use actix_web::guard::fn_guard;
use actix_web::http::{ConnectionType, Version};
use actix_web::{App, FromRequest, Handler, HttpRequest, HttpResponse, Responder, web};
use futures_util::future::{FutureExt as _, LocalBoxFuture};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::caller_cache::CallerCache;
use super::client_address::note_forwarded;
use super::handler::{authenticate, check_host, check_host_and_origin, record_denial};
use super::new_connections::NewConnections;
use super::request_clock::{RequestClock, ServedBody};
use super::tcp_server::{self, Plain};
use super::{cors, endpoint, entrance, resource_metadata, respond, server_card};
use crate::auth::ADMIN_SCOPE;
use crate::front::legacy_sse;
use crate::front::settings::FrontSettings;
use crate::front::state::{Front, FrontGate, WorkerIndex};
use crate::front::tls::{FrontTls, Handshakes};
use crate::protocol::{ErrorKind, Failure};
use crate::store::SocketFile;

/// How long a handover waits for the first request of connected clients, and how often it checks.
const FIRST_REQUEST_WAIT_MAX: Duration = Duration::from_secs(1);
const FIRST_REQUEST_POLL: Duration = Duration::from_millis(20);

/// Checks the `Host` and `Origin` of a request, for routes of other modules.
pub(super) type RequestCheck = Arc<dyn Fn(&HttpRequest) -> Result<(), Failure> + Send + Sync>;

/// Returns whether a request has operator credentials, for routes of other modules.
pub(super) type OperatorCheck =
    Arc<dyn Fn(&HttpRequest) -> LocalBoxFuture<'static, bool> + Send + Sync>;

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
    /// The file of a Unix socket, which is removed at the end.
    _file: Option<SocketFile>,
    pub workers: Vec<ArbiterHandle>,
}

impl FrontServer {
    /// Starts the workers. MCP requests wait until [`FrontServer::open`] is called. With `tls`,
    /// clients must use TLS. `routes` adds routes of other modules, which must call the checks
    /// themselves.
    ///
    /// # Errors
    ///
    /// Returns the system's error if the listener or the threads cannot be used.
    pub async fn start(
        (listener, tls): (FrontListener, Option<FrontTls>),
        settings: &FrontSettings,
        routes: impl Fn(&mut web::ServiceConfig, &RequestCheck, &OperatorCheck) + Clone + Send + 'static,
    ) -> io::Result<Self> {
        let address = listener.address()?;
        let gate = web::Data::new(FrontGate::default());
        let (for_workers, path) = (gate.clone(), settings.endpoint.clone());
        let (register, mut registered) = mpsc::unbounded_channel();
        let next = Arc::new(AtomicUsize::new(0));
        let new_connections = NewConnections::default();
        let check = request_check(gate.clone());
        let operators = operator_check(gate.clone());
        let app = move || {
            let index = next.fetch_add(1, Ordering::Relaxed);
            // Sending fails only if the start has already failed.
            let _ = register.send((index, Arbiter::current()));
            let gate = for_workers.clone();
            let mut app = App::new()
                .app_data(for_workers.clone())
                .app_data(WorkerIndex(index))
                .app_data(CallerCache::default())
                .wrap(cors::cors(move |origin| gate.allows_origin(origin)))
                .wrap_fn(cors::rewrite_preflight)
                .wrap_fn(around_each_request);
            // actix-web matches routes in the order of their registration.
            for path in with_slash(&path) {
                let endpoint = web::resource(path).guard(fn_guard(entrance::is_for_mcp));
                app = app.service(endpoint.to(endpoint::endpoint));
            }
            if path != "/" {
                app = app.service(web::resource("/").to(endpoint::endpoint));
            }
            app.configure(|app| routes(app, &check, &operators))
                .configure(|app| add_other_paths(app, &path))
                .default_service(web::route().to(no_such_path))
        };
        let (sockets, arriving) = (gate.clone(), new_connections.clone());
        let mut file = None;
        let server = match (listener, tls) {
            (FrontListener::Tcp(listener), None) => {
                let plain = |_| Plain::<TcpStream>::new();
                tcp_server::serve(listener, settings, plain, sockets, arriving, app)?
            }
            (FrontListener::Unix(listener, socket), _) => {
                file = Some(socket);
                let plain = |_| Plain::<UnixStream>::new();
                tcp_server::serve(listener, settings, plain, sockets, arriving, app)?
            }
            (FrontListener::Tcp(listener), Some(tls)) => {
                let gate = gate.clone();
                let tls = move |stopping| Handshakes::new(tls.clone(), gate.clone(), stopping);
                tcp_server::serve(listener, settings, tls, sockets, arriving, app)?
            }
        };
        let handle = server.handle();
        actix_rt::spawn(server);
        let mut workers = Vec::new();
        while workers.len() < settings.workers {
            let ended = || io::Error::other("a worker thread did not start");
            workers.push(registered.recv().await.ok_or_else(ended)?);
        }
        workers.sort_by_key(|(index, _)| *index);
        let workers = workers.into_iter().map(|(_, handle)| handle).collect();
        Ok(Self {
            handle: Some(handle),
            own_workers: Vec::new(),
            gate,
            new_connections,
            address,
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
    pub async fn hand_over(&self) {
        if let Some(front) = self.gate.front.get() {
            front.closing.cancel();
        }
        let Some(handle) = &self.handle else { return };
        handle.pause().await;
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

/// Wraps each request: records on the connection's clock that it serves a request, and closes the
/// connection after the answer during a handover.
fn around_each_request<S, B>(
    request: ServiceRequest,
    service: &S,
) -> impl Future<Output = Result<ServiceResponse<ServedBody<B>>, actix_web::Error>> + use<S, B>
where
    S: Service<ServiceRequest, Response = ServiceResponse<B>, Error = actix_web::Error>,
    B: MessageBody,
{
    NewConnections::on_request(request.request());
    let clock = request.request().conn_data::<Rc<RequestClock>>();
    let is_beyond = clock.is_some_and(|clock| clock.is_beyond());
    let serving = clock.map(RequestClock::serve);
    let gate = request.app_data::<web::Data<FrontGate>>().cloned();
    if let Some(front) = gate.as_ref().and_then(|gate| gate.front.get()) {
        note_forwarded(&request, &front.settings.load().trusted_proxies);
    }
    let is_old = request.version() < Version::HTTP_11;
    let answer = service.call(request);
    async move {
        let mut answer = answer.await?;
        if is_old && answer.response().body().size() == BodySize::Stream {
            end_with_connection(answer.response_mut().head_mut());
        }
        if is_beyond || gate.is_some_and(|gate| gate.is_closing()) {
            let head = answer.response_mut().head_mut();
            head.set_connection_type(ConnectionType::Close);
        }
        Ok(answer.map_body(|_, body| ServedBody::new(body, serving)))
    }
}

/// Ends the body by closing the connection: HTTP/1.0 has no chunked encoding (RFC 9112, section
/// 7.1).
fn end_with_connection(head: &mut ResponseHead) {
    head.no_chunking(true);
    head.set_connection_type(ConnectionType::Close);
}

/// Adds the routes of HTTP+SSE, resource metadata, server cards and views.
fn add_other_paths(app: &mut web::ServiceConfig, mcp: &str) {
    add(app, legacy_sse::STREAM, legacy_sse::stream);
    add(app, legacy_sse::MESSAGES, legacy_sse::messages);
    for path in resource_metadata::PATHS {
        app.service(web::resource(path).to(resource_metadata::serve));
    }
    for path in server_card::CATALOGS {
        app.service(web::resource(path).to(server_card::catalog));
    }
    // Before the views, one of which could have this name.
    for path in std::iter::once(mcp.to_owned()).chain(entrance::paths_of_views(mcp)) {
        let path = server_card::path_of_card(&path);
        app.service(web::resource(path).to(server_card::card));
    }
    for path in entrance::paths_of_views(legacy_sse::STREAM) {
        add(app, &path, legacy_sse::stream);
    }
    for path in entrance::paths_of_views(mcp) {
        add(app, &path, endpoint::endpoint);
    }
}

/// Adds a route with and without a trailing slash.
fn add<F, A>(app: &mut web::ServiceConfig, path: &str, handler: F)
where
    F: Handler<A>,
    A: FromRequest + 'static,
    F::Output: Responder + 'static,
{
    for path in with_slash(path) {
        app.service(web::resource(path).to(handler.clone()));
    }
}

/// Returns a path with and without a trailing slash. Each becomes a separate resource, because
/// actix-web matches a resource with several paths by regular expressions, which is slower.
fn with_slash(path: &str) -> impl Iterator<Item = String> + use<> {
    let other = format!("{}/", path.trim_end_matches('/'));
    let other = (other != path).then_some(other);
    std::iter::once(path.to_owned()).chain(other)
}

async fn no_such_path(request: HttpRequest, gate: web::Data<FrontGate>) -> HttpResponse {
    let path: String = request.path().chars().take(100).collect();
    let settings = gate.front().await.settings.load_full();
    let message = format!(
        "nothing is served at `{path}`; the MCP endpoint is `{}`",
        settings.endpoint
    );
    respond::failure_response(&Failure::new(ErrorKind::NotFound, message).into())
}
