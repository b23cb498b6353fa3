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

/// A map by keys of our own or of the configuration. Nobody outside chooses them, so their hashes
/// need not resist chosen collisions, which costs several times as much.
pub(crate) type QuickMap<K, V> = HashMap<K, V, foldhash::fast::RandomState>;

/// A cache for one thread, so small that keys chosen to collide cost nothing. When it is full, the
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
/// Fails when the system gives no random numbers.
pub(crate) fn random_bytes<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    let filled = SystemRandom::new().fill(&mut bytes);
    filled.map_err(|_| io::Error::other("the system gives no random numbers"))?;
    Ok(bytes)
}

/// Name of a downstream server: the key of its `[servers.NAME]` table.
///
/// `[A-Za-z0-9-]{1,32}`, so that it may stand in a tool name, a URI scheme and a log line.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String")]
pub struct ServerName(Arc<str>);

/// Why a text is no [`ServerName`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a server name is 1 to 32 characters of A-Z, a-z, 0-9 and `-`, not `{0}`")]
pub struct InvalidServerName(pub String);

impl ServerName {
    /// Longest name, in bytes.
    pub const LENGTH_MAX: usize = 32;

    /// # Errors
    ///
    /// Returns [`InvalidServerName`] when the text is empty, too long or holds another character.
    pub fn try_new(name: &str) -> Result<Self, InvalidServerName> {
        let legal = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        if name.is_empty() || name.len() > Self::LENGTH_MAX || !name.bytes().all(legal) {
            return Err(InvalidServerName(name.chars().take(64).collect()));
        }
        Ok(Self(Arc::from(name)))
    }

    /// A name as similar to a text as names allow, with a `-` for every other character.
    pub fn similar(text: &str) -> Option<Self> {
        let legal = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
        let name: String = text.chars().take(Self::LENGTH_MAX).map(legal).collect();
        Self::try_new(name.trim_matches('-')).ok()
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
    /// None comes before it.
    pub(crate) const FIRST: Self = Self(Uuid::nil());

    pub const fn new(uuid: Uuid) -> Self {
        Self(uuid)
    }

    /// Reads an id from the wire; `None` when it is not of the form that we mint: other spellings
    /// of the same UUID are other texts to everybody else.
    pub fn parse(text: &str) -> Option<Self> {
        let uuid = Uuid::try_parse(text).ok()?;
        let mut canonical = Uuid::encode_buffer();
        (uuid.hyphenated().encode_lower(&mut canonical) == text).then_some(Self(uuid))
    }

    /// The whole id, for the `Mcp-Session-Id` header and the store.
    pub fn expose(self) -> String {
        let mut text = Uuid::encode_buffer();
        self.0.hyphenated().encode_lower(&mut text).to_owned()
    }

    /// Its first eight digits as a number: the name of the session for operators.
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

/// Who a request comes from, as its credentials say. Every key that must not be shared between users
/// holds one.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Principal {
    /// Nobody was asked who they are.
    #[default]
    Anonymous,
    /// The issuer and the subject. One pointer, since each request carries it.
    Authenticated(Arc<String>),
}

impl Principal {
    /// A text that no other principal has.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Anonymous => "anonymous",
            Self::Authenticated(name) => name,
        }
    }

    /// The subject alone, for people.
    pub fn name(&self) -> &str {
        let text = self.as_str();
        text.split_once(' ').map_or(text, |(_, subject)| subject)
    }

    /// The issuer and the subject; two empty texts for nobody in particular.
    pub fn parts(&self) -> (&str, &str) {
        match self {
            Self::Anonymous => ("", ""),
            Self::Authenticated(name) => name.split_once(' ').unwrap_or(("", name)),
        }
    }

    /// The subject that this issuer vouches for. No issuer has a space in its name, so that no two
    /// pairs have the same text, and none that of [`Principal::Anonymous`].
    pub fn of(issuer: &str, subject: &str) -> Self {
        let issuer = issuer.replace(' ', "%20");
        Self::Authenticated(Arc::new(format!("{issuer} {subject}")))
    }
}

/// Where a client connects from: whoever uses what all clients have in common has a share of it as
/// a peer.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub enum Peer {
    /// This machine, where nobody else can connect: there is nobody to share with.
    #[default]
    Local,
    Address(IpAddr),
}

impl Peer {
    /// The peer of an address. Addresses of one IPv6 network of 64 bits are one peer: a single host
    /// may use them all.
    pub fn of(address: IpAddr) -> Self {
        Self::Address(match address.to_canonical() {
            IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() >> 64 << 64)),
            IpAddr::V4(v4) => IpAddr::V4(v4),
        })
    }
}

/// Whose share a place is of that all clients have in common: whoever says who they are has one
/// by that name, wherever they connect from, and all others have one by their address.
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

    /// Nobody else could want its places: only this machine can connect, and nobody is asked who
    /// they are.
    pub fn is_alone(&self) -> bool {
        *self == Self::Peer(Peer::Local)
    }
}

/// Which part of the gateway a client sees. In the store it is `null`, `NAME` or `server/NAME`, as
/// in the path of its endpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "Option<String>", into = "Option<String>")]
pub enum ViewId {
    /// All servers.
    #[default]
    Default,
    /// A view of the configuration.
    Named(Arc<str>),
    /// One server, with its own names.
    Server(ServerName),
}

/// Stands before the name of a server in a path.
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

/// For whom a session exists: for anybody else its id is unknown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionOwner {
    pub principal: Principal,
    /// By which the client entered.
    pub view: ViewId,
}

/// Whose credentials a downstream connection uses.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum CredentialContext {
    /// Those of the gateway.
    #[default]
    Shared,
    /// Those that this principal gave.
    User(Principal),
    /// Those that were given in exchange for a token of this subject.
    Exchanged(Subject),
}

/// Whose token it is, and what it allows: none is used for a request whose own allows something else.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Subject {
    pub principal: Principal,
    /// A digest of the scopes and of all other claims that make a difference.
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

/// Numbers calls, once per process. The number is a call's name in the log, its JSON-RPC id on the
/// way to the server, and its progress token there, so that no table has to map one to the other.
/// Questions to clients are numbered with them.
#[derive(Clone, Debug)]
pub struct CallNumbers(Arc<AtomicU64>);

impl CallNumbers {
    /// They begin at random, so that a late answer to the process before this one meets no request
    /// of this one, and below 2^52: as many are left until 2^53, from where on some JSON readers
    /// round.
    pub fn random() -> Self {
        let (_, bits) = Uuid::new_v4().as_u64_pair();
        Self::after(bits & ((1 << 52) - 1))
    }

    /// The first is the one after `last`.
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
        // The chance that two of a hundred are closer than this is one in ten million.
        assert!(sorted.windows(2).all(|pair| pair[1] - pair[0] > 1000));
        let numbers = CallNumbers::after(4);
        assert_eq!((numbers.next(), numbers.clone().next()), (5, 6));
    }

    #[test]
    fn server_names_are_short_and_plain() {
        for good in ["a", "git", "my-server-2", &"x".repeat(32)] {
            assert!(ServerName::try_new(good).is_ok(), "{good}");
        }
        for bad in ["", "a_b", "a.b", "ä", "a b", &"x".repeat(33)] {
            assert!(ServerName::try_new(bad).is_err(), "{bad}");
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
    fn who_has_a_name_holds_places_by_it_and_all_others_by_their_address() {
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
