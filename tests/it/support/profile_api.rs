//! An API in the manner of plugged.in's, for the sources of these tests.

use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, MutexGuard};

use actix_web::http::StatusCode;
use actix_web::{HttpRequest, HttpResponse, web};
use bytes::Bytes;
use serde_json::{Value, json};

use super::web_server::serve_in_thread;

/// The key that it takes.
pub(crate) const API_KEY: &str = "pg_in_SECRET_of_the_api";

/// What it knows and how it behaves; a test may change it at any time.
#[derive(Debug, Default)]
pub(crate) struct Profile {
    pub(crate) servers: Vec<Value>,
    pub(crate) manages_tools: bool,
    /// As (server id, tool).
    pub(crate) inactive: Vec<(&'static str, &'static str)>,
    /// Answers everything with this status.
    pub(crate) fails_with: Option<u16>,
    /// Answers the list of servers with this.
    pub(crate) answers_with: Option<String>,
    /// What it was told, by path.
    pub(crate) reports: Vec<(String, Value)>,
    pub(crate) requests: usize,
    /// It has the list of servers at the path of its documents.
    pub(crate) at_documented_path: bool,
}

pub(crate) struct ProfileApi {
    pub(crate) address: SocketAddr,
    profile: Arc<Mutex<Profile>>,
}

impl ProfileApi {
    pub(crate) async fn start(servers: Vec<Value>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let profile = Arc::new(Mutex::new(Profile {
            servers,
            ..Profile::default()
        }));
        let shared = web::Data::from(Arc::clone(&profile));
        serve_in_thread(listener, shared, serve).await;
        Self { address, profile }
    }

    pub(crate) fn profile(&self) -> MutexGuard<'_, Profile> {
        self.profile.lock().unwrap()
    }

    /// `[sources.team]` of this API.
    pub(crate) fn source(&self) -> String {
        format!(
            "[sources.team]\nurl = \"http://{}/\"\nkey = \"{API_KEY}\"\ninterval = \"1s\"\n",
            self.address
        )
    }
}

async fn serve(
    request: HttpRequest,
    body: Bytes,
    profile: web::Data<Mutex<Profile>>,
) -> HttpResponse {
    let mut profile = profile.lock().unwrap();
    profile.requests += 1;
    if let Some(status) = profile.fails_with {
        return HttpResponse::build(StatusCode::from_u16(status).unwrap()).finish();
    }
    let authorization = request.headers().get("authorization");
    if authorization.is_none_or(|it| it != format!("Bearer {API_KEY}").as_str()) {
        return HttpResponse::Unauthorized().finish();
    }
    let servers_at = match profile.at_documented_path {
        true => "/api/servers",
        false => "/api/mcp-servers",
    };
    match (request.method().as_str(), request.path()) {
        ("GET", path) if path == servers_at => match &profile.answers_with {
            Some(text) => HttpResponse::Ok().body(text.clone()),
            None => HttpResponse::Ok().json(&profile.servers),
        },
        ("GET", "/api/profile-capabilities") => {
            let all: &[&str] = match profile.manages_tools {
                true => &["TOOLS_MANAGEMENT"],
                false => &[],
            };
            HttpResponse::Ok().json(json!({ "profileCapabilities": all }))
        }
        ("GET", "/api/tools") if request.query_string() == "status=INACTIVE" => {
            let tools = profile.inactive.iter().map(|(server, tool)| {
                json!({ "mcp_server_uuid": server, "name": tool, "status": "INACTIVE" })
            });
            HttpResponse::Ok().json(json!({ "results": tools.collect::<Vec<_>>() }))
        }
        ("POST", path @ ("/api/tools" | "/api/resources")) => {
            let told = serde_json::from_slice(&body).unwrap();
            profile.reports.push((path.to_owned(), told));
            HttpResponse::Ok().json(json!({ "results": [] }))
        }
        _ => HttpResponse::NotFound().finish(),
    }
}
