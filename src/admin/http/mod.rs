//! HTTP endpoints for operators and monitoring, beside the MCP endpoint.

mod health;

use std::sync::Arc;

use actix_web::http::header::{self, HeaderValue};
use actix_web::{HttpRequest, HttpResponse, web};
use tokio::sync::SetOnce;

use crate::protocol::{ErrorKind, Failure};

pub use health::{Health, HealthSource, ServerHealth};

/// The handlers of a gateway that is being built: requests wait until [`AdminEndpoints::open`].
/// Clones are the same.
#[derive(Clone, Default)]
pub struct AdminEndpoints(Arc<SetOnce<HealthSource>>);

impl AdminEndpoints {
    /// Requests are answered from now on.
    pub fn open(&self, source: HealthSource) {
        // Opened twice, the first one stays.
        let _ = self.0.set(source);
    }

    /// Adds the paths to an HTTP server.
    pub fn routes(&self, app: &mut web::ServiceConfig) {
        app.app_data(web::Data::new(self.clone()))
            .service(
                web::resource(["/health", "/healthz"])
                    .route(web::get().to(health::health))
                    .default_service(web::route().to(only_get)),
            )
            .service(
                web::resource("/readyz")
                    .route(web::get().to(health::ready))
                    .default_service(web::route().to(only_get)),
            );
    }

    async fn health(&self) -> Health {
        (self.0.wait().await)()
    }
}

async fn only_get(request: HttpRequest) -> HttpResponse {
    let message = format!("`{}` answers GET only", request.path());
    let failure = Failure::new(ErrorKind::HttpMethodNotAllowed, message);
    let response = HttpResponse::MethodNotAllowed()
        .insert_header((header::ALLOW, HeaderValue::from_static("GET")))
        .content_type("application/json")
        .body(failure.answer("null"));
    with_title_case_headers(response)
}

/// As all headers of the gateway are written.
fn with_title_case_headers(mut response: HttpResponse) -> HttpResponse {
    response.head_mut().set_camel_case_headers(true);
    response
}
