//! `/ui/search`: finds pages, servers, tools, sessions, calls, settings and actions by their words.
//! The dialog of the script shows the same results.

use maud::{Markup, html};

use super::sessions::client;
use super::tools::link as tool_link;
use crate::admin::config_order::{ConfigText, EntryOrder};
use crate::admin::history::history_page;
use crate::admin::status::ServerStatus;
use crate::admin::ui::page::{Page, Section, View};
use crate::admin::ui::parts::Button;
use crate::admin::ui::{frame, parts, text};
use crate::id::ViewId;
use crate::sessions::SessionList;

/// Maximum results of each kind.
const FOUND_MAX: usize = 6;

/// Maximum sessions whose client is compared with the words: each is asked for its state.
const SESSIONS_MAX: usize = 50;

/// Actions on a server: the last part of the path, the words, and whether it asks first.
const ACTIONS: [(&str, &str, bool); 4] = [
    ("restart", "Restart", false),
    ("start", "Start", false),
    ("stop", "Stop", true),
    ("reset", "Resume traffic to", false),
];

/// The words that a result must contain, in lower case.
struct Words(Vec<String>);

impl Words {
    fn fit(&self, text: &str) -> bool {
        let text = text.to_lowercase();
        self.0.iter().all(|word| text.contains(word))
    }
}

pub(super) async fn page(view: &View<'_>) -> Page {
    let asked = view.query("text").unwrap_or_default().to_lowercase();
    let words = Words(asked.split_whitespace().map(str::to_owned).collect());
    let found = match words.0.is_empty() {
        true => Vec::new(),
        false => found(view, &words).await,
    };
    let is_none = found.iter().all(|(_, rows)| rows.is_empty());
    Page::new(Section::None, "Search").fixed(html! {
        (parts::heading("Search", None))
        form .filters method="get" action="/ui/search" {
            (parts::search("Servers, tools, sessions, calls, settings and actions", view))
            div .submit { button .primary type="submit" { "Search" } }
        }
        div #found {
            @for (kind, rows) in &found {
                @if !rows.is_empty() {
                    section aria-label=(kind) {
                        h2 { (kind) }
                        ul .rows.card { @for row in rows { li { (row) } } }
                    }
                }
            }
            @if is_none && !words.0.is_empty() {
                (parts::empty("Nothing found", html! { "Every word has to match." }))
            }
        }
    })
}

async fn found(view: &View<'_>, words: &Words) -> Vec<(&'static str, Vec<Markup>)> {
    let servers = view.operator.status().servers;
    vec![
        ("Pages", pages(words)),
        ("Servers", servers_found(&servers, words)),
        ("Actions", actions(&servers, words)),
        ("Tools", tools(view, words)),
        ("Sessions", sessions(view, words).await),
        ("Calls", calls(view).await),
        ("Settings", settings(view, words).await),
    ]
}

fn row(icon: &str, path: &str, name: &str, hint: Markup) -> Markup {
    html! {
        a .row href=(path) { (parts::icon(icon)) span { (text::line(name)) } span .hint { (hint) } }
    }
}

fn pages(words: &Words) -> Vec<Markup> {
    let all = frame::pages().chain([
        ("/ui/servers/new", "Add a server"),
        ("/ui/tree", "Supervision tree"),
        ("/ui/pins", "Changed tools"),
    ]);
    let fits = all.filter(|(_, name)| words.fit(name));
    let rows = fits.map(|(path, name)| row("go", path, name, html! {}));
    rows.take(FOUND_MAX).collect()
}

fn servers_found(servers: &[ServerStatus], words: &Words) -> Vec<Markup> {
    let fits = servers.iter().filter(|server| words.fit(&server.name));
    let shown = |server: &ServerStatus| {
        let path = format!("/ui/servers/{}", server.name);
        row("servers", &path, &server.name, parts::state(server))
    };
    fits.map(shown).take(FOUND_MAX).collect()
}

fn actions(servers: &[ServerStatus], words: &Words) -> Vec<Markup> {
    let all = servers.iter().flat_map(|server| {
        ACTIONS
            .iter()
            .map(move |(verb, name, asks)| (server, *verb, *name, *asks))
    });
    let fits = all.filter(|(server, verb, name, _)| {
        let is_open = || server.open_breakers().next().is_some();
        let is_possible = match server.state.as_str() {
            "disabled" | "misconfigured" => false,
            "stopped" => *verb == "start",
            _ => *verb != "start" && (*verb != "reset" || is_open()),
        };
        is_possible && words.fit(&format!("{name} {}", server.name))
    });
    let shown = |(server, verb, name, asks): (&ServerStatus, &str, &str, bool)| {
        let label = format!("{name} {}", server.name);
        let to = format!("/ui/servers/{}/{verb}", server.name);
        let button = Button::new(&to, &label);
        if asks { button.asks() } else { button }.show()
    };
    fits.map(shown).take(FOUND_MAX).collect()
}

fn tools(view: &View<'_>, words: &Words) -> Vec<Markup> {
    let all = view.operator.state.tools(&ViewId::Default);
    let fits = all.iter().filter(|tool| words.fit(&tool.name));
    let shown = fits.map(|tool| {
        let path = tool_link(&ViewId::Default, &tool.name);
        row("tools", &path, &tool.name, text::line(&tool.server))
    });
    shown.take(FOUND_MAX).collect()
}

async fn sessions(view: &View<'_>, words: &Words) -> Vec<Markup> {
    let list = SessionList::of(&view.operator.state.sessions);
    let (_, mut all) = list.page(0, SESSIONS_MAX).await;
    if let [handle] = &words.0[..] {
        all.extend(list.find(handle).await);
    }
    let fits = all.iter().filter(|session| {
        let name = session.client.name.as_deref().unwrap_or_default();
        words.fit(&format!("{name} {}", session.handle))
    });
    let shown = fits.map(|session| {
        let path = format!("/ui/sessions/{}", session.handle);
        html! {
            a .row href=(path) {
                (parts::icon("sessions")) span { (client(session)) }
                span .hint.mono { (session.handle) }
            }
        }
    });
    shown.take(FOUND_MAX).collect()
}

async fn calls(view: &View<'_>) -> Vec<Markup> {
    let text = view.query("text").unwrap_or_default().trim();
    let (limit, history) = (FOUND_MAX.to_string(), &view.operator.state.history);
    // The page of calls shows why the history cannot be read.
    let found = history_page(history, [("text", text), ("limit", &limit)]).await;
    let entries = found.map(|page| page.entries).unwrap_or_default();
    let shown = entries.iter().map(|call| {
        let path = format!("/ui/calls/{}", call.id);
        row("calls", &path, call.title(), text::moment(call.timestamp))
    });
    shown.collect()
}

/// Keys of the configuration, whose secrets are masked.
async fn settings(view: &View<'_>, words: &Words) -> Vec<Markup> {
    let orders = &view.operator.config_orders;
    let answer = orders.ask(EntryOrder::Text, None).await;
    let text = answer.and_then(|it| it.read::<ConfigText>());
    let text = text.unwrap_or_default().text;
    let (mut section, mut found) = ("", Vec::new());
    for line in text.lines() {
        if let Some(name) = line.strip_prefix('[') {
            section = name.trim_matches(['[', ']']);
        } else if let Some((key, value)) = line.split_once(" = ") {
            let path = match section {
                "" => key.to_owned(),
                section => format!("{section}.{key}"),
            };
            if words.fit(&format!("{path} {value}")) {
                let value = html! { code { (text::line(value)) } };
                found.push(row("config", "/ui/config", &path, value));
            }
        }
    }
    found.truncate(FOUND_MAX);
    found
}
