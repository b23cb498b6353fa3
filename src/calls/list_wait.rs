//! A request that waits for lists: lists of servers that start for the first time (B-LIST-01), and
//! lists of the client's audience, whose connections are opened for the request (B-LIST-02).

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::{Instant, timeout, timeout_at};

use crate::calls::awaited_lists::{ListNeed, ListSource, ServerList, is_coming, is_needed};
use crate::calls::call_context::CallContext;
use crate::calls::{call_target, consent, discovery};
use crate::catalog::{Exposure, ItemKind, Snapshot};
use crate::downstream::{Caller, ConnectionKey, Server};
use crate::id::{ServerName, ViewId};
use crate::protocol::{Method, Request};
use crate::supervision::ChildPhase;
use crate::telemetry::Counter;

/// A request that is answered once its lists have arrived, or when waiting for them timed out.
pub(crate) struct ListWait {
    context: Arc<CallContext>,
    caller: Arc<Caller>,
    /// Index of the arbiter on which connections are opened.
    arbiter: usize,
    need: ListNeed,
    changed: Vec<ChangedList>,
}

/// A list whose change the server announced, but which clients do not see yet.
struct ChangedList {
    server: ServerName,
    key: ConnectionKey,
    kind: ItemKind,
    announced: Instant,
}

/// How long a request for a list waits for changes that servers announced.
const CHANGES_WAIT_MAX: Duration = Duration::from_secs(2);

/// How long lists wait for the comparison of a server's lists: clients stop waiting after 10 s.
const COMPARISON_WAIT_MAX: Duration = Duration::from_secs(5);

/// A list to read, and the connection to read it from.
struct AwaitedList {
    server: Arc<Server>,
    key: ConnectionKey,
}

impl ListWait {
    /// Creates the wait for a request; `None` if the request can be answered immediately.
    pub(crate) fn of(
        context: &Arc<CallContext>,
        request: &Request,
        caller: &Arc<Caller>,
        arbiter: usize,
    ) -> Option<Self> {
        let wait = Self {
            need: need_of(context, request, caller)?,
            changed: changed_lists(context, request, caller),
            context: context.clone(),
            caller: caller.clone(),
            arbiter,
        };
        let must_wait = !context.catalog.is_listed()
            || !wait.changed.is_empty()
            || !wait.compared_servers().is_empty()
            || !wait.awaited().is_empty();
        must_wait.then_some(wait)
    }

    /// Completes when the lists have arrived or timed out. First listings are bounded by the
    /// servers' own settings, other lists by `first_list_wait_max`.
    pub(crate) async fn end(&self) {
        let catalog = &self.context.catalog;
        let is_first = !catalog.is_listed();
        self.first_listing().await;
        let now = Instant::now();
        self.compared(now + self.comparison_wait()).await;
        let until = now + self.wait_max();
        let reads = self.awaited().into_iter().map(|list| self.read(list));
        // A list that misses the deadline appears in a later answer.
        let is_late = timeout_at(until, join_all(reads)).await.is_err();
        if is_late || is_first && !catalog.missing().is_empty() {
            self.context.counters.add(Counter::LateLists);
        }
        join_all(self.changed.iter().map(|list| self.shown(list))).await;
    }

    fn wait_max(&self) -> Duration {
        self.context.settings.load().first_list_wait_max
    }

    /// How long a comparison is awaited, since the shared process listed.
    fn comparison_wait(&self) -> Duration {
        self.wait_max().min(COMPARISON_WAIT_MAX)
    }

    /// Completes when it is known for each program whether this client sees the lists of its shared
    /// process, or the comparison takes too long (B-SHARE-01).
    async fn compared(&self, until: Instant) {
        let comparisons = self.compared_servers().into_iter();
        join_all(comparisons.map(async |(server, since)| {
            let until = until.min(since + self.comparison_wait());
            let _ = timeout_at(until, server.parts.separation.settled()).await;
        }))
        .await;
    }

    /// The servers whose lists are compared, and whose outcome can concern this client, since when.
    fn compared_servers(&self) -> Vec<(Arc<Server>, Instant)> {
        let lists = matches!(self.need, ListNeed::All | ListNeed::Missing);
        let waits = !self.context.settings.load().first_list_wait.is_zero();
        if !lists || !waits || self.caller.profile.covers_all() {
            return Vec::new();
        }
        let (servers, now) = (self.context.downstreams.all(), Instant::now());
        let compared = servers.values().filter_map(|server| {
            let since = server.parts.separation.comparing_since()?;
            let is_awaited = since + self.comparison_wait() > now;
            let is_seen = || {
                let names = &server.settings().names;
                let shown = self.context.names_of(server, names, &self.caller.view);
                shown.is_some()
            };
            (is_awaited && is_seen()).then(|| (server.clone(), since))
        });
        compared.collect()
    }

    /// Completes when every server was listed once or timed out. For a view of a single server,
    /// completes as soon as that server was listed.
    async fn first_listing(&self) {
        let (context, caller) = (&self.context, &self.caller);
        let mut catalog = context.catalog.clone();
        let server = match &caller.view {
            ViewId::Server(name) => context.downstreams.get(name),
            ViewId::Default | ViewId::Named(_) => None,
        };
        let Some(server) = server else {
            return catalog.wait_listed().await;
        };
        let key = server.list_key_for(caller);
        tokio::select! {
            () = context.catalog.wait_live(server.name(), &key) => {}
            () = catalog.wait_listed() => {}
        }
    }

    /// Completes when clients see the announced change of a list, or the wait timed out.
    async fn shown(&self, list: &ChangedList) {
        let ChangedList {
            server,
            key,
            kind,
            announced,
        } = list;
        let change = (*kind, *announced);
        let shown = async {
            self.relist(server, key, *kind).await;
            let shown = self.context.catalog.wait_read(server, key, change);
            shown.await
        };
        // Even after a timeout, the next request must not wait for this change again.
        let _ = timeout(CHANGES_WAIT_MAX, shown).await;
        let changes = self.context.downstreams.list_changes();
        changes.shown(server, key, change);
    }

    /// Opens the client's idle session at the server, and requests that it read a list again.
    async fn relist(&self, server: &ServerName, key: &ConnectionKey, kind: ItemKind) {
        let downstreams = &self.context.downstreams;
        let Some(server) = downstreams.get(server).filter(|_| !key.is_shared()) else {
            return;
        };
        if server.find(key).is_none() && server.relist(&self.caller, kind).is_some() {
            let (name, session) = (server.name().clone(), self.caller.session);
            let opening = downstreams.open(name, key.clone(), self.arbiter, session);
            if let Ok(child) = opening.await
                && child
                    .wait_up(Instant::now() + CHANGES_WAIT_MAX)
                    .await
                    .is_ok()
            {
                server.relist(&self.caller, kind);
            }
        }
    }

    /// Returns the reason for the wait, as shown to the client.
    pub(crate) fn reason(&self) -> String {
        let catalog = &self.context.catalog;
        if !catalog.is_listed() {
            let missing = catalog.missing();
            return format!("waiting for the first start of servers: {missing}");
        }
        let compared = self
            .compared_servers()
            .into_iter()
            .map(|(server, _)| server);
        let awaited = self.awaited().into_iter().map(|list| list.server);
        let servers: Vec<_> = compared.chain(awaited).collect();
        let servers: Vec<_> = servers.iter().map(|it| it.name().as_str()).collect();
        format!("reading the lists of servers: {}", servers.join(", "))
    }

    fn awaited(&self) -> Vec<AwaitedList> {
        let (servers, settings) = (self.context.downstreams.all(), self.context.settings.load());
        if self.need == ListNeed::Any {
            return Vec::new();
        }
        // Such a client waits for no other list than the one without capabilities.
        let is_plain = self.caller.profile.is_plain() && !settings.has_user_credentials;
        let sees_shared = |server: &Server| {
            let is_apart = server.parts.separation.is_plain_apart();
            self.need == ListNeed::All && is_plain && !is_apart
        };
        if settings.first_list_wait.is_zero() || servers.values().all(|server| sees_shared(server))
        {
            return Vec::new();
        }
        let (known_lists, now) = (self.context.catalog.known_lists(), Instant::now());
        let awaited = servers.values().filter_map(|server| {
            if sees_shared(server) {
                return None;
            }
            let limits = server.settings();
            let is_seen = match &self.need {
                ListNeed::Item(name) => self.context.may_be_item_of(name, server, &self.caller),
                _ => self
                    .context
                    .names_of(server, &limits.names, &self.caller.view)
                    .is_some(),
            };
            if !is_seen {
                return None;
            }
            let key = server.list_key_for(&self.caller);
            let list = ServerList {
                known: known_lists.of(server.name(), &key),
                is_own: !key.is_shared(),
                fresh_for: limits.limits.refresh_every,
            };
            let source = || list_source(server, &key);
            let is_awaited = is_needed(&self.need, list, now)
                && !server.is_halted()
                && is_coming(&self.need, source(), settings.first_list_wait_max, now);
            is_awaited.then(|| AwaitedList {
                server: server.clone(),
                key,
            })
        });
        awaited.collect()
    }

    /// Completes when the list was read or its connection failed.
    async fn read(&self, AwaitedList { server, key }: AwaitedList) {
        let _in_use = key.is_shared().then(|| server.enter());
        if server.find(&key).is_none() {
            let (name, session) = (server.name().clone(), self.caller.session);
            let downstreams = &self.context.downstreams;
            // The call that needs the connection reports why opening it failed.
            drop(
                downstreams
                    .open(name, key.clone(), self.arbiter, session)
                    .await,
            );
        }
        let Some(child) = server.find(&key) else {
            return;
        };
        let credential = server.user_credential(&key);
        credential.as_ref().inspect(|it| it.look_again());
        let mut changes = child.subscribe();
        if child.phase() == ChildPhase::Idle {
            child.wake();
        }
        let failed = changes.wait_for(|snapshot| {
            let phase = snapshot.status.phase();
            !matches!(
                phase,
                ChildPhase::Idle | ChildPhase::Waiting | ChildPhase::Starting | ChildPhase::Up
            )
        });
        tokio::select! {
            _ = failed => {}
            // The server cannot be listed before its user has signed in.
            () = consent::needed(credential.as_ref()) => {}
            () = self.context.catalog.wait_live(server.name(), &key) => {}
        }
    }
}

/// Returns the lists of the requested kind with announced changes that this client does not see
/// yet.
fn changed_lists(context: &CallContext, request: &Request, caller: &Caller) -> Vec<ChangedList> {
    let changes = context.downstreams.list_changes();
    let Some(kind) = ItemKind::listed_by(&request.method) else {
        return Vec::new();
    };
    let servers = context.downstreams.all();
    for server in servers.values() {
        if let Some(key) = server.relist(caller, kind) {
            changes.announce(server.name(), &key, &[kind]);
        }
    }
    if changes.are_shown() {
        return Vec::new();
    }
    let shown = servers
        .values()
        .filter(|server| context.shows(server, caller));
    let changed = shown.flat_map(|server| {
        let own = server.list_key_for(caller);
        let shared = (!own.is_shared()).then(ConnectionKey::shared);
        let keys = shared.into_iter().chain([own]);
        keys.filter_map(|key| {
            Some(ChangedList {
                announced: changes.announced(server.name(), &key, kind)?,
                server: server.name().clone(),
                key,
                kind,
            })
        })
    });
    changed.collect()
}

/// Returns the lists that a request needs before it is answered; `None` if it needs none.
fn need_of(context: &CallContext, request: &Request, caller: &Caller) -> Option<ListNeed> {
    let catalog = &context.catalog;
    let is_missing = || match &caller.view {
        ViewId::Server(name) => catalog.of(caller).part(name).is_none(),
        ViewId::Default | ViewId::Named(_) => false,
    };
    match &request.method {
        // The answer contains the identity of the view's only server.
        Method::Initialize | Method::Discover if is_missing() => Some(ListNeed::Missing),
        Method::Discover | Method::Listen => Some(ListNeed::Any),
        Method::Ping | Method::Initialize | Method::LoggingSetLevel => None,
        Method::ToolsCall | Method::PromptsGet => {
            let name = request.name()?;
            if let Some(need) = need_of_static_tool(context, request, caller) {
                return need;
            }
            let kind = match request.method {
                Method::ToolsCall => ItemKind::Tools,
                _ => ItemKind::Prompts,
            };
            let is_listed = |snapshot: &Snapshot| snapshot.knows(kind, &name);
            let is_shared = caller.view == ViewId::Default && is_listed(&catalog.snapshot());
            let is_known = is_shared || catalog.own(caller).is_some_and(|own| is_listed(&own));
            (!is_known).then(|| ListNeed::Item(name.into_owned()))
        }
        // Static tools do not depend on any server.
        Method::ToolsList if catalog.exposure(caller) != Exposure::All => None,
        method if ItemKind::listed_by(method).is_some() => Some(match is_missing() {
            true => ListNeed::Missing,
            false => ListNeed::All,
        }),
        _ if catalog.is_listed() && !catalog.is_missing_any() => None,
        _ => call_target::target(request, &catalog.of(caller), None)
            .is_err()
            .then_some(ListNeed::Missing),
    }
}

/// Returns the lists that a call of a static tool needs; `None` for other requests, `Some(None)` if
/// the call needs no list.
fn need_of_static_tool(
    context: &CallContext,
    request: &Request,
    caller: &Caller,
) -> Option<Option<ListNeed>> {
    let exposure = context.catalog.exposure(caller);
    if exposure == Exposure::All {
        return None;
    }
    exposure.tool(&request.name()?)?;
    let catalog = context.catalog.of(caller);
    let Some(called) = discovery::called_name(request, &catalog) else {
        return Some(Some(ListNeed::All));
    };
    let is_known = catalog.knows(ItemKind::Tools, &called);
    Some((!is_known).then_some(ListNeed::Item(called)))
}

/// Returns the connection from which a list is read, with its phase.
fn list_source(server: &Server, key: &ConnectionKey) -> ListSource {
    match server.find(key) {
        Some(child) => {
            let snapshot = child.snapshot();
            ListSource::Open(snapshot.status.phase(), snapshot.since)
        }
        // The shared connection's phase says nothing about a connection with a user's credentials.
        None if key.credentials.user().is_some() => {
            ListSource::Open(ChildPhase::Idle, Instant::now())
        }
        None => ListSource::Unopened {
            shared: server.shared().phase(),
            was_listed: server.was_listed(),
        },
    }
}
