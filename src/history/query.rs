//! History queries, and their SQL.

use super::record::CallOutcome;

/// Default number of entries on a page.
pub const LIMIT_DEFAULT: usize = 100;

/// Maximum number of entries on a page.
pub const LIMIT_MAX: usize = 1000;

/// Maximum offset; use `before` to go further.
pub const OFFSET_MAX: usize = 100_000;

/// Maximum length of a filter text, in characters.
const TEXT_MAX: usize = 256;

/// Which calls to find.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HistoryFilter {
    pub method: Option<String>,
    pub server: Option<String>,
    /// The handle of a session.
    pub session: Option<u32>,
    pub outcome: Option<CallOutcome>,
    /// Text that occurs in the name, client, code, parameters or result; ASCII letters match
    /// case-insensitively.
    pub text: Option<String>,
    /// Earliest end time, in milliseconds since 1970.
    pub since: Option<u64>,
    /// Calls that ended before this time.
    pub until: Option<u64>,
}

/// One page of calls, the newest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistoryQuery {
    pub filter: HistoryFilter,
    pub limit: usize,
    /// Number of entries to skip.
    pub offset: usize,
    /// Only calls before this id: `next` of the previous page.
    pub before: Option<i64>,
    /// Only calls after this id.
    pub after: Option<i64>,
}

impl Default for HistoryQuery {
    fn default() -> Self {
        Self {
            filter: HistoryFilter::default(),
            limit: LIMIT_DEFAULT,
            offset: 0,
            before: None,
            after: None,
        }
    }
}

impl HistoryQuery {
    /// Parses the parameters of a request.
    ///
    /// # Errors
    ///
    /// Returns which parameter is unknown, duplicated or invalid, and what it must be.
    pub fn from_pairs<'p>(
        pairs: impl IntoIterator<Item = (&'p str, &'p str)>,
    ) -> Result<Self, String> {
        let mut query = Self::default();
        let mut seen: Vec<&str> = Vec::new();
        for (name, value) in pairs {
            if seen.contains(&name) {
                return Err(format!("duplicate `{name}`"));
            }
            query.set(name, value)?;
            seen.push(name);
        }
        Ok(query)
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        let must_be = |what: &str| format!("`{name}` must be {what}");
        let millis = || {
            value
                .parse()
                .map_err(|_| must_be("a time in milliseconds since 1970"))
        };
        let text = || match value.chars().count() {
            1..=TEXT_MAX => Ok(Some(value.to_owned())),
            _ => Err(must_be(&format!("a string of 1 to {TEXT_MAX} characters"))),
        };
        let number = |range: std::ops::RangeInclusive<usize>| {
            let number = value.parse().ok().filter(|number| range.contains(number));
            let (least, most) = range.clone().into_inner();
            number.ok_or_else(|| must_be(&format!("a number from {least} to {most}")))
        };
        let id = || {
            let id = value.parse().ok().filter(|id| *id >= 0);
            id.map(Some).ok_or_else(|| must_be("the id of an entry"))
        };
        let filter = &mut self.filter;
        match name {
            "method" => filter.method = text()?,
            "server" | "serverId" => filter.server = text()?,
            "text" => filter.text = text()?,
            "since" => filter.since = Some(millis()?),
            "until" => filter.until = Some(millis()?),
            "session" => {
                let handle = u32::from_str_radix(value, 16)
                    .ok()
                    .filter(|_| value.len() == 8);
                let handle = handle.ok_or_else(|| must_be("the 8 hex digits of a session"))?;
                filter.session = Some(handle);
            }
            "outcome" => {
                let all: Vec<&str> = CallOutcome::ALL.iter().map(|it| it.as_str()).collect();
                let found = CallOutcome::parse(value);
                let found = found.ok_or_else(|| must_be(&format!("one of {}", all.join(", "))))?;
                filter.outcome = Some(found);
            }
            "limit" => self.limit = number(1..=LIMIT_MAX)?,
            "offset" => {
                let offset = number(0..=OFFSET_MAX);
                self.offset = offset.map_err(|why| format!("{why}; use `before` to go further"))?;
            }
            "before" => self.before = id()?,
            "after" => self.after = id()?,
            _ => {
                let name: String = name.chars().take(64).collect();
                return Err(format!(
                    "unknown parameter `{}`; known are method, server, session, outcome, text, \
                     since, until, limit, offset, before and after",
                    name.escape_debug()
                ));
            }
        }
        Ok(())
    }

    /// The ids of the page: from the first up to, but excluding, the second.
    pub(super) fn ids(&self) -> IdRange {
        let all = self.filter.ids();
        IdRange {
            from: all
                .from
                .max(self.after.map_or(0, |id| id.saturating_add(1))),
            to: all.to.min(self.before.unwrap_or(i64::MAX)),
        }
    }
}

/// Ids from the first up to, but excluding, the second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct IdRange {
    pub(super) from: i64,
    pub(super) to: i64,
}

/// A kind of call in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Kind {
    pub(super) id: i64,
    pub(super) method: String,
    pub(super) server: String,
    pub(super) outcome: String,
    pub(super) calls: u64,
}

impl HistoryFilter {
    pub(super) fn ids(&self) -> IdRange {
        let id = |millis: u64| i64::try_from(millis).map_or(i64::MAX, |at| at.saturating_mul(1000));
        IdRange {
            from: self.since.map_or(0, id),
            to: self.until.map_or(i64::MAX, id),
        }
    }

    pub(super) fn matches_kind(&self, kind: &Kind) -> bool {
        self.method
            .as_ref()
            .is_none_or(|method| *method == kind.method)
            && self
                .server
                .as_ref()
                .is_none_or(|server| *server == kind.server)
            && self
                .outcome
                .is_none_or(|outcome| outcome.as_str() == kind.outcome)
    }

    /// The parts of the table that contain matching calls, each in block order.
    pub(super) fn parts(&self, kinds: &[Kind]) -> Vec<TablePart> {
        let is_any_kind = self.method.is_none() && self.server.is_none() && self.outcome.is_none();
        if self.session.is_none() && is_any_kind {
            return vec![TablePart::All];
        }
        let kinds = kinds.iter().filter(|kind| self.matches_kind(kind));
        let part = |kind: &Kind| match self.session {
            None => TablePart::Kind(kind.id),
            Some(session) => TablePart::Session(session, kind.id),
        };
        kinds.map(part).collect()
    }

    /// The number of matching calls, if it is stored.
    pub(super) fn kept_count(&self, kinds: &[Kind]) -> Option<u64> {
        let needs_calls = self.session.is_some()
            || self.text.is_some()
            || self.since.is_some()
            || self.until.is_some();
        let matching = kinds.iter().filter(|kind| self.matches_kind(kind));
        (!needs_calls).then(|| matching.map(|kind| kind.calls).sum())
    }
}

/// Which blocks contain matching calls, and how many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TablePart {
    All,
    /// Calls of a kind.
    Kind(i64),
    /// Calls of a session and a kind.
    Session(u32, i64),
}

impl TablePart {
    const fn table(self) -> &'static str {
        match self {
            Self::All => "(SELECT id AS block, calls FROM block) WHERE",
            Self::Kind(_) => "block_kind WHERE kind = ?3 AND",
            Self::Session(..) => "block_session WHERE session = ?4 AND kind = ?3 AND",
        }
    }

    /// Selects the blocks, the newest first, with the number of matching calls in each.
    pub(super) fn newest_first(self) -> String {
        let table = self.table();
        format!("SELECT block, calls FROM {table} block >= ?1 AND block < ?2 ORDER BY block DESC")
    }

    /// Counts the matching calls.
    pub(super) fn count(self) -> String {
        let table = self.table();
        format!("SELECT ifnull(sum(calls), 0) FROM {table} block >= ?1 AND block < ?2")
    }

    pub(super) fn parameters(self, blocks: IdRange) -> Vec<i64> {
        match self {
            Self::All => vec![blocks.from, blocks.to],
            Self::Kind(kind) => vec![blocks.from, blocks.to, kind],
            Self::Session(session, kind) => {
                vec![blocks.from, blocks.to, kind, i64::from(session)]
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(query: &str) -> Result<HistoryQuery, String> {
        let pairs = query.split('&').filter(|pair| !pair.is_empty());
        HistoryQuery::from_pairs(pairs.map(|pair| pair.split_once('=').unwrap()))
    }

    #[test]
    fn queries_are_parsed_or_refused_with_a_reason() {
        assert_eq!(read("").unwrap(), HistoryQuery::default());
        let all = "method=tools/call&serverId=a&session=0000abcd&outcome=timeout&text=x&since=1\
                   &until=2&limit=5&offset=6&before=7&after=8";
        let query = read(all).unwrap();
        let filter = HistoryFilter {
            method: Some("tools/call".to_owned()),
            server: Some("a".to_owned()),
            session: Some(0xabcd),
            outcome: Some(CallOutcome::Timeout),
            text: Some("x".to_owned()),
            since: Some(1),
            until: Some(2),
        };
        assert_eq!((query.filter, query.limit, query.offset), (filter, 5, 6));
        assert_eq!((query.before, query.after), (Some(7), Some(8)));
        let refused = [
            ("limit=0", "1 to 1000"),
            ("limit=1001", "1 to 1000"),
            ("limit=x", "1 to 1000"),
            ("offset=100001", "`before`"),
            ("since=-1", "milliseconds"),
            ("session=abc", "8 hex digits"),
            ("session=abcdefgh", "8 hex digits"),
            ("outcome=OK", "tool_error"),
            ("text=", "1 to 256 characters"),
            ("before=-1", "the id of an entry"),
            ("before=x", "the id of an entry"),
            ("limit=1&limit=2", "duplicate"),
            ("method=a&colour=red", "unknown parameter `colour`"),
        ];
        for (query, word) in refused {
            let why = read(query).unwrap_err();
            assert!(why.contains(word), "{query}: {why}");
        }
    }

    #[test]
    fn a_filter_selects_table_parts_and_stored_counts() {
        let kind = |id, method: &str, server: &str, outcome: &str| Kind {
            id,
            method: method.to_owned(),
            server: server.to_owned(),
            outcome: outcome.to_owned(),
            calls: 10,
        };
        let kinds = [
            kind(1, "tools/call", "a", "ok"),
            kind(2, "tools/call", "b", "ok"),
            kind(3, "prompts/get", "a", "timeout"),
        ];
        use TablePart::{All, Kind as OfKind, Session};
        let table: [(&str, &[TablePart], Option<u64>); 7] = [
            ("", &[All], Some(30)),
            ("server=a", &[OfKind(1), OfKind(3)], Some(20)),
            ("server=a&method=tools/call", &[OfKind(1)], Some(10)),
            ("server=c", &[], Some(0)),
            ("outcome=timeout&since=1", &[OfKind(3)], None),
            (
                "session=00000007&outcome=ok",
                &[Session(7, 1), Session(7, 2)],
                None,
            ),
            ("text=x", &[All], None),
        ];
        for (query, parts, count) in table {
            let filter = read(query).unwrap().filter;
            assert_eq!(filter.parts(&kinds), parts, "{query}");
            assert_eq!(filter.kept_count(&kinds), count, "{query}");
        }
    }

    #[test]
    fn a_page_is_bounded_by_times_and_ids() {
        let ids = |query: &str| {
            let ids = read(query).unwrap().ids();
            (ids.from, ids.to)
        };
        assert_eq!(ids(""), (0, i64::MAX));
        assert_eq!(ids("since=2&until=5"), (2000, 5000));
        assert_eq!(ids("since=2&until=5&before=3000&after=2500"), (2501, 3000));
        assert_eq!(ids("since=2&after=1"), (2000, i64::MAX));
        assert_eq!(ids("since=18446744073709551615").0, i64::MAX);
    }
}
