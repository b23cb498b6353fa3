//! Translates the tool filters of clients into `allow` and `deny`.

use serde_json::Value as Json;
use toml::{Table, Value as Toml};

/// Names that clients use for `allow` and for `deny` of a tool filter.
const ALLOWED_TOOLS: [&str; 6] = [
    "tools",
    "includeTools",
    "enabled_tools",
    "enabledTools",
    "allowedTools",
    "available_tools",
];
const DENIED_TOOLS: [&str; 3] = ["excludeTools", "disabled_tools", "disabledTools"];

/// An empty list of this name allows all tools (Goose); elsewhere it allows none.
const EMPTY_ALLOWS_ALL: &str = "available_tools";

/// A glob for all tools.
const EVERY: &str = "*";

/// Whether a member of a server's entry filters its tools.
pub(super) fn is_filter(key: &str, value: &Json) -> bool {
    match value {
        Json::Array(_) => ALLOWED_TOOLS.contains(&key) || DENIED_TOOLS.contains(&key),
        // Codex has a table for each tool, and OpenCode a flag.
        Json::Object(_) => key == "tools",
        _ => false,
    }
}

/// Adds a filter to the table `tools` of a server.
pub(super) fn read(tools: &mut Table, key: &str, value: &Json) {
    match value {
        Json::Array(names) => {
            // Gemini CLI allows arguments in parentheses.
            let bare = |name: &str| name.split('(').next().unwrap_or(name).to_owned();
            let names: Vec<_> = names.iter().filter_map(Json::as_str).map(bare).collect();
            match (DENIED_TOOLS.contains(&key), names.is_empty()) {
                (true, _) => deny(tools, names),
                (false, true) if key == EMPTY_ALLOWS_ALL => {}
                (false, true) => deny(tools, [EVERY.to_owned()]),
                (false, false) => allow(tools, names),
            }
        }
        Json::Object(flags) => {
            let is_off = |tool: &Json| *tool.get("enabled").unwrap_or(tool) == false;
            let off = flags.iter().filter(|(_, tool)| is_off(tool));
            deny(tools, off.map(|(name, _)| name.clone()));
        }
        _ => {}
    }
}

/// Allows only tools that every list of the entry allows.
fn allow(tools: &mut Table, names: Vec<String>) {
    let known = tools.get("allow").and_then(Toml::as_array);
    let known = known.into_iter().flatten().filter_map(Toml::as_str);
    let known: Vec<String> = known.map(str::to_owned).collect();
    let has_every = |names: &[String]| names.iter().any(|name| name == EVERY);
    let names = match (known.is_empty() || has_every(&known), has_every(&names)) {
        (true, _) => names,
        (false, true) => known,
        (false, false) => known.into_iter().filter(|it| names.contains(it)).collect(),
    };
    match names.is_empty() {
        true => deny(tools, [EVERY.to_owned()]),
        false => drop(tools.insert("allow".to_owned(), names.into())),
    }
}

fn deny(tools: &mut Table, names: impl IntoIterator<Item = String>) {
    let names: Vec<Toml> = names.into_iter().map(Toml::String).collect();
    if names.is_empty() {
        return;
    }
    let denied = tools.entry("deny");
    let denied = denied.or_insert_with(|| Vec::<Toml>::new().into());
    denied
        .as_array_mut()
        .into_iter()
        .for_each(|denied| denied.extend(names.iter().cloned()));
}
