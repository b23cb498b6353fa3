//! Determines the view that a client uses from the path of its request.

use actix_web::HttpRequest;
use actix_web::guard::GuardContext;

use crate::front::state::Front;
use crate::id::{ServerName, ViewId};
use crate::protocol::{ErrorKind, Failure};

/// The path parameter with the name of a configured view.
const VIEW: &str = "view";

/// The path segment before a server's name, and the parameter with that name.
const SERVER: &str = "server";

/// Returns whether a request to the endpoint is MCP. Requests with `serverId` in the query belong
/// to the management API.
pub(super) fn is_for_mcp(context: &GuardContext<'_>) -> bool {
    let query = context.head().uri.query();
    !query.is_some_and(|query| query.contains("serverId="))
}

/// Returns the paths of an endpoint's views. At the root, paths of named views would hide other
/// paths.
pub(super) fn paths_of_views(endpoint: &str) -> impl Iterator<Item = String> {
    let below = endpoint.trim_end_matches('/');
    let of_server = format!("{below}/{SERVER}/{{{SERVER}}}");
    let named = (!below.is_empty()).then(|| format!("{below}/{{{VIEW}}}"));
    [Some(of_server), named].into_iter().flatten()
}

/// Returns the view that the path of a request names.
///
/// # Errors
///
/// Returns the 404 that the client reads if the view does not exist.
pub(in crate::front) fn view(request: &HttpRequest, front: &Front) -> Result<ViewId, Failure> {
    let segments = request.match_info();
    if segments.is_empty() {
        return Ok(ViewId::Default);
    }
    let view = match (segments.get(SERVER), segments.get(VIEW)) {
        (Some(server), _) => ServerName::try_new(server).ok().map(ViewId::Server),
        (None, name) => name.map(|name| ViewId::Named(name.into())),
    };
    let view = view.filter(|view| front.sessions.has_view(view));
    view.ok_or_else(|| unknown(request))
}

fn unknown(request: &HttpRequest) -> Failure {
    let path: String = request.path().chars().take(100).collect();
    let message = format!(
        "no view or server at `{path}`: views are configured in `[views.NAME]`, servers in \
         `[servers.NAME]`"
    );
    Failure::new(ErrorKind::NotFound, message)
}
