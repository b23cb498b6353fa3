//! The clients that the gateway knows: their files, and the form of their entries.

use crate::clients::ClientError;
use crate::clients::known::ClientFile::{AppData, Home, Project};
use crate::clients::known::EntryShape::{self, Program, Remote};
use crate::clients::known::ServersAt::{Json, JsonOfProject, Toml, Yaml};
use crate::clients::known::{Client, Link, TimeoutUnit};
use crate::config::{bare_dollars, braces, double_braces};

/// An entry with only a URL.
const fn url(url: &'static str) -> EntryShape {
    Remote {
        kind: None,
        url,
        headers: "headers",
    }
}

/// An entry with a URL and its transport.
const fn typed(kind: &'static str) -> EntryShape {
    Remote {
        kind: Some(kind),
        url: "url",
        headers: "headers",
    }
}

/// Defaults that most clients share.
const COMMON: Client = Client {
    name: "",
    title: "",
    files: &[],
    servers_at: Json("mcpServers"),
    also: &[],
    project: &[],
    entry: url("url"),
    references: str::to_owned,
    timeout: TimeoutUnit::Milliseconds,
    link: None,
};

static CLIENTS: [Client; 22] = [
    Client {
        name: "amazon-q",
        title: "Amazon Q Developer",
        files: &[
            Home(".aws/amazonq/mcp.json"),
            Home(".aws/amazonq/agents/default.json"),
        ],
        project: &[(Project(".amazonq/mcp.json"), Json("mcpServers"))],
        entry: typed("http"),
        ..COMMON
    },
    Client {
        name: "amp",
        title: "Amp",
        files: &[Home(".config/amp/settings.json")],
        servers_at: Json("amp.mcpServers"),
        project: &[(Project(".amp/settings.json"), Json("amp.mcpServers"))],
        ..COMMON
    },
    Client {
        name: "claude-code",
        title: "Claude Code",
        files: &[Home(".claude.json")],
        project: &[
            (Project(".mcp.json"), Json("mcpServers")),
            (Home(".claude.json"), JsonOfProject),
        ],
        entry: typed("http"),
        ..COMMON
    },
    Client {
        name: "claude-desktop",
        title: "Claude Desktop",
        files: &[AppData("Claude/claude_desktop_config.json")],
        entry: Program,
        ..COMMON
    },
    Client {
        name: "cline",
        title: "Cline",
        files: &[
            AppData(
                "Code/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json",
            ),
            AppData(
                "Cursor/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json",
            ),
        ],
        entry: typed("streamableHttp"),
        timeout: TimeoutUnit::Seconds,
        ..COMMON
    },
    Client {
        name: "codex",
        title: "Codex",
        files: &[Home(".codex/config.toml")],
        servers_at: Toml("mcp_servers"),
        project: &[(Project(".codex/config.toml"), Toml("mcp_servers"))],
        entry: Remote {
            kind: None,
            url: "url",
            headers: "http_headers",
        },
        ..COMMON
    },
    Client {
        name: "continue",
        title: "Continue",
        // Continue reads files of other clients in this directory.
        files: &[Home(".continue/mcpServers/mcpvisor.json")],
        also: &[(Home(".continue/config.yaml"), Yaml("mcpServers"))],
        entry: typed("http"),
        references: double_braces,
        ..COMMON
    },
    Client {
        name: "copilot",
        title: "Copilot CLI",
        files: &[Home(".copilot/mcp-config.json")],
        entry: EntryShape::RemoteWithTools,
        references: bare_dollars,
        ..COMMON
    },
    Client {
        name: "crush",
        title: "Crush",
        files: &[Home(".config/crush/crush.json")],
        servers_at: Json("mcp"),
        project: &[
            (Project("crush.json"), Json("mcp")),
            (Project(".crush.json"), Json("mcp")),
        ],
        entry: typed("http"),
        references: bare_dollars,
        timeout: TimeoutUnit::Seconds,
        ..COMMON
    },
    Client {
        name: "cursor",
        title: "Cursor",
        files: &[Home(".cursor/mcp.json")],
        project: &[(Project(".cursor/mcp.json"), Json("mcpServers"))],
        link: Some(Link::Cursor),
        ..COMMON
    },
    Client {
        name: "gemini",
        title: "Gemini CLI",
        files: &[Home(".gemini/settings.json")],
        project: &[(Project(".gemini/settings.json"), Json("mcpServers"))],
        entry: url("httpUrl"),
        references: bare_dollars,
        ..COMMON
    },
    Client {
        name: "goose",
        title: "Goose",
        files: &[Home(".config/goose/config.yaml")],
        servers_at: Yaml("extensions"),
        entry: EntryShape::Extension,
        timeout: TimeoutUnit::Seconds,
        ..COMMON
    },
    Client {
        name: "junie",
        title: "Junie",
        files: &[Home(".junie/mcp/mcp.json")],
        project: &[(Project(".junie/mcp/mcp.json"), Json("mcpServers"))],
        entry: Program,
        ..COMMON
    },
    Client {
        name: "kilo",
        title: "Kilo Code",
        files: &[
            Home(".config/kilo/kilo.jsonc"),
            Home(".config/kilo/kilo.json"),
        ],
        servers_at: Json("mcp"),
        also: &[(
            AppData("Code/User/globalStorage/kilocode.kilo-code/settings/mcp_settings.json"),
            Json("mcpServers"),
        )],
        project: &[
            (Project(".kilo/kilo.jsonc"), Json("mcp")),
            (Project("kilo.jsonc"), Json("mcp")),
            (Project(".kilocode/mcp.json"), Json("mcpServers")),
        ],
        entry: typed("remote"),
        references: braces,
        ..COMMON
    },
    Client {
        name: "kiro",
        title: "Kiro",
        files: &[Home(".kiro/settings/mcp.json")],
        project: &[(Project(".kiro/settings/mcp.json"), Json("mcpServers"))],
        entry: Program,
        ..COMMON
    },
    Client {
        name: "lm-studio",
        title: "LM Studio",
        files: &[
            Home(".lmstudio/mcp.json"),
            Home(".cache/lm-studio/mcp.json"),
        ],
        link: Some(Link::LmStudio),
        ..COMMON
    },
    Client {
        name: "opencode",
        title: "OpenCode",
        files: &[
            Home(".config/opencode/opencode.json"),
            Home(".config/opencode/opencode.jsonc"),
        ],
        servers_at: Json("mcp"),
        project: &[(Project("opencode.json"), Json("mcp"))],
        entry: typed("remote"),
        references: braces,
        ..COMMON
    },
    Client {
        name: "qwen",
        title: "Qwen Code",
        files: &[Home(".qwen/settings.json")],
        project: &[(Project(".qwen/settings.json"), Json("mcpServers"))],
        entry: url("httpUrl"),
        references: bare_dollars,
        ..COMMON
    },
    Client {
        name: "roo",
        title: "Roo Code",
        files: &[AppData(
            "Code/User/globalStorage/rooveterinaryinc.roo-cline/settings/mcp_settings.json",
        )],
        project: &[(Project(".roo/mcp.json"), Json("mcpServers"))],
        entry: typed("streamable-http"),
        timeout: TimeoutUnit::Seconds,
        ..COMMON
    },
    Client {
        name: "vscode",
        title: "VS Code",
        files: &[AppData("Code/User/mcp.json")],
        servers_at: Json("servers"),
        project: &[(Project(".vscode/mcp.json"), Json("servers"))],
        entry: typed("http"),
        link: Some(Link::VsCode),
        ..COMMON
    },
    Client {
        name: "windsurf",
        title: "Windsurf",
        files: &[Home(".codeium/windsurf/mcp_config.json")],
        entry: url("serverUrl"),
        ..COMMON
    },
    Client {
        name: "zed",
        title: "Zed",
        files: &[Home(".config/zed/settings.json")],
        servers_at: Json("context_servers"),
        project: &[(Project(".zed/settings.json"), Json("context_servers"))],
        ..COMMON
    },
];

pub(super) fn all() -> impl Iterator<Item = &'static Client> {
    CLIENTS.iter()
}

/// The client with this name.
///
/// # Errors
///
/// Names the known ones.
pub fn find(name: &str) -> Result<&'static Client, ClientError> {
    all().find(|client| client.name == name).ok_or_else(|| {
        let known: Vec<_> = all().map(|client| client.name).collect();
        ClientError::Unknown {
            name: name.to_owned(),
            known: known.join(", "),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clients::GatewayAddress;
    use crate::clients::known::{key_of, url_of};

    #[test]
    fn clients_are_known_by_name_in_order() {
        let names: Vec<_> = all().map(|client| client.name).collect();
        assert!(names.is_sorted());
        for name in names {
            assert_eq!(find(name).unwrap().name, name);
        }
        let unknown = find("emacs").unwrap_err().to_string();
        assert!(
            unknown.contains("`emacs`") && unknown.contains("zed"),
            "{unknown}"
        );
    }

    #[test]
    fn the_address_and_key_of_an_entry_are_found_again() {
        let gateway = |key: Option<&str>| GatewayAddress {
            url: "http://127.0.0.1:12006/mcp".to_owned(),
            program: "/bin/mcpvisor".into(),
            key: key.map(Into::into),
        };
        for client in all() {
            let entry = client.entry(&gateway(Some("k")));
            assert_eq!(
                url_of(&entry),
                Some("http://127.0.0.1:12006/mcp"),
                "{entry}"
            );
            assert_eq!(key_of(&entry), Some("k"), "{entry}");
            assert_eq!(key_of(&client.entry(&gateway(None))), None);
        }
    }
}
