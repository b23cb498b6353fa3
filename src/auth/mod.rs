//! Authenticates the sender of a request, and determines what it may do.

mod api_key;
mod client_limits;
mod identity;
mod introspection;
mod jwt;
mod key_thumbprint;
mod last_use;
mod policy;
mod possession;
mod rate_limits;
mod rights;
mod session_credentials;
mod token_answer;
mod tokens;
mod verification_permits;
mod verified_token;
mod webhook;

pub use api_key::{ApiKey, KeyChange, NewKey, TokenHash, expiry_millis, random_token};
pub use client_limits::{ClientLimits, LimitsByClient};
pub use identity::{GrantedScopes, Identity, Requester, subject};
pub use introspection::{AuthSecret, IntrospectionSettings};
pub use jwt::{Algorithm, JwtSettings, PROOF_ALGORITHMS};
pub use key_thumbprint::KeyThumbprint;
pub use last_use::LastUse;
pub use policy::{
    AccessRequest, Annotations, AskedItem, Condition, Denied, Effect, InvalidCondition, Policies,
    Policy, PolicyCase, PolicyRule, TriedCase, is_judged, read_cases,
};
pub use possession::{ProvenRequest, SeenProofs};
pub use rate_limits::{CountedCall, Rate, RateLimitSettings, RateLimits};
pub use rights::Rights;
pub use session_credentials::{RememberSettings, SessionCredentials};
pub use tokens::{TokenSettings, TokenVerifier};
pub use verified_token::PresentedToken;
pub use webhook::WebhookSettings;

use serde_json::json;

use crate::id::Principal;
use crate::protocol::{ErrorKind, Failure, Method, RawJson};

/// Issuer of API keys in principal names.
const KEYS: &str = "key";

/// The issuer of principals that are users of this machine, at a Unix socket.
const LOCAL_USERS: &str = "unix";

/// Issuer of client certificates in principal names.
const CERTIFICATES: &str = "certificate";

/// The scope that grants access to the operator API.
pub const ADMIN_SCOPE: &str = "mcpvisor:admin";

/// How clients authenticate. Without keys and tokens, authentication is off.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuthSettings {
    pub keys: Vec<ApiKey>,
    /// Boxed, because settings are moved often.
    pub tokens: Box<TokenSettings>,
    /// Whether the name in a client's certificate identifies it.
    pub certificates: bool,
    /// Whether read-only requests need no credentials, only requests that act.
    pub lazy: bool,
    pub remember: RememberSettings,
    /// Compatibility mode for 401 responses.
    pub compat: RefusalCompat,
}

/// The form of a 401 for clients written for a different gateway.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RefusalCompat {
    #[default]
    None,
    /// TagoIO's MCP server: JSON-RPC code -32000.
    TagoIo,
}

impl RefusalCompat {
    /// Sets the error code that those clients expect.
    pub fn adapt(self, refusal: &mut Failure) {
        if self == Self::TagoIo {
            let mut error = refusal.error_object();
            error["code"] = json!(-32000);
            refusal.original = Some(RawJson::from_value(&error));
        }
    }
}

/// The credentials of a request, after the checks that need no I/O.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Credentials<'a> {
    Known(Identity),
    /// A token that still has to be verified.
    Token(PresentedToken<'a>),
}

impl AuthSettings {
    /// Whether requests need credentials.
    pub fn is_required(&self) -> bool {
        self.accepts_bearers() || self.certificates
    }

    fn accepts_bearers(&self) -> bool {
        !self.keys.is_empty() || self.tokens.is_enabled()
    }

    /// The principal of a client whose key has this name.
    pub fn keyed(name: &str) -> Principal {
        Principal::of(KEYS, name)
    }

    /// The principal of a client whose certificate has this name.
    pub fn certified(name: &str) -> Principal {
        Principal::of(CERTIFICATES, name)
    }

    /// The principal of a client at a Unix socket, by the number of its user.
    pub fn local_user(user: u32) -> Principal {
        Principal::of(LOCAL_USERS, &user.to_string())
    }

    /// Refuses a request that needs credentials but has none.
    ///
    /// # Errors
    ///
    /// Returns the failure to send to the client.
    pub fn check_method(&self, principal: &Principal, method: &Method) -> Result<(), Failure> {
        match is_open(method) {
            true => Ok(()),
            false => self.check_known(principal, &format!("`{method}`")),
        }
    }

    /// Like [`AuthSettings::check_method`], for something that is not a method.
    ///
    /// # Errors
    ///
    /// Fails like [`AuthSettings::check_method`].
    pub fn check_known(&self, principal: &Principal, what: &str) -> Result<(), Failure> {
        match *principal != Principal::Anonymous || !self.is_required() {
            true => Ok(()),
            false => Err(unauthorized(&format!("{what} needs {}", self.credential()))),
        }
    }

    /// The credential that the gateway accepts, for a message.
    fn credential(&self) -> &'static str {
        match (self.accepts_bearers(), self.tokens.is_enabled()) {
            (false, _) => "a certificate with a URI or DNS name among its alternative names",
            (true, true) => "a token, sent as `Authorization: Bearer …`",
            (true, false) => {
                "an API key (its operator creates one with `mcpvisor keys add NAME`), sent as \
                 `Authorization: Bearer …`"
            }
        }
    }

    /// The principals of all API keys.
    pub fn principals(&self) -> Vec<Principal> {
        let keys = self.keys.iter();
        keys.map(|key| key.principal.clone()).collect()
    }

    /// The scopes of this principal's key; `None` if no such key exists.
    pub fn scopes_of_key(&self, principal: &Principal) -> Option<GrantedScopes> {
        let key = self.keys.iter().find(|key| key.principal == *principal);
        key.map(|key| key.scopes.clone())
    }

    /// Whether a principal belongs to an API key that no longer exists.
    pub fn has_lost(&self, principal: &Principal) -> bool {
        is_key(principal) && !self.keys.iter().any(|key| key.name == principal.name())
    }

    /// Authenticates a request. Called for every request, since a session does not authenticate its
    /// user (S-SESS-09). `authorization` is the value of the header of that name, which takes
    /// precedence over the client's certificate or user; `now` is in milliseconds since 1970.
    ///
    /// # Errors
    ///
    /// Returns the failure to send to the client.
    pub fn authenticate<'a>(
        &self,
        authorization: Option<&'a str>,
        certified: Option<&Principal>,
        now: u64,
    ) -> Result<Credentials<'a>, Failure> {
        let known = |principal: &Principal| {
            Credentials::Known(Identity {
                principal: principal.clone(),
                ..Identity::default()
            })
        };
        let anybody = Credentials::Known(Identity::default());
        let is_local = |principal: &&Principal| principal.parts().0 == LOCAL_USERS;
        if !self.is_required() {
            return Ok(certified.filter(is_local).map_or(anybody, known));
        }
        let Some(authorization) = authorization.filter(|_| self.accepts_bearers()) else {
            return match certified.filter(|it| self.certificates || is_local(it)) {
                Some(principal) => Ok(known(principal)),
                None if self.lazy => Ok(anybody),
                None => {
                    let message = format!("this gateway needs {}", self.credential());
                    Err(unauthorized(&message))
                }
            };
        };
        let Some((scheme, token)) = presented_token(authorization) else {
            return Err(unauthorized("`Authorization` must be `Bearer KEY`"));
        };
        let hash = TokenHash::of(token);
        // Timing reveals something about the hash, but nothing about the key.
        let known = match scheme {
            TokenScheme::Bearer => self.identity_of_key(&hash, now)?,
            TokenScheme::Dpop => None,
        };
        match known {
            Some(identity) => Ok(Credentials::Known(identity)),
            None if self.tokens.is_enabled() => {
                Ok(Credentials::Token(PresentedToken { text: token, hash }))
            }
            None => Err(unauthorized("unknown API key")),
        }
    }

    /// The identity of the key with this hash, if there is one.
    fn identity_of_key(&self, hash: &TokenHash, now: u64) -> Result<Option<Identity>, Failure> {
        let Some(key) = self.keys.iter().find(|key| key.hash == *hash) else {
            return Ok(None);
        };
        if key.expires_at.is_some_and(|expires| expires <= now) {
            let message = "this API key has expired; the gateway's operator can replace it with \
                           `mcpvisor keys rotate`";
            return Err(unauthorized(message));
        }
        key.last_use.note(now);
        Ok(Some(Identity {
            principal: key.principal.clone(),
            scopes: key.scopes.clone(),
            expires_at: key.expires_at,
            claims: None,
            key: None,
        }))
    }
}

/// Whether it is the principal of an API key, which only this gateway knows.
pub fn is_key(principal: &Principal) -> bool {
    principal.parts().0 == KEYS
}

/// Whether a method is read-only, so that it needs no credentials with `lazy`.
fn is_open(method: &Method) -> bool {
    matches!(
        method,
        Method::Initialize
            | Method::Ping
            | Method::Discover
            | Method::ToolsList
            | Method::PromptsList
            | Method::ResourcesList
            | Method::ResourceTemplatesList
    )
}

fn unauthorized(message: &str) -> Failure {
    Failure::new(ErrorKind::Unauthorized, message)
}

/// How a token is presented.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenScheme {
    Bearer,
    /// With a proof that the sender has the token's key (RFC 9449).
    Dpop,
}

/// The token in the header, and nowhere else (S-AUTHS-11), and its scheme, whose name is
/// case-insensitive (RFC 9110).
pub fn presented_token(authorization: &str) -> Option<(TokenScheme, &str)> {
    let (scheme, token) = authorization.trim().split_once(' ')?;
    let schemes = [("bearer", TokenScheme::Bearer), ("dpop", TokenScheme::Dpop)];
    let mut schemes = schemes.into_iter();
    let (_, scheme) = schemes.find(|(name, _)| scheme.eq_ignore_ascii_case(name))?;
    let token = token.trim_start();
    let is_token = !token.is_empty() && !token.contains([' ', ',']);
    is_token.then_some((scheme, token))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(identity: Principal) -> Credentials<'static> {
        Credentials::Known(Identity {
            principal: identity,
            ..Identity::default()
        })
    }

    fn principal(credentials: Credentials<'_>) -> Option<Principal> {
        match credentials {
            Credentials::Known(identity) => Some(identity.principal),
            Credentials::Token(_) => None,
        }
    }

    fn key(name: &str, token: &str, expires_at: Option<u64>) -> ApiKey {
        ApiKey {
            name: name.to_owned(),
            principal: AuthSettings::keyed(name),
            hash: TokenHash::of(token),
            scopes: None,
            expires_at,
            limits: None,
            last_use: LastUse::default(),
        }
    }

    #[test]
    fn only_a_whole_key_that_has_not_expired_is_taken() {
        let settings = AuthSettings {
            keys: vec![key("a", "first", None), key("b", "second", Some(100))],
            ..AuthSettings::default()
        };
        let [a, b] = ["a", "b"].map(|name| Some(Principal::of("key", name)));
        let cases = [
            (Some("Bearer first"), a.clone()),
            (Some("bearer  first "), a.clone()),
            (Some("BEARER second"), b),
            (None, None),
            (Some(""), None),
            (Some("Bearer"), None),
            (Some("Bearer "), None),
            (Some("Bearer firs"), None),
            (Some("Bearer firstt"), None),
            (Some("Bearer First"), None),
            (Some("Bearer first second"), None),
            (Some("Bearer first, Bearer first"), None),
            (Some("Basic first"), None),
            (Some("DPoP first"), None),
            (Some("first"), None),
        ];
        for (authorization, expected) in cases {
            let found = settings.authenticate(authorization, None, 99);
            assert_eq!(
                found.clone().ok().and_then(principal),
                expected,
                "{authorization:?}"
            );
            if let Err(failure) = found {
                assert_eq!(failure.kind, ErrorKind::Unauthorized);
                assert!(!failure.message.contains("irs"), "{}", failure.message);
            }
        }
        let expired = settings.authenticate(Some("Bearer second"), None, 100);
        assert!(expired.unwrap_err().message.contains("expired"));
    }

    #[test]
    fn lazy_authentication_applies_only_to_acting_methods() {
        let settings = AuthSettings {
            keys: vec![key("a", "first", None)],
            lazy: true,
            ..AuthSettings::default()
        };
        assert_eq!(
            settings.authenticate(None, None, 0),
            Ok(known(Principal::Anonymous))
        );
        // Wrong credentials are refused even if none are needed.
        assert!(
            settings
                .authenticate(Some("Bearer wrong"), None, 0)
                .is_err()
        );
        let first = settings
            .authenticate(Some("Bearer first"), None, 0)
            .unwrap();
        let first = principal(first).unwrap();
        for (method, is_open) in [
            ("initialize", true),
            ("ping", true),
            ("server/discover", true),
            ("tools/list", true),
            ("resources/templates/list", true),
            ("tools/call", false),
            ("prompts/get", false),
            ("resources/read", false),
            ("resources/subscribe", false),
            ("completion/complete", false),
            ("logging/setLevel", false),
            ("subscriptions/listen", false),
            ("tasks/get", false),
            ("vendor/anything", false),
        ] {
            let method = Method::parse(method);
            let checked = settings.check_method(&Principal::Anonymous, &method);
            assert_eq!(checked.is_ok(), is_open, "{method}");
            assert!(settings.check_method(&first, &method).is_ok());
        }
        let open = AuthSettings::default();
        let call = Method::parse("tools/call");
        assert!(open.check_method(&Principal::Anonymous, &call).is_ok());
    }

    #[test]
    fn a_certificate_authenticates_if_enabled_and_no_other_credentials_are_sent() {
        let ann = AuthSettings::certified("ann.example");
        let with = |keys: Vec<ApiKey>, certificates| AuthSettings {
            keys,
            certificates,
            ..AuthSettings::default()
        };
        let keys = || vec![key("a", "first", None)];
        let first = Some(Principal::of("key", "a"));
        let anybody = Some(Principal::Anonymous);
        let table = [
            (with(keys(), true), None, Some(&ann), Some(ann.clone())),
            (with(keys(), true), Some("Bearer first"), Some(&ann), first),
            (with(keys(), true), Some("Bearer wrong"), Some(&ann), None),
            (with(keys(), true), None, None, None),
            (with(keys(), false), None, Some(&ann), None),
            (with(Vec::new(), true), None, Some(&ann), Some(ann.clone())),
            (
                with(Vec::new(), true),
                Some("Bearer x"),
                Some(&ann),
                Some(ann.clone()),
            ),
            (with(Vec::new(), true), Some("Bearer x"), None, None),
            (with(Vec::new(), false), None, Some(&ann), anybody),
        ];
        for (settings, authorization, certified, expected) in table {
            let found = settings.authenticate(authorization, certified, 0);
            let found = found.ok().and_then(principal);
            assert_eq!(found, expected, "{authorization:?}, {certified:?}");
        }
    }

    #[test]
    fn without_keys_authentication_is_off() {
        let settings = AuthSettings::default();
        for authorization in [None, Some("Bearer x"), Some("nonsense")] {
            let found = settings.authenticate(authorization, None, 0);
            assert_eq!(found, Ok(known(Principal::Anonymous)));
        }
    }

    #[test]
    fn unknown_credentials_are_tokens_if_tokens_are_accepted() {
        let settings = AuthSettings {
            keys: vec![key("a", "first", None)],
            tokens: Box::new(TokenSettings {
                jwt: JwtSettings {
                    issuer: Some("https://as.example".to_owned()),
                    ..JwtSettings::default()
                },
                ..TokenSettings::default()
            }),
            ..AuthSettings::default()
        };
        let first = settings
            .authenticate(Some("Bearer first"), None, 0)
            .unwrap();
        assert_eq!(principal(first), Some(Principal::of("key", "a")));
        let other = settings.authenticate(Some("Bearer a.b.c"), None, 0);
        let token = PresentedToken {
            text: "a.b.c",
            hash: TokenHash::of("a.b.c"),
        };
        assert_eq!(other, Ok(Credentials::Token(token)));
        for none in [None, Some("Basic a.b.c"), Some("Bearer ")] {
            assert!(settings.authenticate(none, None, 0).is_err(), "{none:?}");
        }
    }
}
