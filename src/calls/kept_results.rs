//! Keeps large results for a while, because their clients got only a preview. A client reads its own
//! results completely, in parts, or by the places that contain a text.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use bytestring::ByteString;
use parking_lot::Mutex;
use serde_json::json;
use tokio::time::Instant;
use url::form_urlencoded;
use uuid::Uuid;

use crate::downstream::Caller;
use crate::id::{Principal, SessionId, ViewId};
use crate::protocol::{ErrorKind, Failure, Method, RawJson, Request};

/// Start of the URIs of kept results.
const PREFIX: &str = "mcpvisor://results/";

/// Maximum size of the results kept for one client, in bytes; the oldest make room.
const CLIENT_BYTES_MAX: usize = 64 << 20;

/// Maximum size of all kept results, in bytes; the client with the oldest makes room.
const BYTES_MAX: usize = 256 << 20;

/// How long a result is kept.
const KEPT: Duration = Duration::from_secs(60 * 60);

/// Default size of a part that is read, in bytes.
const PART: usize = 64 * 1024;

/// Maximum number of places that a search returns.
const PLACES_MAX: usize = 50;

/// Bytes around each place.
const AROUND: usize = 100;

/// A group of kept results: those of one session, or of one client without a session.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ResultOwner {
    session: Option<SessionId>,
    principal: Principal,
    view: ViewId,
}

#[derive(Debug)]
struct KeptResult {
    id: Uuid,
    text: ByteString,
    mime: &'static str,
    since: Instant,
}

/// The kept results of all clients.
#[derive(Debug, Default)]
pub(crate) struct KeptResults(Mutex<KeptTable>);

#[derive(Debug, Default)]
struct KeptTable {
    /// The results of each client, oldest first.
    by_owner: HashMap<ResultOwner, VecDeque<KeptResult>>,
    bytes: usize,
}

impl ResultOwner {
    pub(crate) fn of(caller: &Caller) -> Self {
        Self {
            session: caller.session,
            principal: caller.principal.clone(),
            view: caller.view.clone(),
        }
    }
}

/// Returns the id of the kept result that a request reads; `None` for other requests.
pub(super) fn id_in(request: &Request) -> Option<String> {
    let uri = request.uri()?;
    let wanted = uri.strip_prefix(PREFIX)?;
    Some(wanted.split('?').next()?.to_owned())
}

impl KeptResults {
    /// Keeps a result, and returns its URI; `None` if it is too large.
    pub(crate) fn keep(
        &self,
        owner: ResultOwner,
        id: Uuid,
        (text, mime): (ByteString, &'static str),
    ) -> Option<String> {
        if text.len() > CLIENT_BYTES_MAX {
            return None;
        }
        let mut table = self.0.lock();
        table.make_room(&owner, text.len());
        table.bytes += text.len();
        table
            .by_owner
            .entry(owner)
            .or_default()
            .push_back(KeptResult {
                id,
                text,
                mime,
                since: Instant::now(),
            });
        Some(format!("{PREFIX}{id}"))
    }

    /// Drops the results of a session that ended.
    pub(crate) fn forget(&self, session: SessionId) {
        let mut table = self.0.lock();
        let of_session: Vec<_> = table
            .by_owner
            .keys()
            .filter(|it| it.session == Some(session))
            .cloned()
            .collect();
        for owner in of_session {
            table.drop_all(&owner);
        }
    }

    /// The result of a request that reads a kept result; `None` for other requests.
    ///
    /// # Errors
    ///
    /// Returns a failure if the client has no such result, or asks for an impossible part.
    pub(crate) fn read(
        &self,
        request: &Request,
        caller: &Caller,
    ) -> Option<Result<RawJson, Failure>> {
        if request.method != Method::ResourcesRead {
            return None;
        }
        let uri = request.uri()?;
        let wanted = uri.strip_prefix(PREFIX)?;
        Some(self.part(&uri, wanted, &ResultOwner::of(caller)))
    }

    fn part(&self, uri: &str, wanted: &str, owner: &ResultOwner) -> Result<RawJson, Failure> {
        let (id, query) = wanted.split_once('?').unwrap_or((wanted, ""));
        let (text, mime) = self.find(owner, id).ok_or_else(|| {
            let message = format!("there is no result `{uri}`: results are kept for an hour, for the client that made the call");
            Failure::new(ErrorKind::ResourceNotFound, message)
        })?;
        let part = ResultPart::parse(query)
            .map_err(|why| Failure::new(ErrorKind::InvalidParams, format!("`{uri}`: {why}")))?;
        let (shown, mime) = match part {
            ResultPart::Whole => (text.to_string(), mime),
            ResultPart::Range(from, bytes) => (range(&text, from, bytes).to_owned(), mime),
            ResultPart::Places(wanted) => (places(&text, &wanted), "text/plain"),
        };
        let content = json!({ "uri": uri, "mimeType": mime, "text": shown });
        Ok(RawJson::from_value(&json!({ "contents": [content] })))
    }

    fn find(&self, owner: &ResultOwner, id: &str) -> Option<(ByteString, &'static str)> {
        let id = Uuid::try_parse(id).ok()?;
        let table = self.0.lock();
        let found = table
            .by_owner
            .get(owner)?
            .iter()
            .find(|kept| kept.id == id)?;
        (found.since.elapsed() < KEPT).then(|| (found.text.clone(), found.mime))
    }
}

impl KeptTable {
    /// Drops old results, and the oldest ones until `bytes` more fit.
    fn make_room(&mut self, owner: &ResultOwner, bytes: usize) {
        let owners: Vec<_> = self.by_owner.keys().cloned().collect();
        for old in owners {
            while self
                .oldest(&old)
                .is_some_and(|kept| kept.since.elapsed() >= KEPT)
            {
                self.drop_oldest(&old);
            }
        }
        while self.bytes_of(owner) + bytes > CLIENT_BYTES_MAX {
            self.drop_oldest(owner);
        }
        while self.bytes + bytes > BYTES_MAX {
            let since = |owner: &&ResultOwner| self.oldest(owner).map(|kept| kept.since);
            let Some(oldest) = self.by_owner.keys().min_by_key(since).cloned() else {
                return;
            };
            self.drop_oldest(&oldest);
        }
    }

    fn oldest(&self, owner: &ResultOwner) -> Option<&KeptResult> {
        self.by_owner.get(owner)?.front()
    }

    fn bytes_of(&self, owner: &ResultOwner) -> usize {
        let kept = self.by_owner.get(owner).into_iter().flatten();
        kept.map(|kept| kept.text.len()).sum()
    }

    fn drop_oldest(&mut self, owner: &ResultOwner) {
        let Some(kept) = self.by_owner.get_mut(owner) else {
            return;
        };
        self.bytes -= kept.pop_front().map_or(0, |oldest| oldest.text.len());
        if kept.is_empty() {
            self.by_owner.remove(owner);
        }
    }

    fn drop_all(&mut self, owner: &ResultOwner) {
        self.bytes -= self.bytes_of(owner);
        self.by_owner.remove(owner);
    }
}

/// The part of a result that a client reads.
#[derive(Debug, PartialEq, Eq)]
enum ResultPart {
    Whole,
    /// From this byte, so many bytes.
    Range(usize, usize),
    /// The places that contain a text.
    Places(String),
}

impl ResultPart {
    fn parse(query: &str) -> Result<Self, String> {
        let (mut from, mut bytes, mut find) = (None, None, None);
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            let number = || {
                let must_be = || format!("`{name}` must be a number of bytes");
                value.parse::<usize>().map_err(|_| must_be())
            };
            match &*name {
                "from" => from = Some(number()?),
                "bytes" => bytes = Some(number()?),
                "find" if !value.is_empty() => find = Some(value.into_owned()),
                _ => {
                    return Err(
                        "a part is named by `?from=0&bytes=65536` or `?find=TEXT`".to_owned()
                    );
                }
            }
        }
        Ok(match (find, from, bytes) {
            (Some(text), None, None) => Self::Places(text),
            (Some(_), ..) => return Err("`find` cannot be combined with a range".to_owned()),
            (None, None, None) => Self::Whole,
            (None, from, bytes) => Self::Range(from.unwrap_or(0), bytes.unwrap_or(PART)),
        })
    }
}

fn range(text: &str, from: usize, bytes: usize) -> &str {
    let start = text.floor_char_boundary(from);
    let end = text.floor_char_boundary(from.saturating_add(bytes));
    text.get(start..end).unwrap_or_default()
}

/// One line per place: its position, and the text around it.
fn places(text: &str, wanted: &str) -> String {
    let finder = memchr::memmem::Finder::new(wanted.as_bytes());
    let found: Vec<usize> = finder
        .find_iter(text.as_bytes())
        .take(PLACES_MAX + 1)
        .collect();
    let mut lines: Vec<String> = found
        .iter()
        .take(PLACES_MAX)
        .map(|at| {
            let from = at.saturating_sub(AROUND);
            let around = range(text, from, at - from + wanted.len() + AROUND);
            format!("{at}: {}", around.replace(['\n', '\r'], " "))
        })
        .collect();
    if found.len() > PLACES_MAX {
        lines.push(format!(
            "more than {PLACES_MAX} places; search for a longer text"
        ));
    }
    match lines.is_empty() {
        true => "not found".to_owned(),
        false => lines.join("\n"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(number: u128) -> ResultOwner {
        ResultOwner {
            session: Some(SessionId::new(Uuid::from_u128(number))),
            principal: Principal::Anonymous,
            view: ViewId::Default,
        }
    }

    fn keep(results: &KeptResults, whose: u128, id: u128, text: &str) -> String {
        let text = (ByteString::from(text), "text/plain");
        results
            .keep(owner(whose), Uuid::from_u128(id), text)
            .unwrap()
    }

    fn read(results: &KeptResults, whose: u128, uri: &str) -> Result<String, Failure> {
        let wanted = uri.strip_prefix(PREFIX).unwrap();
        let read = results.part(uri, wanted, &owner(whose))?;
        let read: serde_json::Value = serde_json::from_str(read.as_str()).unwrap();
        Ok(read["contents"][0]["text"].as_str().unwrap().to_owned())
    }

    #[tokio::test(start_paused = true)]
    async fn a_result_is_read_by_its_client_only_for_a_while() {
        let results = KeptResults::default();
        let uri = keep(&results, 1, 7, "text");
        assert_eq!(read(&results, 1, &uri).unwrap(), "text");
        let missing = read(&results, 2, &uri).unwrap_err();
        assert_eq!(missing.kind, ErrorKind::ResourceNotFound);
        tokio::time::advance(KEPT).await;
        assert!(read(&results, 1, &uri).is_err());
        keep(&results, 2, 8, "text");
        assert_eq!(results.0.lock().bytes, 4);
        results.forget(SessionId::new(Uuid::from_u128(2)));
        let table = results.0.lock();
        assert_eq!((table.bytes, table.by_owner.len()), (0, 0));
    }

    #[test]
    fn parts_and_places_are_read() {
        let results = KeptResults::default();
        let uri = keep(&results, 1, 7, "one ä two\nthree two");
        let table = [
            ("", Ok("one ä two\nthree two")),
            ("?from=4&bytes=1", Ok("")),
            ("?from=4&bytes=2", Ok("ä")),
            ("?from=15", Ok("e two")),
            ("?from=99", Ok("")),
            (
                "?find=two",
                Ok("7: one ä two three two\n17: one ä two three two"),
            ),
            ("?find=four", Ok("not found")),
            ("?find=", Err(())),
            ("?from=x", Err(())),
            ("?find=a&from=1", Err(())),
            ("?page=1", Err(())),
        ];
        for (query, expected) in table {
            let shown = read(&results, 1, &format!("{uri}{query}"));
            assert_eq!(shown.as_deref().map_err(|_| ()), expected, "{query}");
        }
        let many = keep(&results, 1, 8, &"ab".repeat(1000));
        let shown = read(&results, 1, &format!("{many}?find=ab")).unwrap();
        assert_eq!(shown.lines().count(), PLACES_MAX + 1);
    }

    #[test]
    fn the_oldest_results_make_room() {
        let results = KeptResults::default();
        let large = "x".repeat(CLIENT_BYTES_MAX / 2);
        let first = keep(&results, 1, 1, &large);
        let second = keep(&results, 1, 2, &large);
        keep(&results, 1, 3, "x");
        assert!(read(&results, 1, &first).is_err());
        assert!(read(&results, 1, &second).is_ok());
        for whose in 2..=10 {
            keep(&results, whose, whose, &large);
        }
        let bytes = results.0.lock().bytes;
        assert!(bytes <= BYTES_MAX && bytes > BYTES_MAX / 2, "{bytes}");
        assert!(read(&results, 1, &second).is_err());
        let huge = ("x".repeat(CLIENT_BYTES_MAX + 1).into(), "text/plain");
        assert_eq!(results.keep(owner(1), Uuid::from_u128(4), huge), None);
    }
}
