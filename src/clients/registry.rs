//! The API of an MCP registry: the URLs to ask, and the answer to a search.

use serde_json::Value;
use url::Url;

use crate::clients::server_json::{is_removed, text};
use crate::credentials::{Web as _, WebRequest};
use crate::transport::{self, Tls, WebClient};

/// The registry that is asked unless another one is named.
pub const REGISTRY: &str = "https://registry.modelcontextprotocol.io";

/// Maximum size of a document at a URL, in bytes.
const DOCUMENT_MAX: usize = 4 << 20;

/// The URL of a server's `server.json` in a registry (API v0.1); `None` for a text that cannot be a
/// server's name. `NAME@VERSION` requests a version.
///
/// # Errors
///
/// Fails if the registry's URL is unusable.
pub fn registry_url(registry: &Url, text: &str) -> Result<Option<Url>, String> {
    let (name, version) = text.split_once('@').unwrap_or((text, "latest"));
    let is_part = |part: &str| {
        let is_legal = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        !part.is_empty() && part.chars().all(is_legal)
    };
    let parts = name.split_once('/');
    // Names start with a reversed domain.
    let is_name = parts.is_some_and(|(owner, server)| {
        is_part(owner) && owner.contains('.') && !owner.starts_with('.') && is_part(server)
    });
    if !is_name || version.is_empty() {
        return Ok(None);
    }
    with_path(registry, &["v0.1", "servers", name, "versions", version]).map(Some)
}

fn with_path(registry: &Url, segments: &[&str]) -> Result<Url, String> {
    let unusable = || format!("the registry {registry} must be a URL with http:// or https://");
    let mut url = registry.clone();
    if !matches!(url.scheme(), "http" | "https") {
        return Err(unusable());
    }
    let mut path = url.path_segments_mut().map_err(|()| unusable())?;
    path.pop_if_empty();
    path.extend(segments);
    drop(path);
    Ok(url)
}

/// The URL of a search in a registry.
///
/// # Errors
///
/// Fails for a registry whose URL is not an HTTP one.
fn search_url(registry: &Url, word: &str, limit: u8) -> Result<Url, String> {
    let mut url = with_path(registry, &["v0", "servers"])?;
    url.query_pairs_mut()
        .append_pair("search", word)
        .append_pair("version", "latest")
        .append_pair("limit", &limit.to_string());
    Ok(url)
}

/// Searches a registry by a part of the servers' names.
///
/// # Errors
///
/// Fails if the registry cannot be reached, or does not answer like one.
pub async fn search_registry(
    registry: &Url,
    word: &str,
    limit: u8,
) -> Result<Vec<FoundServer>, String> {
    let answer = document(search_url(registry, word, limit)?).await;
    let answer = answer.map_err(|why| format!("the registry cannot be reached: {why}"))?;
    let answer: Option<Value> = serde_json::from_slice(&answer).ok();
    let servers = answer.as_ref().and_then(found_servers);
    servers.ok_or_else(|| format!("{registry} did not answer like an MCP registry"))
}

/// The document at a URL, such as the answer of a registry.
///
/// # Errors
///
/// Fails if the answer is not complete within the limits of the web client.
pub async fn document(url: Url) -> Result<Vec<u8>, String> {
    transport::install_crypto_provider();
    let web = WebClient::new(Tls::system(), vec![url.clone()]).with_answer_max(DOCUMENT_MAX);
    let answer = web.send(WebRequest::get(url.clone())).await;
    let answer = answer.map_err(|why| format!("{url}: {why}"))?;
    match answer.status {
        200 => Ok(answer.body.to_vec()),
        404 => Err(format!("{url}: no such server")),
        status => Err(format!("{url}: answered {status}")),
    }
}

/// A server that a registry lists.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct FoundServer {
    pub name: String,
    pub description: String,
}

/// The servers in a registry's answer to a search, each once and without removed ones; `None` if it
/// is no such answer.
fn found_servers(answer: &Value) -> Option<Vec<FoundServer>> {
    let mut found: Vec<FoundServer> = Vec::new();
    for listed in answer["servers"].as_array()? {
        let server = listed.get("server").unwrap_or(listed);
        let name = text(server, "name").unwrap_or_default();
        let is_known = found.iter().any(|known| known.name == name);
        if !name.is_empty() && !is_known && !is_removed(listed) {
            found.push(FoundServer {
                name: name.to_owned(),
                description: text(server, "description").unwrap_or_default().to_owned(),
            });
        }
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn registry_urls_are_built_only_for_possible_names() {
        let registry = Url::parse("https://registry.example/mcp/").unwrap();
        let found = |text| registry_url(&registry, text).unwrap().map(String::from);
        let at = |rest: &str| Some(format!("https://registry.example/mcp/v0.1/servers/{rest}"));
        assert_eq!(
            found("io.github.a/far_1"),
            at("io.github.a%2Ffar_1/versions/latest")
        );
        assert_eq!(found("com.a/b@1.0.0+x"), at("com.a%2Fb/versions/1.0.0+x"));
        assert_eq!(found("com.a/b@../.."), at("com.a%2Fb/versions/..%2F.."));
        for text in [
            "server.json",
            "./a.b/c",
            "a/b",
            "../a",
            "com.a/b/c",
            "com.a/",
            "/x",
            "com.a/b@",
            "com.a/b c",
            "com.ä/b",
        ] {
            assert_eq!(found(text), None, "{text}");
        }
        let file = Url::parse("file:///x").unwrap();
        assert!(registry_url(&file, "com.a/b").is_err());
    }

    #[test]
    fn a_search_lists_each_server_once() {
        let registry = Url::parse("https://registry.example/").unwrap();
        assert_eq!(
            search_url(&registry, "a b&c", 5).unwrap().as_str(),
            "https://registry.example/v0/servers?search=a+b%26c&version=latest&limit=5"
        );
        let removed = json!({"io.modelcontextprotocol.registry/official": {"status": "deleted"}});
        let answer = json!({"servers": [
            {"server": {"name": "io.a/x", "description": "X"}, "_meta": {}},
            {"server": {"name": "io.a/x", "description": "older"}},
            {"server": {"name": "io.a/gone"}, "_meta": removed},
            {"name": "io.a/flat"},
            {"server": {}}, 5,
        ]});
        let found = found_servers(&answer).unwrap();
        let shown: Vec<_> = found
            .iter()
            .map(|it| (&*it.name, &*it.description))
            .collect();
        assert_eq!(shown, [("io.a/x", "X"), ("io.a/flat", "")]);
        assert_eq!(found_servers(&json!({"error": "x"})), None);
    }
}
