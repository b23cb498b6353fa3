//! An issuer of tokens: it signs with real keys, changes them, and can be away.

use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{SystemTime, UNIX_EPOCH};

use actix_web::{HttpRequest, HttpResponse, web};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use serde_json::{Value, json};

use super::web_server::serve_in_thread;

/// What tokens of these tests are for.
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
}

pub(crate) struct Issuer {
    pub(crate) address: SocketAddr,
    site: Arc<Mutex<Site>>,
    signer: Mutex<EcdsaKeyPair>,
}

fn new_key() -> EcdsaKeyPair {
    let (random, algorithm) = (SystemRandom::new(), &ECDSA_P256_SHA256_FIXED_SIGNING);
    let document = EcdsaKeyPair::generate_pkcs8(algorithm, &random).unwrap();
    EcdsaKeyPair::from_pkcs8(algorithm, document.as_ref(), &random).unwrap()
}

fn public(key: &EcdsaKeyPair, kid: &str) -> Value {
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
        self.signed(&json!({
            "iss": self.url(),
            "aud": RESOURCE,
            "sub": subject,
            "scope": "openid mcp",
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

async fn serve(request: HttpRequest, data: web::Data<(String, Arc<Mutex<Site>>)>) -> HttpResponse {
    let (url, site) = data.as_ref();
    let mut site = site.lock().unwrap();
    if site.is_away {
        return HttpResponse::ServiceUnavailable().finish();
    }
    match request.path() {
        // OpenID Connect Discovery alone: RFC 8414 is asked for first, in vain.
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
        _ => HttpResponse::NotFound().finish(),
    }
}
