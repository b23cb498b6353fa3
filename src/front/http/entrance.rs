//! By which view a client enters: the path below the endpoint names it.

use actix_web::HttpRequest;
use actix_web::guard::GuardContext;

use crate::front::state::Front;
use crate::id::{ServerName, ViewId};
use crate::protocol::{ErrorKind, Failure};

/// The segment of a path that names a view of the configuration.
const VIEW: &str = "view";

/// The segment that names a server.
const SERVER: &str = "server";

/// Whether a request to the endpoint is MCP. One that names a server in its query is the API's.
pub(super) fn is_for_mcp(context: &GuardContext<'_>) -> bool {
    let query = context.head().uri.query();
    !query.is_some_and(|query| query.contains("serverId="))
}

/// The paths of views of an endpoint. Below the root there are other things than views.
pub(super) fn paths_of_views(endpoint: &str) -> impl Iterator<Item = String> {
    let below = endpoint.trim_end_matches('/');
    let of_server = format!("{below}/{SERVER}/{{{SERVER}}}");
    let named = (!below.is_empty()).then(|| format!("{below}/{{{VIEW}}}"));
    [Some(of_server), named].into_iter().flatten()
}

/// The view that a request names.
///
/// # Errors
///
/// Returns the 404 that the client is to read when there is no such view.
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
        "there is nothing at `{path}`: `[views.NAME]` in the configuration makes a view, and \
         `[servers.NAME]` a server"
    );
    Failure::new(ErrorKind::NotFound, message)
}
