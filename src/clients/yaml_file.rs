//! Edits the servers in a client's YAML file. An entry is inserted as text, so that comments and
//! everything else stay, and the result is accepted only if it reads as intended.

use serde_json::{Map, Value};
use yaml_rust2::{Yaml, YamlLoader};

/// Maximum nesting depth of a value.
const DEPTH_MAX: usize = 32;

/// The first document of a file; an empty text is an empty mapping.
fn parse(text: &str) -> Result<Map<String, Value>, String> {
    let documents = YamlLoader::load_from_str(text).map_err(|error| {
        let (line, column) = (error.marker().line(), error.marker().col() + 1);
        format!("invalid YAML at line {line}, column {column}")
    })?;
    match documents.first().map(|document| json_of(document, 0)) {
        None | Some(Some(Value::Null)) => Ok(Map::new()),
        Some(Some(Value::Object(members))) => Ok(members),
        Some(_) => Err("it is not a YAML mapping".to_owned()),
    }
}

/// `None` for a value that is nested too deeply or that JSON cannot represent.
fn json_of(yaml: &Yaml, depth: usize) -> Option<Value> {
    if depth > DEPTH_MAX {
        return None;
    }
    Some(match yaml {
        Yaml::Null | Yaml::BadValue => Value::Null,
        Yaml::Boolean(flag) => (*flag).into(),
        Yaml::Integer(number) => (*number).into(),
        Yaml::Real(_) => yaml.as_f64()?.into(),
        Yaml::String(text) => text.as_str().into(),
        Yaml::Array(values) => {
            let values = values.iter().map(|value| json_of(value, depth + 1));
            Value::Array(values.collect::<Option<_>>()?)
        }
        Yaml::Hash(members) => {
            let member = |(name, value): (&Yaml, &Yaml)| {
                let name = match json_of(name, depth + 1)? {
                    Value::String(name) => name,
                    name => name.to_string(),
                };
                Some((name, json_of(value, depth + 1)?))
            };
            Value::Object(members.iter().map(member).collect::<Option<_>>()?)
        }
        Yaml::Alias(_) => return None,
    })
}

/// The servers of a mapping, by name, or of a list, whose entries have a `name`.
pub(super) fn entries(text: &str, key: &str) -> Result<Vec<(String, Value)>, String> {
    match parse(text)?.remove(key) {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::Object(servers)) => Ok(servers.into_iter().collect()),
        Some(Value::Array(servers)) => {
            let named = servers.into_iter().enumerate().map(|(index, server)| {
                let name = server["name"].as_str().map(str::to_owned);
                (name.unwrap_or(format!("server-{}", index + 1)), server)
            });
            Ok(named.collect())
        }
        Some(_) => Err(format!("`{key}` is not a mapping")),
    }
}

pub(super) fn with(text: &str, key: &str, name: &str, entry: &Value) -> Result<String, String> {
    let text = without(text, key, name)?;
    let mut lines: Vec<&str> = text.lines().collect();
    let heading = format!("{key}:");
    let at = match heading_of(&lines, key) {
        Some(at) => at,
        None => {
            lines.push(&heading);
            lines.len() - 1
        }
    };
    // The entry is as deep as its neighbours.
    let indent = indent_below(&lines, at).unwrap_or(2);
    let space = " ".repeat(indent);
    let mut block = vec![format!("{space}{name}:")];
    for (member, value) in entry.as_object().into_iter().flatten() {
        // JSON is YAML.
        block.push(format!("{space}  {member}: {value}"));
    }
    // `extensions: {}` is an empty mapping, which a block replaces.
    if lines[at].trim_end().ends_with("{}") {
        lines[at] = &heading;
    }
    lines.splice(at + 1..at + 1, block.iter().map(String::as_str));
    let after = lines.join("\n") + "\n";
    let mut wanted = parse(&text)?;
    let servers = wanted.entry(key).or_insert(Value::Null);
    if servers.is_null() {
        *servers = Value::Object(Map::new());
    }
    if !servers.is_object() {
        return Err(format!("`{key}` is not a mapping"));
    }
    servers[name] = entry.clone();
    accepted(after, &wanted, &block.join("\n"))
}

pub(super) fn without(text: &str, key: &str, name: &str) -> Result<String, String> {
    let mut wanted = parse(text)?;
    let Some(servers) = wanted.get_mut(key).and_then(Value::as_object_mut) else {
        return Ok(text.to_owned());
    };
    if servers.remove(name).is_none() {
        return Ok(text.to_owned());
    }
    let is_empty = servers.is_empty();
    let mut lines: Vec<&str> = text.lines().collect();
    let heading = format!("{key}: {{}}");
    if let Some(at) = heading_of(&lines, key) {
        let indent = indent_below(&lines, at).unwrap_or_default();
        let is_it = |line: &&str| {
            let bare = line.trim_start();
            depth(line) == Some(indent)
                && [name, &format!("\"{name}\""), &format!("'{name}'")]
                    .iter()
                    .any(|name| {
                        bare.strip_prefix(name)
                            .is_some_and(|it| it.starts_with(':'))
                    })
        };
        let below = lines.iter().skip(at + 1);
        if let Some(first) = below.clone().position(is_it) {
            let rest = below.skip(first + 1);
            let deeper = rest.take_while(|line| depth(line).is_none_or(|it| it > indent));
            // Comments and empty lines at the end belong to what follows.
            let deeper: Vec<_> = deeper.collect();
            let length = deeper.iter().rposition(|line| depth(line).is_some());
            let length = length.map_or(0, |last| last + 1);
            lines.drain(at + 1 + first..at + 2 + first + length);
        }
        if is_empty {
            lines[at] = &heading;
        }
    }
    accepted(lines.join("\n") + "\n", &wanted, name)
}

/// The text, if it has the wanted content.
fn accepted(after: String, wanted: &Map<String, Value>, what: &str) -> Result<String, String> {
    if parse(&after).is_ok_and(|read| read == *wanted) {
        return Ok(after);
    }
    Err(format!(
        "its YAML cannot be changed safely; change it by hand:\n{what}"
    ))
}

/// The line of a member of the whole file.
fn heading_of(lines: &[&str], key: &str) -> Option<usize> {
    let is_it = |line: &&str| {
        let rest = line
            .strip_prefix(key)
            .and_then(|rest| rest.strip_prefix(':'));
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(char::is_whitespace))
    };
    lines.iter().position(is_it)
}

/// How deep the members below a line are indented.
fn indent_below(lines: &[&str], at: usize) -> Option<usize> {
    let below = lines.iter().skip(at + 1);
    below
        .filter_map(|line| depth(line))
        .next()
        .filter(|depth| *depth > 0)
}

/// Indentation of a line; `None` for an empty line or a comment.
fn depth(line: &str) -> Option<usize> {
    let bare = line.trim_start();
    (!bare.is_empty() && !bare.starts_with('#')).then(|| line.len() - bare.len())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const KEY: &str = "extensions";

    #[test]
    fn an_entry_is_put_in_and_taken_out_and_nothing_else_changes() {
        let entry = json!({"enabled": true, "uri": "http://h/mcp", "headers": {"A": "b: c"}});
        let block = "mcpvisor:\n      enabled: true\n";
        let before = "# mine\nA: 1\nextensions:\n    # tools\n    git:\n        cmd: git-mcp # best\n\n        args: [a, 'b']\nB: two\n";
        let after = with(before, KEY, "mcpvisor", &entry).unwrap();
        assert!(after.contains(block), "{after}");
        assert_eq!(with(&after, KEY, "mcpvisor", &entry).unwrap(), after);
        assert_eq!(without(&after, KEY, "mcpvisor").unwrap(), before);
        let git = json!({"cmd": "git-mcp", "args": ["a", "b"]});
        assert_eq!(
            entries(&after, KEY).unwrap(),
            [
                ("mcpvisor".to_owned(), entry.clone()),
                ("git".to_owned(), git)
            ]
        );
        for before in [
            "",
            "A: 1\n",
            "extensions: {}\n",
            "extensions:\n",
            "extensions: {}\nB: 1\n",
        ] {
            let after = with(before, KEY, "mcpvisor", &entry).unwrap();
            assert_eq!(entries(&after, KEY).unwrap()[0].1, entry, "{after}");
            let left = without(&after, KEY, "mcpvisor").unwrap();
            assert_eq!(entries(&left, KEY).unwrap(), [], "{left}");
        }
    }

    #[test]
    fn a_file_that_text_cannot_change_is_refused() {
        let table = [
            ("extensions: {git: {cmd: x}}\n", "changed safely"),
            ("extensions: [a]\n", "not a mapping"),
            ("- a\n", "not a YAML mapping"),
            ("a: [hidden\n", "invalid YAML at line"),
        ];
        for (text, expected) in table {
            let refused = with(text, KEY, "mcpvisor", &json!({"uri": "u"})).unwrap_err();
            assert!(refused.contains(expected), "{refused}");
            assert!(!refused.contains("hidden"), "{refused}");
        }
    }
}
