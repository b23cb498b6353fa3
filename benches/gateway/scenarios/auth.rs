//! Calls of authenticated clients, compared with the same calls without authentication.

use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::digest::{SHA256, digest};
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio_util::task::AbortOnDropHandle;

use crate::Fallible;
use crate::bench::Bench;
use crate::client::{Era, Work};
use crate::measure::{Subject, compare};
use crate::report::{Bound, CPU, Goal, ratio};
use crate::targets::{self, Home, Server, Target};

pub(crate) const NAMES: [&str; 1] = ["auth"];

const CONNECTIONS: usize = 64;

/// Tools of the server.
const TOOLS: usize = 4;

const NOBODY: &str = "no authentication";
const KEY: &str = "a key";
const TOKEN: &str = "a JWT";

/// URL of the gateway in its clients' tokens; no client connects to it.
const RESOURCE: &str = "http://127.0.0.1/mcp";

pub(crate) async fn run(bench: &mut Bench) -> Fallible<()> {
    let text = "calls of clients with credentials beside those without, 64 connections";
    bench.report.title("auth", text);
    let stub = targets::stub_of(Era::Handshake, TOOLS).await?;
    let issuer = Issuer::start().await?;
    let key = "mcpvisor_bench";
    let ways = [
        (NOBODY, String::new(), None),
        (KEY, config_of_key(key), Some(key.to_owned())),
        (TOKEN, issuer.config(), Some(issuer.token()?)),
    ];
    let mut gateways = Vec::new();
    for (name, settings, credential) in ways {
        let servers = [Server::http("stub", &stub)];
        let mut gateway = Home::new(bench.dir.path(), &servers, &settings)?.start()?;
        gateway.place.credential = credential;
        gateways.push((name, gateway.ready(&bench.ids, TOOLS).await?));
    }
    let subject = |(name, gateway): &(&'static str, Target)| Subject {
        name,
        ..gateway.subject(stub.pid())
    };
    let subjects: Vec<_> = gateways
        .iter()
        .map(|gateway| (subject(gateway), Work::Echo))
        .collect();
    let figures = compare(bench.plan, &bench.ids, &subjects, CONNECTIONS).await;
    bench.report.table(&figures);
    for (name, most) in [(KEY, 1.03), (TOKEN, 1.10)] {
        bench.report.goal(Goal {
            what: format!("CPU per call, {name} beside {NOBODY}"),
            value: ratio(&figures, name, NOBODY, CPU),
            bound: Bound::AtMost(most),
        });
    }
    Ok(())
}

fn config_of_key(key: &str) -> String {
    let hash = digest(&SHA256, key.as_bytes());
    let hash: String = (hash.as_ref().iter())
        .map(|byte| format!("{byte:02x}"))
        .collect();
    format!("[auth.keys.bench]\nhash = \"sha256:{hash}\"\n")
}

/// Signs tokens, and serves the key to verify them.
struct Issuer {
    url: String,
    signer: EcdsaKeyPair,
    _serving: AbortOnDropHandle<()>,
}

impl Issuer {
    async fn start() -> Fallible<Self> {
        let (random, algorithm) = (SystemRandom::new(), &ECDSA_P256_SHA256_FIXED_SIGNING);
        let made = EcdsaKeyPair::generate_pkcs8(algorithm, &random);
        let made = made.map_err(|_| "no key can be made")?;
        let signer = EcdsaKeyPair::from_pkcs8(algorithm, made.as_ref(), &random);
        let signer = signer.map_err(|_| "the key cannot be used")?;
        let point = signer.public_key().as_ref();
        let half = |from: usize| {
            let bytes = point.get(from..from + 32).unwrap_or_default();
            URL_SAFE_NO_PAD.encode(bytes)
        };
        let key = json!({"kty": "EC", "crv": "P-256", "kid": "k", "x": half(1), "y": half(33)});
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}", listener.local_addr()?);
        let keys = json!({ "keys": [key] }).to_string();
        let serving = AbortOnDropHandle::new(tokio::spawn(serve(listener, keys)));
        Ok(Self {
            url,
            signer,
            _serving: serving,
        })
    }

    fn config(&self) -> String {
        let url = &self.url;
        format!(
            "[auth]\nresource = \"{RESOURCE}\"\n[auth.jwt]\nissuer = \"{url}\"\n\
             jwks_url = \"{url}/keys\"\n"
        )
    }

    fn token(&self) -> Fallible<String> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
        let header = json!({ "alg": "ES256", "typ": "at+jwt", "kid": "k" });
        let claims = json!({
            "iss": self.url, "aud": RESOURCE, "sub": "bench", "scope": "mcp", "exp": now + 3600,
        });
        let part = |part: Value| URL_SAFE_NO_PAD.encode(part.to_string());
        let text = format!("{}.{}", part(header), part(claims));
        let signed = self.signer.sign(&SystemRandom::new(), text.as_bytes());
        let signature = signed.map_err(|_| "the token cannot be signed")?;
        Ok(format!("{text}.{}", URL_SAFE_NO_PAD.encode(signature)))
    }
}

/// Answers every connection with the keys.
async fn serve(listener: TcpListener, keys: String) {
    let answer = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n{keys}",
        keys.len()
    );
    while let Ok((mut stream, _)) = listener.accept().await {
        // The whole request fits into one read on loopback.
        let _ = stream.read(&mut [0; 4096]).await;
        let _ = stream.write_all(answer.as_bytes()).await;
    }
}
