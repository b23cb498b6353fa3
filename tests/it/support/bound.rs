//! An MCP server of 2026-07-28 that wants tokens, its authorization server, and an identity
//! provider: for grants by a JWT, and for tokens that are bound to a key.

use std::collections::{HashMap, HashSet};
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, MutexGuard};

use actix_web::{HttpRequest, HttpResponse, web};
use bytes::Bytes;
use serde_json::{Value, json};
use url::form_urlencoded;

use super::proofs::proven;
use super::web_server::serve_in_thread;

/// The requests that the servers saw, and the tokens that they want.
#[derive(Default)]
pub(crate) struct Site {
    /// Tokens are bound to keys, and proofs need a nonce of each server.
    pub(crate) wants_dpop: bool,
    /// Tokens that hold, each with the thumbprint of its key.
    pub(crate) tokens: HashMap<String, String>,
    /// Grants that were redeemed, in order.
    pub(crate) assertions: Vec<String>,
    /// Client assertions, in order.
    pub(crate) client_assertions: Vec<String>,
    /// Tokens that the identity provider was shown.
    pub(crate) exchanged: Vec<String>,
    /// Ids of proofs: none may come twice.
    ids: HashSet<String>,
    /// How often a nonce was missing, at the authorization server and at the server.
    pub(crate) without_nonce: [usize; 2],
    pub(crate) calls: usize,
    given: usize,
}

/// The servers, at one address.
pub(crate) struct Bound {
    pub(crate) address: SocketAddr,
    site: Arc<Mutex<Site>>,
}

impl Bound {
    pub(crate) async fn start(wants_dpop: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let site = Arc::new(Mutex::new(Site {
            wants_dpop,
            ..Site::default()
        }));
        let data = web::Data::new((format!("http://{address}"), Arc::clone(&site)));
        serve_in_thread(listener, data, serve).await;
        Self { address, site }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// `[servers.docs]`, and the keys of its sign-in.
    pub(crate) fn config(&self, more: &str, oauth: &str) -> String {
        let url = self.url();
        format!("\n[servers.docs]\nurl = \"{url}/mcp\"\n{more}[servers.docs.oauth]\n{oauth}")
    }

    pub(crate) fn site(&self) -> MutexGuard<'_, Site> {
        self.site.lock().unwrap()
    }
}

async fn serve(
    request: HttpRequest,
    body: Bytes,
    data: web::Data<(String, Arc<Mutex<Site>>)>,
) -> HttpResponse {
    let (url, site) = data.as_ref();
    let mut site = site.lock().unwrap();
    let form =
        || -> HashMap<String, String> { form_urlencoded::parse(&body).into_owned().collect() };
    match request.path() {
        "/.well-known/oauth-protected-resource/mcp" => HttpResponse::Ok().json(json!({
            "resource": format!("{url}/mcp"),
            "authorization_servers": [url],
        })),
        "/.well-known/oauth-authorization-server" => HttpResponse::Ok().json(json!({
            "issuer": url,
            "token_endpoint": format!("{url}/token"),
            "dpop_signing_alg_values_supported": ["ES256"],
        })),
        "/idp/token" => id_jag(&form(), &mut site, url),
        "/token" => token(&request, &form(), &mut site, url),
        "/mcp" if request.method() != "POST" => HttpResponse::MethodNotAllowed().finish(),
        "/mcp" => {
            if let Some(refusal) = refusal(&request, &mut site, url) {
                return refusal;
            }
            answer(&body, &mut site)
        }
        _ => HttpResponse::NotFound().finish(),
    }
}

/// The identity provider's answer to an exchange.
fn id_jag(form: &HashMap<String, String>, site: &mut Site, url: &str) -> HttpResponse {
    let kind = "urn:ietf:params:oauth:";
    assert_eq!(
        form["grant_type"],
        format!("{kind}grant-type:token-exchange")
    );
    assert_eq!(
        form["requested_token_type"],
        format!("{kind}token-type:id-jag")
    );
    assert_eq!(
        form["subject_token_type"],
        format!("{kind}token-type:id_token")
    );
    assert_eq!(
        form["audience"], url,
        "the authorization server of the server"
    );
    assert_eq!(form["resource"], format!("{url}/mcp"));
    assert_eq!(form["client_id"], "gateway-at-idp");
    site.exchanged.push(form["subject_token"].clone());
    HttpResponse::Ok().json(json!({
        "access_token": format!("id-jag-{}", site.exchanged.len()),
        "issued_token_type": format!("{kind}token-type:id-jag"),
        "token_type": "N_A",
    }))
}

fn token(
    request: &HttpRequest,
    form: &HashMap<String, String>,
    site: &mut Site,
    url: &str,
) -> HttpResponse {
    assert_eq!(form["resource"], format!("{url}/mcp"));
    let mut key = String::new();
    if site.wants_dpop {
        let (thumbprint, claims) = proven(request, &format!("{url}/token"), None);
        assert!(
            site.ids.insert(claims["jti"].to_string()),
            "a proof is used once"
        );
        if claims["nonce"] != "nonce-of-authority" {
            site.without_nonce[0] += 1;
            return HttpResponse::BadRequest()
                .insert_header(("DPoP-Nonce", "nonce-of-authority"))
                .json(json!({ "error": "use_dpop_nonce" }));
        }
        key = thumbprint;
    }
    if let Some(assertion) = form.get("client_assertion") {
        let kind = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";
        assert_eq!(form["client_assertion_type"], kind);
        site.client_assertions.push(assertion.clone());
    }
    match form["grant_type"].as_str() {
        "urn:ietf:params:oauth:grant-type:jwt-bearer" => {
            site.assertions.push(form["assertion"].clone());
        }
        "client_credentials" => assert!(form.contains_key("client_assertion"), "{form:?}"),
        other => panic!("{other}"),
    }
    site.given += 1;
    let access = format!("canary-access-{}", site.given);
    site.tokens.insert(access.clone(), key);
    let kind = if site.wants_dpop { "DPoP" } else { "Bearer" };
    HttpResponse::Ok().json(json!({
        "access_token": access, "token_type": kind, "expires_in": 3600,
    }))
}

/// Why the server does not take a request.
fn refusal(request: &HttpRequest, site: &mut Site, url: &str) -> Option<HttpResponse> {
    let scheme = if site.wants_dpop { "DPoP" } else { "Bearer" };
    let refused = |error: &str| {
        let mut response = HttpResponse::Unauthorized();
        response.insert_header(("WWW-Authenticate", format!("{scheme} error=\"{error}\"")));
        response
    };
    let sent = request.headers().get("authorization");
    let sent = sent.and_then(|sent| sent.to_str().unwrap().split_once(' '));
    let known = sent.and_then(|(sent, token)| {
        assert_eq!(sent, scheme);
        Some((token, site.tokens.get(token)?.clone()))
    });
    let Some((token, key)) = known else {
        return Some(refused("invalid_token").finish());
    };
    if !site.wants_dpop {
        return None;
    }
    let (thumbprint, claims) = proven(request, &format!("{url}/mcp"), Some(token));
    assert_eq!(thumbprint, key, "the token's key");
    assert!(
        site.ids.insert(claims["jti"].to_string()),
        "a proof is used once"
    );
    (claims["nonce"] != "nonce-of-server").then(|| {
        site.without_nonce[1] += 1;
        let mut response = refused("use_dpop_nonce");
        response.insert_header(("DPoP-Nonce", "nonce-of-server"));
        response.finish()
    })
}

fn answer(body: &[u8], site: &mut Site) -> HttpResponse {
    let message: Value = serde_json::from_slice(body).unwrap();
    let result = match message["method"].as_str().unwrap() {
        "server/discover" => json!({
            "resultType": "complete",
            "supportedVersions": ["2026-07-28"],
            "capabilities": { "tools": {} },
        }),
        "tools/list" => json!({
            "resultType": "complete",
            "tools": [{ "name": "echo", "inputSchema": { "type": "object" } }],
        }),
        "tools/call" => {
            site.calls += 1;
            json!({
                "resultType": "complete",
                "content": [{ "type": "text", "text": "echoed" }],
            })
        }
        _ => {
            let error = json!({ "code": -32601, "message": "unknown method" });
            let answer = json!({ "jsonrpc": "2.0", "id": message["id"], "error": error });
            return HttpResponse::NotFound().json(answer);
        }
    };
    HttpResponse::Ok().json(json!({ "jsonrpc": "2.0", "id": message["id"], "result": result }))
}
