//! Matches hosts against `NO_PROXY`. Pure.

use std::net::IpAddr;

/// Maximum number of entries that are read.
const ENTRIES_MAX: usize = 1000;

/// The entries of `NO_PROXY`, with the same meaning as in curl.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct NoProxy(Vec<Entry>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    hosts: Hosts,
    /// `None` matches any port.
    port: Option<u16>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Hosts {
    All,
    /// A domain and all its subdomains, in lower case and without a leading dot.
    Domain(String),
    Network(IpAddr, u8),
}

impl NoProxy {
    /// Parses entries separated by commas or spaces. An invalid entry matches nothing.
    pub(super) fn parse(text: &str) -> Self {
        let entries = text.split([',', ' ', '\t', '\n']);
        let entries = entries.filter(|entry| !entry.is_empty());
        Self(entries.take(ENTRIES_MAX).filter_map(Entry::parse).collect())
    }

    /// Whether `host`, a name or an address without brackets, is reached without a proxy.
    pub(super) fn covers(&self, host: &str, port: u16) -> bool {
        let host = host.trim_end_matches('.').to_ascii_lowercase();
        let address = host.parse::<IpAddr>().ok().map(|it| it.to_canonical());
        self.0.iter().any(|entry| {
            entry.port.is_none_or(|own| own == port) && entry.hosts.cover(&host, address)
        })
    }
}

impl Entry {
    fn parse(text: &str) -> Option<Self> {
        if let Some(hosts) = Hosts::parse(text) {
            return Some(Self { hosts, port: None });
        }
        let (hosts, port) = text.rsplit_once(':')?;
        Some(Self {
            hosts: Hosts::parse(hosts)?,
            port: Some(port.parse().ok()?),
        })
    }
}

impl Hosts {
    fn parse(text: &str) -> Option<Self> {
        if text == "*" {
            return Some(Self::All);
        }
        let bare = text
            .strip_prefix('[')
            .map_or(text, |rest| rest.trim_end_matches(']'));
        if let Ok(address) = bare.parse::<IpAddr>() {
            let address = address.to_canonical();
            return Some(Self::Network(address, width(address)));
        }
        if let Some((network, bits)) = bare.split_once('/') {
            let network = network.trim_end_matches(']').parse::<IpAddr>().ok()?;
            let bits = bits.parse().ok()?;
            return (bits <= width(network)).then_some(Self::Network(network, bits));
        }
        let name = text.trim_start_matches("*.").trim_matches('.');
        let is_name = !name.is_empty() && !name.contains([':', '/', '[', ']']);
        is_name.then(|| Self::Domain(name.to_ascii_lowercase()))
    }

    fn cover(&self, host: &str, address: Option<IpAddr>) -> bool {
        match self {
            Self::All => true,
            Self::Domain(domain) => {
                let below = host.strip_suffix(domain.as_str());
                address.is_none() && below.is_some_and(|it| it.is_empty() || it.ends_with('.'))
            }
            Self::Network(network, bits) => {
                address.is_some_and(|address| is_within(address, *network, *bits))
            }
        }
    }
}

const fn width(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(_) => 32,
        IpAddr::V6(_) => 128,
    }
}

fn is_within(address: IpAddr, network: IpAddr, bits: u8) -> bool {
    let apart = match (address, network) {
        (IpAddr::V4(one), IpAddr::V4(other)) => u128::from(one.to_bits() ^ other.to_bits()) << 96,
        (IpAddr::V6(one), IpAddr::V6(other)) => one.to_bits() ^ other.to_bits(),
        _ => return false,
    };
    apart.leading_zeros() >= u32::from(bits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_without_a_proxy_are_named_by_name_suffix_network_and_port() {
        let table = [
            ("", "example.com", 443, false),
            ("*", "example.com", 443, true),
            ("example.com", "example.com", 443, true),
            ("example.com", "EXAMPLE.com.", 443, true),
            ("example.com", "api.example.com", 443, true),
            (".example.com", "api.example.com", 443, true),
            (".example.com", "example.com", 443, true),
            ("*.example.com", "api.example.com", 443, true),
            ("example.com", "notexample.com", 443, false),
            ("example.com", "example.com.evil.example", 443, false),
            ("a.example, b.example", "b.example", 443, true),
            ("a.example b.example", "b.example", 443, true),
            (",, ,a.example", "b.example", 443, false),
            ("example.com:8080", "example.com", 8080, true),
            ("example.com:8080", "example.com", 443, false),
            ("*:8080", "example.com", 8080, true),
            ("10.0.0.0/8", "10.1.2.3", 80, true),
            ("10.0.0.0/8", "11.1.2.3", 80, false),
            ("10.0.0.0/33", "10.1.2.3", 80, false),
            ("0.0.0.0/0", "192.0.2.1", 80, true),
            ("0.0.0.0/0", "2001:db8::1", 80, false),
            ("192.168.1.7", "192.168.1.7", 80, true),
            ("192.168.1.7", "192.168.1.70", 80, false),
            ("192.168.1.7:81", "192.168.1.7", 81, true),
            ("192.168.1.7", "::ffff:192.168.1.7", 80, true),
            ("1.7", "192.168.1.7", 80, false),
            ("2001:db8::/32", "2001:db8:1::1", 80, true),
            ("2001:db8::/32", "2001:db9::1", 80, false),
            ("::1", "::1", 80, true),
            ("[::1]", "::1", 80, true),
            ("[::1]:81", "::1", 81, true),
            ("[::1]:81", "::1", 80, false),
            ("a/b,[,:,:80", "a", 80, false),
        ];
        for (list, host, port, expected) in table {
            let covered = NoProxy::parse(list).covers(host, port);
            assert_eq!(covered, expected, "{list:?} {host} {port}");
        }
    }
}
