//! Shows or hides one tool of a server, in its `tools.allow` and `tools.deny`.

use globset::escape;
use toml_edit::{Array, DocumentMut, Item, Table, TableLike, Value};

use super::{conflict, servers};
use crate::catalog::NameSettings;
use crate::protocol::Failure;

/// Changes the lists of a server so that clients see a tool, or do not.
///
/// # Errors
///
/// Fails for a tool that a glob of `deny` hides.
pub(super) fn set_tool(
    document: &mut DocumentMut,
    server: &str,
    tool: &str,
    is_enabled: bool,
) -> Result<(), Failure> {
    let entry = servers(document)?.get_mut(server);
    let Some(entry) = entry.and_then(Item::as_table_like_mut) else {
        return Ok(());
    };
    let tools = entry
        .entry("tools")
        .or_insert_with(|| Item::Table(Table::new()));
    let tools = tools.as_table_like_mut();
    let tools = tools.ok_or_else(|| conflict("`tools` of the server is not a table"))?;
    // The lists contain globs.
    let glob = escape(tool);
    let is_it = |listed: &str| listed.eq_ignore_ascii_case(&glob);
    if !is_enabled {
        if shows(tools, tool) {
            list(tools, "deny")?.push(glob);
        }
        return Ok(());
    }
    if tools.contains_key("deny") {
        list(tools, "deny")?.retain(|listed| !listed.as_str().is_some_and(is_it));
    }
    if !shows(tools, tool) && tools.contains_key("allow") {
        list(tools, "allow")?.push(glob);
    }
    if !shows(tools, tool) {
        let message = format!(
            "a glob in `tools.deny` of server `{server}` hides this tool: change it in the file"
        );
        return Err(conflict(&message));
    }
    for key in ["deny", "allow"] {
        let is_empty = |list: &Item| list.as_array().is_some_and(Array::is_empty);
        if tools.get(key).is_some_and(is_empty) {
            tools.remove(key);
        }
    }
    if tools.is_empty() {
        entry.remove("tools");
    }
    Ok(())
}

/// Whether clients see a tool with these lists.
fn shows(tools: &dyn TableLike, tool: &str) -> bool {
    let globs = |key: &str| {
        let list = tools.get(key).and_then(Item::as_array);
        let texts = list.into_iter().flatten().filter_map(Value::as_str);
        texts.map(str::to_owned).collect()
    };
    let names = NameSettings {
        allow: globs("allow"),
        deny: globs("deny"),
        ..NameSettings::default()
    };
    names.shows(tool)
}

fn list<'t>(tools: &'t mut dyn TableLike, key: &str) -> Result<&'t mut Array, Failure> {
    let list = tools
        .entry(key)
        .or_insert_with(|| toml_edit::value(Array::new()));
    let list = list.as_array_mut();
    list.ok_or_else(|| conflict(&format!("`tools.{key}` of the server is not a list")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tool_is_hidden_and_shown_again() {
        let table = [
            (
                "",
                "rm",
                false,
                Ok("\n[servers.a.tools]\ndeny = [\"rm\"]\n"),
            ),
            ("", "rm", true, Ok("")),
            (
                "tools.deny = [\"x\"] # why\n",
                "a*b",
                false,
                Ok("tools.deny = [\"x\", \"a[*]b\"] # why\n"),
            ),
            ("tools.deny = [\"RM\"]\n", "rm", true, Ok("")),
            (
                "tools = { deny = [\"rm\", \"x\"] }\n",
                "rm",
                true,
                Ok("tools = { deny = [ \"x\"] }\n"),
            ),
            (
                "tools.allow = [\"x\"]\n",
                "rm",
                true,
                Ok("tools.allow = [\"x\", \"rm\"]\n"),
            ),
            (
                "tools.allow = [\"x\"]\n",
                "rm",
                false,
                Ok("tools.allow = [\"x\"]\n"),
            ),
            (
                "tools.deny = [\"r*\"]\n",
                "rm",
                true,
                Err("a glob in `tools.deny`"),
            ),
            ("tools.deny = 5\n", "rm", false, Err("not a list")),
            ("tools = 5\n", "rm", false, Err("not a table")),
        ];
        for (before, tool, is_enabled, expected) in table {
            let head = "[servers.a]\ncommand = \"x\"\n";
            let mut document: DocumentMut = format!("{head}{before}").parse().unwrap();
            let outcome = set_tool(&mut document, "a", tool, is_enabled);
            match (outcome, expected) {
                (Ok(()), Ok(expected)) => {
                    assert_eq!(document.to_string(), format!("{head}{expected}"));
                }
                (Err(failure), Err(expected)) => {
                    assert!(failure.message.contains(expected), "{}", failure.message);
                }
                (outcome, _) => panic!("{before}: {outcome:?}"),
            }
        }
    }
}
