//! By which view a client enters: the path below the endpoint names it.

use actix_web::HttpRequest;

use crate::front::state::Front;
use crate::id::{ServerName, ViewId};
use crate::protocol::{ErrorKind, Failure};

/// The segment of a path that names a view of the configuration.
const VIEW: &str = "view";

/// The segment that names a server.
const SERVER: &str = "server";

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
/// Returns the 404 that the client is to read for what cannot be the name of a server.
pub(super) fn view(request: &HttpRequest) -> Result<ViewId, Failure> {
    let segments = request.match_info();
    if segments.is_empty() {
        return Ok(ViewId::Default);
    }
    if let Some(server) = segments.get(SERVER) {
        let name = ServerName::try_new(server);
        return name.map(ViewId::Server).map_err(|_| unknown(request));
    }
    Ok(segments
        .get(VIEW)
        .map_or(ViewId::Default, |name| ViewId::Named(name.into())))
}

/// Refuses a view that does not exist.
///
/// # Errors
///
/// Returns the 404 that the client is to read.
pub(super) fn check(request: &HttpRequest, front: &Front) -> Result<(), Failure> {
    match view(request)? {
        ViewId::Default => Ok(()),
        view if front.sessions.has_view(&view) => Ok(()),
        _ => Err(unknown(request)),
    }
}

fn unknown(request: &HttpRequest) -> Failure {
    let path: String = request.path().chars().take(100).collect();
    let message =
        format!("there is no view at `{path}`: `[views.NAME]` in the configuration makes one");
    Failure::new(ErrorKind::NotFound, message)
}
