//! Generates the reference of all keys, docs/configuration.md, from the declarations.

use super::declaration::{Key, KeyTable, Mark};
use super::keys;
use crate::transport::PASSED_VARIABLES;

const HEAD: &str = "\
# Configuration

This page lists every key of `config.toml`. The gateway applies a change of the file while it runs;
a change of a key marked (restart) needs a restart of the gateway, and one marked (reconnects)
reconnects the server. The last column has the default, then the possible values.

- `mcpvisor check` validates a file, and `mcpvisor config default` prints the default file with these
  explanations as comments.
- `mcpvisor config schema` prints a JSON Schema ([config.schema.json](config.schema.json)). Even Better
  TOML and other editors read `#:schema PATH` in the first line of a file.
- Every string can contain `${VAR}`, `${VAR:-default}`, `${VAR:+alternative}` and `${file:path}`; `$$`
  is a dollar sign.
- Durations are written as `\"500ms\"`, `\"30s\"` or `\"1h 30m\"`, sizes as `\"512KiB\"`, `\"16MiB\"` or a
  number of bytes. Relative paths start at the directory of the file.
- `version = 1`, before all tables, is the version of the file format: the only one so far, and the
  default. A file with a later version is refused. `mcpvisor config migrate` writes the newest version,
  and `mcpvisor rollback` undoes that.
- `include = [\".vscode/mcp.json\"]`, before all tables, adds the servers of JSON files. The configuration
  itself can also be such a file ([sources.md](sources.md)).

`mcpvisor config reference` prints this page.
";

const ENVIRONMENT: &str = "\
A server with a `command` gets the variables of its `env` and, so that no secret reaches it by
accident, only these variables of the gateway's environment. `inherit_env` passes more: `[\"AWS_*\"]`,
or `true` for all. Globs never match `SSH_AUTH_SOCK`, `DBUS_SESSION_BUS_ADDRESS` or names that end in
`_PROXY`, because these lead to the user's SSH agent and keyring or can hold a password; list them by
their full names, as in `inherit_env = [\"SSH_AUTH_SOCK\"]`. Passed by default:

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
    text.push_str(&format!("\n## [{name}]\n\n{}\n\n", table_of_keys.about));
    if table_of_keys.example.is_some() {
        return;
    }
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
        (None, Some(example)) => format!("none, such as `{example}`"),
        (None, None) => "none".to_owned(),
    };
    let change = match key.marks.first() {
        Some(Mark::NeedsRestart) => " (restart)",
        Some(Mark::Reconnects) => " (reconnects)",
        _ => "",
    };
    let value = match plain_values(&key.must_be) {
        "" => default,
        values => format!("{default}: {values}"),
    };
    let [sentence, value] = [&key.sentence, &value].map(|cell| cell.replace('|', "\\|"));
    format!("| `{}` | {sentence}{change} | {value} |\n", key.name)
}

/// The allowed values, without type words that the notation already implies.
fn plain_values(must_be: &str) -> &str {
    if must_be == "`true` or `false`" {
        return "";
    }
    let kinds = [
        "a duration from ",
        "a size from ",
        "a number from ",
        "one of ",
    ];
    let values = kinds.iter().find_map(|kind| must_be.strip_prefix(kind));
    values.unwrap_or(must_be)
}
