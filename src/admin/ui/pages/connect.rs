//! `/ui/connect`: how to connect clients to this gateway.

use maud::html;

use crate::admin::ui::page::{Page, Section, View};
use crate::admin::ui::{parts, text};
use crate::id::ViewId;
use crate::protocol::Failure;

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

/// # Errors
///
/// Returns an error when no such view exists.
pub(super) fn page(view: &View<'_>) -> Result<Page, Failure> {
    let of = view.queried_view()?;
    let url = view.address(&of);
    let name = match &of {
        ViewId::Default => "mcpvisor",
        ViewId::Named(name) => name,
        ViewId::Server(server) => server.as_str(),
    };
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
