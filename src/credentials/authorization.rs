//! The page where a user signs in, and the callback that returns from it.

use ring::error::Unspecified;
use secrecy::{ExposeSecret as _, SecretString};
use subtle::ConstantTimeEq as _;
use url::{Url, form_urlencoded};

use super::pkce::random_text;
use super::token::Refusal;
use super::{Endpoint, Scopes, Verifier};

/// Maximum length of a callback query.
const QUERY_MAX: usize = 8192;

/// The parameters of a sign-in.
#[derive(Clone, Debug)]
pub struct SignIn {
    pub issuer: String,
    /// Whether the issuer names itself in each callback.
    pub names_issuer: bool,
    pub authorization_endpoint: Endpoint,
    pub client_id: String,
    pub redirect_uri: Url,
    pub resource: String,
    pub scopes: Scopes,
}

/// A sign-in that a user was sent to. It accepts a single callback.
#[derive(Debug)]
pub struct PendingSignIn {
    sign_in: SignIn,
    state: SecretString,
    verifier: Verifier,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallbackError {
    #[error("the callback is longer than {QUERY_MAX} bytes")]
    TooLong,
    #[error("the callback has `{0}` twice")]
    Twice(&'static str),
    #[error("the callback matches no pending sign-in; sign in again")]
    State,
    #[error(
        "the sign-in was not started in this browser: open the sign-in link in this browser and \
         continue from there; if `mcpvisor auth login` is waiting, paste the address of this page \
         there instead"
    )]
    Browser,
    // A wrong issuer is not quoted: its text could be written to mislead.
    #[error("the callback comes from a different authorization server")]
    Issuer,
    #[error("the authorization server refused: {0}")]
    Refused(String),
    #[error("the callback has no `code`")]
    NoCode,
}

/// The callback of an authorization server, in the query of the redirect URL (RFC 6749, section
/// 4.1.2).
#[derive(Default)]
struct AuthorizationResponse {
    state: Option<String>,
    iss: Option<String>,
    error: Option<String>,
    error_description: Option<String>,
    code: Option<String>,
}

impl PendingSignIn {
    /// # Errors
    ///
    /// Fails if the system cannot provide random numbers.
    pub fn begin(sign_in: SignIn) -> Result<Self, Unspecified> {
        let state = random_text()?;
        let verifier = Verifier::random()?;
        Ok(Self {
            sign_in,
            state,
            verifier,
        })
    }

    /// The page to open.
    pub fn page(&self) -> Url {
        let SignIn {
            client_id,
            redirect_uri,
            resource,
            scopes,
            ..
        } = &self.sign_in;
        let mut url = self.sign_in.authorization_endpoint.url().clone();
        let mut query = url.query_pairs_mut();
        query.append_pair("response_type", "code");
        query.append_pair("client_id", client_id);
        query.append_pair("redirect_uri", redirect_uri.as_str());
        query.append_pair("state", self.state.expose_secret());
        query.append_pair("code_challenge", &self.verifier.challenge());
        query.append_pair("code_challenge_method", "S256");
        query.append_pair("resource", resource);
        if !scopes.is_empty() {
            query.append_pair("scope", &scopes.to_string());
        }
        drop(query);
        url
    }

    pub(super) fn state(&self) -> &str {
        self.state.expose_secret()
    }

    pub(super) fn issuer(&self) -> &str {
        &self.sign_in.issuer
    }

    /// Compares a state with this sign-in's state in constant time.
    pub fn has_state(&self, state: &str) -> bool {
        let own = self.state.expose_secret().as_bytes();
        bool::from(own.ct_eq(state.as_bytes()))
    }

    /// Consumes the query of the callback and returns the code, and the verifier that redeems it.
    ///
    /// # Errors
    ///
    /// Returns why the callback is refused. State and issuer are checked first.
    pub fn finish(self, query: &str) -> Result<(SecretString, Verifier), CallbackError> {
        let answer = AuthorizationResponse::parse(query)?;
        if !answer.state.is_some_and(|state| self.has_state(&state)) {
            return Err(CallbackError::State);
        }
        match answer.iss {
            // RFC 9207, section 2.4: plain string comparison with the issuer in the metadata.
            Some(issuer) if issuer != self.sign_in.issuer => return Err(CallbackError::Issuer),
            None if self.sign_in.names_issuer => return Err(CallbackError::Issuer),
            Some(_) | None => {}
        }
        if let Some(error) = answer.error {
            let error_description = answer.error_description;
            let refusal = Refusal {
                error,
                error_description,
            };
            return Err(CallbackError::Refused(refusal.to_string()));
        }
        let code = answer.code.filter(|code| !code.is_empty());
        let code = code.ok_or(CallbackError::NoCode)?;
        Ok((code.into(), self.verifier))
    }
}

/// The state in a callback query.
///
/// # Errors
///
/// Returns why the callback is refused.
pub(super) fn state_of(query: &str) -> Result<String, CallbackError> {
    AuthorizationResponse::parse(query)?
        .state
        .ok_or(CallbackError::State)
}

impl AuthorizationResponse {
    fn parse(query: &str) -> Result<Self, CallbackError> {
        if query.len() > QUERY_MAX {
            return Err(CallbackError::TooLong);
        }
        let mut answer = Self::default();
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            let (place, name) = match &*name {
                "state" => (&mut answer.state, "state"),
                "iss" => (&mut answer.iss, "iss"),
                "error" => (&mut answer.error, "error"),
                "error_description" => (&mut answer.error_description, "error_description"),
                "code" => (&mut answer.code, "code"),
                _ => continue,
            };
            if place.replace(value.into_owned()).is_some() {
                return Err(CallbackError::Twice(name));
            }
        }
        Ok(answer)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn pending(names_issuer: bool) -> PendingSignIn {
        let sign_in = SignIn {
            issuer: "https://as.example".into(),
            names_issuer,
            authorization_endpoint: "https://as.example/authorize?tenant=t".parse().unwrap(),
            client_id: "me".into(),
            redirect_uri: Url::parse("http://127.0.0.1:7420/oauth/callback").unwrap(),
            resource: "https://a.example/mcp".into(),
            scopes: Scopes::parse("a b").unwrap(),
        };
        PendingSignIn::begin(sign_in).unwrap()
    }

    #[test]
    fn the_sign_in_page_has_all_required_parameters() {
        let pending = pending(false);
        let page = pending.page();
        let query = page.query_pairs().into_owned().collect::<BTreeMap<_, _>>();
        let table = [
            ("tenant", "t"),
            ("response_type", "code"),
            ("client_id", "me"),
            ("redirect_uri", "http://127.0.0.1:7420/oauth/callback"),
            ("state", pending.state.expose_secret()),
            ("code_challenge", &pending.verifier.challenge()),
            ("code_challenge_method", "S256"),
            ("resource", "https://a.example/mcp"),
            ("scope", "a b"),
        ];
        assert_eq!(query.len(), table.len());
        for (name, value) in table {
            assert_eq!(query.get(name).map(String::as_str), Some(value), "{name}");
        }
        assert!(!page.as_str().contains(pending.verifier.expose()));
    }

    #[test]
    fn an_answer_is_taken_from_the_right_issuer_only() {
        let issuer = "iss=https%3A%2F%2Fas.example";
        let table = [
            (false, "state=STATE&code=c", None),
            (true, "state=STATE&code=c&ISSUER", None),
            (true, "state=STATE&code=c", Some(CallbackError::Issuer)),
            (
                false,
                "state=STATE&code=c&iss=https://evil",
                Some(CallbackError::Issuer),
            ),
            (
                false,
                "state=STATE&error=x&iss=https://evil",
                Some(CallbackError::Issuer),
            ),
            (
                false,
                "state=STATE&code=c&ISSUER%2Fx",
                Some(CallbackError::Issuer),
            ),
            (
                true,
                "state=STATE&code=c&ISSUER%2F",
                Some(CallbackError::Issuer),
            ),
            (false, "state=other&code=c", Some(CallbackError::State)),
            (false, "state=&code=c", Some(CallbackError::State)),
            (false, "code=c", Some(CallbackError::State)),
            (false, "error=x", Some(CallbackError::State)),
            (
                false,
                "state=STATE&state=STATE",
                Some(CallbackError::Twice("state")),
            ),
            (false, "state=STATE&code=", Some(CallbackError::NoCode)),
            (
                false,
                "state=STATE&error=access_denied",
                Some(CallbackError::Refused("access_denied".into())),
            ),
            (
                false,
                "state=STATE&error=access_denied&error_description=Ask+Ada.",
                Some(CallbackError::Refused("access_denied: Ask Ada.".into())),
            ),
        ];
        for (names_issuer, query, expected) in table {
            let pending = pending(names_issuer);
            let sent = query.replace("STATE", pending.state.expose_secret());
            let sent = sent.replace("ISSUER", issuer);
            let verifier = pending.verifier.expose().to_owned();
            match (pending.finish(&sent), expected) {
                (Ok((code, kept)), None) => {
                    assert_eq!(code.expose_secret(), "c");
                    assert_eq!(kept.expose(), verifier);
                }
                (result, expected) => assert_eq!(result.err(), expected, "{query}"),
            }
        }
    }
}
