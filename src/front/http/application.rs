//! The application that each worker serves: its routes, and what is done around each request.

use std::rc::Rc;
use std::sync::Arc;

use actix_web::body::{BodySize, MessageBody};
use actix_web::dev::{ResponseHead, Service, ServiceFactory, ServiceRequest, ServiceResponse};
use actix_web::guard::fn_guard;
use actix_web::http::{ConnectionType, Version};
use actix_web::{App, FromRequest, Handler, HttpRequest, HttpResponse, Responder, web};
use futures_util::future::LocalBoxFuture;

use super::caller_cache::CallerCache;
use super::client_address::note_forwarded;
use super::new_connections::NewConnections;
use super::request_clock::{RequestClock, ServedBody};
use super::{cors, endpoint, entrance, resource_metadata, respond, server_card};
use crate::front::hop::{self, PingAnswer};
use crate::front::legacy_sse;
use crate::front::state::{FrontGate, WorkerIndex};
use crate::protocol::{ErrorKind, Failure};

/// Checks the `Host` and `Origin` of a request, for routes of other modules.
pub(super) type RequestCheck = Arc<dyn Fn(&HttpRequest) -> Result<(), Failure> + Send + Sync>;

/// Returns whether a request has operator credentials, for routes of other modules.
pub(super) type OperatorCheck =
    Arc<dyn Fn(&HttpRequest) -> LocalBoxFuture<'static, bool> + Send + Sync>;

/// The parts of the application of every worker.
#[derive(Clone)]
pub(super) struct AppParts<R> {
    pub(super) gate: web::Data<FrontGate>,
    /// Path of the MCP endpoint.
    pub(super) endpoint: String,
    /// The answer to a ping of another replica; `None` for a single gateway.
    pub(super) ping: Option<web::Data<PingAnswer>>,
    pub(super) checks: (RequestCheck, OperatorCheck),
    /// Adds routes of other modules.
    pub(super) routes: R,
}

impl<R> AppParts<R>
where
    R: Fn(&mut web::ServiceConfig, &RequestCheck, &OperatorCheck),
{
    /// Builds the application of a worker, for clients or for other replicas.
    pub(super) fn app(
        &self,
        index: usize,
        is_of_peers: bool,
    ) -> App<
        impl ServiceFactory<
            ServiceRequest,
            Config = (),
            Response = ServiceResponse<impl MessageBody + use<R>>,
            Error = actix_web::Error,
            InitError = (),
        > + use<R>,
    > {
        let gate = self.gate.clone();
        let mut app = App::new()
            .app_data(self.gate.clone())
            .app_data(WorkerIndex(index))
            .app_data(CallerCache::default())
            .wrap(cors::cors(move |origin| gate.allows_origin(origin)))
            .wrap_fn(cors::rewrite_preflight)
            .wrap_fn(move |request, service| around_each_request(request, service, is_of_peers));
        if let Some(ping) = self.ping.clone().filter(|_| is_of_peers) {
            let resource = web::resource(hop::PING).app_data(ping);
            app = app.service(resource.to(hop::ping));
        }
        // actix-web matches routes in the order of their registration.
        for path in with_slash(&self.endpoint) {
            let endpoint = web::resource(path).guard(fn_guard(entrance::is_for_mcp));
            app = app.service(endpoint.to(endpoint::endpoint));
        }
        if self.endpoint != "/" {
            app = app.service(web::resource("/").to(endpoint::endpoint));
        }
        let (check, operators) = &self.checks;
        app.configure(|app| (self.routes)(app, check, operators))
            .configure(|app| add_other_paths(app, &self.endpoint))
            .default_service(web::route().to(no_such_path))
    }
}

/// Wraps each request: records on the connection's clock that it serves a request, and closes the
/// connection after the answer during a handover.
fn around_each_request<S, B>(
    request: ServiceRequest,
    service: &S,
    is_of_peers: bool,
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
    if is_of_peers {
        hop::note(&request);
    } else if let Some(front) = gate.as_ref().and_then(|gate| gate.front.get()) {
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
