//! `[cluster]`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value as Json, json};

use crate::cluster::{ClusterSecret, EngineSpec, InvalidSecret};
use crate::config::checks::{FILE, file, secret};
use crate::config::declaration::kinds::{OptionalKind, duration, flag, optional};
use crate::config::declaration::texts::{SecretText, TextKind, text, texts};
use crate::config::declaration::{ValueKind, keys};
use crate::config::section::{Section, ValueError};
use crate::config::units::{MINUTE, SECOND};

/// `[cluster]` as written in the file.
#[derive(Clone, PartialEq)]
pub struct ClusterKeys {
    pub(crate) engine: Option<SecretText>,
    pub(crate) secret: Vec<SecretText>,
    pub(crate) listen: Option<SocketAddr>,
    pub(crate) advertise: Option<String>,
    pub(crate) name: Option<String>,
    pub(crate) prefix: String,
    pub(crate) member_ttl: Duration,
    pub(crate) leave_notice: Duration,
    pub(crate) require_engine: bool,
    pub(crate) engine_ca: Option<PathBuf>,
}

impl std::fmt::Debug for ClusterKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ClusterKeys({:?})", self.listen)
    }
}

impl Default for ClusterKeys {
    fn default() -> Self {
        Self {
            engine: None,
            secret: Vec::new(),
            listen: None,
            advertise: None,
            name: None,
            prefix: "mcpvisor".to_owned(),
            member_ttl: Duration::from_secs(5),
            leave_notice: Duration::from_secs(2),
            require_engine: false,
            engine_ca: None,
        }
    }
}

impl ClusterKeys {
    /// The engine's URL, the secret and the address for other replicas; `None` without a cluster.
    pub fn replica(&self) -> Option<(String, Result<ClusterSecret, InvalidSecret>, SocketAddr)> {
        let engine = self.engine.as_ref()?.expose().to_owned();
        let secrets: Vec<_> = self.secret.iter().map(SecretText::to_secret).collect();
        Some((engine, ClusterSecret::try_new(&secrets), self.listen?))
    }

    /// Texts that must not be shown.
    pub fn secrets(&self) -> Vec<String> {
        let password = self.engine.as_ref().and_then(|engine| {
            let engine = EngineSpec::parse(engine.expose(), None).ok()?;
            engine.password().map(str::to_owned)
        });
        let secrets = self.secret.iter().map(|secret| secret.expose().to_owned());
        secrets.chain(password).collect()
    }
}

const ENGINE: &str = "the URL of a Valkey or Redis";
const ADDRESS: &str = "an IP address and a port, such as `\"0.0.0.0:12008\"`";
const HOST_AND_PORT: &str = "a host and a port, such as `\"10.0.0.7:12008\"`";
const WORD: &str = "1 to 64 characters of A-Z, a-z, 0-9, `.`, `_` and `-`";

fn engine() -> OptionalKind<TextKind<SecretText>> {
    let parse = |text: &str| match EngineSpec::parse(text, None) {
        Ok(_) => Ok(SecretText::new(text)),
        Err(why) => Err(ValueError::as_declared().help(&why.to_string())),
    };
    optional(text(ENGINE, parse), "\"redis://valkey:6379\"")
}

/// One secret, or a list of two while it changes.
struct SecretsKind;

impl ValueKind for SecretsKind {
    type Value = Vec<SecretText>;

    fn must_be(&self) -> String {
        "a string of at least 32 bytes, or a list of two".to_owned()
    }

    fn schema(&self) -> Json {
        let list = json!({ "type": "array", "items": { "type": "string" }, "maxItems": 2 });
        json!({ "anyOf": [{ "type": "string" }, list] })
    }

    fn toml(&self, _: &Vec<SecretText>) -> Option<String> {
        None
    }

    fn example(&self) -> Option<&'static str> {
        Some("\"${file:/run/secrets/mcpvisor}\"")
    }

    fn read(&self, section: &Section<'_>, key: &'static str) -> Option<Vec<SecretText>> {
        const EACH: &str = "a string of at least 32 bytes";
        if section.is_array(key) {
            return texts(EACH, secret).read(section, key);
        }
        text(EACH, secret).read(section, key).map(|one| vec![one])
    }
}

fn address(text: &str) -> Result<SocketAddr, ValueError> {
    let parsed: SocketAddr = text.parse().map_err(|_| ValueError::as_declared())?;
    match parsed.port() {
        0 => Err(ValueError::as_declared().help("other replicas need a fixed port")),
        _ => Ok(parsed),
    }
}

fn host_and_port(text: &str) -> Result<String, ValueError> {
    let (host, port) = text.rsplit_once(':').unwrap_or_default();
    let is_port = port.parse::<u16>().is_ok_and(|port| port > 0);
    match is_port && !host.is_empty() && !text.contains(['/', ' ']) {
        true => Ok(text.to_owned()),
        false => Err(ValueError::as_declared()),
    }
}

fn word(text: &str) -> Result<String, ValueError> {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    match (1..=64).contains(&text.len()) && text.chars().all(is_allowed) {
        true => Ok(text.to_owned()),
        false => Err(ValueError::as_declared()),
    }
}

keys! {
    /// Several gateways behind any balancer as one endpoint (docs/cluster.md). The tables of all of
    /// them must agree, apart from `listen`, `advertise` and `name`.
    ClusterTable for ClusterKeys, check {
        /// Valkey or Redis 6.2 or later: redis://, rediss://, or with Sentinel
        /// redis+sentinel://HOST:26379,HOST:26379/PRIMARY. Without it, the gateway is no replica.
        engine: engine(), NeedsRestart, Secret;
        /// Secret that only the replicas know; two while it changes: the first is used, both are
        /// accepted.
        secret: SecretsKind, NeedsRestart, Secret;
        /// Address and port where other replicas connect.
        listen: optional(text(ADDRESS, address), "\"0.0.0.0:12008\""), NeedsRestart;
        /// Host and port that other replicas use, if they differ from `listen` and from the address
        /// that the engine sees.
        advertise: optional(text(HOST_AND_PORT, host_and_port), "\"10.0.0.7:12008\""), NeedsRestart;
        /// Name of this replica for operators. Default: the name of the host.
        name: optional(text(WORD, word), "\"gateway-1\""), NeedsRestart;
        /// First part of all names in the engine; clusters on one engine need different ones.
        prefix: text(WORD, word), NeedsRestart;
        /// Lifetime of a replica's sign of life, which it renews three times in it.
        member_ttl: duration(SECOND..=MINUTE), NeedsRestart;
        /// When it stops, how long a replica serves everything while balancers notice that it is
        /// not ready.
        leave_notice: duration(Duration::ZERO..=MINUTE), NeedsRestart;
        /// Refuse new sessions while the engine is away, instead of saving them later.
        require_engine: flag(), NeedsRestart;
        /// CAs in PEM that certify the engine. Default: those of the system.
        engine_ca: optional(text(FILE, file), "\"/etc/mcpvisor/engine-ca.pem\""), NeedsRestart;
    }
}

/// A replica needs an engine, a secret and an address; without an engine the table does nothing.
fn check(keys: &mut ClusterKeys, section: &Section<'_>) {
    if let Some(ca) = &mut keys.engine_ca {
        *ca = section.reader.interpolation.directory.join(&ca);
    }
    let has = |key: &str| section.has(key);
    if !has("engine") {
        if has("secret") || has("listen") {
            let message = "`cluster.engine` is missing, so this gateway is no replica".to_owned();
            let help = "add `engine = \"redis://HOST:6379\"`, or remove the table".to_owned();
            section.refuse_table(message, help);
        }
        return;
    }
    if !has("listen") {
        let help = "add `listen = \"0.0.0.0:12008\"` and let only the other replicas connect there";
        section.refuse_table(
            "`cluster.engine` needs `cluster.listen`".to_owned(),
            help.to_owned(),
        );
    }
    if !has("secret") {
        let help = "make one with `openssl rand -hex 32`, give it to every replica, and add \
                    `secret = \"${file:PATH}\"`";
        section.refuse_table(
            "`cluster.engine` needs `cluster.secret`".to_owned(),
            help.to_owned(),
        );
    } else if let Some((_, Err(why), _)) = keys.replica()
        // An invalid value was reported already.
        && !keys.secret.is_empty()
    {
        section.refuse(&["secret"], format!("`cluster.secret`: {why}"), None);
    }
}
