//! The views that clients use, and their merged catalogs, which are built on demand and cached for
//! each base catalog.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwap;
use parking_lot::Mutex;

use crate::auth::{AccessRequest, Annotations, AskedItem, GrantedScopes, Policies, Policy as _};
use crate::catalog::{
    CatalogSettings, Exposure, ItemKind, ItemOwner, NameSettings, PolicyItem, ResultSettings,
    Snapshot, ViewSettings, Wrap, merge_view,
};
use crate::downstream::Caller;
use crate::id::{Principal, ServerName, ViewId};
use crate::protocol::{Method, SKILLS_GET};

/// Maximum number of cached view catalogs: for each view, a shared one and some for clients that
/// see something different.
const MERGED_MAX: usize = 256;

/// The configured views, by name.
pub type NamedViews = BTreeMap<Arc<str>, ViewSettings>;

#[derive(Default)]
pub(super) struct Views {
    arranged: ArcSwap<ArrangedViews>,
    merged: Mutex<Vec<MergedView>>,
    permitted: Mutex<Vec<PermittedView>>,
    /// Whether any client has used a configured view.
    is_used: AtomicBool,
}

/// The servers and settings that views are built from.
#[derive(Default)]
pub(super) struct ArrangedViews {
    /// Servers in config order.
    pub(super) servers: Vec<(ServerName, NameSettings)>,
    pub(super) catalog: CatalogSettings,
    pub(super) named: NamedViews,
    pub(super) policies: Option<Arc<Policies>>,
}

struct MergedView {
    view: ViewId,
    base: Arc<Snapshot>,
    merged: Arc<Snapshot>,
}

/// The part of a catalog that a principal with the same scopes sees.
struct PermittedView {
    principal: Principal,
    scopes: GrantedScopes,
    view: ViewId,
    base: Arc<Snapshot>,
    policies: Arc<Policies>,
    permitted: Arc<Snapshot>,
}

impl Views {
    pub(super) fn arrange(&self, arranged: ArrangedViews) {
        if arranged.policies.is_some() {
            self.is_used.store(true, Ordering::Relaxed);
        }
        self.arranged.store(Arc::new(arranged));
        self.forget_merged();
    }

    /// Drops the cached catalogs, whose base is no longer shown.
    pub(super) fn forget_merged(&self) {
        self.merged.lock().clear();
        self.permitted.lock().clear();
    }

    /// Whether any policies restrict access.
    pub(super) fn has_policies(&self) -> bool {
        self.arranged.load().policies.is_some()
    }

    /// The part of its view's catalog `base` that a client may use.
    pub(super) fn permitted(&self, caller: &Caller, base: Arc<Snapshot>) -> Arc<Snapshot> {
        let arranged = self.arranged.load();
        let Some(policies) = &arranged.policies else {
            return base;
        };
        let is_it = |one: &&PermittedView| {
            one.principal == caller.principal
                && one.scopes == caller.scopes
                && one.view == caller.view
                && Arc::ptr_eq(&one.base, &base)
                && Arc::ptr_eq(&one.policies, policies)
        };
        if let Some(found) = self.permitted.lock().iter().find(is_it) {
            return found.permitted.clone();
        }
        // Runs without the lock, as above.
        let (principal, scopes) = (&caller.principal, &caller.scopes);
        let permits =
            |item: &PolicyItem<'_>| permits(policies, (principal, scopes), &caller.view, item);
        let permitted = Arc::new(base.permitted(permits));
        let mut kept = self.permitted.lock();
        if kept.len() >= MERGED_MAX {
            kept.remove(0);
        }
        kept.push(PermittedView {
            principal: caller.principal.clone(),
            scopes: caller.scopes.clone(),
            view: caller.view.clone(),
            base,
            policies: policies.clone(),
            permitted: permitted.clone(),
        });
        permitted
    }

    /// The catalog of a view, as a part of `base`. The catalog of an unknown view is empty.
    pub(super) fn catalog(&self, view: &ViewId, base: &Arc<Snapshot>) -> Arc<Snapshot> {
        if let Some(found) = self.find(view, base) {
            return found;
        }
        self.is_used.store(true, Ordering::Relaxed);
        let arranged = self.arranged.load();
        let (servers, settings) = (arranged.servers(view), arranged.catalog(view));
        // Runs without the lock, so that other look-ups do not wait.
        let merged = Arc::new(merge_view(base, &servers, &settings));
        let mut kept = self.merged.lock();
        if kept.len() >= MERGED_MAX {
            kept.remove(0);
        }
        kept.push(MergedView {
            view: view.clone(),
            base: base.clone(),
            merged: merged.clone(),
        });
        merged
    }

    fn find(&self, view: &ViewId, base: &Arc<Snapshot>) -> Option<Arc<Snapshot>> {
        let kept = self.merged.lock();
        let is_it = |one: &&MergedView| one.view == *view && Arc::ptr_eq(&one.base, base);
        kept.iter().find(is_it).map(|found| found.merged.clone())
    }

    pub(super) fn is_used(&self) -> bool {
        self.is_used.load(Ordering::Relaxed)
    }

    pub(super) fn exists(&self, view: &ViewId) -> bool {
        let arranged = self.arranged.load();
        match view {
            ViewId::Default => true,
            ViewId::Named(name) => arranged.named.contains_key(name),
            ViewId::Server(server) => arranged.servers.iter().any(|(name, _)| name == server),
        }
    }

    /// The endpoint of all servers, and the configured views by name, with their settings.
    pub(super) fn all(&self) -> Vec<(ViewId, ViewSettings)> {
        let arranged = self.arranged.load();
        let whole = ViewSettings {
            servers: Vec::new(),
            allow: arranged.catalog.allow.clone(),
            deny: arranged.catalog.deny.clone(),
            expose: arranged.catalog.expose,
            results: ResultSettings::default(),
            overrides: arranged.catalog.overrides.clone(),
        };
        let named = arranged.named.iter();
        let named = named.map(|(name, settings)| (ViewId::Named(name.clone()), settings.clone()));
        std::iter::once((ViewId::Default, whole))
            .chain(named)
            .collect()
    }

    /// The policies in force; `None` allows everything.
    pub(super) fn policies(&self) -> Option<Arc<Policies>> {
        self.arranged.load().policies.clone()
    }

    /// Number of tools in a view's catalog that policies permit to a principal with these scopes.
    pub(super) fn permitted_tools(
        &self,
        view: &ViewId,
        catalog: &Snapshot,
        client: (&Principal, &GrantedScopes),
    ) -> usize {
        let policies = self.policies();
        let is_permitted = |owner: &ItemOwner| {
            let native: String = owner.native.parse().unwrap_or_default();
            let item = PolicyItem {
                kind: ItemKind::Tools,
                server: &owner.server,
                native: &native,
                hints: owner.hints,
            };
            let mut policies = policies.iter();
            policies.all(|policies| permits(policies, client, view, &item))
        };
        let tools = catalog.tools();
        tools.filter(|(_, owner)| is_permitted(owner)).count()
    }

    /// The configured exposure of a view.
    pub(super) fn exposure(&self, view: &ViewId) -> Exposure {
        let arranged = self.arranged.load();
        match view {
            ViewId::Default => arranged.catalog.expose,
            ViewId::Named(name) => arranged
                .named
                .get(name)
                .map_or(Exposure::All, |it| it.expose),
            ViewId::Server(_) => Exposure::All,
        }
    }

    /// How results reach the clients of a view.
    pub(super) fn results(&self, view: &ViewId) -> ResultSettings {
        let ViewId::Named(name) = view else {
            return ResultSettings::default();
        };
        let arranged = self.arranged.load();
        let view = arranged.named.get(name);
        view.map(|view| view.results).unwrap_or_default()
    }

    /// A tool's public name without the view's overrides.
    pub(super) fn name_before<'n>(&self, view: &ViewId, name: &'n str) -> Cow<'n, str> {
        let arranged = self.arranged.load();
        let overrides = arranged.settings(view).map(|settings| &settings.overrides);
        let mut overrides = overrides.into_iter().flatten();
        let renamed = overrides.find(|(_, over)| over.name.as_deref() == Some(name));
        renamed.map_or(Cow::Borrowed(name), |(before, _)| {
            Cow::Owned(before.clone())
        })
    }

    /// How a server's items are named in a view; `None` if the view does not include it.
    pub(super) fn names_in(&self, view: &ViewId, server: &ServerName) -> Option<NameSettings> {
        self.arranged.load().names(view, server)
    }
}

/// Whether a principal with these scopes may use an item of a view in its intended way.
fn permits(
    policies: &Policies,
    (principal, scopes): (&Principal, &GrantedScopes),
    view: &ViewId,
    item: &PolicyItem<'_>,
) -> bool {
    // A skill is of use to clients that can read both its entry and its files.
    let methods = match item.kind {
        ItemKind::Tools => &[Method::ToolsCall][..],
        ItemKind::Prompts => &[Method::PromptsGet],
        ItemKind::Resources | ItemKind::ResourceTemplates => &[Method::ResourcesRead],
        ItemKind::Skills => &[Method::ResourcesRead, Method::parse(SKILLS_GET)],
    };
    let hints = item.hints;
    methods.iter().all(|method| {
        let asked = AccessRequest {
            principal,
            scopes,
            view,
            server: item.server,
            method,
            item: match item.kind {
                ItemKind::Tools | ItemKind::Prompts => AskedItem::Name(item.native),
                _ => AskedItem::Uri(item.native),
            },
            tool: None,
            annotations: Annotations {
                read_only: hints.read_only,
                destructive: hints.destructive,
                idempotent: hints.idempotent,
            },
            arguments: (*method != Method::ToolsCall).then_some(b"{}"),
        };
        policies.judge(&asked).is_ok()
    })
}

impl ArrangedViews {
    /// The servers of a view, in its order.
    fn servers(&self, view: &ViewId) -> Vec<(ServerName, NameSettings)> {
        let named = |server: &ServerName| Some((server.clone(), self.names(view, server)?));
        match self.settings(view) {
            Some(settings) if !settings.servers.is_empty() => {
                settings.servers.iter().filter_map(named).collect()
            }
            _ => {
                let all = self.servers.iter().map(|(name, _)| name);
                all.filter_map(named).collect()
            }
        }
    }

    fn names(&self, view: &ViewId, server: &ServerName) -> Option<NameSettings> {
        let (_, names) = self.servers.iter().find(|(name, _)| name == server)?;
        match view {
            ViewId::Default => Some(names.clone()),
            ViewId::Named(_) => {
                let wanted = &self.settings(view)?.servers;
                (wanted.is_empty() || wanted.contains(server)).then(|| names.clone())
            }
            ViewId::Server(shown) => (shown == server).then(|| NameSettings {
                prefix: Some(String::new()),
                wrap: Wrap::Never,
                ..names.clone()
            }),
        }
    }

    /// The catalog settings of a view.
    fn catalog(&self, view: &ViewId) -> CatalogSettings {
        let settings = self.settings(view).cloned().unwrap_or_default();
        let is_one_server = matches!(view, ViewId::Server(_));
        CatalogSettings {
            is_one_server,
            page_items: match is_one_server {
                true => usize::MAX,
                false => self.catalog.page_items,
            },
            // The gateway's state is not part of a view.
            tree_resource: false,
            allow: settings.allow,
            deny: settings.deny,
            expose: settings.expose,
            overrides: settings.overrides,
            ..self.catalog.clone()
        }
    }

    fn settings(&self, view: &ViewId) -> Option<&ViewSettings> {
        match view {
            ViewId::Named(name) => self.named.get(name),
            ViewId::Default | ViewId::Server(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::catalog::{IngestLimits, ServerPart, merge};
    use crate::protocol::RawJson;

    /// A server with the tools `read` and `write`.
    fn part(server: &str) -> (Arc<ServerPart>, NameSettings) {
        let tool = |name: &str| {
            let tool = format!(r#"{{"name":"{name}","inputSchema":{{"type":"object"}}}}"#);
            RawJson::try_new(Bytes::from(tool)).unwrap()
        };
        let part = ServerPart::new(ServerName::try_new(server).unwrap());
        let tools = ["read", "write"].map(tool);
        let part = part.with_list(ItemKind::Tools, &tools, &IngestLimits::default());
        (Arc::new(part), NameSettings::default())
    }

    #[test]
    fn a_view_shows_only_its_servers_and_tools() {
        let parts = [part("a"), part("b")];
        let base = Arc::new(merge(&parts, &CatalogSettings::default()));
        let view = |servers: &[&str], allow: &[&str], deny: &[&str]| ViewSettings {
            servers: servers
                .iter()
                .map(|name| ServerName::try_new(name).unwrap())
                .collect(),
            allow: allow.iter().map(|glob| (*glob).to_owned()).collect(),
            deny: deny.iter().map(|glob| (*glob).to_owned()).collect(),
            ..ViewSettings::default()
        };
        let named = [
            ("all", view(&[], &[], &[])),
            ("turned", view(&["b", "a"], &[], &[])),
            ("reads", view(&[], &["*__read"], &[])),
            ("safe", view(&["a"], &[], &["a__w*"])),
            ("gone", view(&["c"], &[], &[])),
        ];
        let views = Views::default();
        let servers = parts
            .iter()
            .map(|(part, names)| (part.server().clone(), names.clone()));
        views.arrange(ArrangedViews {
            servers: servers.collect(),
            catalog: CatalogSettings::default(),
            named: named.map(|(name, view)| (name.into(), view)).into(),
            policies: None,
        });
        let shown = |view: ViewId| {
            let catalog = views.catalog(&view, &base);
            let names: Vec<&str> = catalog.tools().map(|(name, _)| name).collect();
            names.join(" ")
        };
        let named = |name: &str| ViewId::Named(name.into());
        let of_server = |name: &str| ViewId::Server(ServerName::try_new(name).unwrap());
        let table = [
            (ViewId::Default, "a__read a__write b__read b__write"),
            (named("all"), "a__read a__write b__read b__write"),
            (named("turned"), "b__read b__write a__read a__write"),
            (named("reads"), "a__read b__read"),
            (named("safe"), "a__read"),
            (named("gone"), ""),
            (named("unknown"), ""),
            (of_server("b"), "read write"),
            (of_server("c"), ""),
        ];
        for (view, expected) in table {
            assert_eq!(shown(view.clone()), expected, "{view:?}");
        }
        let all: Vec<ViewId> = views.all().into_iter().map(|(view, _)| view).collect();
        let by_name = ["all", "gone", "reads", "safe", "turned"].map(named);
        assert_eq!(all, [&[ViewId::Default][..], &by_name].concat());
        let first = views.catalog(&named("all"), &base);
        assert!(Arc::ptr_eq(&first, &views.catalog(&named("all"), &base)));
        views.forget_merged();
        assert!(!Arc::ptr_eq(&first, &views.catalog(&named("all"), &base)));
        assert!(views.exists(&named("gone")) && !views.exists(&named("unknown")));
        assert!(views.exists(&of_server("a")) && !views.exists(&of_server("c")));
    }
}
