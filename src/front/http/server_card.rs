//! Serves server cards, which describe the gateway and its views to clients before they connect,
//! and the catalogs of these cards (SEP-2127).

use std::pin::pin;

use actix_web::http::Method;
use actix_web::http::header::{
    ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_EXPOSE_HEADERS, CACHE_CONTROL, CONTENT_TYPE, ETAG,
    HOST, HeaderValue, IF_NONE_MATCH,
};
use actix_web::{HttpRequest, HttpResponse, web};
use ring::digest::{SHA256, digest};
use serde_json::{Value, json};

use super::entrance;
use super::handler::{answers_only, check_host, check_host_and_origin, run_handler};
use super::respond::with_title_case_headers;
use crate::front::settings::FrontSettings;
use crate::front::state::{Front, FrontGate};
use crate::id::ViewId;
use crate::protocol::{ErrorKind, Failure, Revision};

/// The paths of the catalogs.
pub(super) const CATALOGS: [&str; 2] = ["/.well-known/ai-catalog.json", MCP_CATALOG];

/// The path of the catalog for clients that look only for MCP servers.
const MCP_CATALOG: &str = "/.well-known/mcp/catalog.json";

const SCHEMA: &str = "https://static.modelcontextprotocol.io/schemas/v1/server-card.schema.json";

const CARD: &str = "application/mcp-server-card+json";

/// Maximum length of a description in a card, in characters.
const DESCRIPTION_MAX: usize = 100;

/// Returns the path of the card of an endpoint.
pub(super) fn path_of_card(endpoint: &str) -> String {
    format!("{}/server-card", endpoint.trim_end_matches('/'))
}

pub(super) async fn card(request: HttpRequest, gate: web::Data<FrontGate>) -> HttpResponse {
    serve(&request, gate.front().await, |place, front| {
        let view = entrance::view(&request, front)?;
        // A client without credentials does not learn which servers exist.
        if matches!(view, ViewId::Server(_)) && place.settings.auth.is_required() {
            let message = "a gateway with authentication has no cards of single servers";
            return Err(Failure::new(ErrorKind::NotFound, message));
        }
        Ok((CARD, place.card(&view)))
    })
    .await
}

pub(super) async fn catalog(request: HttpRequest, gate: web::Data<FrontGate>) -> HttpResponse {
    serve(&request, gate.front().await, |place, front| {
        let kind = match request.path() == MCP_CATALOG {
            true => "application/json",
            false => "application/ai-catalog+json",
        };
        // The names of views can describe what is behind them.
        let is_open = !place.settings.auth.is_required();
        let views = front.sessions.views();
        let listed = views.filter(|view| is_open || *view == ViewId::Default);
        Ok((kind, place.catalog(listed)))
    })
    .await
}

async fn serve(
    request: &HttpRequest,
    front: &Front,
    document: impl FnOnce(&Place<'_>, &Front) -> Result<(&'static str, Value), Failure>,
) -> HttpResponse {
    let answering = pin!(async {
        let settings = front.settings.load();
        match settings.is_reached_by_others() {
            true => check_host(request, &settings)?,
            false => check_host_and_origin(request, &settings)?,
        }
        if *request.method() != Method::GET {
            return Err(answers_only(request, "GET").into());
        }
        let (kind, document) = document(&Place::of(request, &settings), front)?;
        let mut answer = answer(request, kind, &document);
        if settings.is_reached_by_others() {
            // Pages of every origin may read it. On loopback they would learn what this user runs.
            let headers = answer.headers_mut();
            headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
            headers.insert(
                ACCESS_CONTROL_EXPOSE_HEADERS,
                HeaderValue::from_static("ETag"),
            );
        }
        Ok(answer)
    });
    run_handler(request, front, HeaderValue::from_static("GET"), answering).await
}

/// Answers with a document, or with 304 if the client has it.
fn answer(request: &HttpRequest, kind: &'static str, document: &Value) -> HttpResponse {
    let body = document.to_string();
    let hash = digest(&SHA256, body.as_bytes());
    let hash = hash.as_ref().iter().take(16);
    let tag = format!(
        "\"{}\"",
        hash.map(|byte| format!("{byte:02x}")).collect::<String>()
    );
    let known = request.headers().get_all(IF_NONE_MATCH);
    let mut known = known
        .filter_map(|tags| tags.to_str().ok())
        .flat_map(|it| it.split(','));
    let is_known = known.any(|it| matches!(it.trim(), known if known == tag || known == "*"));
    let mut response = match is_known {
        true => HttpResponse::NotModified(),
        false => HttpResponse::Ok(),
    };
    response
        .insert_header((ETAG, tag))
        .insert_header((CACHE_CONTROL, "public, max-age=3600"));
    with_title_case_headers(match is_known {
        true => response.finish(),
        false => response.insert_header((CONTENT_TYPE, kind)).body(body),
    })
}

/// The address under which a client reached the gateway.
struct Place<'a> {
    settings: &'a FrontSettings,
    /// The URL of the endpoint.
    endpoint: String,
    /// The host without a port.
    host: String,
}

impl<'a> Place<'a> {
    fn of(request: &HttpRequest, settings: &'a FrontSettings) -> Self {
        let host = request.headers().get(HOST);
        // It was checked.
        let host = host.and_then(|host| host.to_str().ok()).unwrap_or_default();
        let endpoint = format!("{}://{host}{}", settings.scheme(), settings.endpoint);
        let name = host
            .rsplit_once(':')
            .filter(|(_, port)| !port.contains(']'));
        Self {
            settings,
            endpoint: endpoint.trim_end_matches('/').to_owned(),
            host: name.map_or(host, |(name, _)| name).to_owned(),
        }
    }

    fn url(&self, view: &ViewId) -> String {
        let endpoint = &self.endpoint;
        match view {
            ViewId::Default if self.settings.endpoint == "/" => format!("{endpoint}/"),
            ViewId::Default => endpoint.clone(),
            ViewId::Named(name) => format!("{endpoint}/{name}"),
            ViewId::Server(server) => format!("{endpoint}/server/{server}"),
        }
    }

    /// The card of a view. It has nothing that a client without credentials must not know.
    fn card(&self, view: &ViewId) -> Value {
        let name = name_of(view);
        let description = match view {
            ViewId::Default => "MCP servers behind one endpoint".to_owned(),
            ViewId::Named(name) => format!("MCP servers in the view {name}"),
            ViewId::Server(server) => format!("The MCP server {server}"),
        };
        let description: String = description.chars().take(DESCRIPTION_MAX).collect();
        let mut remote = json!({
            "type": "streamable-http",
            "url": self.url(view),
            "supportedProtocolVersions": Revision::ALL,
        });
        if self.settings.auth.is_required() {
            remote["headers"] = json!([{
                "name": "Authorization",
                "description": "`Bearer` and an API key or access token",
                "isRequired": true,
                "isSecret": true,
            }]);
        }
        json!({
            "$schema": SCHEMA,
            "name": format!("io.mcpvisor/{name}"),
            "version": env!("CARGO_PKG_VERSION"),
            "title": name,
            "description": description,
            "remotes": [remote],
        })
    }

    fn catalog(&self, views: impl Iterator<Item = ViewId>) -> Value {
        let entry = |view: ViewId| {
            json!({
                "identifier": format!("urn:air:{}:mcp:{}", self.host, name_of(&view)),
                "type": CARD,
                "url": path_of_card(&self.url(&view)),
            })
        };
        json!({ "specVersion": "1.0", "entries": views.map(entry).collect::<Vec<_>>() })
    }
}

fn name_of(view: &ViewId) -> &str {
    match view {
        ViewId::Default => "mcpvisor",
        ViewId::Named(name) => name,
        ViewId::Server(server) => server.as_str(),
    }
}
