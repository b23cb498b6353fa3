//! Follows redirects to another path of the same origin, such as `/mcp` to `/mcp/`.
//!
//! Only 307 and 308 are followed, because they keep the method and the body, and only within the
//! origin, because requests carry credentials. Any other redirect counts as a refusal that names
//! its target.

use awc::error::SendRequestError;
use awc::http::StatusCode;
use awc::http::header::{HeaderMap, LOCATION};
use awc::{Client, ClientResponse, FrozenClientRequest};
use bytes::Bytes;
use url::Url;

use super::dialer::{url_of_wire, wire_uri};
use crate::masking::{public_path, public_url};
use crate::transport::messages;

/// Maximum redirects in a row.
const HOPS_MAX: usize = 5;

/// Longest address that is followed, in bytes.
const LOCATION_MAX: usize = 4096;

/// Maximum bytes of a refused target that are shown.
const SHOWN_MAX: usize = 300;

/// Whether an answer is a redirect that can be followed.
pub(in crate::transport) fn leads_on(response: &ClientResponse) -> bool {
    matches!(
        response.status(),
        StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT
    )
}

/// Follows redirects by sending the request again, with the `extra` headers for its URL, up to the
/// limit; returns the last answer and its URL.
///
/// # Errors
///
/// Returns [`SendRequestError`] if sending failed.
pub(in crate::transport) async fn follow(
    client: &Client,
    request: &FrozenClientRequest,
    extra: impl Fn(&Url) -> HeaderMap,
    body: Bytes,
    mut response: ClientResponse,
) -> Result<(ClientResponse, Option<Url>), SendRequestError> {
    let mut url = url_of_wire(request.get_uri());
    for _ in 0..HOPS_MAX {
        if !leads_on(&response) {
            break;
        }
        let location = response.headers().get(LOCATION);
        let next = url.as_ref().zip(location);
        let next = next.and_then(|(url, location)| target(url, location.as_bytes()));
        let Some((next, uri)) = next.and_then(|next| Some((wire_uri(&next).ok()?, next))) else {
            break;
        };
        log::debug!(to:% = next.path(); "following redirect");
        let mut again = client
            .request(request.get_method().clone(), next)
            .camel_case()
            .no_decompress();
        for (name, value) in request.headers() {
            again.headers_mut().append(name.clone(), value.clone());
        }
        for (name, value) in &extra(&uri) {
            again.headers_mut().insert(name.clone(), value.clone());
        }
        response = if body.is_empty() {
            again.send().await?
        } else {
            again.send_body(body.clone()).await?
        };
        url = Some(uri);
    }
    Ok((response, url))
}

/// Resolves `location`; `None` if it is outside the origin.
fn target(from: &Url, location: &[u8]) -> Option<Url> {
    if location.len() > LOCATION_MAX {
        return None;
    }
    let mut to = from.join(std::str::from_utf8(location).ok()?).ok()?;
    let has_credentials = !to.username().is_empty() || to.password().is_some();
    if to.origin() != from.origin() || has_credentials {
        return None;
    }
    to.set_fragment(None);
    Some(to)
}

/// Explains a redirect that was not followed; `None` if the answer is not a redirect.
pub(in crate::transport) fn refusal(response: &ClientResponse) -> Option<String> {
    if !response.status().is_redirection() {
        return None;
    }
    let location = response.headers().get(LOCATION)?;
    let shown = shown(location.as_bytes());
    Some(format!(
        "redirect to `{shown}`; only 307 and 308 within the same origin are followed, at most \
         {HOPS_MAX} times"
    ))
}

/// A target without its query and credentials, which can be secret.
fn shown(location: &[u8]) -> String {
    let text = String::from_utf8_lossy(location);
    let path_end = text.find(['?', '#']).unwrap_or(text.len());
    let text = text.get(..path_end).unwrap_or_default();
    let text = match Url::parse(text) {
        Ok(url) if url.has_host() => public_url(&url),
        _ => match text.strip_prefix("//") {
            // Text before an `@` in a host can be a password.
            Some(rest) => {
                let rest = rest.rsplit('@').next().unwrap_or_default();
                let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
                format!("//{host}{}", public_path(path))
            }
            None if text.starts_with('/') => public_path(text),
            None => text.to_owned(),
        },
    };
    messages::excerpt(text.as_bytes(), SHOWN_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_within_the_origin_or_none() {
        let from = Url::parse("http://host.example:8080/a/mcp?key=1").unwrap();
        let cases = [
            ("/mcp/", Some("http://host.example:8080/mcp/")),
            ("mcp/?key=1", Some("http://host.example:8080/a/mcp/?key=1")),
            (
                "http://HOST.example:8080/m#part",
                Some("http://host.example:8080/m"),
            ),
            ("https://host.example:8080/mcp", None),
            ("http://host.example/mcp", None),
            ("//evil.example:8080/mcp", None),
            ("http://host.example:8080@evil.example/", None),
            ("http://user:secret@host.example:8080/", None),
            ("javascript:alert(1)", None),
            ("http://[", None),
        ];
        for (location, expected) in cases {
            let target = target(&from, location.as_bytes());
            let target = target.map(|target| target.to_string());
            assert_eq!(target.as_deref(), expected, "{location}");
        }
        assert_eq!(target(&from, b"\xff"), None);
        let long = vec![b'a'; LOCATION_MAX + 1];
        assert_eq!(target(&from, &long), None);
    }

    #[test]
    fn a_refused_target_is_shown_without_secrets() {
        let cases = [
            (
                "https://user:secret@host.example/mcp?key=secret",
                "https://host.example/mcp",
            ),
            ("//user:secret@host.example/mcp", "//host.example/mcp"),
            ("/login?token=secret", "/login"),
            ("/login#secret", "/login"),
            ("http://[\n", "http://["),
            ("", ""),
        ];
        for (location, expected) in cases {
            assert_eq!(shown(location.as_bytes()), expected, "{location}");
        }
    }
}
