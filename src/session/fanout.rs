//! What servers say outside of calls, brought to the sessions that it concerns; and the catalog
//! that is merged from their lists.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use actix::{Actor, AsyncContext, Context, Handler, Message};
use arc_swap::{ArcSwap, ArcSwapOption};
use serde::Deserialize;
use tokio::sync::watch;

use super::actor::log_level;
use super::freshness::{Freshness, Stale};
use super::kept::PartKeeper;
use super::message::Notice;
use super::sessions::Sessions;
use super::tasks;
use super::tree::own_part;
use super::view::{CatalogView, OwnViews};
use crate::catalog::{self, CatalogSettings, NameSettings, ServerPart, Snapshot};
use crate::downstream::{Delivered, Delivery, EntryKey, EntryOwner, FromServer, News, Watched};
use crate::id::ServerName;
use crate::protocol::{Edit, Method, Notification, RawJson, splice};
use crate::telemetry::{Counter, Counters};

/// Lists that arrive within this time are merged once.
const MERGE_DEBOUNCE: Duration = Duration::from_millis(10);

/// Merges the catalog and carries news of servers to sessions.
pub struct Fanout {
    sessions: Option<Sessions>,
    snapshot: Arc<ArcSwap<Snapshot>>,
    listed: watch::Sender<bool>,
    arrangement: Arrange,
    parts: HashMap<ServerName, Arc<ServerPart>>,
    /// Lists of connections that do not belong to everybody, where they differ from the shared.
    own_parts: HashMap<(ServerName, EntryKey), Arc<ServerPart>>,
    own_views: Arc<ArcSwap<OwnViews>>,
    merge_due: bool,
    /// What the process before this one showed last.
    at_start: Arc<OnceLock<Arc<Snapshot>>>,
    keeper: Option<PartKeeper>,
    freshness: Freshness,
    /// What lists say of their age.
    stale: Arc<ArcSwapOption<Stale>>,
    counters: Counters,
}

/// The servers in config order, with their names; those that are missing are gone.
#[derive(Message, Clone, Default)]
#[rtype(result = "()")]
pub struct Arrange {
    pub servers: Vec<(ServerName, NameSettings)>,
    pub catalog: CatalogSettings,
    /// How long the first list waits for servers that were never listed.
    pub first_list_wait: Duration,
}

/// What identifies the configuration of each server, for those parts that are kept.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Identify(pub BTreeMap<ServerName, String>);

/// The sessions to carry news to; given once they exist.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Attach(pub Sessions);

impl Fanout {
    pub fn new(counters: Counters) -> (Self, CatalogView) {
        let empty = catalog::merge(&[], &CatalogSettings::default());
        let snapshot = Arc::new(ArcSwap::from_pointee(empty));
        let (listed, on_listed) = watch::channel(false);
        let own_views = Arc::<ArcSwap<OwnViews>>::default();
        let at_start = Arc::<OnceLock<Arc<Snapshot>>>::default();
        let stale = Arc::<ArcSwapOption<Stale>>::default();
        let view = CatalogView::new(
            snapshot.clone(),
            on_listed,
            own_views.clone(),
            at_start.clone(),
            stale.clone(),
        );
        let fanout = Self {
            sessions: None,
            snapshot,
            listed,
            arrangement: Arrange::default(),
            parts: HashMap::new(),
            own_parts: HashMap::new(),
            own_views,
            merge_due: false,
            at_start,
            keeper: None,
            freshness: Freshness::default(),
            stale,
            counters,
        };
        (fanout, view)
    }

    /// Shows what the process before this one listed last, until servers are listed again, and
    /// keeps what they list. Each part comes with the time at which it was listed, in milliseconds
    /// since 1970. Called before the actor is started.
    pub fn restore(
        &mut self,
        arrangement: Arrange,
        parts: Vec<(Arc<ServerPart>, u64)>,
        keeper: PartKeeper,
    ) {
        for (part, listed_at) in &parts {
            self.freshness.stored(part.server(), *listed_at);
        }
        self.arrangement = arrangement;
        self.arrange_freshness();
        let named = parts
            .into_iter()
            .map(|(part, _)| (part.server().clone(), part));
        self.parts = named.collect();
        self.keeper = Some(keeper);
        self.merge();
        // Nobody restores twice.
        let _ = self.at_start.set(self.snapshot.load_full());
    }

    fn on_listed(
        &mut self,
        server: ServerName,
        key: EntryKey,
        part: Arc<ServerPart>,
        ctx: &mut Context<Self>,
    ) {
        let known = self
            .arrangement
            .servers
            .iter()
            .any(|(name, _)| *name == server);
        if !known {
            return;
        }
        let changed = if key.is_shared() {
            let before = self.parts.insert(server, part.clone());
            let changed = before.is_none_or(|before| *before != *part);
            if let Some(keeper) = &mut self.keeper {
                keeper.keep(&part, changed);
            }
            let now = self.keeper.as_ref().map(PartKeeper::now);
            self.freshness.listed(part.server(), now);
            self.publish_freshness();
            changed
        } else {
            let same = self
                .parts
                .get(&server)
                .is_some_and(|shared| **shared == *part);
            let before = if same {
                self.own_parts.remove(&(server, key))
            } else {
                let mut known = self.own_parts.values();
                let known = known
                    .find(|known| ***known == *part)
                    .unwrap_or(&part)
                    .clone();
                self.own_parts.insert((server, key), known)
            };
            match before {
                Some(before) => same || *before != *part,
                None => !same,
            }
        };
        if changed {
            self.merge_soon(ctx);
        } else {
            self.check_listed();
        }
    }

    fn arrange_freshness(&mut self) {
        let servers = self.arrangement.servers.iter().map(|(name, _)| name);
        self.freshness.arrange(servers);
        self.publish_freshness();
    }

    fn publish_freshness(&self) {
        self.stale.store(self.freshness.stale().map(Arc::new));
    }

    fn merge_soon(&mut self, ctx: &mut Context<Self>) {
        if !self.merge_due {
            self.merge_due = true;
            ctx.run_later(MERGE_DEBOUNCE, |fanout, _| {
                fanout.merge_due = false;
                fanout.merge();
            });
        }
    }

    fn merge(&mut self) {
        let merged = self.merged(&self.parts_of(&EntryOwner::Shared));
        let before = self.snapshot.swap(merged.clone());
        let changes = merged.changes_since(&before);
        self.check_listed();
        let Some(sessions) = &self.sessions else {
            return;
        };
        if changes.any() {
            self.counters.add(Counter::CatalogChanged);
            sessions.tell_all(&Notice::ListsChanged(changes));
        }
        self.publish_own_views();
    }

    /// Those whose own connections list something else see a catalog of their own.
    fn publish_own_views(&self) {
        let mut views = OwnViews::new();
        let mut merged: HashMap<Vec<*const ServerPart>, Arc<Snapshot>> = HashMap::new();
        for (_, key) in self.own_parts.keys() {
            let owner = key.owner.viewer();
            let parts = self.parts_of(&owner);
            // Many sessions see the same parts: they share what is merged from them.
            let same = parts.iter().map(|(part, _)| Arc::as_ptr(part)).collect();
            let view = merged.entry(same).or_insert_with(|| self.merged(&parts));
            views.insert(owner, view.clone());
        }
        let before = self.own_views.swap(Arc::new(views));
        let Some(sessions) = &self.sessions else {
            return;
        };
        if !before.is_empty() || !self.own_parts.is_empty() {
            sessions.tell_all(&Notice::OwnViewsChanged);
        }
    }

    /// The parts that the sessions of this owner see: of its own connections, of those of its
    /// audience, and of the shared ones, in this order.
    fn parts_of(&self, owner: &EntryOwner) -> Vec<(Arc<ServerPart>, NameSettings)> {
        let audience = owner.audience().cloned().map(EntryOwner::Audience);
        let of = |name: &ServerName, owner: &EntryOwner| {
            let mut own = self.own_parts.iter();
            let found =
                own.find(|((server, key), _)| server == name && key.owner.viewer() == *owner);
            found.map(|(_, part)| part)
        };
        let parts = self.arrangement.servers.iter().filter_map(|(name, names)| {
            let of_audience = || audience.as_ref().and_then(|audience| of(name, audience));
            let part = of(name, owner)
                .or_else(of_audience)
                .or_else(|| self.parts.get(name))?;
            Some((part.clone(), names.clone()))
        });
        parts.collect()
    }

    fn merged(&self, parts: &[(Arc<ServerPart>, NameSettings)]) -> Arc<Snapshot> {
        let settings = &self.arrangement.catalog;
        if !settings.tree_resource {
            return Arc::new(catalog::merge(parts, settings));
        }
        let parts: Vec<_> = parts.iter().cloned().chain(own_part()).collect();
        Arc::new(catalog::merge(&parts, settings))
    }

    fn check_listed(&self) {
        let all = self
            .arrangement
            .servers
            .iter()
            .all(|(name, _)| self.parts.contains_key(name));
        if all && !self.merge_due {
            self.listed.send_replace(true);
        }
    }

    fn on_resource_updated(
        &self,
        server: &ServerName,
        key: &EntryKey,
        notification: &Notification,
    ) {
        let Some(sessions) = &self.sessions else {
            return;
        };
        let Some(native) = notification.uri() else {
            return;
        };
        let snapshot = self.snapshot.load();
        let Some(span) = notification.params.uri.clone() else {
            return;
        };
        let public = snapshot.public_uri(server, &native);
        let edit: Edit = (span, RawJson::from_value(&public).as_bytes().clone());
        let frame = splice(notification.frame.as_bytes(), &mut [edit]);
        for (watched, session) in sessions.watchers(&Watched::new(server, key, &native)) {
            let uri = snapshot.public_uri(server, &watched).into_owned();
            let frame = frame.clone();
            sessions.tell(session, Notice::ResourceUpdated { uri, frame });
        }
    }

    /// A log line of no call: to the session that the connection belongs to, or to
    /// those who share it.
    fn on_log(&self, key: &EntryKey, notification: &Notification) {
        let level = log_level(notification);
        let frame = notification.frame.as_bytes().clone();
        let audience = key.owner.audience().cloned();
        let notice = Notice::Log {
            level,
            audience,
            frame,
        };
        self.tell(key, &notice);
    }

    /// The state of a task: to those who asked to hear of it, which is once more if it has ended.
    fn on_task(&self, server: ServerName, key: &EntryKey, notification: &Notification) {
        let (Some(sessions), Some((task, state))) = (&self.sessions, tasks::state_of(notification))
        else {
            return;
        };
        let watched = Watched::new(&server, key, &task.id);
        for listener in sessions.task_watchers(&watched, task.status.is_terminal()) {
            let notice = Notice::Task {
                server: server.clone(),
                native: task.id.clone(),
                state: state.clone(),
            };
            sessions.tell(listener, notice);
        }
    }

    fn on_other(&self, key: &EntryKey, notification: &Notification) {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct CompleteParams {
            elicitation_id: String,
        }
        if notification.method != Method::ElicitationComplete {
            log::debug!(method = notification.method.as_str(); "notification that no client understands");
            return;
        }
        if let Ok(params) = notification.params_as::<CompleteParams>() {
            let frame = notification.frame.as_bytes().clone();
            self.tell(
                key,
                &Notice::ElicitationComplete {
                    id: params.elicitation_id,
                    frame,
                },
            );
        }
    }

    fn tell(&self, key: &EntryKey, notice: &Notice) {
        let Some(sessions) = &self.sessions else {
            return;
        };
        match key.session() {
            Some(session) => sessions.tell(session, notice.clone()),
            None => sessions.tell_all(notice),
        }
    }
}

impl Actor for Fanout {
    type Context = Context<Self>;
}

impl Handler<Attach> for Fanout {
    type Result = ();

    fn handle(&mut self, attach: Attach, _: &mut Self::Context) {
        self.sessions = Some(attach.0);
    }
}

impl Handler<Identify> for Fanout {
    type Result = ();

    fn handle(&mut self, Identify(identities): Identify, _: &mut Self::Context) {
        if let Some(keeper) = &mut self.keeper {
            keeper.configure(identities);
        }
    }
}

impl Handler<Arrange> for Fanout {
    type Result = ();

    fn handle(&mut self, arrangement: Arrange, ctx: &mut Self::Context) {
        let wait = arrangement.first_list_wait;
        self.arrangement = arrangement;
        let known = |name: &ServerName| self.arrangement.servers.iter().any(|(n, _)| n == name);
        self.parts.retain(|name, _| known(name));
        self.own_parts.retain(|(name, _), _| known(name));
        self.arrange_freshness();
        self.merge_soon(ctx);
        if !*self.listed.borrow() {
            ctx.run_later(wait, |fanout, _| {
                fanout.listed.send_replace(true);
            });
        }
    }
}

impl Handler<FromServer> for Fanout {
    type Result = ();

    fn handle(&mut self, message: FromServer, ctx: &mut Self::Context) {
        let FromServer { server, key, news } = message;
        match news {
            News::Listed(part) => self.on_listed(server, key, part, ctx),
            News::ResourceUpdated(notification) => {
                self.on_resource_updated(&server, &key, &notification);
            }
            News::Log(notification) => self.on_log(&key, &notification),
            News::Task(notification) => self.on_task(server, &key, &notification),
            News::Question(question) => {
                let session = match (&key.owner, &self.sessions) {
                    (EntryOwner::Session(id, _), Some(sessions)) => sessions.address(*id),
                    _ => None,
                };
                // Dropped, the question is answered for want of a client.
                if let Some(session) = session {
                    let what = Delivered::Question(question);
                    session.do_send(Delivery { number: 0, what });
                }
            }
            News::Away => {
                if key.is_shared() {
                    self.freshness.away(&server);
                    self.publish_freshness();
                }
            }
            News::Closed => {
                if self.own_parts.remove(&(server, key)).is_some() {
                    self.merge_soon(ctx);
                }
            }
            News::Other(notification) => self.on_other(&key, &notification),
        }
    }
}
