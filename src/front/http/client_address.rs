//! The address of a request's client, which can be behind proxies.

use std::net::{IpAddr, SocketAddr};

use actix_web::dev::ServiceRequest;
use actix_web::{HttpMessage as _, HttpRequest};
use ipnet::IpNet;

use crate::id::ForwardedClient;

/// Header to which each proxy appends the address from which a request reached it.
const X_FORWARDED_FOR: &str = "x-forwarded-for";

/// Notes the client of a request that a trusted proxy forwards.
pub(super) fn note_forwarded(request: &ServiceRequest, trusted: &[IpNet]) {
    if trusted.is_empty() {
        return;
    }
    let Some(proxy) = request.peer_addr() else {
        return;
    };
    let hops = request.headers().get_all(X_FORWARDED_FOR);
    let hops: Vec<&str> = hops.filter_map(|hops| hops.to_str().ok()).collect();
    if let Some(client) = forwarded(proxy.ip(), &hops, trusted) {
        request.extensions_mut().insert(ForwardedClient(client));
    }
}

/// The client that a trusted proxy named; `None` for a direct connection.
pub(super) fn forwarded_address(request: &HttpRequest) -> Option<IpAddr> {
    let noted = request.extensions().get::<ForwardedClient>().copied();
    noted.map(|ForwardedClient(client)| client)
}

/// The address of the client, or of the nearest proxy that is not trusted
/// (`gateway.trusted_proxies`); `None` on a Unix socket.
pub(in crate::front) fn client_address(request: &HttpRequest) -> Option<IpAddr> {
    let direct = || request.peer_addr().map(|address| address.ip());
    forwarded_address(request).or_else(direct)
}

/// Follows the proxies from the nearest one to the first address that is not trusted. Addresses
/// beyond it can be forged, because a client can send this header itself.
fn forwarded(proxy: IpAddr, headers: &[&str], trusted: &[IpNet]) -> Option<IpAddr> {
    let is_trusted = |address: IpAddr| trusted.iter().any(|network| network.contains(&address));
    let mut client = proxy.to_canonical();
    let mut hops = headers.iter().rev().flat_map(|hops| hops.rsplit(','));
    let mut was_forwarded = false;
    while is_trusted(client) {
        let Some(hop) = hops.next().and_then(|hop| address(hop.trim())) else {
            break;
        };
        (client, was_forwarded) = (hop, true);
    }
    was_forwarded.then_some(client)
}

/// Some proxies append the port.
fn address(hop: &str) -> Option<IpAddr> {
    let bare = hop.parse().ok();
    let with_port = || hop.parse().ok().map(|hop: SocketAddr| hop.ip());
    bare.or_else(with_port)
        .map(|hop: IpAddr| hop.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_client_is_the_nearest_address_that_is_not_trusted() {
        let trusted: Vec<IpNet> = ["10.0.0.0/8", "127.0.0.1/32", "fd00::/8"]
            .map(|network| network.parse().unwrap())
            .to_vec();
        let table: [(&str, &[&str], Option<&str>); 12] = [
            // Only a trusted proxy is believed.
            ("192.0.2.1", &["198.51.100.7"], None),
            ("127.0.0.1", &["198.51.100.7"], Some("198.51.100.7")),
            ("::ffff:10.1.2.3", &["198.51.100.7"], Some("198.51.100.7")),
            ("fd00::1", &["2001:db8::5"], Some("2001:db8::5")),
            // A client can send the header itself.
            (
                "10.0.0.1",
                &["203.0.113.9, 198.51.100.7"],
                Some("198.51.100.7"),
            ),
            (
                "10.0.0.1",
                &["203.0.113.9", "198.51.100.7"],
                Some("198.51.100.7"),
            ),
            (
                "10.0.0.1",
                &["198.51.100.7, 10.0.0.2,10.0.0.3"],
                Some("198.51.100.7"),
            ),
            ("10.0.0.1", &["10.0.0.2"], Some("10.0.0.2")),
            ("10.0.0.1", &["198.51.100.7:4711"], Some("198.51.100.7")),
            ("10.0.0.1", &["[2001:db8::5]:4711"], Some("2001:db8::5")),
            // Nothing beyond an unreadable address is believed.
            ("10.0.0.1", &["198.51.100.7, unknown"], None),
            ("10.0.0.1", &[], None),
        ];
        for (proxy, headers, expected) in table {
            let expected = expected.map(|address| address.parse().unwrap());
            let client = forwarded(proxy.parse().unwrap(), headers, &trusted);
            assert_eq!(client, expected, "{proxy} {headers:?}");
        }
    }
}
