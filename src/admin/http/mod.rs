//! HTTP endpoints for operators and monitoring, next to the MCP endpoint.

mod answer;
mod api;
mod config;
mod events;
mod gateway;
mod health;
mod help;
mod history;
mod keys;
mod log_level;
mod notices;
mod oauth;
mod oauth_callback;
mod openapi;
#[cfg(test)]
mod openapi_tests;
mod owner;
mod pins;
mod request;
mod route;
mod routes;
mod server_call;
mod servers;
mod sessions;
mod tools;
mod well_known;

use std::sync::Arc;

use actix_web::http::Method;
use actix_web::http::header::{self, HeaderValue};
use actix_web::{HttpRequest, HttpResponse, web};
use futures_util::future::LocalBoxFuture;
use tokio::sync::SetOnce;

use super::base_url::OwnScheme;
use super::operator::Operator;
use super::ui::Dashboard;
use crate::protocol::{ErrorKind, Failure};
use crate::supervision::Pulse;

pub(super) use api::client_address;
pub(super) use owner::OwnerApi;

pub use health::{Health, HealthSource, ServerHealth, THREAD_BLOCKED_AFTER};

/// Rejects requests with a disallowed Host or Origin.
pub type RequestCheck = Arc<dyn Fn(&HttpRequest) -> Result<(), Failure> + Send + Sync>;

/// Whether a client's credentials allow it to use the API.
pub type OperatorCheck = Arc<dyn Fn(&HttpRequest) -> LocalBoxFuture<'static, bool> + Send + Sync>;

/// The parts of the gateway that answer requests.
pub struct AdminParts {
    pub health: HealthSource,
    /// The threads that serve and supervise.
    pub pulse: Pulse,
    pub operator: Arc<Operator>,
}

/// The handlers of a gateway that is still starting: requests wait until [`AdminEndpoints::open`].
/// Clones share the same state.
#[derive(Clone, Default)]
pub struct AdminEndpoints {
    parts: Arc<SetOnce<AdminParts>>,
    dashboard: Dashboard,
}

impl AdminEndpoints {
    /// Starts answering requests.
    pub fn open(&self, parts: AdminParts) {
        self.dashboard.open(parts.operator.clone());
        // Only the first call has an effect.
        let _ = self.parts.set(parts);
    }

    /// Adds the paths to an HTTP server that serves MCP at `endpoint` with this URL scheme. `check`
    /// runs on every API request, and `operators` on those without the API token.
    pub fn routes(
        &self,
        app: &mut web::ServiceConfig,
        (scheme, endpoint): (&'static str, &str),
        (check, operators): (&RequestCheck, &OperatorCheck),
    ) {
        app.app_data(web::Data::new(self.clone()))
            .app_data(OwnScheme(scheme))
            .app_data(web::Data::new(Arc::clone(operators)))
            .app_data(web::Data::from(check.clone()))
            .service(
                web::resource(["/health", "/healthz"])
                    .route(web::get().to(health::health))
                    .route(web::head().to(health::health))
                    .default_service(web::route().to(only_get)),
            )
            .service(
                web::resource("/livez")
                    .route(web::get().to(health::live))
                    .route(web::head().to(health::live))
                    .default_service(web::route().to(only_get)),
            )
            .service(
                web::resource("/readyz")
                    .route(web::get().to(health::ready))
                    .route(web::head().to(health::ready))
                    .default_service(web::route().to(only_get)),
            )
            .service(
                web::resource(["/help", "/help/{code}"])
                    .route(web::get().to(help::help))
                    .route(web::head().to(help::help))
                    .default_service(web::route().to(only_get)),
            )
            .service(
                web::resource("/oauth/callback")
                    .route(web::get().to(oauth_callback::callback))
                    .route(web::post().to(oauth_callback::take_back))
                    .default_service(web::route().to(only_get)),
            )
            .service(
                web::resource("/oauth/callback/{state}")
                    .route(web::get().to(oauth_callback::page))
                    .default_service(web::route().to(only_get)),
            )
            .service(openapi::resource())
            // Matches only requests with `serverId`; MCP's own route comes first.
            .service(web::resource(endpoint).to(server_call::serve))
            .service(well_known::mcp_config(endpoint));
        self.dashboard.routes(app, endpoint);
        for scope in route::SCOPES {
            app.service(web::scope(scope).default_service(web::route().to(api::serve)));
        }
    }

    async fn parts(&self) -> &AdminParts {
        self.parts.wait().await
    }

    async fn health(&self) -> Health {
        (self.parts().await.health)()
    }
}

async fn only_get(request: HttpRequest) -> HttpResponse {
    const ALLOW: (header::HeaderName, HeaderValue) = (
        header::ALLOW,
        HeaderValue::from_static("GET, HEAD, OPTIONS"),
    );
    if request.method() == Method::OPTIONS {
        let response = HttpResponse::NoContent().insert_header(ALLOW).finish();
        return with_title_case_headers(response);
    }
    let message = format!("`{}` supports only GET", request.path());
    let failure = Failure::new(ErrorKind::HttpMethodNotAllowed, message);
    let response = HttpResponse::MethodNotAllowed()
        .insert_header(ALLOW)
        .content_type("application/json")
        .body(failure.answer("null"));
    with_title_case_headers(response)
}

/// Writes header names in title case, as everywhere in the gateway.
fn with_title_case_headers(mut response: HttpResponse) -> HttpResponse {
    response.head_mut().set_camel_case_headers(true);
    response
}
