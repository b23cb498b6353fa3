//! The reference of all keys, docs/configuration.md, written from the declarations.

use super::declaration::{Key, KeyTable, Mark};
use super::keys;
use crate::transport::PASSED_VARIABLES;

const HEAD: &str = "\
# Configuration

Every key of `config.toml`. A change of the file is applied while the gateway runs; the last column
says where that takes more. `mcpvisor check` judges a file, `mcpvisor config default` prints the
default file with these explanations as comments, and `mcpvisor config schema` prints a JSON Schema
([config.schema.json](config.schema.json)) for editors: Even Better TOML and others read
`#:schema PATH` in the first line of a file.

In any text, `${VAR}`, `${VAR:-default}`, `${VAR:+alternative}` and `${file:path}` are filled in;
`$$` is a dollar. Durations are written as `\"500ms\"`, `\"30s\"` or `\"1h 30m\"`, sizes as
`\"512KiB\"`, `\"16MiB\"` or a number of bytes. Relative paths start at the directory of the file.

A file in JSON, as clients have it, is read as well: the servers under `mcpServers` or `servers`
([sources.md](sources.md)). `include = [\".vscode/mcp.json\"]`, which stands before all tables, serves
those of further files in JSON beside the servers of this one.

`version = 1`, which stands before all tables, too, says which version of the configuration the file is
written in. There is no other yet, and a file without it has this one. A file of a later version is
refused as a whole. `mcpvisor config migrate` writes the newest version; `mcpvisor rollback` undoes that.

This page is printed by `mcpvisor config reference`.
";

const ENVIRONMENT: &str = "\
A server with a `command` gets the variables of its `env`, and of the gateway's environment only
those that any program may need, so that no secret reaches a server by accident. `inherit_env` of
the server lets more through: `[\"AWS_*\"]`, or `true` for all. A glob never matches `SSH_AUTH_SOCK`,
`DBUS_SESSION_BUS_ADDRESS`, or a name that ends in `_PROXY`: they lead to the user's SSH agent and
keyring, or may hold a password. A server that needs one gets it by its full name, as in
`inherit_env = [\"SSH_AUTH_SOCK\"]`. Without `inherit_env`, these pass:

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
    text.push_str("\n## What programs get of the environment\n\n");
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
    text.push_str(
        "| Key | Meaning | Value | Default | A change |\n| --- | --- | --- | --- | --- |\n",
    );
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
        (None, Some(example)) => format!("none; such as `{example}`"),
        (None, None) => "none".to_owned(),
    };
    let change = match key.marks.first() {
        Some(Mark::NeedsRestart) => "needs a restart",
        Some(Mark::Reconnects) => "reconnects the server",
        _ => "",
    };
    let cells = [&key.sentence, &key.must_be, &default].map(|cell| cell.replace('|', "\\|"));
    let [sentence, must_be, default] = cells;
    format!(
        "| `{}` | {sentence} | {must_be} | {default} | {change} |\n",
        key.name
    )
}
