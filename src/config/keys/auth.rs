//! `[auth]`.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value as Json, json};

use super::oauth::{ENDPOINT, SCOPE, endpoint, scope};
use crate::auth::{
    Algorithm, ApiKey, AuthSecret, AuthSettings, ClientLimits, IntrospectionSettings, JwtSettings,
    LastUse, Rate, RateLimitSettings, RefusalCompat, TokenHash, WebhookSettings, expiry_millis,
};
use crate::config::checks::{NOT_EMPTY, not_empty};
use crate::config::declaration::kinds::{
    TableKind, choice, count, duration, flag, optional, size, table,
};
use crate::config::declaration::texts::{TextListKind, TextValue, text, texts};
use crate::config::declaration::{ValueKind, keys};
use crate::config::environment::trimmed_var;
use crate::config::problem::Problem;
use crate::config::section::{Section, ValueError};
use crate::config::units::{DAY, GIB, HOUR, SECOND};
use crate::credentials::Scopes;

/// API keys in one file.
const KEYS_MAX: usize = 1000;

/// Longest name of a key, in characters.
const NAME_MAX: usize = 64;

const HASH: &str = "the hash of a key, as written by `mcpvisor keys add`: `\"sha256:…\"`";

const EXPIRES: &str = "a time with its zone, such as `\"2030-01-01T00:00:00Z\"`";

keys! {
    /// How clients authenticate. By default they do not.
    AuthTable for AuthSettings, check {
        /// API keys, one table `[auth.keys.NAME]` each: `hash`, and optionally `expires`, `scopes`
        /// and `limits` (docs/auth.md). `mcpvisor keys` manages them.
        keys: ApiKeysKind, Secret;
        /// Identify clients by the name in their certificate (`tls.client_ca`). They need no key.
        certificates: flag();
        /// Let clients open a session, ping and list without a key; anything else needs one.
        lazy: flag();
        /// "session": a session remembers its key or token for requests without one, so anyone who
        /// knows the session id can use it.
        remember in remember.by_session: choice(&[("none", false), ("session", true)]);
        /// Interval at which a remembered token is checked again. Keys are checked with each
        /// request.
        recheck in remember.recheck: duration(SECOND..=DAY);
        /// Compatibility mode for 401 responses: "tagoio" sends the JSON-RPC code -32000 instead of
        /// -32001.
        compat: choice(&[("none", RefusalCompat::None), ("tagoio", RefusalCompat::TagoIo)]);
        /// URL of this gateway's endpoint as clients know it; they request tokens for it.
        resource in tokens.resource: optional(text(ENDPOINT, as_written), "\"https://gateway.example.com/mcp\"");
        /// Scopes that every token needs.
        scopes in tokens.scopes: texts(SCOPE, scope).such_as("[\"mcp\"]");
        /// Tokens of an authorization server.
        jwt in tokens.jwt: table::<JwtTable>("[auth.jwt]");
        /// Tokens checked by introspection.
        introspection in tokens.introspection: table::<IntrospectionTable>("[auth.introspection]");
        /// A webhook that checks tokens that are not JSON Web Tokens, or all tokens without
        /// `auth.jwt` (docs/auth.md).
        webhook in tokens.webhook: table::<WebhookTable>("[auth.webhook]");
    }
}

/// A URL that is compared with others letter by letter, as `iss` and `aud` are.
fn as_written(text: &str) -> Result<String, ValueError> {
    endpoint(text).map(|_| text.to_owned())
}

const ALGORITHM: &str = "one of ES256, ES384, RS256, RS384, RS512, PS256, PS384, PS512 and EdDSA";

fn algorithm(text: &str) -> Result<Algorithm, ValueError> {
    let parsed: Result<Algorithm, _> = text.parse();
    let parsed = parsed.map_err(|_| ValueError::as_declared())?;
    match parsed {
        // Whoever knows a public key could sign with it.
        Algorithm::HS256 | Algorithm::HS384 | Algorithm::HS512 => Err(ValueError::as_declared()),
        other => Ok(other),
    }
}

impl TextValue for Algorithm {
    fn text(&self) -> Option<String> {
        Some(format!("{self:?}"))
    }
}

keys! {
    /// JSON Web Tokens of an authorization server, checked with its public keys (docs/auth.md).
    JwtTable for JwtSettings, check_jwt {
        /// Authorization server, spelled exactly as `iss` in its tokens. If set, every request
        /// needs a token or a key.
        issuer: optional(text(ENDPOINT, as_written), "\"https://auth.example.com\"");
        /// Accepted `aud` values besides `auth.resource`.
        audiences: texts(NOT_EMPTY, not_empty).such_as("[\"gateway\"]");
        /// URL of the issuer's keys, if its metadata lacks it.
        jwks_url: optional(text(ENDPOINT, endpoint), "\"https://auth.example.com/jwks\"");
        /// Accepted signature algorithms.
        algorithms: texts(ALGORITHM, algorithm);
        /// Tolerated clock difference.
        clock_skew: duration(Duration::ZERO..=HOUR);
    }
}

impl TextValue for AuthSecret {
    fn text(&self) -> Option<String> {
        None
    }
}

fn auth_secret(text: &str) -> Result<AuthSecret, ValueError> {
    not_empty(text).map(|text| AuthSecret::new(&text))
}

keys! {
    /// Introspection (RFC 7662) of tokens that are not JSON Web Tokens, or of all tokens without
    /// `auth.jwt`.
    IntrospectionTable for IntrospectionSettings, check_introspection {
        /// Introspection endpoint.
        endpoint: optional(text(ENDPOINT, endpoint), "\"https://auth.example.com/introspect\"");
        /// Authorization server of the clients, spelled as in its metadata.
        issuer: optional(text(ENDPOINT, as_written), "\"https://auth.example.com\"");
        /// The gateway's client id there.
        client_id: optional(text(NOT_EMPTY, not_empty), "\"mcpvisor\"");
        /// The gateway's client secret.
        client_secret: optional(text(NOT_EMPTY, auth_secret), "\"${INTROSPECTION_SECRET}\""), Secret;
        /// Accepted `aud` values besides `auth.resource`.
        audiences: texts(NOT_EMPTY, not_empty).such_as("[\"gateway\"]");
        /// How long an answer is cached, at most until the token expires.
        cache_for: duration(Duration::ZERO..=HOUR);
    }
}

fn check_introspection(introspection: &mut IntrospectionSettings, section: &Section<'_>) {
    let given = [
        ("endpoint", introspection.endpoint.is_some()),
        ("issuer", introspection.issuer.is_some()),
        ("client_id", introspection.client_id.is_some()),
        ("client_secret", introspection.client_secret.is_some()),
    ];
    let is_used = given.iter().any(|(_, is_given)| *is_given);
    for (key, _) in given.iter().filter(|(_, is_given)| is_used && !is_given) {
        let message = format!("`{}` is missing", section.path(key));
        section.refuse_table(message, None);
    }
}

keys! {
    /// A webhook that checks tokens that are not JSON Web Tokens, or all tokens without `auth.jwt`
    /// (docs/auth.md).
    WebhookTable for WebhookSettings {
        /// URL of the webhook.
        url: optional(text(ENDPOINT, endpoint), "\"https://api.example.com/check\"");
        /// How long an answer is cached, at most until the token expires.
        cache_for: duration(Duration::ZERO..=HOUR);
    }
}

fn check_jwt(jwt: &mut JwtSettings, section: &Section<'_>) {
    // An empty list would refuse every token.
    if jwt.algorithms.is_empty() {
        let message = format!("`{}` must not be empty", section.path("algorithms"));
        section.refuse(&["algorithms"], message, None);
    }
}

const RATE: &str = "a rate such as `\"100/minute\"`: 1 to 1000000 per second, minute, hour or day";

impl TextValue for Rate {
    fn text(&self) -> Option<String> {
        Some(self.to_string())
    }
}

fn rate(text: &str) -> Result<Rate, ValueError> {
    Rate::parse(text).ok_or_else(ValueError::as_declared)
}

keys! {
    /// How often each client can call (docs/auth.md): 1 to 1000000 times per second, minute, hour
    /// or day.
    RateLimitsTable for RateLimitSettings {
        /// Calls of tools, prompts, resources and completions.
        calls: optional(text(RATE, rate), "\"600/minute\"");
        /// Calls per server.
        calls_per_server: optional(text(RATE, rate), "\"300/minute\"");
        /// Calls per tool.
        calls_per_tool: optional(text(RATE, rate), "\"60/minute\"");
        /// Calls of a tool with the same arguments in one session: stops an agent that is caught in
        /// a loop.
        identical_calls: optional(text(RATE, rate), "\"10/minute\"");
    }
}

keys! {
    /// Limits of one key, which override the limits of all clients.
    ClientLimitsTable for ClientLimits {
        /// Overrides `rate_limits.calls`.
        calls in rates.calls: optional(text(RATE, rate), "\"6000/minute\"");
        /// Overrides `rate_limits.calls_per_server`.
        calls_per_server in rates.calls_per_server: optional(text(RATE, rate), "\"3000/minute\"");
        /// Overrides `rate_limits.calls_per_tool`.
        calls_per_tool in rates.calls_per_tool: optional(text(RATE, rate), "\"600/minute\"");
        /// Overrides `rate_limits.identical_calls`.
        identical_calls in rates.identical_calls: optional(text(RATE, rate), "\"20/minute\"");
        /// Overrides `sessions.max_per_client`.
        sessions: optional(count(0..=10_000_000), "1000");
        /// Overrides `sessions.listeners_per_client`.
        listeners: optional(count(0..=1_000_000), "100");
        /// Overrides `limits.calls_per_client`.
        calls_in_flight: optional(count(0..=1_000_000), "500");
        /// Overrides `limits.bytes_per_client`.
        bytes_in_flight: optional(size(0..=64 * GIB), "\"64MiB\"");
    }
}

/// Tables with free names, one for each key.
struct ApiKeysKind;

impl ValueKind for ApiKeysKind {
    type Value = Vec<ApiKey>;

    fn must_be(&self) -> String {
        "a table of tables".to_owned()
    }

    fn schema(&self) -> Json {
        json!({
            "type": "object",
            "propertyNames": { "pattern": "^[A-Za-z0-9._-]{1,64}$" },
            "additionalProperties": {
                "type": "object",
                "additionalProperties": false,
                "required": ["hash"],
                "properties": {
                    "hash": { "type": "string", "description": HASH },
                    "expires": { "type": "string", "description": EXPIRES },
                    SCOPES: key_scopes().schema(),
                    LIMITS: key_limits().schema(),
                },
            },
        })
    }

    fn toml(&self, _: &Vec<ApiKey>) -> Option<String> {
        None
    }

    fn show(&self, keys: &Vec<ApiKey>) -> Option<String> {
        let names: Vec<&str> = keys.iter().map(|key| key.name.as_str()).collect();
        Some(names.join(", "))
    }

    fn example(&self) -> Option<&'static str> {
        Some("{ laptop = { hash = \"sha256:…\", expires = \"2030-01-01T00:00:00Z\" } }")
    }

    fn read(&self, section: &Section<'_>, key: &'static str) -> Option<Vec<ApiKey>> {
        let tables = section.table(key).tables();
        if tables.len() > KEYS_MAX {
            let message = format!("`{}` holds more than {KEYS_MAX} keys", section.path(key));
            section.refuse(&[key], message, None);
            return None;
        }
        let keys = tables.into_iter();
        let keys = keys.filter_map(|(name, section)| read_key(name, &section));
        section.has(key).then(|| keys.collect())
    }
}

const SCOPES: &str = "scopes";
const LIMITS: &str = "limits";

fn key_scopes() -> TextListKind<String> {
    texts(SCOPE, scope)
}

fn key_limits() -> TableKind<ClientLimitsTable> {
    table("[auth.keys.NAME.limits]")
}

/// One key; what is wrong with it is reported.
fn read_key(name: &str, section: &Section<'_>) -> Option<ApiKey> {
    section.refuse_unknown(&["hash", "expires", SCOPES, LIMITS]);
    let Some(hash) = section.text("hash") else {
        if !section.has("hash") {
            section.refuse_table(format!("`{}` is missing", section.path("hash")), None);
        }
        return None;
    };
    let parsed = TokenHash::parse(&hash.value).ok_or_else(ValueError::as_declared);
    let hash = section.checked(&hash, HASH, parsed);
    let expires_at = section.text("expires").and_then(|expires| {
        let parsed = expiry_millis(&expires.value).ok_or_else(ValueError::as_declared);
        section.checked(&expires, EXPIRES, parsed)
    });
    let limits = key_limits().read(section, LIMITS).unwrap_or_default();
    let scopes = key_scopes().read(section, SCOPES).unwrap_or_default();
    let scopes = Scopes::of(scopes.iter().map(String::as_str)).ok();
    let scopes = scopes.filter(|scopes| !scopes.is_empty());
    if !is_key_name(name) {
        let message = format!(
            "`{}` must be a name of 1 to {NAME_MAX} letters, digits and `-_.`",
            section.name()
        );
        section.refuse_table(message, None);
        return None;
    }
    Some(ApiKey {
        name: name.to_owned(),
        principal: AuthSettings::keyed(name),
        hash: hash?,
        scopes: scopes.map(|scopes| Arc::new(scopes.into())),
        expires_at,
        limits: (limits != ClientLimits::default()).then(|| Arc::new(limits)),
        last_use: LastUse::default(),
    })
}

/// Whether a key can have this name.
pub(crate) fn is_key_name(name: &str) -> bool {
    let is_legal = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    (1..=NAME_MAX).contains(&name.len()) && name.chars().all(is_legal)
}

/// Adds the key of the environment, and refuses two names of one key: who uses it must be clear.
fn check(settings: &mut AuthSettings, section: &Section<'_>) {
    add_environment_key(settings, section);
    let tokens = &settings.tokens;
    let refuse = |message: &str| section.refuse_table(message.to_owned(), None);
    if tokens.issuers().next().is_some() && tokens.resource.is_none() {
        refuse("tokens need `auth.resource`, the URL that they are given out for");
    }
    if tokens.introspection.endpoint.is_some() && tokens.webhook.url.is_some() {
        refuse("of `auth.introspection` and `auth.webhook` only one can be asked");
    }
    for (index, key) in settings.keys.iter().enumerate() {
        let earlier = settings.keys.iter().take(index);
        if let Some(same) = earlier.into_iter().find(|other| other.hash == key.hash) {
            let path = format!("auth.keys.{}", key.name);
            let message = format!("`{path}` is the same key as `{}`", same.name);
            section.reader.problem(Problem::new(&path, message));
        }
    }
}

/// plugged.in's variables: the key in `PLUGGEDIN_API_KEY` is required if `REQUIRE_API_AUTH` is true.
fn add_environment_key(settings: &mut AuthSettings, section: &Section<'_>) {
    let environment = section.reader.interpolation.environment;
    let var = |name| trimmed_var(environment, name);
    let refuse = |message: &str| {
        let problem = Problem::new("auth", message.to_owned());
        section.reader.problem(problem);
    };
    match var("REQUIRE_API_AUTH").map(|text| text.to_ascii_lowercase()) {
        None => {}
        Some(text) if text == "false" => {}
        Some(text) if text == "true" => match var("PLUGGEDIN_API_KEY") {
            Some(key) => settings.keys.push(ApiKey {
                name: "PLUGGEDIN_API_KEY".to_owned(),
                principal: AuthSettings::keyed("PLUGGEDIN_API_KEY"),
                hash: TokenHash::of(&key),
                scopes: None,
                expires_at: None,
                limits: None,
                last_use: LastUse::default(),
            }),
            None => refuse(
                "the environment variable `REQUIRE_API_AUTH` is `true`, and `PLUGGEDIN_API_KEY`, \
                 which holds the key, is not set",
            ),
        },
        Some(_) => refuse("the environment variable `REQUIRE_API_AUTH` must be `true` or `false`"),
    }
}
