//! Finds the handler for an API path. Pure.

use futures_util::future::LocalBoxFuture;
use percent_encoding::percent_decode_str;

use super::answer::ApiAnswer;
use super::request::{Access, ApiRequest, BodyRule};
use crate::protocol::{ErrorKind, Failure};

/// Every path below these prefixes belongs to the API.
pub(super) const SCOPES: [&str; 3] = ["/api", "/config", "/oauth"];

/// Answers a request.
pub(super) type Handler =
    for<'a> fn(ApiRequest<'a>) -> LocalBoxFuture<'a, Result<ApiAnswer, Failure>>;

/// One endpoint.
pub(super) struct Route {
    pub(super) method: &'static str,
    /// A segment in braces matches any value.
    pub(super) path: &'static str,
    /// Query parameters that the route accepts.
    pub(super) query: &'static [&'static str],
    pub(super) body: BodyRule,
    /// Whether only the owner of the data directory can use it; over the network, the path is
    /// unknown.
    pub(super) is_owners: bool,
    pub(super) handler: Handler,
}

impl Route {
    pub(super) const fn get(
        path: &'static str,
        query: &'static [&'static str],
        handler: Handler,
    ) -> Self {
        Self {
            method: "GET",
            path,
            query,
            body: BodyRule::None,
            is_owners: false,
            handler,
        }
    }

    /// Limits the route to the socket in the data directory.
    pub(super) const fn for_owner(mut self) -> Self {
        self.is_owners = true;
        self
    }

    /// Sets the accepted query parameters.
    pub(super) const fn asks(mut self, query: &'static [&'static str]) -> Self {
        self.query = query;
        self
    }

    pub(super) const fn post(path: &'static str, body: BodyRule, handler: Handler) -> Self {
        Self {
            method: "POST",
            body,
            ..Self::get(path, &[], handler)
        }
    }

    pub(super) const fn put(path: &'static str, handler: Handler) -> Self {
        Self {
            method: "PUT",
            body: BodyRule::Required,
            ..Self::get(path, &[], handler)
        }
    }

    pub(super) const fn delete(path: &'static str, handler: Handler) -> Self {
        Self {
            method: "DELETE",
            ..Self::get(path, &[], handler)
        }
    }
}

/// The route of a request, and the segments that match its braces.
///
/// # Errors
///
/// Returns a 404 or 405 if no route matches.
pub(super) fn find<'r>(
    routes: &'r [Route],
    method: &str,
    path: &str,
    access: Access,
) -> Result<(&'r Route, Vec<String>), Failure> {
    // HEAD is handled like GET; its body is dropped later.
    let method = if method == "HEAD" { "GET" } else { method };
    let mut matching = of_path(routes, path, access).peekable();
    if matching.peek().is_none() {
        let path: String = path.chars().take(100).collect();
        let message = format!("no such path: `{path}`; docs/api.md lists the API");
        return Err(Failure::new(ErrorKind::NotFound, message));
    }
    matching
        .find(|(route, _)| route.method == method)
        .ok_or_else(|| {
            let message = format!("this path supports only {}", methods(routes, path, access));
            Failure::new(ErrorKind::HttpMethodNotAllowed, message)
        })
}

/// Methods of a path, for the `Allow` header.
pub(super) fn methods(routes: &[Route], path: &str, access: Access) -> String {
    let methods = of_path(routes, path, access).map(|(route, _)| route.method);
    methods.collect::<Vec<_>>().join(", ")
}

fn of_path<'r>(
    routes: &'r [Route],
    path: &str,
    access: Access,
) -> impl Iterator<Item = (&'r Route, Vec<String>)> {
    let matching = routes.iter();
    let matching = matching.filter(move |route| access == Access::Owner || !route.is_owners);
    matching.filter_map(move |route| Some((route, segments(route.path, path)?)))
}

/// The decoded segments that match the form's braces, if the path has this form.
fn segments(form: &str, path: &str) -> Option<Vec<String>> {
    let mut found = Vec::new();
    let mut path = path.split('/');
    for expected in form.split('/') {
        let segment = path.next()?;
        if expected.starts_with('{') && !segment.is_empty() {
            found.push(percent_decode_str(segment).decode_utf8_lossy().into_owned());
        } else if expected != segment {
            return None;
        }
    }
    path.next().is_none().then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_finds_its_route() {
        fn nothing(_: ApiRequest<'_>) -> LocalBoxFuture<'_, Result<ApiAnswer, Failure>> {
            Box::pin(std::future::ready(Ok(ApiAnswer::no_content())))
        }
        let routes = [
            Route::get("/api/a", &[], nothing),
            Route::get("/api/a/{one}", &[], nothing),
            Route::delete("/api/a/{one}", nothing),
            Route::post("/api/a/{one}/stop", BodyRule::None, nothing),
            Route::post("/api/a/{one}/kill", BodyRule::None, nothing).for_owner(),
        ];
        let found = |method, path| match find(&routes, method, path, Access::Network) {
            Ok((route, segments)) => format!("{} {} {segments:?}", route.method, route.path),
            Err(failure) => failure.kind.as_str().to_owned(),
        };
        let table = [
            ("GET", "/api/a", "GET /api/a []"),
            ("HEAD", "/api/a", "GET /api/a []"),
            ("GET", "/api/a/x", "GET /api/a/{one} [\"x\"]"),
            ("DELETE", "/api/a/x", "DELETE /api/a/{one} [\"x\"]"),
            ("POST", "/api/a/x/stop", "POST /api/a/{one}/stop [\"x\"]"),
            ("GET", "/api/a/x%2f+", "GET /api/a/{one} [\"x/+\"]"),
            ("POST", "/api/a/x/kill", "not_found"),
            ("PUT", "/api/a/x", "http_method_not_allowed"),
            ("get", "/api/a", "http_method_not_allowed"),
            ("GET", "/api/a/", "not_found"),
            ("GET", "/api//a", "not_found"),
            ("GET", "/api", "not_found"),
            ("GET", "/api/a/x/y", "not_found"),
            ("GET", "/api/a/../a", "not_found"),
        ];
        for (method, path, expected) in table {
            assert_eq!(found(method, path), expected, "{method} {path}");
        }
        assert_eq!(methods(&routes, "/api/a/x", Access::Network), "GET, DELETE");
        assert!(find(&routes, "POST", "/api/a/x/kill", Access::Owner).is_ok());
    }
}
