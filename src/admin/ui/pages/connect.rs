//! `/ui/connect`: how to connect clients to this gateway.

use maud::{Markup, html};
use serde::Deserialize;

use crate::admin::ui::page::{FormOutcome, Page, Section, View};
use crate::admin::ui::parts::Button;
use crate::admin::ui::{parts, text};
use crate::id::ViewId;
use crate::protocol::{ErrorKind, Failure};

/// A client on the gateway's machine, as `mcpvisor clients --json` prints it.
#[derive(Default, Deserialize)]
#[serde(default)]
struct FoundClient {
    client: String,
    title: String,
    file: String,
    exists: bool,
    connected: bool,
    fault: Option<String>,
    problem: Option<String>,
}

/// Setup texts for a client. `$URL` is replaced by the endpoint, `$NAME` by the gateway's name in
/// the client.
struct Snippet {
    title: &'static str,
    place: &'static str,
    text: &'static str,
}

const SNIPPETS: [Snippet; 8] = [
    Snippet {
        title: "Claude Code",
        place: "In a terminal",
        text: "claude mcp add --transport http $NAME $URL",
    },
    Snippet {
        title: "Cursor",
        place: "~/.cursor/mcp.json",
        text: r#"{ "mcpServers": { "$NAME": { "url": "$URL" } } }"#,
    },
    Snippet {
        title: "VS Code",
        place: ".vscode/mcp.json",
        text: r#"{ "servers": { "$NAME": { "type": "http", "url": "$URL" } } }"#,
    },
    Snippet {
        title: "Claude Desktop",
        place: "claude_desktop_config.json, with the full path of mcpvisor",
        text: r#"{
  "mcpServers": {
    "$NAME": { "command": "mcpvisor", "args": ["stdio", "--connect", "$URL"] }
  }
}"#,
    },
    Snippet {
        title: "Codex",
        place: "~/.codex/config.toml",
        text: "[mcp_servers.$NAME]\nurl = \"$URL\"",
    },
    Snippet {
        title: "Gemini CLI",
        place: "~/.gemini/settings.json",
        text: r#"{ "mcpServers": { "$NAME": { "httpUrl": "$URL" } } }"#,
    },
    Snippet {
        title: "Any other client",
        place: "mcp.json",
        text: r#"{ "mcpServers": { "$NAME": { "type": "http", "url": "$URL" } } }"#,
    },
    Snippet {
        title: "A client that supports only stdio",
        place: "Its command",
        text: "mcpvisor stdio --connect $URL",
    },
];

async fn run(view: &View<'_>, arguments: &[&str]) -> Result<String, String> {
    let arguments = arguments.iter().map(|&word| word.to_owned()).collect();
    let config = view.operator.state.config.load().path.clone();
    (view.operator.clients)(arguments, config).await
}

/// The clients on the gateway's machine that have a file, each with a button.
async fn found_clients(view: &View<'_>, of: &ViewId) -> Markup {
    let listed = run(view, &["--json"]).await.and_then(|text| {
        let clients = serde_json::from_str::<Vec<FoundClient>>(&text);
        clients.map_err(|error| error.to_string())
    });
    let clients = match listed {
        Ok(clients) => clients,
        Err(why) => {
            return html! { p .hint { "The clients of this machine are unknown: " (text::full_sentence(&why)) } };
        }
    };
    let place = Option::<String>::from(of.clone());
    let query = place.map_or_else(String::new, |place| format!("?view={place}"));
    let mut clients = clients.iter().filter(|client| client.exists).peekable();
    html! {
        @if clients.peek().is_some() {
            h2 { "Clients of the gateway's user on this machine" }
            ul .rows.card {
                @for client in clients {
                    li .row {
                        div .grow {
                            p { span .strong { (text::line(&client.title)) } " " @if client.connected { (parts::badge("good", "connected")) } }
                            p .why { (text::code(&client.file)) }
                            @for why in client.fault.iter().chain(&client.problem) { p .why { (text::full_sentence(why)) } }
                        }
                        @if client.connected {
                            (Button::new(&format!("/ui/connect/{}/disconnect{query}", client.client), "Disconnect").show())
                        } @else {
                            (Button::new(&format!("/ui/connect/{}/connect{query}", client.client), "Connect").show())
                        }
                    }
                }
            }
        }
    }
}

/// Connects or disconnects a client on the gateway's machine.
///
/// # Errors
///
/// Returns why its file was not changed.
pub(super) async fn act(
    view: &View<'_>,
    (client, verb): (&str, &str),
) -> Result<FormOutcome, Failure> {
    let of = Option::<String>::from(view.queried_view()?);
    let mut arguments = match verb {
        "connect" | "disconnect" => vec![verb, "--", client],
        _ => return Err(Failure::new(ErrorKind::NotFound, "page not found")),
    };
    if let (Some(of), "connect") = (&of, verb) {
        arguments.splice(1..1, ["--view", of.as_str()]);
    }
    let done = run(view, &arguments).await;
    let message = done.map_err(|why| Failure::new(ErrorKind::Conflict, why))?;
    let lines = message.lines().filter(|line| !line.starts_with("or open "));
    let words = lines.map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
    Ok(FormOutcome::Done {
        to: match of {
            Some(of) => format!("/ui/connect?view={of}"),
            None => "/ui/connect".to_owned(),
        },
        message: words.collect::<Vec<_>>().join("; "),
    })
}

/// # Errors
///
/// Returns an error when no such view exists.
pub(super) async fn page(view: &View<'_>) -> Result<Page, Failure> {
    let of = view.queried_view()?;
    let url = view.address(&of);
    let name = match &of {
        ViewId::Default => "mcpvisor",
        ViewId::Named(name) => name,
        ViewId::Server(server) => server.as_str(),
    };
    let found_clients = found_clients(view, &of).await;
    let elsewhere = html! { "and " a href="/ui/connect" { "all servers" } " at a different one:" };
    let page = Page::new(Section::Connect, "Connect").fixed(html! {
        (parts::heading("Connect a client", None))
        p {
            @match &of {
                ViewId::Default => "Clients reach all servers at one address:",
                ViewId::Named(_) => { "Clients reach the view " (text::code(name)) " at this address, " (elsewhere) }
                ViewId::Server(_) => { "Clients reach the server " (text::code(name)) " at this address, " (elsewhere) }
            }
        }
        (parts::snippet("address", &url))
        (found_clients)
        p .hint.after {
            code { "mcpvisor clients" } " lists the clients of its machine, and "
            code { "mcpvisor clients connect NAME" } " writes this for all servers. An address for some of them is a "
            a href="/ui/views" { "view" } "."
        }
        div .spread.after {
            @for (index, Snippet { title, place, text }) in SNIPPETS.iter().enumerate() {
                section .card.padded aria-labelledby=(format!("client-{index}")) {
                    h2 .title id=(format!("client-{index}")) { (title) }
                    p .hint { (place) }
                    (parts::snippet(&format!("snippet-{index}"), &text.replace("$NAME", name).replace("$URL", &url)))
                }
            }
        }
    });
    Ok(page)
}
