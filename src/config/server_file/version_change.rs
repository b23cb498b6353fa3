//! Replaces the argument of a server that names its version.

use toml_edit::{DocumentMut, Item, Value};

use super::{conflict, servers};
use crate::protocol::Failure;

/// Replaces `from` among the arguments of a server, or in its command line.
///
/// # Errors
///
/// Fails if the file does not contain it as it is, because a variable is part of it.
pub(super) fn set_version(
    document: &mut DocumentMut,
    server: &str,
    from: &str,
    to: &str,
) -> Result<(), Failure> {
    let entry = servers(document)?.get_mut(server);
    let entry = entry.and_then(Item::as_table_like_mut);
    let missing = || {
        conflict(&format!(
            "the configuration does not name `{from}` among the arguments of server `{server}`: \
             replace it by `{to}` yourself"
        ))
    };
    let entry = entry.ok_or_else(missing)?;
    let args = entry.get_mut("args").and_then(Item::as_array_mut);
    let mut args = args.into_iter().flat_map(|args| args.iter_mut());
    if let Some(value) = args.find(|value| value.as_str() == Some(from)) {
        let decor = value.decor().clone();
        *value = Value::from(to);
        *value.decor_mut() = decor;
        return Ok(());
    }
    drop(args);
    let command = entry.get("command").and_then(Item::as_str);
    let words = command.into_iter().flat_map(|line| line.split(' '));
    let words: Vec<&str> = words
        .map(|word| if word == from { to } else { word })
        .collect();
    let changed = words.join(" ");
    if command.is_none_or(|line| line == changed) {
        return Err(missing());
    }
    entry.insert("command", toml_edit::value(changed));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_argument_of_a_version_is_replaced_where_it_is() {
        let table = [
            (
                "args = [\"-y\", # yes\n  \"p@1\", \"p\"] # why\n",
                Ok("args = [\"-y\", # yes\n  \"p@2\", \"p\"] # why\n"),
            ),
            (
                "command = \"npx -y p@1\"\n",
                Ok("command = \"npx -y p@2\"\n"),
            ),
            ("args = [\"p@${V}\"]\n", Err("does not name `p@1`")),
            ("url = \"https://a\"\n", Err("does not name `p@1`")),
        ];
        for (before, expected) in table {
            let head = "[servers.a]\n";
            let mut document: DocumentMut = format!("{head}{before}").parse().unwrap();
            match (set_version(&mut document, "a", "p@1", "p@2"), expected) {
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
