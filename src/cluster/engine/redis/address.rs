//! The address of the engine as it is configured.

use std::fmt;

use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo as _};

const PORT: u16 = 6379;
const SENTINEL_PORT: u16 = 26379;

/// Where the engine is and how to sign in.
#[derive(Clone)]
pub struct EngineSpec {
    /// The engine, or its Sentinels; never empty.
    pub(super) hosts: Vec<ConnectionInfo>,
    /// The name of the primary that Sentinels watch.
    pub(super) primary: Option<String>,
    /// CA certificates in PEM format; `None` for those of the system.
    pub(super) ca: Option<Vec<u8>>,
}

/// Why an address is not that of an engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidEngine {
    #[error("start with redis://, rediss:// (TLS), redis+sentinel:// or rediss+sentinel://")]
    Scheme,
    #[error("write a host, its port and the number of a database, as in redis://valkey:6379/0")]
    Host,
    #[error("name the primary after the Sentinels: redis+sentinel://s1:26379,s2:26379/mymaster")]
    Primary,
    #[error("only one host is possible without Sentinel")]
    Hosts,
    #[error("`?` and `#` are not supported; write %3F and %23 in a password")]
    Query,
}

impl EngineSpec {
    /// The password, so that it can be masked.
    pub fn password(&self) -> Option<&str> {
        self.hosts[0].redis_settings().password()
    }

    /// Reads `redis://[user:password@]host[:port][/database]`, or with Sentinel
    /// `redis+sentinel://[user:password@]host[:port],…/primary`.
    ///
    /// # Errors
    ///
    /// Returns an error that says what to write.
    pub fn parse(text: &str, ca: Option<Vec<u8>>) -> Result<Self, InvalidEngine> {
        let (scheme, rest) = text.split_once("://").ok_or(InvalidEngine::Scheme)?;
        let (scheme, has_sentinel) = match scheme.split_once('+') {
            None => (scheme, false),
            Some((scheme, "sentinel")) => (scheme, true),
            Some(_) => return Err(InvalidEngine::Scheme),
        };
        if !matches!(scheme, "redis" | "rediss") {
            return Err(InvalidEngine::Scheme);
        }
        // A password can contain `@` and `/`, a host cannot.
        let (sign_in, rest) = rest.rsplit_once('@').unwrap_or(("", rest));
        if rest.contains(['?', '#']) {
            return Err(InvalidEngine::Query);
        }
        let (hosts, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (port, primary, database) = match (has_sentinel, path) {
            (true, "") => return Err(InvalidEngine::Primary),
            (true, name) => (SENTINEL_PORT, Some(name.to_owned()), ""),
            (false, _) if hosts.contains(',') => return Err(InvalidEngine::Hosts),
            (false, database) => (PORT, None, database),
        };
        let sign_in = sign_in
            .replace('/', "%2F")
            .replace('?', "%3F")
            .replace('#', "%23");
        let node = |host: &str| {
            let after_address = host.rsplit(']').next().unwrap_or_default();
            let port = match after_address.contains(':') {
                true => String::new(),
                false => format!(":{port}"),
            };
            let url = format!("{scheme}://{sign_in}@{host}{port}/{database}");
            let info = url
                .into_connection_info()
                .map_err(|_| InvalidEngine::Host)?;
            let settings = info.redis_settings().clone().set_skip_set_lib_name();
            Ok(info.set_redis_settings(settings))
        };
        Ok(Self {
            hosts: hosts.split(',').map(node).collect::<Result<_, _>>()?,
            primary,
            ca,
        })
    }

    /// The node at this address, with the same user and password.
    pub(super) fn node(&self, host: String, port: u16) -> ConnectionInfo {
        let node = self.hosts[0].clone();
        let address = match node.addr() {
            ConnectionAddr::TcpTls { .. } => ConnectionAddr::TcpTls {
                host,
                port,
                insecure: false,
                tls_params: None,
            },
            _ => ConnectionAddr::Tcp(host, port),
        };
        node.set_addr(address)
    }
}

/// The address without user and password.
impl fmt::Display for EngineSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let has_tls = matches!(self.hosts[0].addr(), ConnectionAddr::TcpTls { .. });
        let tls = if has_tls { "s" } else { "" };
        let sentinel = self.primary.as_ref().map_or("", |_| "+sentinel");
        let hosts = self.hosts.iter().map(|host| match host.addr() {
            ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. }
                if host.contains(':') =>
            {
                format!("[{host}]:{port}")
            }
            address => address.to_string(),
        });
        let hosts = hosts.collect::<Vec<_>>().join(",");
        write!(f, "redis{tls}{sentinel}://{hosts}")?;
        match (&self.primary, self.hosts[0].redis_settings().db()) {
            (Some(name), _) => write!(f, "/{name}"),
            (None, 0) => Ok(()),
            (None, database) => write!(f, "/{database}"),
        }
    }
}

impl fmt::Debug for EngineSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EngineSpec({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read() {
        let table = [
            ("redis://valkey", "redis://valkey:6379"),
            ("rediss://valkey:1/2", "rediss://valkey:1/2"),
            ("redis://u:p@[::1]:7", "redis://[::1]:7"),
            (
                "redis+sentinel://:p@s1,s2:7/main",
                "redis+sentinel://s1:26379,s2:7/main",
            ),
        ];
        for (text, shown) in table {
            let spec = EngineSpec::parse(text, None).unwrap();
            assert_eq!(spec.to_string(), shown);
        }
        let spec = EngineSpec::parse("redis://mcp%40x:a@b/c%2F@host", None).unwrap();
        let settings = spec.hosts[0].redis_settings();
        assert_eq!(settings.username(), Some("mcp@x"));
        assert_eq!(spec.password(), Some("a@b/c/"));
        assert_eq!(format!("{spec:?}"), "EngineSpec(redis://host:6379)");
    }

    #[test]
    fn other_addresses_are_refused() {
        use InvalidEngine::{Host, Hosts, Primary, Query, Scheme};
        let table = [
            ("valkey:6379", Scheme),
            ("http://valkey", Scheme),
            ("redis://", Host),
            ("redis://u:p@:6379", Host),
            ("redis://valkey:x", Host),
            ("redis://valkey/x", Host),
            ("redis://a,b", Hosts),
            ("redis+sentinel://a,b", Primary),
            ("redis://valkey?x=1", Query),
        ];
        for (text, expected) in table {
            assert_eq!(EngineSpec::parse(text, None).unwrap_err(), expected);
        }
    }
}
