//! Names and numbers of servers, sessions, principals, peers and calls.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;
use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use quick_cache::UnitWeighter;
use quick_cache::unsync::{Cache, DefaultLifecycle};
use ring::rand::{SecureRandom as _, SystemRandom};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// A map for keys from the gateway, the configuration or the servers. Clients cannot choose them, so
/// the hash, which is seeded at random, need not resist those who see it at work; that would cost
/// several times as much.
pub(crate) type QuickMap<K, V> = HashMap<K, V, foldhash::fast::RandomState>;

/// A cache for one thread, so small that keys chosen to collide do no harm. When it is full, the
/// least used entry is evicted.
pub(crate) type QuickCache<K, V> = Cache<K, V, UnitWeighter, foldhash::fast::RandomState>;

pub(crate) fn quick_cache<K: Eq + Hash, V>(entries_max: usize) -> QuickCache<K, V> {
    let (hasher, lifecycle) = (Default::default(), DefaultLifecycle::default());
    let weight_max = entries_max as u64;
    Cache::with(entries_max, weight_max, UnitWeighter, hasher, lifecycle)
}

/// Random bytes of the system, for keys and for names that must not be guessed.
///
/// # Errors
///
/// Fails if the system provides no random numbers.
pub(crate) fn random_bytes<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    let filled = SystemRandom::new().fill(&mut bytes);
    filled.map_err(|_| io::Error::other("the system gives no random numbers"))?;
    Ok(bytes)
}

/// Name of a downstream server: the key of its `[servers.NAME]` table.
///
/// 1 to 32 of `[A-Za-z0-9_-]`, so that it can be part of a tool name and a log line. Every `_` stands
/// between two other characters, so that the first `__` of a tool name ends the server's name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String")]
pub struct ServerName(Arc<str>);

/// Why a text is not a [`ServerName`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "a server name is 1 to 32 characters of A-Z, a-z, 0-9, `-` and single `_` inside, not `{0}`"
)]
pub struct InvalidServerName(pub String);

impl ServerName {
    /// Maximum length, in bytes.
    pub const LENGTH_MAX: usize = 32;

    /// # Errors
    ///
    /// Returns [`InvalidServerName`] if the text is empty, too long or has other characters.
    pub fn try_new(name: &str) -> Result<Self, InvalidServerName> {
        let legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        let is_split = name.starts_with('_') || name.ends_with('_') || name.contains("__");
        let fits = (1..=Self::LENGTH_MAX).contains(&name.len());
        if !fits || is_split || !name.bytes().all(legal) {
            return Err(InvalidServerName(name.chars().take(64).collect()));
        }
        Ok(Self(Arc::from(name)))
    }

    /// The valid name most similar to a text, with `-` for every character that it cannot have.
    pub fn similar(text: &str) -> Option<Self> {
        let mut name = String::new();
        for c in text.chars().take(Self::LENGTH_MAX) {
            name.push(match c {
                '_' if !name.ends_with('_') => '_',
                c if c.is_ascii_alphanumeric() => c,
                _ => '-',
            });
        }
        Self::try_new(name.trim_matches(['-', '_'])).ok()
    }

    /// Like [`ServerName::similar`], but different from names that are taken: a number is appended.
    pub fn similar_free(text: &str, is_taken: impl Fn(&str) -> bool) -> Option<Self> {
        let name = Self::try_new(text).ok().or_else(|| Self::similar(text))?;
        if !is_taken(name.as_str()) {
            return Some(name);
        }
        (2..100).find_map(|number| {
            let tail = format!("-{number}");
            let start = name.as_str().get(..Self::LENGTH_MAX - tail.len());
            let start = start.unwrap_or(name.as_str()).trim_end_matches('_');
            let name = Self::try_new(&format!("{start}{tail}")).ok();
            name.filter(|name| !is_taken(name.as_str()))
        })
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for ServerName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for ServerName {
    type Error = InvalidServerName;

    fn try_from(name: String) -> Result<Self, Self::Error> {
        Self::try_new(&name)
    }
}

impl fmt::Display for ServerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Id of a client session: a random UUID, which is visible ASCII and cannot be guessed
/// (S-SESS-01, S-SESS-02, S-SESS-10).
///
/// It is a credential in practice, so `Debug` and `Display` show only its first eight digits;
/// [`SessionId::expose`] is for the wire and the store.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(Uuid);

impl SessionId {
    /// Sorts before every other id.
    pub(crate) const FIRST: Self = Self(Uuid::nil());

    pub const fn new(uuid: Uuid) -> Self {
        Self(uuid)
    }

    /// Parses an id from the wire; `None` if it does not have the form that the gateway issues.
    /// Other spellings of the same UUID are different ids to every other reader.
    pub fn parse(text: &str) -> Option<Self> {
        let uuid = Uuid::try_parse(text).ok()?;
        let mut canonical = Uuid::encode_buffer();
        (uuid.hyphenated().encode_lower(&mut canonical) == text).then_some(Self(uuid))
    }

    /// The number itself, which names the replica that minted it in a cluster.
    pub const fn uuid(self) -> Uuid {
        self.0
    }

    /// The complete id, for the `Mcp-Session-Id` header and the store.
    pub fn expose(self) -> String {
        let mut text = Uuid::encode_buffer();
        self.0.hyphenated().encode_lower(&mut text).to_owned()
    }

    /// The first eight digits as a number: the session's name for operators.
    pub const fn handle(self) -> u32 {
        let (high, _) = self.0.as_u64_pair();
        (high >> 32) as u32
    }

    /// A number that spreads sessions over arbiters.
    pub fn placement_hash(self) -> u64 {
        let (high, low) = self.0.as_u64_pair();
        high ^ low
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}…", self.handle())
    }
}

impl fmt::Debug for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SessionId({self})")
    }
}

/// The authenticated sender of a request. Part of every key that must not be shared between users.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Principal {
    /// Authentication is off.
    #[default]
    Anonymous,
    /// Issuer and subject, separated by a space. Boxed in an `Arc`, since each request carries it.
    Authenticated(Arc<String>),
}

impl Principal {
    /// A text unique to this principal.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Anonymous => "anonymous",
            Self::Authenticated(name) => name,
        }
    }

    /// The subject alone, for display.
    pub fn name(&self) -> &str {
        let text = self.as_str();
        text.split_once(' ').map_or(text, |(_, subject)| subject)
    }

    /// Issuer and subject; two empty strings for an anonymous principal.
    pub fn parts(&self) -> (&str, &str) {
        match self {
            Self::Anonymous => ("", ""),
            Self::Authenticated(name) => name.split_once(' ').unwrap_or(("", name)),
        }
    }

    /// The principal for an issuer's subject. Issuers have no spaces in their names, so that no two
    /// pairs have the same text, and none equals [`Principal::Anonymous`].
    pub fn of(issuer: &str, subject: &str) -> Self {
        let issuer = issuer.replace(' ', "%20");
        Self::Authenticated(Arc::new(format!("{issuer} {subject}")))
    }
}

/// The origin of a client's connections, which determines its share of common resources.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub enum Peer {
    /// This machine, if no other can connect: there are no other peers to share with.
    #[default]
    Local,
    Address(IpAddr),
}

impl Peer {
    /// Returns the peer of an address. All addresses of an IPv6 /64 network are one peer, because a
    /// single host can use all of them.
    pub fn of(address: IpAddr) -> Self {
        Self::Address(match address.to_canonical() {
            IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() >> 64 << 64)),
            IpAddr::V4(v4) => IpAddr::V4(v4),
        })
    }
}

/// The client of a request that came through trusted proxies (`gateway.trusted_proxies`). The front
/// adds it to the extensions of such a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForwardedClient(pub IpAddr);

/// The holder of a share of common resources: authenticated clients by their principal, wherever
/// they connect from, and all others by their address.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Holder {
    Peer(Peer),
    Principal(Principal),
}

impl Holder {
    pub fn of(principal: &Principal, peer: Peer) -> Self {
        match principal {
            Principal::Anonymous => Self::Peer(peer),
            Principal::Authenticated(_) => Self::Principal(principal.clone()),
        }
    }

    /// Whether there can be no other holders: only this machine can connect, and authentication is
    /// off.
    pub fn is_alone(&self) -> bool {
        *self == Self::Peer(Peer::Local)
    }
}

/// The part of the gateway that a client sees. In the store it is `null`, `NAME` or `server/NAME`,
/// as in the path of its endpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "Option<String>", into = "Option<String>")]
pub enum ViewId {
    /// All servers.
    #[default]
    Default,
    /// A configured view.
    Named(Arc<str>),
    /// One server, with its own names.
    Server(ServerName),
}

/// Prefix of a server's name in a path.
const SERVER_VIEW: &str = "server/";

impl From<ViewId> for Option<String> {
    fn from(view: ViewId) -> Self {
        match view {
            ViewId::Default => None,
            ViewId::Named(name) => Some(name.to_string()),
            ViewId::Server(server) => Some(format!("{SERVER_VIEW}{server}")),
        }
    }
}

impl TryFrom<Option<String>> for ViewId {
    type Error = InvalidServerName;

    fn try_from(text: Option<String>) -> Result<Self, Self::Error> {
        Ok(match text {
            None => Self::Default,
            Some(text) => match text.strip_prefix(SERVER_VIEW) {
                Some(server) => Self::Server(ServerName::try_new(server)?),
                None => Self::Named(text.into()),
            },
        })
    }
}

/// The owner of a session: for every other caller its id is unknown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionOwner {
    pub principal: Principal,
    /// The view that the client used.
    pub view: ViewId,
}

/// The credentials that a downstream connection uses.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum CredentialContext {
    /// The gateway's own credentials.
    #[default]
    Shared,
    /// Credentials of this principal.
    User(Principal),
    /// Credentials obtained in exchange for this subject's token.
    Exchanged(Subject),
}

/// The owner and rights of a token: a connection is never used for a request with different rights.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Subject {
    pub principal: Principal,
    /// A digest of the scopes and of all other relevant claims.
    pub claims_digest: [u8; 32],
}

impl CredentialContext {
    pub fn user(&self) -> Option<&Principal> {
        match self {
            Self::Shared => None,
            Self::User(principal) | Self::Exchanged(Subject { principal, .. }) => Some(principal),
        }
    }
}

/// Issues call numbers that are unique in the process. A call's number is its name in the log, its
/// JSON-RPC id towards the server, and its progress token there, so that no table has to map
/// between them. Questions to clients use the same sequence.
/// In a client's own session at a server, the client's id takes the place of the number.
#[derive(Clone, Debug)]
pub struct CallNumbers(Arc<AtomicU64>);

impl CallNumbers {
    /// The first number. Lower numbers belong to clients: in a client's own session at a server,
    /// its requests keep their ids.
    pub const FIRST: u64 = 1 << 32;

    /// Starts at a random number, so that a late response to the previous process matches no
    /// request of this one. It is below 2^52, which leaves as many numbers until 2^53, where some
    /// JSON parsers start to round.
    pub fn random() -> Self {
        let (_, bits) = Uuid::new_v4().as_u64_pair();
        Self::after(Self::FIRST | bits & ((1 << 52) - 1))
    }

    /// Starts with the number after `last`.
    pub fn after(last: u64) -> Self {
        Self(Arc::new(AtomicU64::new(last)))
    }

    pub fn next(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed) + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_two_processes_begin_far_apart_and_stay_exact_in_json() {
        let first: Vec<u64> = (0..100).map(|_| CallNumbers::random().next()).collect();
        assert!(first.iter().all(|number| *number <= 1 << 52));
        let mut sorted = first;
        sorted.sort_unstable();
        // The probability that any two of a hundred are closer than this is one in ten million.
        assert!(sorted.windows(2).all(|pair| pair[1] - pair[0] > 1000));
        let numbers = CallNumbers::after(4);
        assert_eq!((numbers.next(), numbers.clone().next()), (5, 6));
    }

    #[test]
    fn server_names_are_short_and_plain() {
        for good in [
            "a",
            "git",
            "my-server-2",
            "my_server",
            "a_b_c",
            &"x".repeat(32),
        ] {
            assert!(ServerName::try_new(good).is_ok(), "{good}");
        }
        for bad in ["", "a__b", "_a", "a_", "a.b", "ä", "a b", &"x".repeat(33)] {
            assert!(ServerName::try_new(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_similar_name_is_valid_and_free() {
        for (text, expected) in [
            ("my server (v2)", Some("my-server--v2")),
            ("my_files", Some("my_files")),
            ("my__files_", Some("my_-files")),
            ("文件", None),
        ] {
            let name = ServerName::similar(text);
            assert_eq!(name.as_ref().map(ServerName::as_str), expected, "{text}");
        }
        let (long, cut) = ("x".repeat(40), "x".repeat(32));
        for (text, taken, expected) in [
            ("a b", vec![], "a-b"),
            ("a b", vec!["a-b", "a-b-2"], "a-b-3"),
            (
                long.as_str(),
                vec![cut.as_str()],
                &format!("{}-2", "x".repeat(30)),
            ),
        ] {
            let name = ServerName::similar_free(text, |name| taken.contains(&name));
            assert_eq!(name.unwrap().as_str(), expected);
        }
    }

    #[test]
    fn a_session_id_is_not_printed_whole() {
        let id = SessionId::new(Uuid::from_u128(0x1234_5678_9abc_def0_1234_5678_9abc_def0));
        assert_eq!(format!("{id:?} {id}"), "SessionId(12345678…) 12345678…");
        assert_eq!(SessionId::parse(&id.expose()), Some(id));
    }

    #[test]
    fn addresses_of_one_host_are_one_peer() {
        let peer = |text: &str| Peer::of(text.parse().unwrap());
        assert_eq!(peer("10.0.0.1"), peer("::ffff:10.0.0.1"));
        assert_ne!(peer("10.0.0.1"), peer("10.0.0.2"));
        assert_eq!(peer("2001:db8::1"), peer("2001:db8::ffff:1"));
        assert_ne!(peer("2001:db8::1"), peer("2001:db8:0:1::1"));
    }

    #[test]
    fn holders_are_identified_by_principal_or_address() {
        let address = Peer::of("10.0.0.1".parse().unwrap());
        let key = Principal::of("key", "laptop");
        assert_eq!(Holder::of(&key, address), Holder::of(&key, Peer::Local));
        assert_ne!(
            Holder::of(&key, address),
            Holder::of(&Principal::of("key", "phone"), address)
        );
        let nobody = |peer| Holder::of(&Principal::Anonymous, peer);
        assert_eq!(nobody(address), Holder::Peer(address));
        assert!(nobody(Peer::Local).is_alone());
        assert!(!nobody(address).is_alone() && !Holder::of(&key, Peer::Local).is_alone());
    }

    #[test]
    fn a_session_id_has_one_spelling() {
        let id = SessionId::new(Uuid::from_u128(0x1234_5678_9abc_def0_1234_5678_9abc_def0));
        let text = id.expose();
        for other in [
            text.to_uppercase(),
            text.replace('-', ""),
            format!("{{{text}}}"),
            format!("urn:uuid:{text}"),
            format!(" {text}"),
        ] {
            assert_eq!(SessionId::parse(&other), None, "{other}");
        }
    }
}
