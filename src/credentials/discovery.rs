//! Well-known URLs of the metadata of servers and authorization servers, in the order in which they
//! are tried.

use url::Url;

use super::Endpoint;

/// The identifier of a server as a `resource` (RFC 8707): its URL without a fragment, and without
/// the trailing slash of an empty path.
pub fn resource_of(server: &Url) -> String {
    let mut url = server.clone();
    url.set_fragment(None);
    match url.path() == "/" && url.query().is_none() {
        true => url.as_str().trim_end_matches('/').to_owned(),
        false => url.into(),
    }
}

/// Candidate URLs of a server's metadata (RFC 9728) when its challenge names none: below the
/// well-known path with the server's own path, then at the root.
pub fn protected_resource_urls(server: &Url) -> Vec<Url> {
    const WELL_KNOWN: &str = "/.well-known/oauth-protected-resource";
    let path = server.path().trim_end_matches('/');
    let mut urls = Vec::new();
    if !path.is_empty() {
        urls.push(at(server, &format!("{WELL_KNOWN}{path}")));
    }
    urls.push(at(server, WELL_KNOWN));
    urls
}

/// Candidate URLs of an authorization server's metadata: RFC 8414, then OpenID Connect.
pub fn authorization_server_urls(issuer: &Endpoint) -> Vec<Url> {
    const OAUTH: &str = "/.well-known/oauth-authorization-server";
    const OPENID: &str = "/.well-known/openid-configuration";
    let issuer = issuer.url();
    let path = issuer.path().trim_end_matches('/');
    let mut paths = vec![format!("{OAUTH}{path}"), format!("{OPENID}{path}")];
    if !path.is_empty() {
        paths.push(format!("{path}{OPENID}"));
    }
    paths.iter().map(|path| at(issuer, path)).collect()
}

fn at(url: &Url, path: &str) -> Url {
    let mut url = url.clone();
    url.set_path(path);
    url.set_query(None);
    url.set_fragment(None);
    url
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(urls: Vec<Url>) -> Vec<String> {
        urls.into_iter().map(String::from).collect()
    }

    #[test]
    fn server_metadata_is_looked_up_below_its_path_first() {
        let of = |server| texts(protected_resource_urls(&Url::parse(server).unwrap()));
        let root = "https://a.example/.well-known/oauth-protected-resource";
        assert_eq!(
            of("https://a.example/mcp?key=s#f"),
            [&format!("{root}/mcp"), root]
        );
        assert_eq!(
            of("https://a.example/a/mcp/"),
            [&format!("{root}/a/mcp"), root]
        );
        assert_eq!(of("https://a.example"), [root]);
    }

    #[test]
    fn authorization_server_metadata_is_looked_up_in_order() {
        let of = |issuer: &str| texts(authorization_server_urls(&issuer.parse().unwrap()));
        let tenant = [
            "https://as.example/.well-known/oauth-authorization-server/t1",
            "https://as.example/.well-known/openid-configuration/t1",
            "https://as.example/t1/.well-known/openid-configuration",
        ];
        assert_eq!(of("https://as.example/t1"), tenant);
        assert_eq!(of("https://as.example/t1/"), tenant);
        let root = [
            "https://as.example/.well-known/oauth-authorization-server",
            "https://as.example/.well-known/openid-configuration",
        ];
        assert_eq!(of("https://as.example"), root);
    }

    #[test]
    fn a_resource_has_one_spelling() {
        let table = [
            ("https://A.example:443", "https://a.example"),
            ("https://a.example/mcp#f", "https://a.example/mcp"),
            ("https://a.example/mcp/", "https://a.example/mcp/"),
            ("http://127.0.0.1:80/?a=b", "http://127.0.0.1/?a=b"),
        ];
        for (server, expected) in table {
            assert_eq!(resource_of(&Url::parse(server).unwrap()), expected);
        }
    }
}
