//! Converts the `server.json` of the MCP registry, which describes how a server is started or
//! reached, into an entry in the format of clients. Supports both spellings of its members
//! (`registryType`, `registry_type`).

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

/// Values for the inputs of a `server.json`, by the name of the variable, header or argument.
pub type Given = BTreeMap<String, String>;

/// A required value that was not given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingValue {
    pub name: String,
    pub description: String,
    pub is_secret: bool,
}

/// Why no entry can be built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoEntry {
    /// The file contains nothing usable.
    Unusable(String),
    Missing(Vec<MissingValue>),
}

/// The name and entry of a server. `kind` selects one of several packages: `npm`, `pypi`, `oci`,
/// `nuget` or `remote`; without it the first usable one is taken.
///
/// # Errors
///
/// Returns why it is unusable, or every missing value.
pub fn entry_of(
    file: &Value,
    kind: Option<&str>,
    given: &Given,
) -> Result<(String, Value), NoEntry> {
    // The registry's API wraps it.
    if is_removed(file) {
        return Err(unusable("it was removed from the registry"));
    }
    let file = file.get("server").unwrap_or(file);
    let name = file["name"].as_str().unwrap_or_default();
    let name = name.rsplit('/').next().unwrap_or_default();
    if name.is_empty() {
        return Err(unusable("it has no `name`"));
    }
    let mut inputs = Inputs {
        given,
        missing: Vec::new(),
    };
    let is_wanted = |found: &str| kind.is_none_or(|kind| kind == found);
    let packages = file["packages"].as_array().into_iter().flatten();
    let package = packages.into_iter().find(|package| {
        let kind = text(package, "registryType").or(text(package, "registryName"));
        let usable = ["npm", "pypi", "oci", "docker", "nuget"];
        kind.is_some_and(|kind| usable.contains(&kind) && is_wanted(kind))
    });
    let remotes = file["remotes"].as_array();
    let remote = remotes.and_then(|remotes| remotes.first());
    let entry = match (package, remote.filter(|_| is_wanted("remote"))) {
        (Some(package), _) => program(package, &mut inputs)?,
        (None, Some(remote)) => reached(remote, &mut inputs)?,
        (None, None) => {
            return Err(unusable(
                "it has no matching npm, PyPI, OCI or NuGet package or remote",
            ));
        }
    };
    match inputs.missing.is_empty() {
        true => Ok((name.to_owned(), entry)),
        false => Err(NoEntry::Missing(inputs.missing)),
    }
}

/// Whether a registry removed what it lists.
pub(super) fn is_removed(listed: &Value) -> bool {
    listed["_meta"]["io.modelcontextprotocol.registry/official"]["status"] == "deleted"
}

fn unusable(why: &str) -> NoEntry {
    NoEntry::Unusable(why.to_owned())
}

/// Converts a package into a program with its arguments.
fn program(package: &Value, inputs: &mut Inputs<'_>) -> Result<Value, NoEntry> {
    let transport = package["transport"]["type"].as_str();
    if transport.is_some_and(|kind| kind != "stdio") {
        return Err(unusable(
            "its package listens on a port: start it separately, and add its URL",
        ));
    }
    let identifier = text(package, "identifier").or(text(package, "name"));
    let identifier = identifier.ok_or_else(|| unusable("its package has no `identifier`"))?;
    let kind = text(package, "registryType").or(text(package, "registryName"));
    let version = text(package, "version").filter(|version| !version.is_empty());
    let pinned = |sign: char| match version {
        Some(version) if !identifier.contains(':') || sign == '@' => {
            format!("{identifier}{sign}{version}")
        }
        _ => identifier.to_owned(),
    };
    let env = inputs.named(member(package, "environmentVariables"));
    let runtime = inputs.arguments(member(package, "runtimeArguments"));
    let own = inputs.arguments(member(package, "packageArguments"));
    let hint = text(package, "runtimeHint");
    let (command, mut args) = match kind {
        Some("pypi") => (hint.unwrap_or("uvx"), [runtime, vec![pinned('@')]].concat()),
        Some("nuget") => {
            let separator = (!own.is_empty()).then(|| "--".to_owned());
            let package = vec![pinned('@'), "--yes".to_owned()];
            let args = [runtime, package, separator.into_iter().collect()].concat();
            (hint.unwrap_or("dnx"), args)
        }
        Some("oci" | "docker") => {
            let passed = env.keys().flat_map(|name| ["-e".to_owned(), name.clone()]);
            let run = ["run", "-i", "--rm"].map(str::to_owned).to_vec();
            let args = [run, passed.collect(), runtime, vec![pinned(':')]].concat();
            (hint.unwrap_or("docker"), args)
        }
        _ => {
            let asks = hint.is_none_or(|hint| hint == "npx") && !runtime.contains(&"-y".to_owned());
            let yes = asks.then(|| "-y".to_owned());
            let args = [yes.into_iter().collect(), runtime, vec![pinned('@')]].concat();
            (hint.unwrap_or("npx"), args)
        }
    };
    args.extend(own);
    let mut entry = json!({ "command": command, "args": args });
    if !env.is_empty() {
        entry["env"] = env.into();
    }
    Ok(entry)
}

/// Converts a remote into a URL with its headers.
fn reached(remote: &Value, inputs: &mut Inputs<'_>) -> Result<Value, NoEntry> {
    let url = text(remote, "url").ok_or_else(|| unusable("its remote has no `url`"))?;
    let url = inputs.filled_in(url, remote);
    let headers = inputs.named(member(remote, "headers"));
    let kind = text(remote, "type").or(text(remote, "transportType"));
    let kind = if kind == Some("sse") { "sse" } else { "http" };
    let mut entry = json!({ "type": kind, "url": url });
    if !headers.is_empty() {
        entry["headers"] = headers.into();
    }
    Ok(entry)
}

/// Takes the values of inputs from the given ones, and records missing ones.
struct Inputs<'g> {
    given: &'g Given,
    missing: Vec<MissingValue>,
}

impl Inputs<'_> {
    /// Variables or headers with their values.
    fn named(&mut self, inputs: &Value) -> Map<String, Value> {
        let inputs = inputs.as_array().into_iter().flatten();
        let named = inputs.filter_map(|input| {
            let name = input["name"].as_str()?;
            let value = self.value(name, input)?;
            Some((name.to_owned(), json!(value)))
        });
        named.collect()
    }

    fn arguments(&mut self, inputs: &Value) -> Vec<String> {
        let mut arguments = Vec::new();
        for input in inputs.as_array().into_iter().flatten() {
            let name = input["name"].as_str();
            let is_named = input["type"] == "named";
            let hint = text(input, "valueHint");
            let key = name.or(hint).unwrap_or("value");
            let has_value = ["value", "default"]
                .iter()
                .any(|it| input.get(*it).is_some());
            // A flag has neither a value nor a hint for one.
            if is_named
                && !has_value
                && hint.is_none()
                && !self.is_given(key)
                && !is_required(input)
            {
                continue;
            }
            let value = self.value(key, input);
            if is_named && value.is_some() {
                arguments.extend(name.map(str::to_owned));
            }
            arguments.extend(value.filter(|value| !value.is_empty()));
        }
        arguments
    }

    fn is_given(&self, key: &str) -> bool {
        self.given.contains_key(key) || self.given.contains_key(key.trim_start_matches('-'))
    }

    /// The value of an input: the given one, else the file's.
    fn value(&mut self, key: &str, input: &Value) -> Option<String> {
        let given = self.given.get(key);
        let given = given.or_else(|| self.given.get(key.trim_start_matches('-')));
        if let Some(given) = given {
            return Some(given.clone());
        }
        if let Some(value) = input["value"].as_str() {
            return Some(self.filled_in(value, input));
        }
        let default = input.get("default").and_then(shown);
        if default.is_none() && is_required(input) {
            self.miss(key, input);
        }
        default
    }

    /// Fills in the `{variables}` of a text.
    fn filled_in(&mut self, text: &str, input: &Value) -> String {
        let mut text = text.to_owned();
        let variables = input["variables"].as_object();
        for (name, variable) in variables.into_iter().flatten() {
            let braces = format!("{{{name}}}");
            if text.contains(&braces) {
                let value = self.value(name, variable);
                if value.is_none() && !is_required(variable) {
                    self.miss(name, variable);
                }
                text = text.replace(&braces, &value.unwrap_or_default());
            }
        }
        text
    }

    fn miss(&mut self, name: &str, input: &Value) {
        let name = name.trim_start_matches('-').to_owned();
        if self.missing.iter().all(|known| known.name != name) {
            self.missing.push(MissingValue {
                name,
                description: input["description"].as_str().unwrap_or_default().to_owned(),
                is_secret: *member(input, "isSecret") == true,
            });
        }
    }
}

fn is_required(input: &Value) -> bool {
    *member(input, "isRequired") == true
}

fn shown(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(_) | Value::Bool(_) => Some(value.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

pub(super) fn text<'v>(of: &'v Value, name: &str) -> Option<&'v str> {
    member(of, name).as_str()
}

/// A member, spelled `likeThis` or `like_this`.
fn member<'v>(of: &'v Value, name: &str) -> &'v Value {
    let snake: String = name
        .chars()
        .flat_map(|c| {
            let gap = c.is_ascii_uppercase().then_some('_');
            gap.into_iter().chain([c.to_ascii_lowercase()])
        })
        .collect();
    of.get(name)
        .or_else(|| of.get(&snake))
        .unwrap_or(&Value::Null)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(file: Value, given: &[(&str, &str)]) -> Result<Value, NoEntry> {
        let given = given
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
        entry_of(&file, None, &given.collect()).map(|(_, entry)| entry)
    }

    fn of_package(package: Value) -> Value {
        json!({ "name": "io.example/x", "packages": [package] })
    }

    #[test]
    fn packages_become_programs() {
        let npm = of_package(json!({
            "registryType": "npm", "identifier": "@a/b", "version": "1.0.2",
            "transport": {"type": "stdio"},
            "packageArguments": [
                {"type": "positional", "value": "serve"},
                {"type": "named", "name": "--port", "default": 80},
                {"type": "named", "name": "--quiet"},
            ],
            "environmentVariables": [{"name": "LEVEL", "default": "info"}, {"name": "MAY"}],
        }));
        assert_eq!(
            entry(npm, &[]).unwrap(),
            json!({"command": "npx", "args": ["-y", "@a/b@1.0.2", "serve", "--port", "80"],
                   "env": {"LEVEL": "info"}})
        );
        let pypi = json!({"registry_type": "pypi", "identifier": "w", "version": "0.5", "runtime_hint": "uvx"});
        assert_eq!(
            entry(of_package(pypi), &[]).unwrap(),
            json!({"command": "uvx", "args": ["w@0.5"]})
        );
        let nuget = json!({"registryType": "nuget", "identifier": "K", "version": "1",
                           "packageArguments": [{"type": "positional", "value": "mcp"}]});
        assert_eq!(
            entry(of_package(nuget), &[]).unwrap()["args"],
            json!(["K@1", "--yes", "--", "mcp"])
        );
        let oci = json!({
            "registry_type": "oci", "identifier": "e/db", "version": "3",
            "runtime_arguments": [{"type": "named", "name": "--mount", "is_required": true,
                "value": "src={from}", "variables": {"from": {"is_required": true}}}],
            "environment_variables": [{"name": "PW", "is_required": true, "is_secret": true}],
        });
        let given = [("from", "/a"), ("PW", "${PW}")];
        assert_eq!(
            entry(of_package(oci), &given).unwrap(),
            json!({"command": "docker",
                   "args": ["run", "-i", "--rm", "-e", "PW", "--mount", "src=/a", "e/db:3"],
                   "env": {"PW": "${PW}"}})
        );
    }

    #[test]
    fn remotes_become_urls() {
        let file = json!({"server": {"name": "x/y", "remotes": [{
            "type": "sse", "url": "https://{host}/sse",
            "variables": {"host": {"default": "a.example"}},
            "headers": [{"name": "X-Key", "isRequired": true, "isSecret": true}],
        }]}});
        let NoEntry::Missing(missing) = entry(file.clone(), &[]).unwrap_err() else {
            panic!("nothing is missing")
        };
        assert_eq!(
            (missing[0].name.as_str(), missing[0].is_secret),
            ("X-Key", true)
        );
        assert_eq!(
            entry(file, &[("X-Key", "k")]).unwrap(),
            json!({"type": "sse", "url": "https://a.example/sse", "headers": {"X-Key": "k"}})
        );
    }

    #[test]
    fn missing_values_are_named_once() {
        let file = of_package(json!({
            "registryType": "npm", "identifier": "p",
            "environmentVariables": [{"name": "A", "isRequired": true, "description": "the A"}],
            "packageArguments": [
                {"type": "named", "name": "--db", "isRequired": true},
                {"type": "positional", "valueHint": "path", "isRequired": true},
                {"type": "named", "name": "--again", "value": "{A}", "variables": {"A": {}}},
            ],
        }));
        let NoEntry::Missing(missing) = entry(file, &[]).unwrap_err() else {
            panic!("nothing is missing")
        };
        let names: Vec<&str> = missing.iter().map(|it| it.name.as_str()).collect();
        assert_eq!(names, ["A", "db", "path"]);
        assert_eq!(missing[0].description, "the A");
    }

    #[test]
    fn unusable_entries_report_the_reason() {
        let mcpb = json!({"registryType": "mcpb", "identifier": "https://x"});
        let listens = json!({"registryType": "npm", "identifier": "p",
                             "transport": {"type": "streamable-http"}});
        let table = [
            (json!(null), "no `name`"),
            (json!({"name": 3}), "no `name`"),
            (json!({"name": "x"}), "no matching"),
            (of_package(mcpb), "no matching"),
            (
                of_package(json!({"registryType": "npm"})),
                "no `identifier`",
            ),
            (of_package(listens), "listens on a port"),
            (json!({"name": "x", "remotes": [{}]}), "no `url`"),
            (
                json!({"name": "x", "packages": "y", "remotes": {}}),
                "no matching",
            ),
        ];
        for (file, expected) in table {
            let NoEntry::Unusable(why) = entry(file.clone(), &[]).unwrap_err() else {
                panic!("{file}")
            };
            assert!(why.contains(expected), "{file}: {why}");
        }
        let both = json!({"name": "x", "remotes": [{"url": "https://a/"}],
                          "packages": [{"registryType": "npm", "identifier": "p"}]});
        let of = |kind| entry_of(&both, kind, &Given::new()).unwrap().1;
        assert_eq!(of(None)["command"], "npx");
        assert_eq!(of(Some("remote"))["url"], "https://a/");
    }
}
