//! Generates the reference of all keys, docs/configuration.md, from the declarations.

use super::declaration::{Key, KeyTable, Mark};
use super::keys;
use crate::transport::PASSED_VARIABLES;

const HEAD: &str = "\
# Configuration

Every key of `config.toml`. The last column has the default, then the possible values; an example in
parentheses replaces a missing default. A change applies while the gateway runs, unless the key is marked
(restart); (reconnects) marks keys whose change reconnects the server.

- `mcpvisor check` validates a file. `mcpvisor config default` prints the default file with these
  explanations, `mcpvisor config schema` a [JSON Schema](config.schema.json), which editors such as Even
  Better TOML read from `#:schema PATH` in the first line.
- Every text can contain `${VAR}`, `${VAR:-default}`, `${VAR:+alternative}` and `${file:path}`; `$$` is a
  dollar sign.
- Durations are written as `\"500ms\"` or `\"1h 30m\"` (`\"0s\"`, where possible, turns a feature off), sizes
  as `\"16MiB\"` or a number of bytes. Relative paths start at the directory of the file.
- URLs for sign-ins and tokens start with `https://`, or `http://` on this machine.
- `include = [\".vscode/mcp.json\"]`, before all tables, adds the servers of [JSON files](sources.md).
- `version = 1`, before all tables, is the only file version so far. `mcpvisor config migrate` updates a
  file to the newest.
";

const ENVIRONMENT: &str = "\
A server with a `command` gets the variables of its `env` and only these variables of the gateway's
environment. `inherit_env` passes more: `[\"AWS_*\"]`, or `true` for all. Globs never match `SSH_AUTH_SOCK`,
`DBUS_SESSION_BUS_ADDRESS` or names that end in `_PROXY`; list them by their full names. Passed by default:

";

/// The reference of all keys, in Markdown.
pub fn reference() -> String {
    let mut text = HEAD.to_owned();
    for key in keys::tables() {
        if let Some(inner) = &key.table {
            let name = match key.name {
                "servers" => "servers.NAME",
                "sources" => "sources.NAME",
                "policies" => "policies.NAME",
                "groups" => "groups.NAME",
                "views" => "views.NAME",
                name => name,
            };
            table(&mut text, name, inner);
        }
    }
    text.push_str("\n## Environment of programs\n\n");
    text.push_str(ENVIRONMENT);
    let variables = PASSED_VARIABLES.iter().map(|name| format!("`{name}`"));
    text.push_str(&variables.collect::<Vec<_>>().join(", "));
    text.push_str(".\n");
    text
}

fn table(text: &mut String, name: &str, table_of_keys: &KeyTable) {
    text.push_str(&format!("\n## [{name}]\n\n"));
    if table_of_keys.example.is_some() {
        let shared = name.trim_start_matches("servers.NAME.");
        text.push_str(&format!("Overrides keys of [{shared}].\n"));
        return;
    }
    text.push_str(&format!("{}\n\n", linked(&table_of_keys.about)));
    text.push_str("| Key | Meaning | Default: values |\n| --- | --- | --- |\n");
    let (tables, keys): (Vec<&Key>, Vec<&Key>) = table_of_keys
        .keys
        .iter()
        .partition(|key| key.table.is_some());
    for key in keys {
        text.push_str(&row(key));
    }
    for key in tables {
        if let Some(inner) = &key.table {
            table(text, &format!("{name}.{}", key.name), inner);
        }
    }
}

fn row(key: &Key) -> String {
    let default = match (&key.default, key.example) {
        (Some(default), _) => format!("`{default}`"),
        (None, Some(example)) => format!("(`{example}`)"),
        (None, None) => "none".to_owned(),
    };
    let change = match key.marks.first() {
        Some(Mark::NeedsRestart) => " (restart)",
        Some(Mark::Reconnects) => " (reconnects)",
        _ => "",
    };
    let values = plain_values(&key.must_be);
    let value = if values.is_empty() {
        default
    } else {
        format!("{default}: {values}")
    };
    let [sentence, value] = [&linked(&key.sentence), &value].map(|cell| cell.replace('|', "\\|"));
    format!("| `{}` | {sentence}{change} | {value} |\n", key.name)
}

/// Makes links of the pages that a text names: `docs/auth.md`.
fn linked(text: &str) -> String {
    let mut parts = text.split("docs/");
    let mut linked = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match part.split_once(".md") {
            Some((page, rest)) => linked.push_str(&format!("[{page}]({page}.md){rest}")),
            None => linked.push_str(&format!("docs/{part}")),
        }
    }
    linked
}

/// The possible values, without words that their spelling, the example or the head of the page
/// makes unnecessary.
fn plain_values(must_be: &str) -> String {
    let obvious = [
        "`true` or `false`",
        "an address and port",
        "a non-empty string",
        "a string without NUL",
        "a file path",
        "a directory path",
        "a table of ",
        "a URL with `https://`, or ",
        "the URL of an HTTP proxy",
        "a `file://` URI",
        "a glob over tool names",
        "a rate such as ",
    ];
    let values = must_be.strip_prefix("an array of strings, each ");
    let values = values.unwrap_or(must_be);
    if obvious.iter().any(|start| values.starts_with(start)) {
        return String::new();
    }
    let kinds = [
        "a duration from ",
        "a size from ",
        "a number from ",
        "one of ",
    ];
    let stripped = kinds.iter().find_map(|kind| values.strip_prefix(kind));
    let Some(range) = stripped else {
        return values.to_owned();
    };
    let range = range.trim_end_matches(" (`\"0s\"` turns it off)");
    range.replace(" to ", "–")
}
