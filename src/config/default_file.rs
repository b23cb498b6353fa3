//! Generates the commented default file, `config.toml`, from the declarations.

use super::declaration::{Key, KeyTable, Mark};
use super::keys;

/// Maximum line length, in characters.
const WIDTH: usize = 100;

const HEAD: &str = r#"# The default configuration of mcpvisor: every key that is not commented out has its default here.
# An unknown key is an error.
#
#   Durations   "500ms", "30s", "10m", "1h"
#   Sizes       "512KiB", "16MiB", "1MB", or a number of bytes
#   Variables   in any text, after the file was parsed:
#               "${VAR}", "${env:VAR}"   the environment variable; an error if it is not set
#               "${VAR:-default}"        a default if it is not set or empty
#               "${VAR:+alt}"            "alt" if it is set, else nothing
#               "${file:path}"           the content of a file, without its last line break
#               "$$"                     a dollar sign
#               "${MCPVISOR_EXE}"        the path of the running binary
#   Paths       relative ones start at the directory of this file
#
# Changes of this file apply immediately, and only to what changed. A file with an error changes
# nothing. A key marked (restart) needs a restart of the gateway.
#
# `mcpvisor config default` prints this file, and `mcpvisor config schema` its JSON Schema.
"#;

/// The beginning of a file that the gateway or a command creates.
pub const NEW_FILE_HEAD: &str = "\
# The configuration of mcpvisor. `mcpvisor config reference` explains every key, and
# `mcpvisor config default` prints the defaults. Changes of this file apply immediately.
";

const EXAMPLE_SERVER: &str = r#"
# A built-in server to try. Remove it when you have your own.
[servers.example]
command = "${MCPVISOR_EXE}"
args = ["example-server"]

"#;

/// Text that precedes certain keys of a server.
const BEFORE_KEY: [(&str, &str); 3] = [
    (
        "command",
        "# A server is a program that the gateway starts ...\n#\n# [servers.files]\n",
    ),
    ("url", "#\n# ... or a URL.\n#\n# [servers.docs]\n"),
    ("enabled", "#\n# For both, with their defaults:\n#\n"),
];

/// The file that a gateway without one writes with its first change: it serves what the gateway has
/// served so far.
pub(super) fn new_file() -> String {
    format!("{NEW_FILE_HEAD}{}\n", EXAMPLE_SERVER.trim_end())
}

/// The default configuration as a file with a comment for every key. Used when no file exists.
pub fn default_file() -> String {
    let mut text = HEAD.to_owned();
    for key in keys::tables() {
        match &key.table {
            Some(table) if key.name == "servers" => {
                text.push_str(EXAMPLE_SERVER);
                servers(&mut text, table);
            }
            Some(table) if let Some(header) = example_header(key.name) => {
                text.push('\n');
                comment(&mut text, "# ", &table.about);
                text.push_str(&format!("# {header}\n"));
                let (tables, keys) = split(table);
                keys.iter().for_each(|key| commented_key(&mut text, key));
                for (inner_key, inner) in tables {
                    let header = header.trim_end_matches(']');
                    let header = format!("{header}.{}]", inner_key.name);
                    inner_table(&mut text, &header, inner_key, inner);
                }
            }
            Some(table) => {
                text.push('\n');
                comment(&mut text, "# ", &table.about);
                text.push_str(&format!("[{}]\n", key.name));
                let (tables, keys) = split(table);
                keys.iter().for_each(|key| gateway_key(&mut text, key));
                for (inner_key, inner) in tables {
                    let header = format!("[{}.{}]", key.name, inner_key.name);
                    inner_table(&mut text, &header, inner_key, inner);
                }
            }
            None => {
                text.push('\n');
                gateway_key(&mut text, key);
            }
        }
    }
    text
}

/// Example header for a table whose entries are named by the user.
fn example_header(table: &str) -> Option<&'static str> {
    match table {
        "sources" => Some("[sources.team]"),
        "groups" => Some("[groups.data]"),
        "views" => Some("[views.reading]"),
        "policies" => Some("[policies.careful]"),
        _ => None,
    }
}

fn gateway_key(text: &mut String, key: &Key) {
    let restart = if key.is(Mark::NeedsRestart) {
        " (restart)"
    } else {
        ""
    };
    comment(text, "# ", &format!("{}{restart}", key.sentence));
    let sign = if key.example.is_some() { "# " } else { "" };
    text.push_str(&format!("{sign}{}\n", assignment(key)));
}

/// Writes the keys of a server, all commented out.
fn servers(text: &mut String, table: &KeyTable) {
    for key in &table.keys {
        let before = BEFORE_KEY.iter().find(|(name, _)| *name == key.name);
        before.iter().for_each(|(_, before)| text.push_str(before));
        let Some(inner) = &key.table else {
            commented_key(text, key);
            continue;
        };
        let server = if key.name == "oauth" { "docs" } else { "files" };
        inner_table(
            text,
            &format!("[servers.{server}.{}]", key.name),
            key,
            inner,
        );
    }
}

/// Splits the keys into tables and plain values.
fn split(table: &KeyTable) -> (Vec<(&Key, &KeyTable)>, Vec<&Key>) {
    let tables = table.keys.iter();
    let tables = tables.filter_map(|key| Some((key, key.table.as_ref()?)));
    let keys = table.keys.iter().filter(|key| key.table.is_none());
    (tables.collect(), keys.collect())
}

/// Writes a nested table, all commented out.
fn inner_table(text: &mut String, header: &str, key: &Key, inner: &KeyTable) {
    text.push_str("#\n");
    let about = match inner.example {
        Some(_) => &key.sentence,
        None => &inner.about,
    };
    comment(text, "## ", about);
    text.push_str(&format!("# {header}\n"));
    match inner.example {
        Some(example) => text.push_str(&format!("# {example}\n")),
        None => inner.keys.iter().for_each(|key| commented_key(text, key)),
    }
}

/// Comments prose with `##`, so that activating a key means deleting a single `#`.
fn commented_key(text: &mut String, key: &Key) {
    comment(text, "## ", &key.sentence);
    text.push_str(&format!("# {}\n", assignment(key)));
}

fn assignment(key: &Key) -> String {
    let value = key.example.or(key.default.as_deref()).unwrap_or_default();
    format!("{} = {value}", key.name)
}

/// Writes a comment, wrapped between words.
fn comment(text: &mut String, sign: &str, sentence: &str) {
    let mut line = sign.trim_end().to_owned();
    for word in sentence.split(' ') {
        if line.chars().count() + 1 + word.chars().count() > WIDTH {
            text.push_str(&line);
            text.push('\n');
            line = sign.trim_end().to_owned();
        }
        line.push(' ');
        line.push_str(word);
    }
    text.push_str(&line);
    text.push('\n');
}
