//! The HTTP server: which paths there are, and how long anything may take.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use actix_cors::Cors;
use actix_web::dev::ServerHandle;
use actix_web::http::header::{self, HeaderValue};
use actix_web::{App, HttpRequest, HttpResponse, HttpServer, web};
use arc_swap::ArcSwap;
use tokio_util::task::TaskTracker;

use super::body::BytesInFlight;
use super::guard::origin_is_allowed;
use super::headers::{ALLOWED, EXPOSED};
use super::health::{self, HealthSource};
use super::settings::FrontSettings;
use super::{mcp, respond};
use crate::auth::Authenticate;
use crate::protocol::{ErrorKind, Failure};
use crate::session::Sessions;
use crate::telemetry::Counters;

/// How long a browser may remember the answer to a preflight, in seconds.
const PREFLIGHT_MAX_AGE: usize = 86_400;

/// What every request handler has.
pub struct Front {
    pub(super) settings: ArcSwap<FrontSettings>,
    pub(super) sessions: Sessions,
    pub(super) authenticate: Arc<dyn Authenticate>,
    pub(super) health: HealthSource,
    pub(super) counters: Counters,
    pub(super) bytes: BytesInFlight,
    draining: AtomicBool,
    /// Requests and event streams that are not answered to their end.
    pub(super) under_way: TaskTracker,
}

/// A running server.
pub struct FrontServer {
    handle: ServerHandle,
    front: web::Data<Front>,
    pub address: SocketAddr,
}

impl Front {
    pub fn new(
        settings: FrontSettings,
        sessions: Sessions,
        authenticate: Arc<dyn Authenticate>,
        health: HealthSource,
        counters: Counters,
    ) -> Self {
        Self {
            settings: ArcSwap::from_pointee(settings),
            sessions,
            authenticate,
            health,
            counters,
            bytes: BytesInFlight::default(),
            draining: AtomicBool::new(false),
            under_way: TaskTracker::new(),
        }
    }

    pub(super) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    /// Serves on a listener until [`FrontServer::stop`].
    ///
    /// # Errors
    ///
    /// Returns the system's error when the listener cannot be used.
    pub fn serve(self, listener: TcpListener) -> io::Result<FrontServer> {
        let address = listener.local_addr()?;
        let front = web::Data::new(self);
        let settings = front.settings.load_full();
        let for_workers = front.clone();
        let server = HttpServer::new(move || {
            let front = for_workers.clone();
            let endpoint = front.settings.load().endpoint.clone();
            let origins = front.clone();
            let mut app = App::new()
                .app_data(front)
                .wrap(cors(move |origin| {
                    origin_is_allowed(&origins.settings.load().allowed_origins, origin)
                }))
                .service(
                    web::resource(["/health", "/healthz"])
                        .route(web::get().to(health::health))
                        .default_service(web::route().to(only_get)),
                )
                .service(
                    web::resource("/readyz")
                        .route(web::get().to(health::ready))
                        .default_service(web::route().to(only_get)),
                )
                .service(web::resource("/").route(web::route().to(mcp::endpoint)));
            if endpoint != "/" {
                app = app.service(web::resource(endpoint).route(web::route().to(mcp::endpoint)));
            }
            app.default_service(web::route().to(no_such_path))
        })
        .workers(settings.workers)
        .max_connections(settings.connections_max)
        .client_request_timeout(settings.head_timeout)
        .keep_alive(settings.keep_alive)
        // A client that left is noticed at once.
        .h1_allow_half_closed(false)
        .tcp_nodelay(true)
        .disable_signals()
        .shutdown_timeout(1)
        .listen(listener)?
        .run();
        let handle = server.handle();
        actix_rt::spawn(server);
        Ok(FrontServer {
            handle,
            front,
            address,
        })
    }
}

impl FrontServer {
    /// Replaces what can change while the server runs: origins, hosts, limits of bodies, and
    /// times of streams.
    pub fn configure(&self, settings: FrontSettings) {
        self.front.settings.store(Arc::new(settings));
    }

    /// New requests are refused with 503 from now on.
    pub fn drain(&self) {
        self.front.draining.store(true, Ordering::Relaxed);
    }

    /// Waits for the requests and streams under way.
    pub async fn drained(&self) {
        self.front.under_way.close();
        self.front.under_way.wait().await;
    }

    /// Closes the listener, waits for requests under way until `within`, and ends the workers.
    pub async fn stop(&self, within: Duration) {
        let graceful = self.handle.stop(true);
        if tokio::time::timeout(within, graceful).await.is_err() {
            self.handle.stop(false).await;
        }
    }
}

fn cors(allowed: impl Fn(&str) -> bool + 'static) -> Cors {
    Cors::default()
        .allowed_origin_fn(move |origin, _| origin.to_str().is_ok_and(&allowed))
        .allowed_methods(["GET", "POST", "DELETE", "OPTIONS"])
        .allowed_headers(ALLOWED)
        .expose_headers(EXPOSED)
        .max_age(PREFLIGHT_MAX_AGE)
}

async fn no_such_path(request: HttpRequest, front: web::Data<Front>) -> HttpResponse {
    let path: String = request.path().chars().take(100).collect();
    let endpoint = &front.settings.load().endpoint;
    let message = format!("there is nothing at `{path}`; MCP is served at `{endpoint}`");
    respond::refused(&Failure::new(ErrorKind::NotFound, message), "null")
}

async fn only_get(request: HttpRequest) -> HttpResponse {
    let message = format!("`{}` answers GET only", request.path());
    let failure = Failure::new(ErrorKind::HttpMethodNotAllowed, message);
    let mut response = respond::refused(&failure, "null");
    let headers = response.headers_mut();
    headers.insert(header::ALLOW, HeaderValue::from_static("GET"));
    response
}
