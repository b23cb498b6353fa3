//! Finds a client's servers, and translates what only that client understands.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::clients::known::{Client, ServersAt, TimeoutUnit};
use crate::clients::{ClientError, entries_in, files, json_file, understood};
use crate::config::{Environment, map_texts};

/// A client's server, or why it cannot be imported.
pub(super) type Found = (String, Result<Value, String>);

/// Kinds of servers that are part of the client (Goose).
const OWN_KINDS: [&str; 4] = ["builtin", "platform", "frontend", "inline_python"];

/// The servers of the user, or those of a project. Adds a sentence for each value that the user has
/// to provide.
///
/// # Errors
///
/// Fails if a file cannot be read, or none exists.
pub(super) fn servers(
    client: &'static Client,
    project: Option<&Path>,
    environment: &dyn Environment,
    warnings: &mut Vec<String>,
) -> Result<Vec<Found>, ClientError> {
    let mut found: Vec<Found> = Vec::new();
    let places = places(client, project, environment)?;
    let mut has_file = false;
    for (path, servers_at) in &places {
        let Some(text) = files::read(path)? else {
            continue;
        };
        has_file = true;
        let folder = project.map(Path::to_string_lossy);
        let servers = match (servers_at, &folder) {
            (ServersAt::JsonOfProject, Some(folder)) => {
                json_file::entries_of_project(&text, folder)
            }
            (servers_at, _) => entries_in(*servers_at, &text),
        };
        let servers = understood(path, servers)?;
        let off = match servers_at {
            ServersAt::Json("mcp") => json_file::tools_off(&text),
            _ => Vec::new(),
        };
        for (name, mut server) in servers {
            if found.iter().any(|(known, _)| *known == name) {
                continue;
            }
            let translation = Translation {
                client,
                name: &name,
                folder: project,
                asked: BTreeSet::new(),
                foreign: None,
            };
            let outcome = translation.apply(&mut server, &off, warnings);
            found.push((name, outcome.map(|()| server)));
        }
    }
    match (has_file, places.into_iter().next()) {
        (false, Some((path, _))) => Err(ClientError::NoFile {
            client: client.title,
            path,
        }),
        _ => Ok(found),
    }
}

fn places(
    client: &'static Client,
    project: Option<&Path>,
    environment: &dyn Environment,
) -> Result<Vec<(PathBuf, ServersAt)>, ClientError> {
    let (own, further) = match project {
        None => (
            Some((client.file(environment)?, client.servers_at)),
            client.also,
        ),
        Some(_) => (None, client.project),
    };
    let further = further
        .iter()
        .map(|(file, servers_at)| Ok((file.path(environment, project)?, *servers_at)));
    own.map(Ok).into_iter().chain(further).collect()
}

/// Commands that import the servers of projects: of this folder, and of those that the client
/// keeps in the user's file.
pub fn project_hints(
    client: &'static Client,
    folder: &Path,
    environment: &dyn Environment,
) -> Vec<String> {
    let mut projects: Vec<(String, usize)> = Vec::new();
    for (file, servers_at) in client.project {
        let path = file.path(environment, Some(folder));
        let text = path.ok().and_then(|path| files::read(&path).ok().flatten());
        let Some(text) = text else {
            continue;
        };
        let of_folder = folder.to_string_lossy().into_owned();
        match servers_at {
            ServersAt::JsonOfProject => {
                let found = json_file::projects(&text).unwrap_or_default().into_iter();
                projects.extend(found.map(|(folder, servers)| (folder, servers.len())));
            }
            servers_at => {
                let found = entries_in(*servers_at, &text).unwrap_or_default();
                projects.push((of_folder, found.len()));
            }
        }
    }
    let mut hints = Vec::new();
    for folder in projects
        .iter()
        .map(|(folder, _)| folder)
        .collect::<BTreeSet<_>>()
    {
        let of_folder = projects.iter().filter(|(known, _)| known == folder);
        let count: usize = of_folder.map(|(_, count)| count).sum();
        if count > 0 {
            let servers = if count == 1 { "server" } else { "servers" };
            hints.push(format!(
                "{count} {servers} of {folder}: `mcpvisor clients import {} --project {folder}`",
                client.name
            ));
        }
    }
    hints
}

/// The translation of one server's entry.
struct Translation<'a> {
    client: &'static Client,
    name: &'a str,
    /// The folder of a project.
    folder: Option<&'a Path>,
    /// Variables for values that the client prompts for.
    asked: BTreeSet<String>,
    /// A reference that only the client can resolve.
    foreign: Option<String>,
}

impl Translation<'_> {
    fn apply(
        mut self,
        server: &mut Value,
        off: &[String],
        warnings: &mut Vec<String>,
    ) -> Result<(), String> {
        if let Some(kind) = server["type"]
            .as_str()
            .filter(|kind| OWN_KINDS.contains(kind))
        {
            let client = self.client.title;
            return Err(format!("it is a part of {client} (`{kind}`)"));
        }
        map_texts(server, &mut |text| self.text(text));
        if let Some(reference) = self.foreign {
            let client = self.client.title;
            return Err(format!(
                "only {client} can resolve `{reference}`: replace it in {client}, or add the \
                 server with `mcpvisor servers add`"
            ));
        }
        let name = self.name;
        for variable in &self.asked {
            warnings.push(format!(
                "server `{name}`: {} asks for a value; set it as `{variable}` in the gateway's \
                 environment",
                self.client.title
            ));
        }
        if !server["env_keys"].as_array().is_none_or(Vec::is_empty) {
            warnings.push(format!(
                "server `{name}`: the values of its `env_keys` are in the keyring of {}; set them \
                 in the gateway's environment",
                self.client.title
            ));
        }
        if let (TimeoutUnit::Seconds, Some(time)) =
            (self.client.timeout, server["timeout"].as_f64())
        {
            server["timeout"] = Value::Null;
            server["timeouts"] = json!({ "request": time * 1e3 });
        } else if let Some(time) = server["timeout"].as_f64() {
            server["timeout"] = Value::Null;
            server["timeouts"] = json!({ "request": time });
        }
        if let Some(members) = server.as_object_mut() {
            members.retain(|_, value| !value.is_null());
        }
        let prefix = format!("{name}_");
        let off: Vec<_> = off
            .iter()
            .filter_map(|tool| tool.strip_prefix(&prefix))
            .collect();
        if !off.is_empty() && server.is_object() {
            server["disabledTools"] = json!(off);
        }
        self.resolve_paths(server);
        Ok(())
    }

    /// Relative paths of a project's server start at its folder, in which its program also runs.
    fn resolve_paths(&self, server: &mut Value) {
        let Some(folder) = self.folder.filter(|_| server.is_object()) else {
            return;
        };
        for member in ["cwd", "envFile"] {
            if let Some(path) = server[member].as_str() {
                server[member] = json!(folder.join(path));
            }
        }
        let is_program = ["command", "cmd"]
            .iter()
            .any(|it| server.get(*it).is_some());
        if is_program && server.get("cwd").is_none() {
            server["cwd"] = json!(folder);
        }
        if let Some(members) = server.as_object_mut() {
            members.retain(|_, value| !value.is_null());
        }
    }

    /// A text with its references in the gateway's syntax.
    fn text(&mut self, text: &str) -> String {
        let text = (self.client.references)(text);
        if text.contains("$(") && self.client.name == "crush" {
            self.foreign = Some("$(…)".to_owned());
        }
        let mut translated = String::with_capacity(text.len());
        let mut rest = text.as_str();
        while let Some((before, after)) = rest.split_once("${") {
            let Some((reference, tail)) = after.split_once('}') else {
                break;
            };
            translated.push_str(before);
            translated.push_str(&self.reference(reference));
            rest = tail;
        }
        translated + rest
    }

    fn reference(&mut self, reference: &str) -> String {
        let folder = self.folder.map(|folder| folder.to_string_lossy());
        let base = self.folder.and_then(Path::file_name).unwrap_or_default();
        match (reference.split_once(':'), folder) {
            (_, Some(folder)) if FOLDERS.contains(&reference) => folder.into_owned(),
            (_, Some(_)) if reference == FOLDER_NAME => base.to_string_lossy().into_owned(),
            (Some(("input", id)), _) => {
                let legal = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
                let variable: String = id.chars().map(legal).collect();
                let variable = variable.trim_start_matches(|c: char| c.is_ascii_digit());
                let variable = variable.to_ascii_uppercase();
                self.asked.insert(variable.clone());
                format!("${{{variable}}}")
            }
            (Some(("command" | "config" | "secret", _)), _) => self.foreign(reference),
            _ if FOLDERS.contains(&reference) || reference == FOLDER_NAME => {
                self.foreign(reference)
            }
            _ => format!("${{{reference}}}"),
        }
    }

    fn foreign(&mut self, reference: &str) -> String {
        let reference = format!("${{{reference}}}");
        self.foreign = Some(reference.clone());
        reference
    }
}

/// References to the folder that a client has open.
const FOLDERS: [&str; 5] = [
    "workspaceFolder",
    "workspaceRoot",
    "workspacePath",
    "cwd",
    "CLAUDE_PROJECT_DIR",
];

/// The name of that folder.
const FOLDER_NAME: &str = "workspaceFolderBasename";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clients::find;

    fn translated(
        client: &str,
        folder: Option<&str>,
        server: &Value,
    ) -> (Result<Value, String>, usize) {
        let mut warnings = Vec::new();
        let translation = Translation {
            client: find(client).unwrap(),
            name: "x",
            folder: folder.map(Path::new),
            asked: BTreeSet::new(),
            foreign: None,
        };
        let mut server = server.clone();
        let outcome = translation.apply(&mut server, &["x_rm".to_owned()], &mut warnings);
        (outcome.map(|()| server), warnings.len())
    }

    #[test]
    fn the_variables_of_each_client_are_translated_or_refused() {
        let table = [
            ("gemini", None, "$T ${U}", Ok("${T} ${U}")),
            (
                "cursor",
                None,
                "$T ${env:U} ${userHome}${/}",
                Ok("$T ${env:U} ${userHome}${/}"),
            ),
            ("opencode", None, "{env:T}", Ok("${env:T}")),
            ("continue", None, "${{ secrets.T }}", Ok("${T}")),
            (
                "vscode",
                None,
                "Bearer ${input:my-key}",
                Ok("Bearer ${MY_KEY}"),
            ),
            (
                "vscode",
                None,
                "${workspaceFolder}/a",
                Err("${workspaceFolder}"),
            ),
            ("vscode", Some("/p"), "${workspaceFolder}/a", Ok("/p/a")),
            (
                "cursor",
                Some("/a/p"),
                "${workspaceFolderBasename}",
                Ok("p"),
            ),
            ("vscode", Some("/p"), "${config:x.y}", Err("${config:x.y}")),
            ("crush", None, "$(pass show x)", Err("$(…)")),
            ("claude-code", None, "${A:-b}", Ok("${A:-b}")),
        ];
        for (client, folder, text, expected) in table {
            let server = json!({ "url": "u", "headers": { "K": text } });
            let (outcome, _) = translated(client, folder, &server);
            match (outcome, expected) {
                (Ok(server), Ok(expected)) => assert_eq!(server["headers"]["K"], expected),
                (Err(why), Err(expected)) => assert!(why.contains(expected), "{why}"),
                (outcome, _) => panic!("{client} {text}: {outcome:?}"),
            }
        }
    }

    #[test]
    fn units_and_folders_of_a_client_are_translated() {
        let server = json!({ "command": "x", "timeout": 3600, "envFile": ".env" });
        let (roo, _) = translated("roo", Some("/p"), &server);
        let expected = json!({
            "command": "x", "timeouts": {"request": 3_600_000.0}, "envFile": "/p/.env",
            "disabledTools": ["rm"], "cwd": "/p"
        });
        assert_eq!(roo.unwrap(), expected);
        let (kiro, _) = translated("kiro", None, &json!({ "url": "u", "timeout": 500 }));
        assert_eq!(kiro.unwrap()["timeouts"], json!({"request": 500.0}));
        let (goose, warned) = translated("goose", None, &json!({"cmd": "x", "env_keys": ["K"]}));
        assert_eq!((goose.is_ok(), warned), (true, 1));
        let (own, _) = translated(
            "goose",
            None,
            &json!({"type": "builtin", "name": "developer"}),
        );
        assert!(own.unwrap_err().contains("part of Goose"));
    }
}
