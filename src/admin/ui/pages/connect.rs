//! `/ui/connect`: how clients reach this gateway.

use maud::html;

use crate::admin::ui::page::{Page, Section, View};
use crate::admin::ui::parts;

/// Texts for a client; `URL` stands for the endpoint.
struct Snippet {
    title: &'static str,
    place: &'static str,
    text: &'static str,
}

const SNIPPETS: [Snippet; 8] = [
    Snippet {
        title: "Claude Code",
        place: "In a terminal",
        text: "claude mcp add --transport http mcpvisor URL",
    },
    Snippet {
        title: "Cursor",
        place: "~/.cursor/mcp.json",
        text: r#"{ "mcpServers": { "mcpvisor": { "url": "URL" } } }"#,
    },
    Snippet {
        title: "VS Code",
        place: ".vscode/mcp.json",
        text: r#"{ "servers": { "mcpvisor": { "type": "http", "url": "URL" } } }"#,
    },
    Snippet {
        title: "Claude Desktop",
        place: "claude_desktop_config.json, with the whole path of mcpvisor",
        text: r#"{
  "mcpServers": {
    "mcpvisor": { "command": "mcpvisor", "args": ["stdio", "--connect", "URL"] }
  }
}"#,
    },
    Snippet {
        title: "Codex",
        place: "~/.codex/config.toml",
        text: "[mcp_servers.mcpvisor]\nurl = \"URL\"",
    },
    Snippet {
        title: "Gemini CLI",
        place: "~/.gemini/settings.json",
        text: r#"{ "mcpServers": { "mcpvisor": { "httpUrl": "URL" } } }"#,
    },
    Snippet {
        title: "Any other client",
        place: "mcp.json",
        text: r#"{ "mcpServers": { "mcpvisor": { "type": "http", "url": "URL" } } }"#,
    },
    Snippet {
        title: "A client that speaks stdio only",
        place: "Its command",
        text: "mcpvisor stdio --connect URL",
    },
];

pub(super) fn page(view: &View<'_>) -> Page {
    let url = format!("{}{}", view.base, view.endpoint);
    Page::new(Section::Connect, "Connect").fixed(html! {
        (parts::heading("Connect a client", None))
        p { "Clients reach all servers at one address:" }
        (parts::snippet("address", &url))
        p .hint.after {
            code { "mcpvisor clients" } " lists the clients of its machine, and "
            code { "mcpvisor clients connect NAME" } " writes this for you."
        }
        div .spread.after {
            @for (index, Snippet { title, place, text }) in SNIPPETS.iter().enumerate() {
                section .card.padded aria-labelledby=(format!("client-{index}")) {
                    h2 .title id=(format!("client-{index}")) { (title) }
                    p .hint { (place) }
                    (parts::snippet(&format!("snippet-{index}"), &text.replace("URL", &url)))
                }
            }
        }
    })
}
