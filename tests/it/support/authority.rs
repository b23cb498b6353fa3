//! An authorization server for the HTTP server of these tests: it checks what a real one checks.

use std::collections::{HashMap, HashSet};
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, MutexGuard};

use actix_web::{HttpRequest, HttpResponse, web};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use bytes::Bytes;
use ring::digest::{SHA256, digest};
use serde_json::{Value, json};
use url::form_urlencoded;

use super::web_server::serve_in_thread;
use crate::support::HttpServer;

/// What the authorization server knows and how it behaves; a test may change it at any time.
#[derive(Debug, Default)]
pub(crate) struct Grants {
    /// Codes that were given out, with their PKCE challenge and redirect URI, and who agreed.
    codes: HashMap<String, (String, String, String)>,
    refresh_tokens: HashMap<String, String>,
    /// Who agreed to each token, by the name that the page was opened with.
    pub(crate) people: HashMap<String, String>,
    given: usize,
    codes_given: usize,
    pub(crate) registered: usize,
    /// Clients that it knows.
    pub(crate) clients: HashSet<String>,
    pub(crate) refreshed: usize,
    /// Tokens of clients that were to be exchanged, in order.
    pub(crate) exchanged: Vec<String>,
    /// The error that an exchange is answered with.
    pub(crate) no_exchange: Option<&'static str>,
    pub(crate) revoked: Vec<String>,
    /// The secret that it wants of the client `machine`.
    pub(crate) machine_secret: Option<&'static str>,
    /// Seconds that a token holds.
    pub(crate) expires_in: u64,
    /// The error that a bad grant is answered with, instead of `invalid_grant`.
    pub(crate) refusal: Option<&'static str>,
    /// The token endpoint answers with 503.
    pub(crate) is_away: bool,
    /// It does not say that it checks PKCE.
    pub(crate) no_pkce: bool,
}

/// The client `machine` with the secret `machine-secret`.
const MACHINE: &str = "Basic bWFjaGluZTptYWNoaW5lLXNlY3JldA==";

pub(crate) struct Authority {
    pub(crate) address: SocketAddr,
    grants: Arc<Mutex<Grants>>,
    server: Arc<Mutex<crate::support::Behaviour>>,
}

impl Authority {
    /// Gives out the tokens of a server, which refuses all others from now on.
    pub(crate) async fn of(server: &HttpServer) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let metadata = format!("http://{address}/resource");
        server.behaviour().challenge = Some(format!(
            "Bearer resource_metadata=\"{metadata}\", scope=\"tools\""
        ));
        let grants = Arc::new(Mutex::new(Grants {
            expires_in: 3600,
            ..Grants::default()
        }));
        let authority = Self {
            address,
            grants: grants.clone(),
            server: server.shared(),
        };
        let site = web::Data::new(Site {
            url: format!("http://{address}"),
            resource: format!("http://{}/mcp", server.address),
            grants,
            server: server.shared(),
        });
        serve_in_thread(listener, site, serve).await;
        authority
    }

    pub(crate) fn grants(&self) -> MutexGuard<'_, Grants> {
        self.grants.lock().unwrap()
    }

    /// From now on the server refuses the tokens that were given out.
    pub(crate) fn expire_tokens(&self) {
        self.server.lock().unwrap().tokens.clear();
    }

    /// From now on refresh tokens are refused, too.
    pub(crate) fn end_sign_ins(&self) {
        self.expire_tokens();
        self.grants().refresh_tokens.clear();
    }
}

struct Site {
    url: String,
    resource: String,
    grants: Arc<Mutex<Grants>>,
    server: Arc<Mutex<crate::support::Behaviour>>,
}

async fn serve(request: HttpRequest, body: Bytes, site: web::Data<Site>) -> HttpResponse {
    let url = &site.url;
    let form = |text: &[u8]| {
        let pairs = form_urlencoded::parse(text).into_owned();
        pairs.collect::<HashMap<String, String>>()
    };
    let mut grants = site.grants.lock().unwrap();
    match (request.method().as_str(), request.path()) {
        ("GET", "/resource") => HttpResponse::Ok().json(json!({
            "resource": site.resource,
            "authorization_servers": [url],
        })),
        ("GET", "/.well-known/oauth-authorization-server") => {
            let mut document = json!({
                "issuer": url,
                "authorization_endpoint": format!("{url}/authorize"),
                "token_endpoint": format!("{url}/token"),
                "registration_endpoint": format!("{url}/register"),
                "revocation_endpoint": format!("{url}/revoke"),
                "authorization_response_iss_parameter_supported": true,
            });
            if !grants.no_pkce {
                document["code_challenge_methods_supported"] = json!(["S256"]);
            }
            HttpResponse::Ok().json(document)
        }
        ("POST", "/register") => {
            let asked: Value = serde_json::from_slice(&body).unwrap();
            assert!(asked["redirect_uris"][0].is_string(), "{asked}");
            grants.registered += 1;
            let id = format!("client-{}", grants.registered);
            grants.clients.insert(id.clone());
            HttpResponse::Created().json(json!({ "client_id": id }))
        }
        ("GET", "/authorize") => {
            authorize(&form(request.query_string().as_bytes()), &mut grants, url)
        }
        ("POST", "/token") if grants.is_away => HttpResponse::ServiceUnavailable().finish(),
        ("POST", "/token") => {
            let basic = request.headers().get("authorization");
            let basic = basic.and_then(|value| value.to_str().ok());
            token(&form(&body), basic, &mut grants, &site)
        }
        ("POST", "/revoke") => {
            grants.revoked.push(form(&body)["token"].clone());
            HttpResponse::Ok().finish()
        }
        _ => HttpResponse::NotFound().finish(),
    }
}

/// The person agrees at once.
fn authorize(query: &HashMap<String, String>, grants: &mut Grants, url: &str) -> HttpResponse {
    if !grants.clients.contains(&query["client_id"]) {
        return HttpResponse::BadRequest().body("unknown client");
    }
    assert_eq!(query["code_challenge_method"], "S256");
    assert_eq!(query["scope"], "tools");
    grants.codes_given += 1;
    let code = format!("canary-code-{}", grants.codes_given);
    let redirect = query["redirect_uri"].clone();
    let person = query.get("person").cloned().unwrap_or_default();
    let kept = (query["code_challenge"].clone(), redirect.clone(), person);
    grants.codes.insert(code.clone(), kept);
    let answer = form_urlencoded::Serializer::new(String::new())
        .append_pair("code", &code)
        .append_pair("state", &query["state"])
        .append_pair("iss", url)
        .finish();
    HttpResponse::Found()
        .insert_header(("Location", format!("{redirect}?{answer}")))
        .finish()
}

fn token(
    form: &HashMap<String, String>,
    basic: Option<&str>,
    grants: &mut Grants,
    site: &Site,
) -> HttpResponse {
    assert_eq!(form["resource"], site.resource);
    let is_known = grants.clients.contains(&form["client_id"]);
    if basic.is_none() && !is_known {
        return HttpResponse::Unauthorized().json(json!({ "error": "invalid_client" }));
    }
    if let Some(secret) = grants.machine_secret {
        let pair = STANDARD.encode(format!("machine:{secret}"));
        if basic != Some(&*format!("Basic {pair}")) {
            return HttpResponse::Unauthorized().json(json!({ "error": "invalid_client" }));
        }
    }
    let mut issued = None;
    let person = match form["grant_type"].as_str() {
        "urn:ietf:params:oauth:grant-type:token-exchange" => {
            grants.exchanged.push(form["subject_token"].clone());
            if let Some(error) = grants.no_exchange {
                return HttpResponse::BadRequest().json(json!({ "error": error }));
            }
            issued = Some("urn:ietf:params:oauth:token-type:access_token");
            assert_eq!(form["subject_token_type"], issued.unwrap());
            (basic == Some(MACHINE)).then(|| subject_of(&form["subject_token"]))
        }
        "authorization_code" => grants.codes.remove(&form["code"]).and_then(|kept| {
            let (challenge, redirect, person) = kept;
            let verifier = digest(&SHA256, form["code_verifier"].as_bytes());
            let is_right =
                challenge == URL_SAFE_NO_PAD.encode(verifier) && redirect == form["redirect_uri"];
            is_right.then_some(person)
        }),
        "refresh_token" => {
            grants.refreshed += 1;
            grants.refresh_tokens.remove(&form["refresh_token"])
        }
        "client_credentials" => (basic == Some(MACHINE)).then(String::new),
        _ => None,
    };
    let Some(person) = person else {
        let error = grants.refusal.unwrap_or("invalid_grant");
        return HttpResponse::BadRequest().json(json!({ "error": error }));
    };
    grants.given += 1;
    let (access, refresh) = (
        format!("canary-access-{}", grants.given),
        format!("canary-refresh-{}", grants.given),
    );
    grants.people.insert(access.clone(), person.clone());
    grants.refresh_tokens.insert(refresh.clone(), person);
    site.server.lock().unwrap().tokens.insert(access.clone());
    HttpResponse::Ok().json(json!({
        "access_token": access,
        "token_type": "Bearer",
        "issued_token_type": issued,
        "expires_in": grants.expires_in,
        "refresh_token": refresh,
    }))
}

/// Whose a JWT is; who gave it out was checked by whom it is for.
fn subject_of(token: &str) -> String {
    let claims = token.split('.').nth(1).unwrap();
    let claims = URL_SAFE_NO_PAD.decode(claims).unwrap();
    let claims: Value = serde_json::from_slice(&claims).unwrap();
    claims["sub"].as_str().unwrap().to_owned()
}
