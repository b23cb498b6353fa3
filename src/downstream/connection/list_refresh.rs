//! Keeps the lists of a connection's server up to date.

use std::sync::Arc;
use std::time::Duration;

use actix::{AsyncContext, Context, SpawnHandle};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::bridge::headers::{self, ParamHeaders};
use crate::catalog::{IngestLimits, ItemKind, ListCaching, ServerPart};
use crate::downstream::connection::Connection;
use crate::downstream::connection::handshake::{Negotiated, error_text};
use crate::downstream::connection::list_fetch::{ListEnd, ListFetch, Page};
use crate::downstream::connection::own_requests::OwnRequest;
use crate::downstream::era::modern;
use crate::downstream::server_event::{ListTimes, ServerEvent};
use crate::downstream::worker_channel::WorkerChannelCommand;
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

/// Which lists have to be fetched again, and when.
#[derive(Default)]
pub(super) struct ListState {
    /// Kinds whose list changed since it was fetched.
    stale: Vec<ItemKind>,
    /// Pending timer that collects change notifications before the stale lists are fetched.
    debounce: Option<SpawnHandle>,
    /// Kinds whose list failed: one entry per failure in a row.
    failed: Vec<ItemKind>,
    /// Whether the server refused `tools/list` without having declared tools; it is requested only
    /// once.
    tools_refused: bool,
    /// Timers of the lists with a time to live.
    expiries: [Option<SpawnHandle>; 4],
    read_at: ListTimes,
    /// When a client's request last triggered a fetch of each list.
    reread_at: ListTimes,
}

impl ListState {
    /// Whether any list was fetched over this connection.
    pub(super) fn was_any_read(&self) -> bool {
        self.read_at.iter().any(Option::is_some)
    }

    /// Whether this list was fetched over this connection.
    pub(super) fn was_read(&self, kind: ItemKind) -> bool {
        self.read_at[kind.index()].is_some()
    }
}

/// How long a list counts as fresh, so that a client's request does not trigger a fetch.
pub(crate) fn holds_for(part: &ServerPart, kind: ItemKind) -> Duration {
    let said = part.caching(kind).map_or(0, |caching| caching.ttl_ms);
    Duration::from_millis(said).max(REREAD_EVERY)
}

impl Connection {
    /// Schedules a refresh of lists that the server reported as changed. Notifications within a
    /// short time lead to one refresh.
    pub(super) fn list_changed(&mut self, kinds: &[ItemKind], ctx: &mut Context<Self>) {
        for kind in kinds {
            if !self.lists.stale.contains(kind) {
                self.lists.stale.push(*kind);
            }
        }
        if self.lists.debounce.is_none() {
            let wait = self.spec.settings().limits.refresh_debounce;
            self.lists.debounce = Some(ctx.run_later(wait, |connection, ctx| {
                connection.lists.debounce = None;
                connection.refresh_stale(ctx);
            }));
        }
    }

    /// Fetches a stale list again because a client requested it, unless the list is still fresh or
    /// a client triggered a fetch a moment ago.
    pub(super) fn reread(&mut self, kind: ItemKind, ctx: &mut Context<Self>) {
        let now = Instant::now();
        let is_recent = |at: Option<Instant>, within: Duration| {
            at.is_some_and(|at| now.saturating_duration_since(at) < within)
        };
        let lists = &mut self.lists;
        if is_recent(lists.read_at[kind.index()], holds_for(&self.part, kind))
            || is_recent(lists.reread_at[kind.index()], REREAD_EVERY)
        {
            return;
        }
        lists.reread_at[kind.index()] = Some(now);
        self.refresh(&[kind], ctx);
    }

    fn refresh_stale(&mut self, ctx: &mut Context<Self>) {
        // A fetch in progress might have missed the change; the refresh starts when it is done.
        if !self.own.has_page() {
            let stale = std::mem::take(&mut self.lists.stale);
            self.refresh(&stale, ctx);
        }
    }

    /// Fetches all lists, except for a session whose client sees the shared lists.
    pub(super) fn refresh_all(&mut self, ctx: &mut Context<Self>) {
        if !self.is_own_session || self.lists.was_any_read() {
            self.refresh(&ItemKind::ALL, ctx);
        }
    }

    /// Fetches lists; a list whose capability the server does not declare stays empty.
    pub(super) fn refresh(&mut self, kinds: &[ItemKind], ctx: &mut Context<Self>) {
        // Until a session of its own is first read, it has a copy of the shared lists, which change
        // independently, so all kinds are fetched.
        let kinds = match self.is_own_session && !self.lists.was_any_read() {
            true => &ItemKind::ALL,
            false => kinds,
        };
        // A handshake in progress ends with a refresh of all lists.
        let negotiated = self.state.negotiated();
        let Some(negotiated) = negotiated.filter(|_| self.state.is_ready()) else {
            return;
        };
        if self.own.has_page() {
            self.lists.stale.extend(kinds);
            return;
        }
        let offered: Vec<ItemKind> = kinds
            .iter()
            .copied()
            .filter(|kind| negotiated.may_list(*kind))
            .filter(|kind| negotiated.has(kind.capability()) || !self.lists.tools_refused)
            .collect();
        for kind in &offered {
            if !self.lists.was_read(*kind) {
                self.spec.session.expect_list(*kind);
            }
            self.fetch_page(ListFetch::new(*kind), &json!({}), ctx);
        }
        if offered.is_empty() {
            self.publish();
        }
    }

    fn fetch_page(&mut self, fetch: ListFetch, params: &Value, ctx: &mut Context<Self>) {
        let method = fetch.kind.method();
        self.ask_server(&method, params, OwnRequest::Page(fetch), ctx);
    }

    pub(super) fn on_page(
        &mut self,
        fetch: ListFetch,
        response: &Response,
        ctx: &mut Context<Self>,
    ) {
        let (kind, begun) = (fetch.kind, fetch.begun);
        let settings = self.spec.settings();
        let limits = &settings.limits;
        let page = match &response.outcome {
            Outcome::Result(result) => {
                fetch.on_page(result, limits.list_items_max, limits.list_pages_max)
            }
            Outcome::Error(error) if fetch.is_first() && self.is_guess(kind) => {
                self.undeclared_refused(&error_text(error));
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
            Ok(Page::Next(fetch, params)) => self.fetch_page(fetch, &params, ctx),
            Ok(Page::Done {
                mut pages,
                end,
                caching,
            }) => {
                let ingest = IngestLimits {
                    items: limits.list_items_max,
                    ..Default::default()
                };
                self.lists.failed.retain(|failed| *failed != kind);
                self.spec.session.set_listed(kind, Ok(()));
                for page in &mut pages {
                    page.items = self.usable(kind, std::mem::take(&mut page.items));
                }
                self.part = self.part.clone().with_pages(kind, &pages, &ingest);
                self.note_end(kind, end, pages.iter().map(|page| page.items.len()).sum());
                self.assume_tools();
                self.part.set_caching(kind, caching);
                self.lists.read_at[kind.index()] = Some(begun);
                self.expires(kind, caching, ctx);
                self.fetched(ctx);
            }
            Err(reason) => self.list_failed(kind, &reason, ctx),
        }
    }

    /// Records why a list can be incomplete.
    fn note_end(&mut self, kind: ItemKind, end: ListEnd, kept: usize) {
        if end != ListEnd::Whole {
            let (server, list) = (self.spec.server().as_str(), kind.member());
            log::warn!(server, list, kept; "{end}");
            self.part.add_note(kind, end.to_string());
        }
        if self.lists.tools_refused && kind == ItemKind::Tools {
            let note = "the server does not declare `tools` and refused `tools/list`";
            self.part.add_note(kind, note.to_owned());
        }
    }

    /// Whether the server does not declare a list of this kind.
    fn is_undeclared(&self, kind: ItemKind) -> bool {
        let negotiated = self.state.negotiated();
        negotiated.is_some_and(|it| !it.has(kind.capability()))
    }

    /// Whether the server does not declare a list of this kind and has never returned one.
    fn is_guess(&self, kind: ItemKind) -> bool {
        self.is_undeclared(kind) && self.part.items(kind).is_empty()
    }

    fn undeclared_refused(&mut self, why: &str) {
        let reason = self.spec.masked(why);
        let server = self.spec.server().as_str();
        log::info!(server, reason:%; "server does not declare `tools` and refused `tools/list`");
        self.lists.tools_refused = true;
    }

    /// Treats tools as declared once the server has returned some.
    pub(super) fn assume_tools(&mut self) {
        let kind = ItemKind::Tools;
        if self.is_undeclared(kind) && !self.part.items(kind).is_empty() {
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
    fn usable(&self, kind: ItemKind, items: Vec<RawJson>) -> Vec<RawJson> {
        if kind != ItemKind::Tools {
            return items;
        }
        let has_headers =
            self.is_modern() && self.spec.of_server.connector.knows_call_of_requests();
        let usable = |tool: RawJson| match ParamHeaders::of_tool(&tool) {
            Ok(_) => Some(tool),
            Err(_) if !has_headers => Some(headers::strip_annotations(&tool).unwrap_or(tool)),
            Err(error) => {
                log::warn!(
                    server = self.spec.server().as_str(), error:%;
                    "tool dropped: HTTP clients could not call it"
                );
                None
            }
        };
        items.into_iter().filter_map(usable).collect()
    }

    /// Fetches a list again when its time to live has passed, if that is before the next full
    /// refresh (C-CACHE-03), but not often enough to amount to polling (C-CACHE-05).
    fn expires(&mut self, kind: ItemKind, caching: Option<ListCaching>, ctx: &mut Context<Self>) {
        let [tools, prompts, resources, templates] = &mut self.lists.expiries;
        let expiry = match kind {
            ItemKind::Tools => tools,
            ItemKind::Prompts => prompts,
            ItemKind::Resources => resources,
            ItemKind::ResourceTemplates => templates,
        };
        if let Some(before) = expiry.take() {
            ctx.cancel_future(before);
        }
        let ttl = Duration::from_millis(caching.map_or(0, |caching| caching.ttl_ms));
        let wait = ttl.max(TTL_MIN);
        if !ttl.is_zero() && wait < self.spec.settings().limits.refresh_every {
            *expiry = Some(ctx.run_later(wait, move |connection, ctx| {
                connection.refresh(&[kind], ctx);
            }));
        }
    }

    pub(super) fn page_failed(&mut self, fetch: &ListFetch, reason: &str, ctx: &mut Context<Self>) {
        if fetch.is_first() && self.is_guess(fetch.kind) {
            self.undeclared_refused(reason);
            self.note_end(fetch.kind, ListEnd::Whole, 0);
            return self.fetched(ctx);
        }
        self.list_failed(fetch.kind, reason, ctx);
    }

    /// Keeps the known items, because a stale list is better than none, and schedules another
    /// fetch.
    fn list_failed(&mut self, kind: ItemKind, reason: &str, ctx: &mut Context<Self>) {
        let reason = self.spec.masked(reason);
        if !self.lists.was_read(kind) {
            // The server's own text is only logged, because clients can read this status.
            let why = format!("`{}` failed; see the log for the reason", kind.method());
            self.spec.session.set_listed(kind, Err(why));
        }
        log::warn!(
            server = self.spec.server().as_str(), list = kind.member(), reason:%;
            "list could not be fetched; keeping the last known one"
        );
        self.fetch_again(kind, ctx);
        self.fetched(ctx);
    }

    /// Fetches a failed list again with growing delays, until the next full refresh would come
    /// sooner.
    fn fetch_again(&mut self, kind: ItemKind, ctx: &mut Context<Self>) {
        let in_row = self.lists.failed.iter().filter(|failed| **failed == kind);
        let wait = retry_in(in_row.count());
        if wait < self.spec.settings().limits.refresh_every {
            self.lists.failed.push(kind);
            ctx.run_later(wait, move |connection, ctx| {
                connection.list_changed(&[kind], ctx);
            });
        }
    }

    fn fetched(&mut self, ctx: &mut Context<Self>) {
        if self.own.has_page() {
            return;
        }
        self.publish();
        if self.lists.debounce.is_none() && !self.lists.stale.is_empty() {
            self.refresh_stale(ctx);
        }
    }

    /// Removes the items of capabilities that the server no longer declares after a handshake.
    pub(super) fn drop_undeclared_lists(&mut self, negotiated: &Negotiated) {
        self.lists.tools_refused = false;
        for kind in ItemKind::ALL {
            if !negotiated.may_list(kind) && !self.part.items(kind).is_empty() {
                let none = IngestLimits::default();
                self.part = self.part.clone().with_list(kind, &[], &none);
            }
        }
    }

    /// Stores which arguments calls repeat in headers, and resends calls that waited for that.
    fn publish_headers(&mut self) {
        let tools = self.part.items(ItemKind::Tools).iter();
        let annotated = tools.filter(|tool| !tool.headers().is_empty());
        let annotated = annotated.map(|tool| (tool.native().to_owned(), tool.headers().clone()));
        self.spec.param_headers.store(Arc::new(annotated.collect()));
        if let Some(calls) = self.state.calls_mut() {
            calls.on_headers_listed(Instant::now());
        }
        for worker_channel in self.state.worker_channels() {
            let known = WorkerChannelCommand::HeadersKnown;
            worker_channel.address.do_send(known);
        }
    }

    fn publish(&mut self) {
        let part = Arc::new(self.part.clone());
        self.spec.last_part.store(Some(part.clone()));
        if self.is_modern() && self.spec.of_server.connector.knows_call_of_requests() {
            self.publish_headers();
        }
        self.spec.listed.send_replace(true);
        self.send_event(ServerEvent::Listed(part, self.lists.read_at));
    }
}
