//! The headers of forwarded requests and of their answers.

use std::net::{IpAddr, Ipv4Addr};

use actix_web::dev::ServiceRequest;
use actix_web::http::StatusCode;
use actix_web::http::header::{self, HeaderMap, HeaderName, HeaderValue};
use actix_web::{HttpMessage as _, HttpRequest, HttpResponse};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::cluster::ReplicaRef;
use crate::front::http::headers::value;
use crate::front::http::respond;
use crate::id::{ForwardedClient, Principal};

/// The address of the client.
const CLIENT: HeaderName = HeaderName::from_static("mcpvisor-client");
/// The client is on the machine of the sender, and no other machine can connect.
const LOCAL: HeaderName = HeaderName::from_static("mcpvisor-local");
/// The principal that the client's connection proves, in base64.
const PRINCIPAL: HeaderName = HeaderName::from_static("mcpvisor-principal");
/// The replica that the request is meant for, as `number.incarnation`.
const REPLICA: HeaderName = HeaderName::from_static("mcpvisor-replica");
/// Lets the receiver take the session over, because the sender leaves the cluster.
const TAKE: HeaderName = HeaderName::from_static("mcpvisor-take");
/// In an answer: the replica does not own the session, and did nothing.
const NOT_OWNER: HeaderName = HeaderName::from_static("mcpvisor-not-owner");

/// Headers of one connection (RFC 9110, section 7.6.1), and those that the sender determines.
const OF_CONNECTION: [HeaderName; 9] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    header::EXPECT,
    header::CONTENT_LENGTH,
];

/// Headers that only replicas may set.
const OF_HOP: [HeaderName; 6] = [CLIENT, LOCAL, PRINCIPAL, REPLICA, TAKE, NOT_OWNER];

/// A request that another replica forwarded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::front) struct Hopped {
    /// The principal that the client's connection to the other replica proves.
    pub(in crate::front) principal: Option<Principal>,
    /// Whether the client is on the machine of the other replica.
    pub(in crate::front) is_local: bool,
    /// The replica that the request is meant for.
    pub(super) replica: Option<ReplicaRef>,
    /// Whether this replica may take the session over.
    pub(super) may_take: bool,
}

/// Notes what the other replica says about a request. Only for requests whose connection has the
/// key of the cluster.
pub(in crate::front) fn note(request: &ServiceRequest) {
    let (hopped, client) = read(request.headers());
    let mut extensions = request.extensions_mut();
    extensions.insert(hopped);
    // The client of a Unix socket has no address.
    let client = client.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
    extensions.insert(ForwardedClient(client));
}

fn read(headers: &HeaderMap) -> (Hopped, Option<IpAddr>) {
    let text = |name: &HeaderName| headers.get(name)?.to_str().ok();
    let principal = text(&PRINCIPAL).and_then(|text| URL_SAFE_NO_PAD.decode(text).ok());
    let principal = principal.and_then(|bytes| String::from_utf8(bytes).ok());
    let hopped = Hopped {
        principal: principal.map(|name| Principal::Authenticated(name.into())),
        is_local: headers.contains_key(&LOCAL),
        replica: text(&REPLICA).and_then(|text| text.parse().ok()),
        may_take: headers.contains_key(&TAKE),
    };
    (hopped, text(&CLIENT).and_then(|text| text.parse().ok()))
}

/// Returns what another replica said about a request; `None` if a client sent it.
pub(in crate::front) fn hopped(request: &HttpRequest) -> Option<Hopped> {
    request.extensions().get::<Hopped>().cloned()
}

/// Facts about the client that the receiver cannot see itself.
pub(super) struct Origin {
    pub(super) client: Option<IpAddr>,
    pub(super) is_local: bool,
    pub(super) principal: Option<Principal>,
}

/// Returns the headers with which a client's request is forwarded. Headers that only replicas may
/// set are dropped.
pub(super) fn of_request(
    headers: &HeaderMap,
    origin: &Origin,
    to: ReplicaRef,
    may_take: bool,
) -> HeaderMap {
    let mut sent = end_to_end(headers);
    sent.insert(REPLICA, value(&to.to_string()));
    if let Some(client) = origin.client {
        sent.insert(CLIENT, value(&client.to_string()));
    }
    if origin.is_local {
        sent.insert(LOCAL, HeaderValue::from_static("1"));
    }
    if let Some(principal) = &origin.principal {
        let text = URL_SAFE_NO_PAD.encode(principal.as_str());
        sent.insert(PRINCIPAL, value(&text));
    }
    if may_take {
        sent.insert(TAKE, HeaderValue::from_static("1"));
    }
    sent
}

/// Returns the headers of an answer that the client receives. CORS and the date are added by the
/// replica that answers the client.
pub(super) fn of_answer(headers: &HeaderMap) -> HeaderMap {
    let mut sent = end_to_end(headers);
    sent.remove(header::DATE);
    sent.remove(header::VARY);
    let cors: Vec<_> = sent.keys().cloned().collect();
    for name in cors {
        if name.as_str().starts_with("access-control-") {
            sent.remove(name);
        }
    }
    sent
}

fn end_to_end(headers: &HeaderMap) -> HeaderMap {
    let named = headers.get_all(header::CONNECTION);
    let named = named.filter_map(|names| names.to_str().ok());
    let named: Vec<String> = named
        .flat_map(|names| names.split(','))
        .map(|name| name.trim().to_ascii_lowercase())
        .collect();
    let mut sent = HeaderMap::with_capacity(headers.len() + OF_HOP.len());
    for (name, value) in headers {
        let is_of_connection = OF_CONNECTION.contains(name)
            || OF_HOP.contains(name)
            || named.iter().any(|it| it == name.as_str());
        if !is_of_connection {
            sent.append(name.clone(), value.clone());
        }
    }
    sent
}

/// Returns the answer of a replica that does not own the session.
pub(super) fn not_owner() -> HttpResponse {
    let mut response = respond::empty(StatusCode::MISDIRECTED_REQUEST);
    let headers = response.headers_mut();
    headers.insert(NOT_OWNER, HeaderValue::from_static("1"));
    response
}

pub(super) fn is_not_owner(headers: &HeaderMap) -> bool {
    headers.contains_key(&NOT_OWNER)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(lines: &[(&'static str, &'static str)]) -> HeaderMap {
        let lines = lines.iter().map(|(name, value)| {
            let name = HeaderName::from_static(name);
            (name, HeaderValue::from_static(value))
        });
        HeaderMap::from_iter(lines)
    }

    #[test]
    fn a_client_cannot_set_what_only_replicas_may_say() {
        let sent = headers(&[
            ("authorization", "Bearer a"),
            ("connection", "keep-alive, x-once"),
            ("content-length", "3"),
            ("mcpvisor-client", "192.0.2.1"),
            ("mcpvisor-principal", "cm9vdA"),
            ("mcpvisor-replica", "9.9"),
            ("mcpvisor-take", "1"),
            ("x-once", "1"),
        ]);
        let to = ReplicaRef::of(2, 30);
        let origin = Origin {
            client: Some([198, 51, 100, 7].into()),
            is_local: false,
            principal: None,
        };
        let forwarded = of_request(&sent, &origin, to, false);
        let mut lines: Vec<_> = forwarded
            .iter()
            .map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()))
            .collect();
        lines.sort();
        let expected = [
            "authorization: Bearer a",
            "mcpvisor-client: 198.51.100.7",
            "mcpvisor-replica: 2.30",
        ];
        assert_eq!(lines, expected);
        let (hopped, client) = read(&forwarded);
        assert_eq!(client, origin.client);
        assert_eq!(hopped.replica, Some(to));
        assert_eq!((hopped.principal, hopped.may_take), (None, false));
    }

    #[test]
    fn the_principal_of_a_connection_survives_the_hop() {
        let to = ReplicaRef::of(2, 30);
        let principal = Principal::of("tls", "spiffe://host/ünïque");
        let origin = Origin {
            client: None,
            is_local: true,
            principal: Some(principal.clone()),
        };
        let (hopped, client) = read(&of_request(&HeaderMap::new(), &origin, to, true));
        assert_eq!((hopped.principal, client), (Some(principal), None));
        assert!(hopped.is_local && hopped.may_take);
    }

    #[test]
    fn the_answering_replica_adds_cors_itself() {
        let answered = headers(&[
            ("access-control-allow-origin", "http://a"),
            ("content-type", "application/json"),
            ("date", "now"),
            ("mcp-session-id", "1"),
            ("transfer-encoding", "chunked"),
            ("vary", "origin"),
        ]);
        let mut names: Vec<_> = of_answer(&answered)
            .keys()
            .map(ToString::to_string)
            .collect();
        names.sort();
        assert_eq!(names, ["content-type", "mcp-session-id"]);
    }
}
