//! The base URL under which API and dashboard clients reach the gateway.

use actix_web::HttpRequest;
use actix_web::http::header;

/// Scheme of the gateway's own URLs: `http` or `https`.
#[derive(Clone, Copy)]
pub(super) struct OwnScheme(pub(super) &'static str);

/// Whether the client uses TLS, either to the gateway or to a proxy in front of it.
pub(super) fn is_secure(request: &HttpRequest) -> bool {
    let own = request.app_data::<OwnScheme>();
    let forwarded = request.headers().get("x-forwarded-proto");
    own.is_some_and(|OwnScheme(own)| *own == "https")
        || forwarded.is_some_and(|proto| proto.as_bytes() == b"https")
}

/// The base URL, without a path. Empty if the host, which was already checked, is not UTF-8.
pub(super) fn base_url(request: &HttpRequest) -> String {
    let scheme = if is_secure(request) { "https" } else { "http" };
    let host = request.headers().get(header::HOST);
    let host = host.and_then(|host| host.to_str().ok());
    host.map_or_else(String::new, |host| format!("{scheme}://{host}"))
}

#[cfg(test)]
mod tests {
    use actix_web::test::TestRequest;

    use super::*;

    #[test]
    fn the_url_has_the_scheme_that_the_client_speaks() {
        let table = [
            ("http", "http", "http://gateway.example"),
            ("http", "https", "https://gateway.example"),
            ("https", "http", "https://gateway.example"),
            ("https", "nonsense", "https://gateway.example"),
        ];
        for (own, forwarded, expected) in table {
            let request = TestRequest::default()
                .app_data(OwnScheme(own))
                .insert_header(("Host", "gateway.example"))
                .insert_header(("X-Forwarded-Proto", forwarded));
            assert_eq!(base_url(&request.to_http_request()), expected);
        }
    }
}
