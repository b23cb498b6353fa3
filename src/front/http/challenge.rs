//! `WWW-Authenticate` of a request that is refused for its credentials.

use actix_web::HttpRequest;
use actix_web::http::header::{self, HeaderValue};
use url::Url;

use crate::auth::TokenSettings;
use crate::protocol::ErrorKind;

/// Where metadata of a protected resource are (RFC 9728).
pub(super) const WELL_KNOWN: &str = "/.well-known/oauth-protected-resource";

/// Says how to authenticate, and where tokens come from (RFC 9728). Only a request with credentials
/// learns that they are wrong (RFC 6750); scopes
/// are all that are needed (S-AUTHS-08).
pub(super) fn challenge(
    request: &HttpRequest,
    kind: ErrorKind,
    tokens: &TokenSettings,
) -> HeaderValue {
    let has_credentials = request.headers().contains_key(header::AUTHORIZATION);
    let error = match kind {
        ErrorKind::InsufficientScope => Some("insufficient_scope"),
        _ => has_credentials.then_some("invalid_token"),
    };
    let metadata = metadata_url(tokens);
    let scopes = (!tokens.scopes.is_empty()).then(|| tokens.scopes.join(" "));
    let parameters = [
        ("error", error.map(str::to_owned)),
        ("resource_metadata", metadata.map(String::from)),
        ("scope", scopes),
    ];
    let mut text = "Bearer realm=\"mcpvisor\"".to_owned();
    for (name, value) in parameters {
        if let Some(value) = value {
            text.push_str(&format!(", {name}=\"{value}\""));
        }
    }
    HeaderValue::from_str(&text).unwrap_or(HeaderValue::from_static("Bearer"))
}

/// Where clients find the metadata; `None` if there is no authorization server.
fn metadata_url(tokens: &TokenSettings) -> Option<Url> {
    tokens.issuers().next()?;
    let mut url = Url::parse(tokens.resource.as_deref()?).ok()?;
    let path = format!("{WELL_KNOWN}{}", url.path().trim_end_matches('/'));
    url.set_path(&path);
    url.set_query(None);
    Some(url)
}
