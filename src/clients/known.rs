//! The known clients: where their files are, and the form of a gateway entry.

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::clients::references::{bare_dollars, braces};
use crate::clients::{ClientError, GatewayAddress};
use crate::config::Environment;

/// A client that keeps its servers in a file.
#[derive(Debug)]
pub struct Client {
    /// Name on the command line.
    pub name: &'static str,
    pub title: &'static str,
    /// Candidate files; the first existing one is used, else the first.
    files: &'static [ClientFile],
    pub(super) servers_at: ServersAt,
    entry: EntryShape,
    /// Translates the client's variable references into `${…}`.
    pub(super) references: fn(&str) -> String,
}

/// A file below one of the user's directories.
#[derive(Debug)]
enum ClientFile {
    Home(&'static str),
    /// Where programs keep their data: `~/.config` or `XDG_CONFIG_HOME`; `~/Library/Application
    /// Support` on macOS.
    AppData(&'static str),
}

/// The table of servers in a client's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ServersAt {
    /// A member of a JSON object; comments are allowed.
    Json(&'static str),
    /// A table of a TOML file.
    Toml(&'static str),
}

/// How a client represents a server over Streamable HTTP.
#[derive(Debug)]
enum EntryShape {
    Url(&'static str),
    TypeAndUrl(&'static str),
    /// It supports only programs: uses one that relays to the gateway.
    Program,
}

use ClientFile::{AppData, Home};
use EntryShape::{Program, TypeAndUrl, Url};
use ServersAt::{Json, Toml};

static CLIENTS: [Client; 12] = [
    Client {
        name: "claude-code",
        title: "Claude Code",
        files: &[Home(".claude.json")],
        servers_at: Json("mcpServers"),
        entry: TypeAndUrl("http"),
        references: str::to_owned,
    },
    Client {
        name: "claude-desktop",
        title: "Claude Desktop",
        files: &[AppData("Claude/claude_desktop_config.json")],
        servers_at: Json("mcpServers"),
        entry: Program,
        references: str::to_owned,
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
        servers_at: Json("mcpServers"),
        entry: TypeAndUrl("streamableHttp"),
        references: str::to_owned,
    },
    Client {
        name: "codex",
        title: "Codex",
        files: &[Home(".codex/config.toml")],
        servers_at: Toml("mcp_servers"),
        entry: Url("url"),
        references: str::to_owned,
    },
    Client {
        name: "cursor",
        title: "Cursor",
        files: &[Home(".cursor/mcp.json")],
        servers_at: Json("mcpServers"),
        entry: Url("url"),
        references: str::to_owned,
    },
    Client {
        name: "gemini",
        title: "Gemini CLI",
        files: &[Home(".gemini/settings.json")],
        servers_at: Json("mcpServers"),
        entry: Url("httpUrl"),
        references: bare_dollars,
    },
    Client {
        name: "kiro",
        title: "Kiro",
        files: &[Home(".kiro/settings/mcp.json")],
        servers_at: Json("mcpServers"),
        entry: Program,
        references: str::to_owned,
    },
    Client {
        name: "lm-studio",
        title: "LM Studio",
        files: &[
            Home(".lmstudio/mcp.json"),
            Home(".cache/lm-studio/mcp.json"),
        ],
        servers_at: Json("mcpServers"),
        entry: Url("url"),
        references: str::to_owned,
    },
    Client {
        name: "opencode",
        title: "OpenCode",
        files: &[Home(".config/opencode/opencode.json")],
        servers_at: Json("mcp"),
        entry: TypeAndUrl("remote"),
        references: braces,
    },
    Client {
        name: "vscode",
        title: "VS Code",
        files: &[AppData("Code/User/mcp.json")],
        servers_at: Json("servers"),
        entry: TypeAndUrl("http"),
        references: str::to_owned,
    },
    Client {
        name: "windsurf",
        title: "Windsurf",
        files: &[Home(".codeium/windsurf/mcp_config.json")],
        servers_at: Json("mcpServers"),
        entry: Url("serverUrl"),
        references: str::to_owned,
    },
    Client {
        name: "zed",
        title: "Zed",
        files: &[Home(".config/zed/settings.json")],
        servers_at: Json("context_servers"),
        entry: Url("url"),
        references: str::to_owned,
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

impl Client {
    /// The file in which it keeps its servers, whether it exists or not.
    pub(super) fn file(&self, environment: &dyn Environment) -> Result<PathBuf, ClientError> {
        let home = absolute(environment, "HOME").ok_or(ClientError::NoHome)?;
        let app_data = if cfg!(target_os = "macos") {
            home.join("Library/Application Support")
        } else {
            absolute(environment, "XDG_CONFIG_HOME").unwrap_or_else(|| home.join(".config"))
        };
        let path = |place: &ClientFile| match place {
            Home(below) => home.join(below),
            AppData(below) => app_data.join(below),
        };
        let mut files = self.files.iter().map(path);
        let first = files.next().unwrap_or_default();
        if first.exists() {
            return Ok(first);
        }
        Ok(files.find(|file| file.exists()).unwrap_or(first))
    }

    /// An entry for the gateway.
    pub(super) fn entry(&self, gateway: &GatewayAddress) -> Value {
        let url = &gateway.url;
        match self.entry {
            Url(key) => json!({ key: url }),
            TypeAndUrl(kind) => json!({"type": kind, "url": url}),
            Program => json!({"command": gateway.program, "args": ["stdio", "--connect", url]}),
        }
    }
}

fn absolute(environment: &dyn Environment, name: &str) -> Option<PathBuf> {
    let path = environment.var(name).map(PathBuf::from);
    path.filter(|path| path.is_absolute())
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
