//! The `WWW-Authenticate` header for requests that are refused because of their credentials.

use actix_web::HttpRequest;
use actix_web::http::header::{self, HeaderValue};
use url::Url;

use super::headers::{DPOP, header_text};
use crate::auth::{PROOF_ALGORITHMS, TokenScheme, TokenSettings, presented_token};
use crate::protocol::ErrorKind;

/// Path of the protected resource metadata (RFC 9728).
pub(super) const WELL_KNOWN: &str = "/.well-known/oauth-protected-resource";

/// Returns the challenge, which names the authentication scheme and the resource metadata (RFC
/// 9728). It contains an error code only if the request had credentials (RFC 6750), and always
/// lists all required scopes (S-AUTHS-08).
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
    let header = header_text(request, &header::AUTHORIZATION);
    let presented = header.and_then(presented_token);
    let uses_dpop = presented.is_some_and(|(scheme, _)| scheme == TokenScheme::Dpop);
    if uses_dpop || request.headers().contains_key(&DPOP) {
        let algorithms = PROOF_ALGORITHMS.join(" ");
        text.push_str(&format!(", DPoP algs=\"{algorithms}\""));
        if let Some(error) = error {
            text.push_str(&format!(", error=\"{error}\""));
        }
    }
    HeaderValue::from_str(&text).unwrap_or(HeaderValue::from_static("Bearer"))
}

/// Returns the URL of the resource metadata; `None` if no authorization server is configured.
fn metadata_url(tokens: &TokenSettings) -> Option<Url> {
    tokens.issuers().next()?;
    let mut url = Url::parse(tokens.resource.as_deref()?).ok()?;
    let path = format!("{WELL_KNOWN}{}", url.path().trim_end_matches('/'));
    url.set_path(&path);
    url.set_query(None);
    Some(url)
}
