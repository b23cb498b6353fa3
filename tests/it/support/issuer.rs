//! An issuer of tokens: it signs with real keys, changes them, and can be away.

use std::collections::HashMap;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{SystemTime, UNIX_EPOCH};

use actix_web::http::StatusCode;
use actix_web::{HttpRequest, HttpResponse, web};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use serde_json::{Value, json};
use url::form_urlencoded;

use super::web_server::serve_in_thread;

/// The resource that tokens of these tests are for.
pub(crate) const RESOURCE: &str = "https://gateway.test/mcp";

#[derive(Default)]
pub(crate) struct Site {
    /// Of the key that signs.
    kid: String,
    /// Public keys that are shown.
    keys: Vec<Value>,
    /// How often the keys were asked for.
    pub(crate) asked: usize,
    /// Every request is answered with 503.
    pub(crate) is_away: bool,
    /// What is answered about tokens that are no JWT: a text as it is, anything else as JSON. A
    /// webhook answers the status alone where it is null.
    pub(crate) answers: HashMap<String, (u16, Value)>,
    /// Tokens that were asked about, in order.
    pub(crate) asked_about: Vec<String>,
}

pub(crate) struct Issuer {
    pub(crate) address: SocketAddr,
    site: Arc<Mutex<Site>>,
    signer: Mutex<EcdsaKeyPair>,
}

pub(super) fn new_key() -> EcdsaKeyPair {
    let (random, algorithm) = (SystemRandom::new(), &ECDSA_P256_SHA256_FIXED_SIGNING);
    let document = EcdsaKeyPair::generate_pkcs8(algorithm, &random).unwrap();
    EcdsaKeyPair::from_pkcs8(algorithm, document.as_ref(), &random).unwrap()
}

pub(super) fn public(key: &EcdsaKeyPair, kid: &str) -> Value {
    let (x, y) = key.public_key().as_ref()[1..].split_at(32);
    let [x, y] = [x, y].map(|half| URL_SAFE_NO_PAD.encode(half));
    json!({ "kty": "EC", "crv": "P-256", "kid": kid, "use": "sig", "x": x, "y": y })
}

pub(crate) fn unix_seconds() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.unwrap().as_secs()
}

impl Issuer {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (site, key) = (Arc::new(Mutex::new(Site::default())), new_key());
        let issuer = Self {
            address,
            site: site.clone(),
            signer: Mutex::new(key),
        };
        issuer.change_key("first");
        let data = web::Data::new((format!("http://{address}"), site));
        serve_in_thread(listener, data, serve).await;
        issuer
    }

    pub(crate) fn site(&self) -> MutexGuard<'_, Site> {
        self.site.lock().unwrap()
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// `[auth]` of a gateway that takes these tokens.
    pub(crate) fn config(&self) -> String {
        format!(
            "[auth]\nresource = \"{RESOURCE}\"\nscopes = [\"mcp\"]\n\
             jwt = {{ issuer = \"{}\", clock_skew = \"0s\" }}\n",
            self.url()
        )
    }

    /// `[auth]` of a gateway that asks here about its tokens.
    pub(crate) fn introspecting(&self, cache_for: &str) -> String {
        let url = self.url();
        format!(
            "[auth]\nresource = \"{RESOURCE}\"\nscopes = [\"mcp\"]\n[auth.introspection]\n\
             endpoint = \"{url}/introspect\"\nissuer = \"{url}\"\nclient_id = \"gateway\"\n\
             client_secret = \"secret\"\ncache_for = \"{cache_for}\"\n"
        )
    }

    /// Of a gateway whose webhook this is.
    pub(crate) fn webhook(&self, cache_for: &str) -> String {
        format!(
            "[auth]\nresource = \"{RESOURCE}\"\n\
             webhook = {{ url = \"{}/check\", cache_for = \"{cache_for}\" }}\n",
            self.url()
        )
    }

    /// What is answered about a token that is no JWT.
    pub(crate) fn answer(&self, token: &str, status: u16, answer: Value) {
        self.site()
            .answers
            .insert(token.to_owned(), (status, answer));
    }

    /// Signs with a new key from now on; the one before is not shown any more.
    pub(crate) fn change_key(&self, kid: &str) {
        let key = new_key();
        let mut site = self.site();
        kid.clone_into(&mut site.kid);
        site.keys = vec![public(&key, kid)];
        *self.signer.lock().unwrap() = key;
    }

    /// A token of this subject that holds for so many seconds.
    pub(crate) fn token(&self, subject: &str, seconds: u64) -> String {
        self.token_with(subject, "openid mcp", seconds)
    }

    pub(crate) fn token_with(&self, subject: &str, scope: &str, seconds: u64) -> String {
        self.signed(&json!({
            "iss": self.url(),
            "aud": RESOURCE,
            "sub": subject,
            "scope": scope,
            "exp": unix_seconds() + seconds,
        }))
    }

    pub(crate) fn signed(&self, claims: &Value) -> String {
        let kid = self.site().kid.clone();
        let header = json!({ "alg": "ES256", "typ": "at+jwt", "kid": kid });
        let [header, claims] =
            [&header, claims].map(|part| URL_SAFE_NO_PAD.encode(part.to_string()));
        let text = format!("{header}.{claims}");
        let signer = self.signer.lock().unwrap();
        let signature = signer.sign(&SystemRandom::new(), text.as_bytes()).unwrap();
        format!("{text}.{}", URL_SAFE_NO_PAD.encode(signature))
    }
}

async fn serve(
    request: HttpRequest,
    body: Bytes,
    data: web::Data<(String, Arc<Mutex<Site>>)>,
) -> HttpResponse {
    let (url, site) = data.as_ref();
    let mut site = site.lock().unwrap();
    if site.is_away {
        return HttpResponse::ServiceUnavailable().finish();
    }
    let authorization = request.headers().get("authorization");
    let authorization = authorization.map_or("", |value| value.to_str().unwrap());
    match request.path() {
        // OpenID Connect Discovery alone: it has no metadata of RFC 8414, which is requested first.
        "/.well-known/openid-configuration" => HttpResponse::Ok().json(json!({
            "issuer": url,
            "authorization_endpoint": format!("{url}/authorize"),
            "token_endpoint": format!("{url}/token"),
            "jwks_uri": format!("{url}/keys"),
        })),
        "/keys" => {
            site.asked += 1;
            HttpResponse::Ok().json(json!({ "keys": site.keys }))
        }
        "/introspect" => {
            // gateway:secret
            assert_eq!(authorization, "Basic Z2F0ZXdheTpzZWNyZXQ=");
            let token = form_urlencoded::parse(&body).find(|(name, _)| name == "token");
            let token = token.unwrap().1.into_owned();
            site.asked_about.push(token.clone());
            let known = site.answers.get(&token).map(|(_, answer)| answer.clone());
            match known.unwrap_or(json!({ "active": false })) {
                Value::String(body) => HttpResponse::Ok().body(body),
                answer => HttpResponse::Ok().json(answer),
            }
        }
        "/check" => {
            let body: Value = serde_json::from_slice(&body).unwrap();
            assert_eq!(body, json!({ "resource": RESOURCE }));
            let token = authorization.strip_prefix("Bearer ").unwrap().to_owned();
            site.asked_about.push(token.clone());
            let answer = site.answers.get(&token).cloned();
            let (status, answer) = answer.unwrap_or((401, Value::Null));
            let mut response = HttpResponse::build(StatusCode::from_u16(status).unwrap());
            match answer {
                Value::Null => response.finish(),
                Value::String(body) => response.body(body),
                answer => response.json(answer),
            }
        }
        _ => HttpResponse::NotFound().finish(),
    }
}
