//! Keeps the lists of a connection's server up to date.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::bridge::headers::{self, ParamHeaders};
use crate::catalog::{IngestLimits, ItemKind, ListCaching, ServerPart};
use crate::downstream::call_sender::SenderCommand;
use crate::downstream::connection::control::{Control, Due};
use crate::downstream::connection::handshake::{Negotiated, error_text};
use crate::downstream::connection::list_fetch::{ListEnd, ListFetch, Page};
use crate::downstream::connection::own_requests::OwnRequest;
use crate::downstream::connection::spec::ConnectionSpec;
use crate::downstream::era::modern;
use crate::downstream::server_event::{ListTimes, ServerEvent};
use crate::protocol::{Outcome, RawJson, Response, code};
use crate::supervision::Backoff;

/// Minimum time before a list is fetched again, however short its time to live is.
const TTL_MIN: Duration = Duration::from_secs(30);

/// Minimum time between two fetches of a list that clients trigger.
const REREAD_EVERY: Duration = Duration::from_secs(10);

/// Delays before a failed list is fetched again.
const RETRY: Backoff = Backoff::doubling(Duration::from_secs(1), Duration::from_secs(1 << 16));

/// Delay before a list is fetched again after `failures` failures in a row.
fn retry_in(failures: usize) -> Duration {
    RETRY.delay(u32::try_from(failures).unwrap_or(u32::MAX))
}

/// The lists of a connection's server: which have to be fetched again, and when.
pub(super) struct ServerLists {
    pub(super) part: ServerPart,
    /// Kinds whose list changed since it was fetched.
    stale: Vec<ItemKind>,
    /// Kinds whose list failed: one entry per failure in a row.
    failed: Vec<ItemKind>,
    /// Whether the server refused `tools/list` without having declared tools; it is requested only
    /// once.
    tools_refused: bool,
    read_at: ListTimes,
    /// Whether lists of this incarnation were published.
    is_published: bool,
    /// When a client's request last triggered a fetch of each list.
    reread_at: ListTimes,
}

/// How long a list counts as fresh, so that a client's request does not trigger a fetch.
pub(crate) fn holds_for(part: &ServerPart, kind: ItemKind) -> Duration {
    let said = part.caching(kind).map_or(0, |caching| caching.ttl_ms);
    Duration::from_millis(said).max(REREAD_EVERY)
}

impl ServerLists {
    /// Starts with the items that an earlier incarnation listed.
    pub(super) fn new(spec: &ConnectionSpec) -> Self {
        let known = spec.last_part.load_full();
        let new = || ServerPart::new(spec.server().clone());
        Self {
            part: known.map_or_else(new, |part| ServerPart::clone(&part)),
            stale: Vec::new(),
            failed: Vec::new(),
            tools_refused: false,
            read_at: ListTimes::default(),
            is_published: false,
            reread_at: ListTimes::default(),
        }
    }

    /// A kind whose list was fetched over this connection.
    pub(super) fn read_kind(&self) -> Option<ItemKind> {
        ItemKind::ALL.into_iter().find(|kind| self.was_read(*kind))
    }

    /// Whether the tools were listed over this connection.
    pub(super) fn has_read_tools(&self) -> bool {
        self.was_read(ItemKind::Tools)
    }

    fn was_read(&self, kind: ItemKind) -> bool {
        self.read_at[kind.index()].is_some()
    }

    /// Schedules a refresh of lists that the server reported as changed. Notifications within a
    /// short time lead to one refresh.
    pub(super) fn changed(&mut self, kinds: &[ItemKind], control: &mut Control) {
        for kind in kinds {
            if !self.stale.contains(kind) {
                self.stale.push(*kind);
            }
        }
        let wait = control.spec.settings().limits.refresh_debounce;
        control.set_once(Due::RefreshStale, Instant::now() + wait);
    }

    /// Fetches a stale list again because a client requested it, unless the list is still fresh or
    /// a client triggered a fetch a moment ago.
    pub(super) fn reread(&mut self, kind: ItemKind, control: &mut Control) {
        let now = Instant::now();
        let is_recent = |at: Option<Instant>, within: Duration| {
            at.is_some_and(|at| now.saturating_duration_since(at) < within)
        };
        if is_recent(self.read_at[kind.index()], holds_for(&self.part, kind))
            || is_recent(self.reread_at[kind.index()], REREAD_EVERY)
        {
            return;
        }
        self.reread_at[kind.index()] = Some(now);
        self.refresh(&[kind], control);
    }

    pub(super) fn refresh_stale(&mut self, control: &mut Control) {
        // A fetch in progress might have missed the change; the refresh starts when it is done.
        if !control.own.has_page() {
            let stale = std::mem::take(&mut self.stale);
            self.refresh(&stale, control);
        }
    }

    /// Fetches all lists, except for a session whose client sees the shared lists.
    pub(super) fn refresh_all(&mut self, control: &mut Control) {
        if !control.is_own_session() || self.read_kind().is_some() {
            self.refresh(&ItemKind::ALL, control);
        }
    }

    /// Fetches lists; a list whose capability the server does not declare stays empty.
    pub(super) fn refresh(&mut self, kinds: &[ItemKind], control: &mut Control) {
        // Until a session of its own is first read, it has a copy of the shared lists, which change
        // independently, so all kinds are fetched.
        let kinds = match control.is_own_session() && self.read_kind().is_none() {
            true => &ItemKind::ALL,
            false => kinds,
        };
        // A handshake in progress ends with a refresh of all lists.
        let negotiated = control.state.negotiated();
        let Some(negotiated) = negotiated.filter(|_| control.state.is_ready()) else {
            return;
        };
        if control.own.has_page() {
            self.stale.extend(kinds);
            return;
        }
        let offered: Vec<ItemKind> = kinds
            .iter()
            .copied()
            .filter(|kind| negotiated.may_list(*kind))
            .filter(|kind| negotiated.has(kind.capability()) || !self.tools_refused)
            .collect();
        for kind in &offered {
            if !self.was_read(*kind) {
                control.spec.session.expect_list(*kind);
            }
            self.fetch_page(ListFetch::new(*kind), &json!({}), control);
        }
        if offered.is_empty() {
            self.publish(control);
        }
    }

    fn fetch_page(&mut self, fetch: ListFetch, params: &Value, control: &mut Control) {
        let method = fetch.kind.method();
        control.ask_server(&method, params, OwnRequest::Page(fetch));
    }

    pub(super) fn on_page(&mut self, fetch: ListFetch, response: &Response, control: &mut Control) {
        let (kind, begun) = (fetch.kind, fetch.begun);
        let settings = control.spec.settings();
        let limits = &settings.limits;
        let page = match &response.outcome {
            Outcome::Result(result) => {
                fetch.on_page(result, limits.list_items_max, limits.list_pages_max)
            }
            Outcome::Error(error) if fetch.is_first() && self.is_guess(kind, control) => {
                self.undeclared_refused(&error_text(error), control);
                Ok(Page::EMPTY)
            }
            // The server declares the capability but has no such list, which is harmless.
            Outcome::Error(error)
                if fetch.is_first()
                    && modern::error_code(error) == Some(code::METHOD_NOT_FOUND) =>
            {
                Ok(Page::EMPTY)
            }
            Outcome::Error(error) => Err(error_text(error)),
        };
        match page {
            Ok(Page::Next(fetch, params)) => self.fetch_page(fetch, &params, control),
            Ok(Page::Done {
                mut pages,
                end,
                caching,
            }) => {
                let ingest = IngestLimits {
                    items: limits.list_items_max,
                    ..Default::default()
                };
                self.failed.retain(|failed| *failed != kind);
                control.spec.session.set_listed(kind, Ok(()));
                for page in &mut pages {
                    page.items = Self::usable(kind, std::mem::take(&mut page.items), control);
                }
                self.part = self.part.clone().with_pages(kind, &pages, &ingest);
                let kept = pages.iter().map(|page| page.items.len()).sum();
                self.note_end(kind, end, kept, control);
                self.assume_tools(control);
                self.part.set_caching(kind, caching);
                self.read_at[kind.index()] = Some(begun);
                Self::expires(kind, caching, control);
                self.fetched(control);
            }
            Err(reason) => self.list_failed(kind, &reason, control),
        }
    }

    /// Records why a list can be incomplete.
    fn note_end(&mut self, kind: ItemKind, end: ListEnd, kept: usize, control: &Control) {
        if end != ListEnd::Whole {
            let (server, list) = (control.spec.server().as_str(), kind.member());
            log::warn!(server, list, kept; "{end}");
            self.part.add_note(kind, end.to_string());
        }
        if self.tools_refused && kind == ItemKind::Tools {
            let note = "the server does not declare `tools` and refused `tools/list`";
            self.part.add_note(kind, note.to_owned());
        }
    }

    /// Whether the server does not declare a list of this kind.
    fn is_undeclared(kind: ItemKind, control: &Control) -> bool {
        let negotiated = control.state.negotiated();
        negotiated.is_some_and(|it| !it.has(kind.capability()))
    }

    /// Whether the server does not declare a list of this kind and has never returned one.
    fn is_guess(&self, kind: ItemKind, control: &Control) -> bool {
        Self::is_undeclared(kind, control) && self.part.items(kind).is_empty()
    }

    fn undeclared_refused(&mut self, why: &str, control: &Control) {
        let reason = control.spec.masked(why);
        let server = control.spec.server().as_str();
        log::info!(server, reason:%; "server does not declare `tools` and refused `tools/list`");
        self.tools_refused = true;
    }

    /// Treats tools as declared once the server has returned some.
    pub(super) fn assume_tools(&mut self, control: &Control) {
        let kind = ItemKind::Tools;
        if Self::is_undeclared(kind, control) && !self.part.items(kind).is_empty() {
            let name = kind.capability().to_owned();
            self.part
                .capabilities
                .entry(name)
                .or_insert_with(|| json!({}));
        }
    }

    /// Handles tools with invalid header annotations, which HTTP clients would have to drop
    /// (C-HTTP-08): if the server reads the headers, the tool is dropped; otherwise only its
    /// annotations are removed (B-HDR-01).
    fn usable(kind: ItemKind, items: Vec<RawJson>, control: &Control) -> Vec<RawJson> {
        if kind != ItemKind::Tools {
            return items;
        }
        let has_headers =
            control.is_modern() && control.spec.of_server.connector.knows_call_of_requests();
        let usable = |tool: RawJson| match ParamHeaders::of_tool(&tool) {
            Ok(_) => Some(tool),
            Err(_) if !has_headers => Some(headers::strip_annotations(&tool).unwrap_or(tool)),
            Err(error) => {
                log::warn!(
                    server = control.spec.server().as_str(), error:%;
                    "tool dropped: HTTP clients could not call it"
                );
                None
            }
        };
        items.into_iter().filter_map(usable).collect()
    }

    /// Fetches a list again when its time to live has passed, if that is before the next full
    /// refresh (C-CACHE-03), but not often enough to amount to polling (C-CACHE-05).
    fn expires(kind: ItemKind, caching: Option<ListCaching>, control: &mut Control) {
        let ttl = Duration::from_millis(caching.map_or(0, |caching| caching.ttl_ms));
        let wait = ttl.max(TTL_MIN);
        if !ttl.is_zero() && wait < control.spec.settings().limits.refresh_every {
            control.due.set(Due::Expire(kind), Instant::now() + wait);
        } else {
            control.due.remove(&Due::Expire(kind));
        }
    }

    pub(super) fn page_failed(&mut self, fetch: &ListFetch, reason: &str, control: &mut Control) {
        if fetch.is_first() && self.is_guess(fetch.kind, control) {
            self.undeclared_refused(reason, control);
            self.note_end(fetch.kind, ListEnd::Whole, 0, control);
            return self.fetched(control);
        }
        self.list_failed(fetch.kind, reason, control);
    }

    /// Keeps the known items, because a stale list is better than none, and schedules another
    /// fetch.
    fn list_failed(&mut self, kind: ItemKind, reason: &str, control: &mut Control) {
        let reason = control.spec.masked(reason);
        if !self.was_read(kind) {
            // The server's own text is only logged, because clients can read this status.
            let why = format!("`{}` failed; see the log for the reason", kind.method());
            control.spec.session.set_listed(kind, Err(why));
        }
        log::warn!(
            server = control.spec.server().as_str(), list = kind.member(), reason:%;
            "list could not be fetched; keeping the last known one"
        );
        self.fetch_again(kind, control);
        self.fetched(control);
    }

    /// Fetches a failed list again with growing delays, until the next full refresh would come
    /// sooner.
    fn fetch_again(&mut self, kind: ItemKind, control: &mut Control) {
        let in_row = self.failed.iter().filter(|failed| **failed == kind);
        let wait = retry_in(in_row.count());
        if wait < control.spec.settings().limits.refresh_every {
            self.failed.push(kind);
            control.set_once(Due::RetryList(kind), Instant::now() + wait);
        }
    }

    fn fetched(&mut self, control: &mut Control) {
        if control.own.has_page() {
            return;
        }
        self.publish(control);
        if control.due.get(&Due::RefreshStale).is_none() && !self.stale.is_empty() {
            self.refresh_stale(control);
        }
    }

    /// Takes over what a handshake revealed, and removes the items of capabilities that the server no
    /// longer declares.
    pub(super) fn on_negotiated(&mut self, negotiated: &Negotiated) {
        let part = &mut self.part;
        part.capabilities = negotiated.capabilities.clone();
        part.info = negotiated.server_info.clone();
        part.revision = negotiated.revision;
        part.instructions = negotiated.instructions.clone();
        part.meta = negotiated.meta.clone();
        self.tools_refused = false;
        for kind in ItemKind::ALL {
            if !negotiated.may_list(kind) && !self.part.items(kind).is_empty() {
                let none = IngestLimits::default();
                self.part = self.part.clone().with_list(kind, &[], &none);
            }
        }
    }

    /// Stores which arguments calls repeat in headers, and resends calls that waited for that.
    fn publish_headers(&self, control: &mut Control) {
        let tools = self.part.items(ItemKind::Tools).iter();
        let annotated = tools.filter(|tool| !tool.headers().is_empty());
        let annotated = annotated.map(|tool| (tool.native().to_owned(), tool.headers().clone()));
        let headers = &control.spec.param_headers;
        headers.store(Arc::new(annotated.collect()));
        control.tell_senders(|| SenderCommand::HeadersKnown);
    }

    fn publish(&mut self, control: &mut Control) {
        let part = Arc::new(self.part.clone());
        let is_first = !std::mem::replace(&mut self.is_published, true);
        if is_first {
            control.spec.lists_first(&part, self.read_at);
        }
        control.spec.last_part.store(Some(part.clone()));
        if control.is_modern() && control.spec.of_server.connector.knows_call_of_requests() {
            self.publish_headers(control);
        }
        // The comparison of the lists decides this when it ends.
        let is_hidden = control.spec.hides_lists();
        control.spec.listed.send_replace(true);
        if !is_hidden {
            control.send_event(ServerEvent::Listed(part, self.read_at));
        }
    }
}
