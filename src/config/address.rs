//! Resolves the address to listen on: `MCPVISOR_LISTEN`, else `PORT` and `HOST`, else the file.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use super::declaration::texts::TextValue;
use super::environment::{Environment, LISTEN};
use super::problem::Problem;
use super::section::{Section, ValueError};

/// Default port, also used when `PORT` is invalid.
pub(crate) const PORT: u16 = 12006;

pub(crate) const MUST_BE: &str = "an address and port, such as `\"127.0.0.1:12006\"`";

pub(crate) const LISTEN_MUST_BE: &str =
    "an address and port, such as `\"127.0.0.1:12006\"`, or `\"unix:/path/to/socket\"`";

/// Where clients connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListenAddress {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl TextValue for ListenAddress {
    fn text(&self) -> Option<String> {
        Some(self.to_string())
    }
}

/// The default address.
pub(crate) const LOOPBACK: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), PORT);

pub(crate) fn tcp_address(text: &str) -> Result<SocketAddr, ValueError> {
    parse(text).ok_or_else(ValueError::as_declared)
}

pub(crate) fn listen_address(text: &str) -> Result<ListenAddress, ValueError> {
    if let Some(path) = text.strip_prefix("unix:") {
        let is_absolute = Path::new(path).is_absolute() && !path.contains('\0');
        let socket = || ListenAddress::Unix(path.into());
        return is_absolute.then(socket).ok_or_else(ValueError::as_declared);
    }
    parse(text)
        .map(ListenAddress::Tcp)
        .ok_or_else(ValueError::as_declared)
}

/// Returns the address to listen on, with the environment's overrides applied.
///
/// Refuses an address that other machines can reach if clients need not authenticate, unless
/// `allow_unauthenticated` is set.
pub(crate) fn listen(
    section: &Section<'_>,
    in_file: &ListenAddress,
    may_be_public: bool,
) -> ListenAddress {
    let environment = section.reader.interpolation.environment;
    let in_file = match in_file {
        ListenAddress::Tcp(address) => *address,
        ListenAddress::Unix(_) if is_set(environment) => LOOPBACK,
        socket @ ListenAddress::Unix(_) => return socket.clone(),
    };
    let listen = match from_environment(environment, in_file) {
        Ok(chosen) => {
            chosen
                .warnings
                .into_iter()
                .for_each(|warning| section.reader.warn(&warning));
            chosen.address
        }
        Err(message) => {
            section
                .reader
                .problem(Problem::new("gateway.listen", message));
            in_file
        }
    };
    if !listen.ip().is_loopback() && !may_be_public {
        refuse_public(section, listen, in_file);
    }
    ListenAddress::Tcp(listen)
}

/// Whether the environment names an address.
fn is_set(environment: &dyn Environment) -> bool {
    let named = |name| environment.var(name).is_some_and(|text| !text.is_empty());
    named(LISTEN) || named("PORT")
}

fn refuse_public(section: &Section<'_>, listen: SocketAddr, in_file: SocketAddr) {
    let help = "create an API key with `mcpvisor keys add NAME`, or listen on `127.0.0.1` and put \
                a proxy with authentication in front of it, or set `allow_unauthenticated = true` \
                in [gateway]: anyone who can reach the address can then use every server";
    if listen.ip() == in_file.ip() {
        let message = "`gateway.listen` is reachable from other machines, but no \
                       authentication is configured";
        section.refuse(&["listen"], message.to_owned(), help.to_owned());
    } else {
        let message = "the address set by the environment (`MCPVISOR_LISTEN`, `HOST`, a socket of \
                       the service manager) is reachable from other machines, but no \
                       authentication is configured";
        let problem = Problem::new("gateway.listen", message.to_owned());
        section.reader.problem(problem.help(help.to_owned()));
    }
}

/// An address, with warnings about the variables that it was read from.
#[derive(Debug, PartialEq, Eq)]
struct Chosen {
    address: SocketAddr,
    warnings: Vec<String>,
}

fn from_environment(environment: &dyn Environment, in_file: SocketAddr) -> Result<Chosen, String> {
    let var = |name| {
        let text = environment.var(name)?.to_string_lossy().trim().to_owned();
        (!text.is_empty()).then_some(text)
    };
    if let Some(text) = var(LISTEN) {
        return match parse(&text) {
            Some(address) => Ok(Chosen {
                address,
                warnings: Vec::new(),
            }),
            None => Err(
                "the environment variable `MCPVISOR_LISTEN` must be an address and \
                         port, such as `127.0.0.1:12006`"
                    .to_owned(),
            ),
        };
    }
    let mut chosen = Chosen {
        address: in_file,
        warnings: Vec::new(),
    };
    let Some(port) = var("PORT") else {
        return Ok(chosen);
    };
    let port = port
        .parse::<u16>()
        .ok()
        .filter(|port| *port != 0)
        .unwrap_or_else(|| {
            chosen.warnings.push(format!(
                "the environment variable `PORT` is not a number from 1 to 65535; using {PORT}"
            ));
            PORT
        });
    chosen.address.set_port(port);
    if let Some(host) = var("HOST") {
        match parse_host(&host) {
            Some(host) => chosen.address.set_ip(host),
            None => chosen.warnings.push(format!(
                "the environment variable `HOST` is not an IP address; using {}",
                chosen.address.ip()
            )),
        }
    }
    Ok(chosen)
}

fn parse(text: &str) -> Option<SocketAddr> {
    if let Ok(address) = text.parse() {
        return Some(address);
    }
    let (host, port) = text.rsplit_once(':')?;
    Some(SocketAddr::new(parse_host(host)?, port.parse().ok()?))
}

fn parse_host(host: &str) -> Option<IpAddr> {
    if host.eq_ignore_ascii_case("localhost") {
        return Some(IpAddr::V4(Ipv4Addr::LOCALHOST));
    }
    host.trim_start_matches('[')
        .trim_end_matches(']')
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn environment_variables_override_the_file_in_order() {
        let file: SocketAddr = "127.0.0.1:4000".parse().unwrap();
        // Variables, address, number of warnings.
        type Case = (&'static [(&'static str, &'static str)], &'static str, usize);
        let cases: [Case; 15] = [
            (&[], "127.0.0.1:4000", 0),
            (&[("PORT", "81")], "127.0.0.1:81", 0),
            (&[("PORT", "65535")], "127.0.0.1:65535", 0),
            (&[("PORT", "0")], "127.0.0.1:12006", 1),
            (&[("PORT", "65536")], "127.0.0.1:12006", 1),
            (&[("PORT", "-1")], "127.0.0.1:12006", 1),
            (&[("PORT", "http")], "127.0.0.1:12006", 1),
            (&[("PORT", "")], "127.0.0.1:4000", 0),
            (&[("HOST", "0.0.0.0")], "127.0.0.1:4000", 0),
            (&[("HOST", "0.0.0.0"), ("PORT", "81")], "0.0.0.0:81", 0),
            (&[("HOST", "::1"), ("PORT", "81")], "[::1]:81", 0),
            (&[("HOST", "localhost"), ("PORT", "81")], "127.0.0.1:81", 0),
            (&[("HOST", "my-laptop"), ("PORT", "81")], "127.0.0.1:81", 1),
            (
                &[("MCPVISOR_LISTEN", "127.0.0.2:5"), ("PORT", "81")],
                "127.0.0.2:5",
                0,
            ),
            (
                &[("MCPVISOR_LISTEN", "localhost:0"), ("HOST", "::")],
                "127.0.0.1:0",
                0,
            ),
        ];
        for (variables, address, warnings) in cases {
            let environment: BTreeMap<String, String> = variables
                .iter()
                .map(|(n, v)| ((*n).to_owned(), (*v).to_owned()))
                .collect();
            let chosen = from_environment(&environment, file).unwrap();
            assert_eq!(chosen.address, address.parse().unwrap(), "{variables:?}");
            assert_eq!(chosen.warnings.len(), warnings, "{variables:?}");
        }
        let wrong = BTreeMap::from([("MCPVISOR_LISTEN".to_owned(), "nowhere".to_owned())]);
        assert!(
            from_environment(&wrong, file)
                .unwrap_err()
                .contains("MCPVISOR_LISTEN")
        );
    }
}
