//! The `Bearer` or `DPoP` challenge of a `WWW-Authenticate` header (RFC 9110, section 11.6.1).

use super::{Endpoint, Scopes};

/// Maximum length of the header value.
const HEADER_MAX: usize = 8192;

/// The token that a server requests when it refuses a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BearerChallenge {
    /// URL of the server's metadata.
    pub resource_metadata: Option<Endpoint>,
    pub scopes: Option<Scopes>,
    /// Error code, such as `invalid_token` or `insufficient_scope`.
    pub error: Option<String>,
    /// Whether the server accepts only tokens that are bound to a key (RFC 9449).
    pub is_dpop: bool,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidChallenge {
    #[error("`WWW-Authenticate` is longer than {HEADER_MAX} bytes")]
    TooLong,
    #[error("`WWW-Authenticate` is malformed")]
    Malformed,
    #[error("`WWW-Authenticate` has `{0}` twice")]
    Twice(&'static str),
    #[error("`{0}` in `WWW-Authenticate` cannot be used: {1}")]
    Value(&'static str, String),
}

impl BearerChallenge {
    /// Finds the first `Bearer` challenge in a header value, or else the first `DPoP` challenge;
    /// `None` if the server requests a different scheme.
    ///
    /// # Errors
    ///
    /// Returns what is wrong with the header.
    pub fn parse(header: &str) -> Result<Option<Self>, InvalidChallenge> {
        if header.len() > HEADER_MAX {
            return Err(InvalidChallenge::TooLong);
        }
        let mut found: Option<Self> = None;
        let mut is_read = false;
        let mut has_scheme = false;
        let mut rest = header;
        loop {
            rest = rest.trim_start_matches([' ', '\t', ',']);
            if rest.is_empty() {
                return Ok(found);
            }
            let (name, after) = token(rest)?;
            if let Some(value) = after.trim_start_matches([' ', '\t']).strip_prefix('=')
                && has_scheme
            {
                let (value, after) = parameter_value(value)?;
                if is_read && let Some(challenge) = &mut found {
                    challenge.set(name, value)?;
                }
                rest = end_of_member(after)?;
                continue;
            }
            if found.as_ref().is_some_and(|it| !it.is_dpop) {
                return Ok(found);
            }
            has_scheme = true;
            let is_dpop = name.eq_ignore_ascii_case("dpop") && found.is_none();
            is_read = is_dpop || name.eq_ignore_ascii_case("bearer");
            if is_read {
                found = Some(Self {
                    is_dpop,
                    ..Self::default()
                });
            }
            rest = after_token68(after)?;
        }
    }

    fn set(&mut self, name: &str, value: String) -> Result<(), InvalidChallenge> {
        if name.eq_ignore_ascii_case("resource_metadata") {
            const NAME: &str = "resource_metadata";
            let url = value.parse::<Endpoint>();
            let url = url.map_err(|e| InvalidChallenge::Value(NAME, e.to_string()))?;
            return once(&mut self.resource_metadata, url, NAME);
        }
        if name.eq_ignore_ascii_case("scope") {
            let scopes = Scopes::parse(&value);
            let scopes = scopes.map_err(|e| InvalidChallenge::Value("scope", e.to_string()))?;
            return once(&mut self.scopes, scopes, "scope");
        }
        if name.eq_ignore_ascii_case("error") {
            return once(&mut self.error, value, "error");
        }
        Ok(())
    }

    /// Whether the token is valid and only lacks scopes.
    pub fn wants_more_scopes(&self) -> bool {
        self.error.as_deref() == Some("insufficient_scope")
    }
}

fn once<T>(place: &mut Option<T>, value: T, name: &'static str) -> Result<(), InvalidChallenge> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(InvalidChallenge::Twice(name)),
    }
}

/// Splits off the token at the start.
fn token(text: &str) -> Result<(&str, &str), InvalidChallenge> {
    let is_token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
    let length = text.find(|c| !is_token(c)).unwrap_or(text.len());
    match text.split_at_checked(length) {
        Some((token, rest)) if !token.is_empty() => Ok((token, rest)),
        _ => Err(InvalidChallenge::Malformed),
    }
}

/// Splits off the value after `=`, a token or a quoted string.
fn parameter_value(text: &str) -> Result<(String, &str), InvalidChallenge> {
    let text = text.trim_start_matches([' ', '\t']);
    let Some(quoted) = text.strip_prefix('"') else {
        let (value, rest) = token(text)?;
        return Ok((value.to_owned(), rest));
    };
    let mut value = String::new();
    let mut characters = quoted.chars();
    loop {
        match characters.next().ok_or(InvalidChallenge::Malformed)? {
            '"' => return Ok((value, characters.as_str())),
            '\\' => value.push(characters.next().ok_or(InvalidChallenge::Malformed)?),
            other => value.push(other),
        }
    }
}

/// The rest after a parameter, without the comma.
fn end_of_member(text: &str) -> Result<&str, InvalidChallenge> {
    let text = text.trim_start_matches([' ', '\t']);
    match text.is_empty() || text.starts_with(',') {
        true => Ok(text),
        false => Err(InvalidChallenge::Malformed),
    }
}

/// The rest after a scheme and, if it has one, its `token68`.
fn after_token68(text: &str) -> Result<&str, InvalidChallenge> {
    if text.is_empty() || text.starts_with(',') {
        return Ok(text);
    }
    if !text.starts_with([' ', '\t']) {
        return Err(InvalidChallenge::Malformed);
    }
    let (member, rest) = match text.split_once(',') {
        Some((member, rest)) => (member, rest),
        None => (text, ""),
    };
    let is_token68 = |c: char| c.is_ascii_alphanumeric() || "-._~+/".contains(c);
    let member = member.trim_matches([' ', '\t']).trim_end_matches('=');
    match member.chars().all(is_token68) {
        true => Ok(rest),
        false => Ok(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const METADATA: &str = "https://a.example/.well-known/oauth-protected-resource";

    fn shown(header: &str) -> String {
        match BearerChallenge::parse(header) {
            Ok(None) => "none".to_owned(),
            Ok(Some(challenge)) => {
                let url = challenge.resource_metadata.map(|url| url.to_string());
                let scopes = challenge.scopes.map(|scopes| scopes.to_string());
                let dpop = challenge.is_dpop.then(|| "dpop".to_owned());
                let parts = [url, scopes, challenge.error].into_iter();
                let parts: Vec<_> = parts.chain(dpop.map(Some)).collect();
                parts
                    .into_iter()
                    .map(|part| part.unwrap_or("-".to_owned()))
                    .collect::<Vec<_>>()
                    .join("|")
            }
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn the_bearer_challenge_is_found() {
        let table = [
            (
                format!("Bearer resource_metadata=\"{METADATA}\""),
                format!("{METADATA}|-|-"),
            ),
            ("Bearer".into(), "-|-|-".into()),
            (
                "bearer scope=\"a b\" , error=invalid_token".into(),
                "-|a b|invalid_token".into(),
            ),
            (
                "BEARER realm=\"a, \\\"b\\\"\", Scope = \"x\"".into(),
                "-|x|-".into(),
            ),
            (
                "Basic realm=\"x\", Bearer error=\"insufficient_scope\"".into(),
                "-|-|insufficient_scope".into(),
            ),
            ("Negotiate YWJj==, Bearer scope=a".into(), "-|a|-".into()),
            ("Negotiate, Bearer scope=a".into(), "-|a|-".into()),
            // Parameters of another scheme do not belong to the token.
            (
                "Bearer error=e, DPoP scope=\"d\", error=\"f\"".into(),
                "-|-|e".into(),
            ),
            ("DPoP scope=\"d\"".into(), "-|d|-|dpop".into()),
            (
                "DPoP scope=d, Basic realm=x, scope=e".into(),
                "-|d|-|dpop".into(),
            ),
            (
                "dpop algs=\"ES256\", error=use_dpop_nonce".into(),
                "-|-|use_dpop_nonce|dpop".into(),
            ),
            ("DPoP scope=d, Bearer scope=b".into(), "-|b|-".into()),
            (String::new(), "none".into()),
        ];
        for (header, expected) in table {
            assert_eq!(shown(&header), expected, "{header}");
        }
    }

    #[test]
    fn a_bad_challenge_is_refused() {
        let malformed = InvalidChallenge::Malformed;
        let table = [
            ("=a", malformed.to_string()),
            ("Bearer scope=\"a", malformed.to_string()),
            ("Bearer scope=\"a\\", malformed.to_string()),
            ("Bearer scope=\"a\"b", malformed.to_string()),
            ("Bearer;scope=a", malformed.to_string()),
            (
                "Bearer scope=a, scope=b",
                InvalidChallenge::Twice("scope").to_string(),
            ),
        ];
        for (header, expected) in table {
            assert_eq!(shown(header), expected, "{header}");
        }
        assert!(shown("Bearer resource_metadata=\"http://10.0.0.1/\"").contains("https"));
        let long = format!("Bearer scope={}", "a".repeat(HEADER_MAX));
        assert_eq!(
            BearerChallenge::parse(&long),
            Err(InvalidChallenge::TooLong)
        );
    }
}
