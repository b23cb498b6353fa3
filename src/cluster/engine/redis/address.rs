//! The address of the engine as it is configured.

use std::fmt;

use percent_encoding::percent_decode_str;
use secrecy::{ExposeSecret, SecretString};

const PORT: u16 = 6379;
const SENTINEL_PORT: u16 = 26379;

/// Where the engine is and how to sign in.
#[derive(Clone)]
pub struct EngineSpec {
    pub(super) has_tls: bool,
    pub(super) user: Option<String>,
    pub(super) password: Option<SecretString>,
    /// The engine, or its Sentinels.
    pub(super) hosts: Vec<(String, u16)>,
    /// The name of the primary that Sentinels watch.
    pub(super) sentinel: Option<String>,
    pub(super) database: i64,
    /// CA certificates in PEM format; `None` for those of the system.
    pub(super) ca: Option<Vec<u8>>,
}

/// Why an address is not that of an engine.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidEngine {
    #[error("start with redis://, rediss:// (TLS), redis+sentinel:// or rediss+sentinel://")]
    Scheme,
    #[error("a host is required, such as redis://valkey:6379")]
    Host,
    #[error("`{0}` is not a port")]
    Port(String),
    #[error("the database is a number, not `{0}`")]
    Database(String),
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
        self.password.as_ref().map(ExposeSecret::expose_secret)
    }

    /// Reads `redis://[user:password@]host[:port][/database]`, or with Sentinel
    /// `redis+sentinel://[user:password@]host[:port],…/primary`.
    ///
    /// # Errors
    ///
    /// Returns an error that says what to write.
    pub fn parse(text: &str, ca: Option<Vec<u8>>) -> Result<Self, InvalidEngine> {
        let (scheme, rest) = text.split_once("://").ok_or(InvalidEngine::Scheme)?;
        let (has_tls, has_sentinel) = match scheme {
            "redis" => (false, false),
            "rediss" => (true, false),
            "redis+sentinel" => (false, true),
            "rediss+sentinel" => (true, true),
            _ => return Err(InvalidEngine::Scheme),
        };
        // A password can contain `@` and `/`, a host cannot.
        let (sign_in, rest) = match rest.rsplit_once('@') {
            Some((sign_in, rest)) => (Some(sign_in), rest),
            None => (None, rest),
        };
        if rest.contains(['?', '#']) {
            return Err(InvalidEngine::Query);
        }
        let (hosts, path) = rest.split_once('/').unwrap_or((rest, ""));
        let port = if has_sentinel { SENTINEL_PORT } else { PORT };
        let hosts: Vec<_> = hosts
            .split(',')
            .map(|host| parse_host(host, port))
            .collect::<Result<_, _>>()?;
        let (sentinel, database) = match (has_sentinel, path) {
            (true, "") => return Err(InvalidEngine::Primary),
            (true, name) => (Some(name.to_owned()), 0),
            (false, "") => (None, 0),
            (false, number) => {
                let wrong = |_| InvalidEngine::Database(number.to_owned());
                (None, number.parse().map_err(wrong)?)
            }
        };
        if sentinel.is_none() && hosts.len() > 1 {
            return Err(InvalidEngine::Hosts);
        }
        let decode = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
        let (user, password) = match sign_in.map(|it| it.split_once(':').unwrap_or((it, ""))) {
            None => (None, None),
            Some((user, password)) => (Some(decode(user)), Some(decode(password))),
        };
        Ok(Self {
            has_tls,
            user: user.filter(|user| !user.is_empty()),
            password: password
                .filter(|password| !password.is_empty())
                .map(SecretString::from),
            hosts,
            sentinel,
            database,
            ca,
        })
    }
}

fn parse_host(text: &str, port: u16) -> Result<(String, u16), InvalidEngine> {
    let (host, given) = match text.strip_prefix('[') {
        Some(bracketed) => {
            let (host, rest) = bracketed.split_once(']').ok_or(InvalidEngine::Host)?;
            (host, rest.strip_prefix(':'))
        }
        None => match text.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        },
    };
    if host.is_empty() {
        return Err(InvalidEngine::Host);
    }
    let wrong = |text: &str| InvalidEngine::Port(text.to_owned());
    let port = given.map_or(Ok(port), |given| given.parse().map_err(|_| wrong(given)))?;
    Ok((host.to_owned(), port))
}

/// The address without user and password.
impl fmt::Display for EngineSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tls = if self.has_tls { "s" } else { "" };
        let sentinel = self.sentinel.as_ref().map_or("", |_| "+sentinel");
        write!(f, "redis{tls}{sentinel}://")?;
        for (index, (host, port)) in self.hosts.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            let (open, close) = if host.contains(':') {
                ("[", "]")
            } else {
                ("", "")
            };
            write!(f, "{comma}{open}{host}{close}:{port}")?;
        }
        match (&self.sentinel, self.database) {
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
        assert_eq!(spec.user.as_deref(), Some("mcp@x"));
        assert_eq!(spec.password.as_ref().unwrap().expose_secret(), "a@b/c/");
        assert_eq!(format!("{spec:?}"), "EngineSpec(redis://host:6379)");
    }

    #[test]
    fn other_addresses_are_refused() {
        use InvalidEngine::{Database, Host, Hosts, Port, Primary, Query, Scheme};
        let table = [
            ("valkey:6379", Scheme),
            ("http://valkey", Scheme),
            ("redis://", Host),
            ("redis://u:p@:6379", Host),
            ("redis://valkey:x", Port("x".to_owned())),
            ("redis://valkey/x", Database("x".to_owned())),
            ("redis://a,b", Hosts),
            ("redis+sentinel://a,b", Primary),
            ("redis://valkey?x=1", Query),
        ];
        for (text, expected) in table {
            assert_eq!(EngineSpec::parse(text, None).unwrap_err(), expected);
        }
    }
}
