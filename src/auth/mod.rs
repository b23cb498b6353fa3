//! Who a request comes from, and what that principal may do.

mod api_key;
mod policy;
mod rate_limits;

pub use api_key::{ApiKey, ApiKeyHash, expiry_millis, random_token};
pub use policy::{
    Annotations, Asked, Condition, Denied, Effect, InvalidCondition, Policies, Policy, PolicyRule,
    is_judged,
};
pub use rate_limits::{CountedCall, Rate, RateLimitSettings, RateLimits};

use crate::id::Principal;
use crate::protocol::{ErrorKind, Failure, Method};

/// The issuer of API keys, in the names of their principals.
const KEYS: &str = "key";

/// How clients authenticate. Without keys nobody is asked who they are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuthSettings {
    pub keys: Vec<ApiKey>,
    /// Whether a client may look around without credentials: only what acts needs them.
    pub lazy: bool,
}

impl AuthSettings {
    /// Whether a request needs credentials.
    pub fn is_required(&self) -> bool {
        !self.keys.is_empty()
    }

    /// Refuses a request that needs credentials and has none.
    ///
    /// # Errors
    ///
    /// Returns the failure that the client is to read.
    pub fn check_method(&self, principal: &Principal, method: &Method) -> Result<(), Failure> {
        match is_open(method) {
            true => Ok(()),
            false => self.check_known(principal, &format!("`{method}`")),
        }
    }

    /// The same for something that is no method.
    ///
    /// # Errors
    ///
    /// As [`AuthSettings::check_method`].
    pub fn check_known(&self, principal: &Principal, what: &str) -> Result<(), Failure> {
        match *principal != Principal::Anonymous || !self.is_required() {
            true => Ok(()),
            false => Err(unauthorized(&format!(
                "{what} needs an API key, as `Authorization: Bearer KEY`"
            ))),
        }
    }

    /// When the next key expires after this time, in milliseconds since 1970.
    pub fn next_expiry(&self, now: u64) -> Option<u64> {
        let expiries = self.keys.iter().filter_map(|key| key.expires_at);
        expiries.filter(|expires| *expires > now).min()
    }

    /// Who sends a request. Asked for every request, since a session is no authentication
    /// (S-SESS-09). `authorization` is the value of the header of that name, `now` in milliseconds
    /// since 1970.
    ///
    /// # Errors
    ///
    /// Returns the failure that the client is to read.
    pub fn authenticate(
        &self,
        authorization: Option<&str>,
        now: u64,
    ) -> Result<Principal, Failure> {
        if !self.is_required() {
            return Ok(Principal::Anonymous);
        }
        let Some(authorization) = authorization else {
            if self.lazy {
                return Ok(Principal::Anonymous);
            }
            let message = "this gateway needs an API key, as `Authorization: Bearer KEY`; its \
                           operator makes one with `mcpvisor keys add NAME`";
            return Err(unauthorized(message));
        };
        let Some(token) = bearer_token(authorization) else {
            return Err(unauthorized("`Authorization` must be `Bearer KEY`"));
        };
        let hash = ApiKeyHash::of(token);
        // Whoever measures how long this takes learns of the hash, and nothing of the key.
        let key = self.keys.iter().find(|key| key.hash == hash);
        match key {
            None => Err(unauthorized("this gateway has no such API key")),
            Some(key) if key.expires_at.is_some_and(|expires| expires <= now) => {
                let message = "this API key has expired; the gateway's operator makes another \
                               with `mcpvisor keys rotate`";
                Err(unauthorized(message))
            }
            Some(key) => Ok(Principal::of(KEYS, &key.name)),
        }
    }
}

/// Whether a method only looks around, so that it needs no credentials with `lazy`.
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

/// The token of the scheme `Bearer` in the header, and nowhere else (S-AUTHS-11), whose name is written in any case (RFC 9110).
fn bearer_token(authorization: &str) -> Option<&str> {
    let (scheme, token) = authorization.trim().split_once(' ')?;
    let token = token.trim_start();
    let is_token = !token.is_empty() && !token.contains([' ', ',']);
    (scheme.eq_ignore_ascii_case("bearer") && is_token).then_some(token)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str, token: &str, expires_at: Option<u64>) -> ApiKey {
        ApiKey {
            name: name.to_owned(),
            hash: ApiKeyHash::of(token),
            expires_at,
        }
    }

    #[test]
    fn only_a_whole_key_that_has_not_expired_is_taken() {
        let settings = AuthSettings {
            keys: vec![key("a", "first", None), key("b", "second", Some(100))],
            lazy: false,
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
            (Some("first"), None),
        ];
        for (authorization, expected) in cases {
            let found = settings.authenticate(authorization, 99);
            assert_eq!(found.clone().ok(), expected, "{authorization:?}");
            if let Err(failure) = found {
                assert_eq!(failure.kind, ErrorKind::Unauthorized);
                assert!(!failure.message.contains("irs"), "{}", failure.message);
            }
        }
        let expiries = [0, 99, 100].map(|now| settings.next_expiry(now));
        assert_eq!(expiries, [Some(100), Some(100), None]);
        let expired = settings.authenticate(Some("Bearer second"), 100);
        assert!(expired.unwrap_err().message.contains("expired"));
    }

    #[test]
    fn a_lazy_gateway_asks_only_for_what_acts() {
        let settings = AuthSettings {
            keys: vec![key("a", "first", None)],
            lazy: true,
        };
        assert_eq!(settings.authenticate(None, 0), Ok(Principal::Anonymous));
        // Wrong credentials are wrong all the same.
        assert!(settings.authenticate(Some("Bearer wrong"), 0).is_err());
        let known = settings.authenticate(Some("Bearer first"), 0).unwrap();
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
            assert!(settings.check_method(&known, &method).is_ok());
        }
        let open = AuthSettings::default();
        let call = Method::parse("tools/call");
        assert!(open.check_method(&Principal::Anonymous, &call).is_ok());
    }

    #[test]
    fn without_keys_nobody_is_asked() {
        let settings = AuthSettings::default();
        for authorization in [None, Some("Bearer x"), Some("nonsense")] {
            let found = settings.authenticate(authorization, 0);
            assert_eq!(found, Ok(Principal::Anonymous));
        }
    }
}
