//! The identity of the gateway's workload: a JWT in a file, which Kubernetes or a SPIFFE agent
//! replaces before it expires.

use std::io::Read as _;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;
use serde_json::Value;

use crate::store::open_trusted;

/// Maximum size of a file with a key or a token, in bytes.
const FILE_MAX: u64 = 64 * 1024;

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum WorkloadError {
    #[error("{0}")]
    Unreadable(String),
    #[error("it does not contain a JSON Web Token")]
    NoToken,
    #[error("its token is not for the authorization server `{0}`, which its `aud` does not name")]
    OtherAudience(String),
}

/// Reads a small file that only this user and root can change.
///
/// # Errors
///
/// Returns why it cannot be read.
pub(super) fn read_file(file: &Path) -> std::io::Result<Vec<u8>> {
    let mut content = Vec::new();
    open_trusted(file)?
        .take(FILE_MAX)
        .read_to_end(&mut content)?;
    Ok(content)
}

/// Reads the workload's token from a file. `issuer` is the authorization server that the token is
/// sent to, if the server named it: it could present the token elsewhere, so `aud` has to name it.
///
/// # Errors
///
/// Returns why there is no token to send.
pub(super) fn workload_token(
    file: &Path,
    issuer: Option<&str>,
) -> Result<SecretString, WorkloadError> {
    let content = read_file(file).map_err(|error| WorkloadError::Unreadable(error.to_string()))?;
    let text = String::from_utf8(content).map_err(|_| WorkloadError::NoToken)?;
    let token = SecretString::from(text.trim());
    let audience = audience_of(token.expose_secret()).ok_or(WorkloadError::NoToken)?;
    match issuer.filter(|issuer| !names(&audience, issuer)) {
        None => Ok(token),
        Some(issuer) => Err(WorkloadError::OtherAudience(issuer.to_owned())),
    }
}

#[derive(Deserialize)]
struct Claims {
    #[serde(default)]
    aud: Value,
}

/// The `aud` of a token, whose signature only its recipient can verify.
fn audience_of(token: &str) -> Option<Value> {
    let [_, claims, _] = <[&str; 3]>::try_from(token.split('.').collect::<Vec<_>>()).ok()?;
    let claims = URL_SAFE_NO_PAD.decode(claims).ok()?;
    let claims: Claims = serde_json::from_slice(&claims).ok()?;
    Some(claims.aud)
}

/// Whether an `aud`, a string or a list, names this issuer, with or without a final slash.
fn names(audience: &Value, issuer: &str) -> bool {
    let bare = |text: &str| text.trim_end_matches('/').to_owned();
    let is_it = |value: &Value| value.as_str().is_some_and(|it| bare(it) == bare(issuer));
    match audience {
        Value::Array(list) => list.iter().any(is_it),
        one => is_it(one),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use serde_json::json;

    use super::*;

    #[test]
    fn a_token_goes_only_to_an_authorization_server_that_it_names() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("token");
        let other = || {
            Err(WorkloadError::OtherAudience(
                "https://as.example".to_owned(),
            ))
        };
        let good = || Ok(());
        let table = [
            (json!({"aud": "https://as.example"}), good()),
            (json!({"aud": ["x", "https://as.example/"]}), good()),
            (json!({"aud": "https://as.example.evil"}), other()),
            (json!({"aud": []}), other()),
            (json!({}), other()),
            (json!(1), Err(WorkloadError::NoToken)),
        ];
        for (claims, expected) in table {
            let part = URL_SAFE_NO_PAD.encode(claims.to_string());
            fs::write(&file, format!("e30.{part}.c2ln\n")).unwrap();
            let read = |issuer| {
                workload_token(&file, issuer).map(|token| {
                    assert_eq!(token.expose_secret(), format!("e30.{part}.c2ln"));
                })
            };
            assert_eq!(read(Some("https://as.example")), expected, "{claims}");
            if claims.is_object() {
                assert_eq!(read(None), Ok(()), "a configured endpoint is trusted");
            }
        }
        for text in ["", "token", "a.b", "a.b.c.d", "e30.!.x"] {
            fs::write(&file, text).unwrap();
            let read = workload_token(&file, None).map(drop);
            assert_eq!(read, Err(WorkloadError::NoToken), "{text}");
        }
    }
}
