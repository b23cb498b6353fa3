//! The registry of current secrets, which finds them in texts.
//!
//! A text is searched for the last bytes of every spelling of every secret, using a hash table;
//! matches are then compared completely. A secret is therefore found as soon as it is added,
//! nothing has to be built, and a text without secrets costs about a nanosecond per byte.

use std::collections::hash_map::RandomState;
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::hash::BuildHasher as _;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::Value;

use super::spelling::{SPELLINGS, Spelling};
use super::text::{text_spans, token_spans};
use super::{MASK, hide};

/// Minimum length of a secret, in bytes: shorter texts occur in other words.
const LENGTH_MIN: usize = 8;

/// Maximum number of bytes of a secret that are searched for.
const LENGTH_MAX: usize = 16 * 1024;

/// Minimum length of a secret's start that is hidden at the end of a truncated text, in bytes.
const BEGINNING: usize = 6;

/// Maximum number of secrets from the current and earlier configurations.
const CONFIGURED_MAX: usize = 4096;

/// Maximum number of tokens for servers, including renewed ones.
const SERVERS_MAX: usize = 4096;

/// Maximum number of keys and tokens of clients.
const CLIENTS_MAX: usize = 1024;

/// Number of recent client keys that are recognised without a lock.
const NOTED: usize = 256;

/// Common setting values, which are not secret even under a secret's name.
const ORDINARY: [&str; 12] = [
    "anonymous",
    "automatic",
    "changeme",
    "development",
    "disabled",
    "optional",
    "password",
    "production",
    "required",
    "undefined",
    "username",
    "localhost",
];

/// The origin of a secret. Each origin has a separate limit: clients cannot make the gateway forget
/// the tokens of servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SecretOrigin {
    Client,
    Server,
    Configuration,
}

/// The current secrets. Clones share them.
#[derive(Clone, Default)]
pub struct LiveSecrets(Arc<Registry>);

struct Registry {
    table: RwLock<Table>,
    /// Hashes of the texts last added by [`LiveSecrets::note`].
    noted: [AtomicU64; NOTED],
    hasher: RandomState,
}

#[derive(Default)]
struct Table {
    secrets: HashMap<u32, Secret>,
    /// Places, by the last bytes of each spelling.
    ends: HashMap<[u8; LENGTH_MIN], Vec<SpelledSecret>>,
    /// Places, by the first bytes of each spelling.
    beginnings: HashMap<[u8; BEGINNING], Vec<SpelledSecret>>,
    filter: Filter,
    /// The order in which the secrets of each origin were added; an entry with an old time is
    /// stale.
    order: [VecDeque<(u32, u64)>; 3],
    count: [usize; 3],
    time: u64,
    next: u32,
    /// Length of the longest spelling, in bytes.
    longest: usize,
    removed: usize,
}

struct Secret {
    text: SecretString,
    origin: SecretOrigin,
    /// When it was last added.
    time: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct SpelledSecret {
    secret: u32,
    spelling: Spelling,
}

impl LiveSecrets {
    pub fn of(texts: impl IntoIterator<Item = impl AsRef<str>>) -> Self {
        let secrets = Self::default();
        secrets.add_all(SecretOrigin::Configuration, texts);
        secrets
    }

    /// Adds a secret. Short texts and ordinary words are ignored; above the limit, the oldest
    /// secret of the same origin is dropped.
    pub fn add(&self, origin: SecretOrigin, text: &str) {
        self.add_all(origin, [text]);
    }

    /// Adds several secrets.
    pub fn add_all(&self, origin: SecretOrigin, texts: impl IntoIterator<Item = impl AsRef<str>>) {
        let mut table = self.0.table.write();
        for text in texts {
            let text = text.as_ref().trim();
            let text = text
                .get(..text.floor_char_boundary(LENGTH_MAX))
                .unwrap_or_default();
            let is_ordinary = ORDINARY.iter().any(|word| text.eq_ignore_ascii_case(word));
            if text.len() >= LENGTH_MIN && !is_ordinary {
                table.add(origin, text);
            }
        }
    }

    /// Adds a secret that client requests repeat; one that was added recently costs only a hash.
    pub fn note(&self, text: &str) {
        let hash = self.0.hasher.hash_one(text).max(1);
        let place = usize::try_from(hash % NOTED as u64).unwrap_or_default();
        if let Some(noted) = self.0.noted.get(place)
            && noted.load(Ordering::Relaxed) != hash
        {
            self.add(SecretOrigin::Client, text);
            noted.store(hash, Ordering::Relaxed);
        }
    }

    /// Replaces each secret in the text; `None` if it has none.
    pub fn replaced(&self, text: &str, mask: &str) -> Option<String> {
        let spans = self.0.table.read().spans(text);
        (!spans.is_empty()).then(|| hide(text, spans, mask))
    }

    /// Like [`Self::replaced`], for a truncated text, whose end can be the start of a secret.
    pub fn replaced_in_cut(&self, text: &str, mask: &str) -> Option<String> {
        let table = self.0.table.read();
        let mut spans = table.spans(text);
        spans.extend(table.cut_span(text));
        drop(table);
        (!spans.is_empty()).then(|| hide(text, spans, mask))
    }

    /// Masks a server's text for operators: hides live secrets, and tokens of well-known services.
    /// A text that ends with `…` was truncated.
    pub fn masked(&self, text: &str) -> String {
        self.masked_with(text, text.ends_with('…'), token_spans(text))
    }

    /// Masks a message body for operators, including the values of members with secret names.
    pub fn masked_body(&self, text: &str, is_cut: bool) -> String {
        self.masked_with(text, is_cut, text_spans(text))
    }

    fn masked_with(
        &self,
        text: &str,
        is_cut: bool,
        more: impl IntoIterator<Item = Range<usize>>,
    ) -> String {
        let table = self.0.table.read();
        let mut spans = table.spans(text);
        if is_cut {
            spans.extend(table.cut_span(text.strip_suffix('…').unwrap_or(text)));
        }
        drop(table);
        spans.extend(more);
        hide(text, spans, MASK)
    }

    /// Masks each string in a JSON value.
    pub fn mask_json(&self, value: &mut Value) {
        match value {
            Value::String(text) => {
                if let Some(masked) = self.replaced(text, MASK) {
                    *text = masked;
                }
            }
            Value::Array(values) => values.iter_mut().for_each(|value| self.mask_json(value)),
            Value::Object(members) => {
                members.values_mut().for_each(|value| self.mask_json(value));
                if members
                    .keys()
                    .any(|name| self.replaced(name, MASK).is_some())
                {
                    let renamed = std::mem::take(members).into_iter();
                    *members = renamed
                        .map(|(name, value)| (self.replaced(&name, MASK).unwrap_or(name), value))
                        .collect();
                }
            }
            _ => {}
        }
    }
}

impl Default for Registry {
    fn default() -> Self {
        Self {
            table: RwLock::default(),
            noted: [const { AtomicU64::new(0) }; NOTED],
            hasher: RandomState::new(),
        }
    }
}

impl fmt::Debug for LiveSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LiveSecrets({})", self.0.table.read().secrets.len())
    }
}

impl SecretOrigin {
    const fn most(self) -> usize {
        match self {
            Self::Client => CLIENTS_MAX,
            Self::Server => SERVERS_MAX,
            Self::Configuration => CONFIGURED_MAX,
        }
    }
}

impl Table {
    fn add(&mut self, origin: SecretOrigin, text: &str) {
        self.time += 1;
        let time = self.time;
        let known = self.find(text);
        let id = known.unwrap_or(self.next);
        let origin = match self.secrets.get_mut(&id).filter(|_| known.is_some()) {
            Some(secret) => {
                self.count[secret.origin as usize] -= 1;
                secret.origin = secret.origin.max(origin);
                secret.time = time;
                secret.origin
            }
            None => {
                self.next = self.next.wrapping_add(1);
                let text = SecretString::from(text);
                self.insert(id, Secret { text, origin, time });
                origin
            }
        };
        self.count[origin as usize] += 1;
        self.order[origin as usize].push_back((id, time));
        self.make_room(origin);
    }

    fn find(&self, text: &str) -> Option<u32> {
        let places = self.ends.get(text.as_bytes().last_chunk()?)?;
        let is_same = |secret: &Secret| secret.text.expose_secret() == text;
        let mut raw = places
            .iter()
            .filter(|place| place.spelling == Spelling::Raw);
        let found = raw.find(|place| self.secrets.get(&place.secret).is_some_and(is_same));
        found.map(|place| place.secret)
    }

    fn insert(&mut self, id: u32, secret: Secret) {
        for (spelling, text) in spellings(secret.text.expose_secret()) {
            let place = SpelledSecret {
                secret: id,
                spelling,
            };
            if let Some(end) = text.as_bytes().last_chunk() {
                self.filter.insert(end);
                self.ends.entry(*end).or_default().push(place);
            }
            if let Some(beginning) = text.as_bytes().first_chunk() {
                self.beginnings.entry(*beginning).or_default().push(place);
            }
            self.longest = self.longest.max(text.len());
        }
        self.secrets.insert(id, secret);
    }

    fn make_room(&mut self, origin: SecretOrigin) {
        let (index, most) = (origin as usize, origin.most());
        while self.count[index] > most {
            let Some((id, time)) = self.order[index].pop_front() else {
                return;
            };
            let is_newest = |secret: &Secret| secret.time == time;
            if self.secrets.get(&id).is_some_and(is_newest) {
                self.count[index] -= 1;
                self.remove(id);
            }
        }
        if self.order[index].len() > 2 * most {
            let secrets = &self.secrets;
            self.order[index]
                .retain(|(id, time)| secrets.get(id).is_some_and(|it| it.time == *time));
        }
    }

    fn remove(&mut self, id: u32) {
        let Some(secret) = self.secrets.remove(&id) else {
            return;
        };
        for (_, text) in spellings(secret.text.expose_secret()) {
            if let Some(end) = text.as_bytes().last_chunk() {
                forget(&mut self.ends, end, id);
            }
            if let Some(beginning) = text.as_bytes().first_chunk() {
                forget(&mut self.beginnings, beginning, id);
            }
        }
        self.removed += 1;
        if self.removed >= CONFIGURED_MAX {
            self.removed = 0;
            self.filter = Filter::default();
            self.ends.keys().for_each(|end| self.filter.insert(end));
        }
    }

    /// Positions of secrets in the text.
    fn spans(&self, text: &str) -> Vec<Range<usize>> {
        let mut spans = Vec::new();
        if self.secrets.is_empty() {
            return spans;
        }
        let bytes = text.as_bytes();
        for (at, window) in bytes.windows(LENGTH_MIN).enumerate() {
            let Ok(window) = window.try_into() else {
                continue;
            };
            if !self.filter.may_have(&window) {
                continue;
            }
            let end = at + LENGTH_MIN;
            let places = self.ends.get(&window).into_iter().flatten();
            let longest = places
                .filter_map(|place| self.matching(*place, |it| bytes[..end].ends_with(it)))
                .max();
            spans.extend(longest.map(|length| end - length..end));
        }
        spans
    }

    /// Position of a secret's start at the end of a truncated text.
    fn cut_span(&self, text: &str) -> Option<Range<usize>> {
        let bytes = text.as_bytes();
        let first = bytes.len().saturating_sub(self.longest);
        let places = (first..bytes.len()).filter_map(|at| {
            let rest = bytes.get(at..)?;
            let places = self.beginnings.get(rest.first_chunk()?)?.iter();
            let begins = |place: &SpelledSecret| self.matching(*place, |it| it.starts_with(rest));
            places.filter_map(begins).next().map(|_| at..bytes.len())
        });
        { places }.next()
    }

    /// The length of a secret's spelling that fits.
    fn matching(&self, place: SpelledSecret, fits: impl Fn(&[u8]) -> bool) -> Option<usize> {
        let text = self.secrets.get(&place.secret)?.text.expose_secret();
        match place.spelling {
            Spelling::Raw => fits(text.as_bytes()).then_some(text.len()),
            spelling => {
                let text = spelling.of(text);
                fits(text.as_bytes()).then_some(text.len())
            }
        }
    }
}

/// The distinct spellings of a secret.
fn spellings(text: &str) -> Vec<(Spelling, String)> {
    let mut all: Vec<(Spelling, String)> = Vec::new();
    for spelling in SPELLINGS {
        let text = spelling.of(text);
        if !all.iter().any(|(_, known)| *known == text) {
            all.push((spelling, text));
        }
    }
    all
}

fn forget<const N: usize>(
    places: &mut HashMap<[u8; N], Vec<SpelledSecret>>,
    key: &[u8; N],
    id: u32,
) {
    if let Some(of_key) = places.get_mut(key) {
        of_key.retain(|place| place.secret != id);
        if of_key.is_empty() {
            places.remove(key);
        }
    }
}

/// A fast filter that rules out most windows of a text as the end of a secret.
#[derive(Default)]
struct Filter(Vec<u64>);

impl Filter {
    /// Number of bits, as a power of two.
    const BITS: u32 = 16;

    fn insert(&mut self, window: &[u8; LENGTH_MIN]) {
        if self.0.is_empty() {
            self.0 = vec![0; 1 << (Self::BITS - 6)];
        }
        let (word, bit) = Self::place(window);
        if let Some(word) = self.0.get_mut(word) {
            *word |= bit;
        }
    }

    fn may_have(&self, window: &[u8; LENGTH_MIN]) -> bool {
        let (word, bit) = Self::place(window);
        self.0.get(word).is_some_and(|word| word & bit != 0)
    }

    fn place(window: &[u8; LENGTH_MIN]) -> (usize, u64) {
        // Fibonacci hashing: the upper bits depend on all of them.
        let hash = u64::from_ne_bytes(*window).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let hash = hash >> (u64::BITS - Self::BITS);
        (
            usize::try_from(hash >> 6).unwrap_or_default(),
            1 << (hash & 63),
        )
    }
}
