//! Changes the API keys of a configuration file.

use std::path::{Path, PathBuf};

use secrecy::{ExposeSecret as _, SecretString};
use toml_edit::{DocumentMut, Item, Table, TableLike};

use super::environment::Environment;
use super::keys::is_key_name;
use super::server_file::{check, replace};
use super::{Config, ConfigError, json as json_file, place};
use crate::auth::{KeyChange, NewKey, TokenHash, expiry_millis, random_token};
use crate::id::ServerName;

/// Prefix of every key, so that people and secret scanners recognise one.
const KEY_PREFIX: &str = "mcpvisor_";

/// The file whose keys are changed.
pub struct KeyFile<'a> {
    path: PathBuf,
    environment: &'a dyn Environment,
}

impl<'a> KeyFile<'a> {
    /// The file that [`Config::load`] would read.
    ///
    /// # Errors
    ///
    /// Returns [`ConfigError::Read`] if the working directory cannot be determined.
    pub fn find(
        path: Option<&Path>,
        environment: &'a dyn Environment,
    ) -> Result<Self, ConfigError> {
        let path = Config::file_to_write(path, environment)?;
        Ok(Self { path, environment })
    }

    pub fn new(path: PathBuf, environment: &'a dyn Environment) -> Self {
        Self { path, environment }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Changes the key of this name; `now` is in milliseconds since 1970. Returns the new key,
    /// which cannot be retrieved again.
    ///
    /// # Errors
    ///
    /// Returns why the file was left unchanged.
    pub fn change(
        &self,
        name: &str,
        change: KeyChange,
        now: u64,
    ) -> Result<Option<SecretString>, String> {
        let shown = self.path.display();
        let text = place::read(&self.path).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => format!(
                "no configuration file found: create one with `mcpvisor config default > '{shown}'`"
            ),
            _ => format!("`{shown}` cannot be read: {error}"),
        })?;
        if json_file::is_json(&text) {
            return Err(format!(
                "`{shown}` is JSON, which cannot hold keys: use a TOML file"
            ));
        }
        let parsed = text.parse::<DocumentMut>();
        let mut document = parsed
            .map_err(|_| format!("`{shown}` is not valid TOML: `mcpvisor check` shows why"))?;
        let made = apply(&mut document, name, change, now)?;
        let now = document.to_string();
        check(&self.path, &now, self.environment).map_err(|failure| failure.message)?;
        let written = replace(&self.path, &now);
        written.map_err(|error| format!("`{shown}` cannot be written: {error}"))?;
        Ok(made)
    }
}

fn apply(
    document: &mut DocumentMut,
    name: &str,
    change: KeyChange,
    now: u64,
) -> Result<Option<SecretString>, String> {
    if !is_key_name(name) {
        return Err("a key's name is 1 to 64 letters, digits and `-_.`".to_owned());
    }
    // A comment at the end of the file must stay before the added table.
    let trailing = document.trailing().as_str().unwrap_or_default().to_owned();
    let keys = keys_of(document)?;
    let known = keys.get(name).and_then(Item::as_table_like);
    let is_new = known.is_none();
    let Some(new) = new_key(name, change, known)? else {
        keys.remove(name);
        remove_policy(document, name);
        return Ok(None);
    };
    if let Some(expires) = &new.expires
        && expiry_millis(expires).is_some_and(|expires| expires <= now)
    {
        return Err(format!(
            "key `{name}` would already be expired: set a new lifetime with `--expires-in`"
        ));
    }
    let token = random_token().map_err(|error| error.to_string())?;
    let key = SecretString::from(format!("{KEY_PREFIX}{}", token.expose_secret()));
    let hash = TokenHash::of(key.expose_secret()).to_string();
    if is_new {
        keys.insert(name, Item::Table(Table::new()));
    }
    let table = keys.get_mut(name).and_then(Item::as_table_mut);
    // Inline tables such as `keys = { … }` keep their place.
    let is_at_end = is_new && table.is_some();
    if let Some(table) = table.filter(|_| is_at_end && !trailing.is_empty()) {
        table.decor_mut().set_prefix(trailing);
    }
    let entry = keys.get_mut(name).and_then(Item::as_table_like_mut);
    let entry = entry.ok_or_else(|| format!("`auth.keys.{name}` must be a table"))?;
    entry.insert("hash", toml_edit::value(hash));
    if let Some(expires) = new.expires {
        entry.insert("expires", toml_edit::value(expires));
    }
    if !new.scopes.is_empty() {
        let scopes: toml_edit::Array = new.scopes.iter().collect();
        entry.insert("scopes", toml_edit::value(scopes));
    }
    if let Some(calls) = new.calls {
        let limits = toml_edit::InlineTable::from_iter([("calls", calls)]);
        entry.insert("limits", toml_edit::value(limits));
    }
    if is_at_end {
        document.set_trailing("");
    }
    if !new.servers.is_empty() {
        add_policy(document, name, &new.servers)?;
    }
    Ok(Some(key))
}

/// The key after a change; `None` if the change removes it.
///
/// # Errors
///
/// Returns why this change of the known key is impossible.
fn new_key(
    name: &str,
    change: KeyChange,
    known: Option<&dyn TableLike>,
) -> Result<Option<NewKey>, String> {
    let expires = |known: &dyn TableLike| Some(known.get("expires")?.as_str()?.to_owned());
    match (change, known) {
        (KeyChange::Add(_), Some(_)) => Err(format!(
            "key `{name}` already exists: `mcpvisor keys rotate {name}` replaces it"
        )),
        (KeyChange::Rotate(_) | KeyChange::Remove, None) => Err(format!(
            "the configuration has no key `{name}`: `mcpvisor keys` lists its keys"
        )),
        (KeyChange::Remove, Some(_)) => Ok(None),
        (KeyChange::Add(new), None) => Ok(Some(new)),
        (KeyChange::Rotate(at), Some(known)) => Ok(Some(NewKey {
            expires: at.or_else(|| expires(known)),
            ..NewKey::default()
        })),
    }
}

/// The start of the condition of the policy that restricts a key to some servers.
fn condition_start(key: &str) -> String {
    format!("principal.issuer == \"key\" && principal.name == \"{key}\" && !(server in [")
}

/// Adds a policy that denies all other servers. It becomes the first one, because the first policy
/// whose condition holds decides.
fn add_policy(document: &mut DocumentMut, key: &str, servers: &[ServerName]) -> Result<(), String> {
    let servers: Vec<String> = servers.iter().map(|it| format!("\"{it}\"")).collect();
    let when = format!("{}{}])", condition_start(key), servers.join(", "));
    let policies = document.entry("policies").or_insert_with(implicit);
    let policies = policies.as_table_mut().ok_or("`policies` must be tables")?;
    let name = KeyChange::policy_name(key);
    if policies.contains_key(&name) {
        return Err(format!("policy `{name}` already exists: remove it first"));
    }
    let others: Vec<String> = policies.iter().map(|(name, _)| name.to_owned()).collect();
    let others: Vec<_> = others
        .into_iter()
        .filter_map(|name| Some((policies.remove(&name)?, name)))
        .collect();
    let places = others
        .iter()
        .filter_map(|(item, _)| item.as_table()?.position());
    let mut table = Table::new();
    table.set_position(places.min());
    table.insert("when", toml_edit::value(when));
    policies.insert(&name, Item::Table(table));
    for (other, name) in others {
        policies.insert(&name, other);
    }
    Ok(())
}

fn remove_policy(document: &mut DocumentMut, key: &str) {
    let policies = document.get_mut("policies");
    let Some(policies) = policies.and_then(Item::as_table_like_mut) else {
        return;
    };
    let name = KeyChange::policy_name(key);
    let when = policies.get(&name).and_then(|it| it.get("when")?.as_str());
    if when.is_some_and(|when| when.starts_with(&condition_start(key))) {
        policies.remove(&name);
    }
}

fn implicit() -> Item {
    let mut table = Table::new();
    table.set_implicit(true);
    Item::Table(table)
}

/// Returns the table of all keys, creating it if it is missing.
fn keys_of(document: &mut DocumentMut) -> Result<&mut dyn TableLike, String> {
    let auth = document.entry("auth").or_insert_with(implicit);
    let auth = auth.as_table_like_mut().ok_or("`auth` must be a table")?;
    let keys = auth.entry("keys").or_insert_with(implicit);
    let keys = keys.as_table_like_mut();
    Ok(keys.ok_or("`auth.keys` must be a table")?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_change_without_affecting_the_rest_of_the_file() {
        let before = "# mine\n[gateway]\nwatch = false # so\n";
        let mut document: DocumentMut = before.parse().unwrap();
        let mut change = |name, change| {
            let made = apply(&mut document, name, change, 1000);
            let made = made.map(|key| key.map(|key| key.expose_secret().to_owned()));
            (made, document.to_string())
        };
        let add = |expires| {
            KeyChange::Add(NewKey {
                expires,
                ..NewKey::default()
            })
        };
        let late = || Some("2030-01-01T00:00:00Z".to_owned());
        let (first, text) = change("a", add(late()));
        let first = first.unwrap().unwrap();
        assert_eq!(first.len(), KEY_PREFIX.len() + 64);
        let hash = TokenHash::of(&first);
        let expected = format!(
            "{before}\n[auth.keys.a]\nhash = \"{hash}\"\nexpires = \"2030-01-01T00:00:00Z\"\n"
        );
        assert_eq!(text, expected);
        assert!(change("a", add(None)).0.unwrap_err().contains("rotate"));
        let (second, text) = change("a", KeyChange::Rotate(None));
        let second = second.unwrap().unwrap();
        assert_ne!(first, second);
        let expected = expected.replace(&hash.to_string(), &TokenHash::of(&second).to_string());
        assert_eq!(text, expected);
        let past = Some("1970-01-01T00:00:01Z".to_owned());
        assert!(
            change("a", KeyChange::Rotate(past))
                .0
                .unwrap_err()
                .contains("expires-in")
        );
        assert!(
            change("b", KeyChange::Remove)
                .0
                .unwrap_err()
                .contains("no key `b`")
        );
        assert!(change("b", KeyChange::Rotate(None)).0.is_err());
        assert!(change("a b", add(None)).0.is_err());
        assert_eq!(
            change("a", KeyChange::Remove),
            (Ok(None), before.to_owned())
        );
    }

    fn plain() -> KeyChange {
        KeyChange::Add(NewKey::default())
    }

    #[test]
    fn a_new_key_follows_the_last_comment() {
        for before in [
            "# mine\n",
            "[gateway]\nwatch = false\n\n# [servers.x]\n# url = \"y\"\n",
        ] {
            let mut document: DocumentMut = before.parse().unwrap();
            apply(&mut document, "a", plain(), 0).unwrap();
            let text = document.to_string();
            assert!(
                text.starts_with(&format!("{before}[auth.keys.a]\nhash")),
                "{text}"
            );
        }
    }

    #[test]
    fn a_key_keeps_its_scopes() {
        let mut document = DocumentMut::new();
        let add = KeyChange::Add(NewKey {
            scopes: vec!["mcpvisor:admin".to_owned(), "read".to_owned()],
            ..NewKey::default()
        });
        apply(&mut document, "a", add, 0).unwrap();
        apply(&mut document, "a", KeyChange::Rotate(None), 0).unwrap();
        let text = document.to_string();
        assert!(
            text.contains("scopes = [\"mcpvisor:admin\", \"read\"]\n"),
            "{text}"
        );
    }

    #[test]
    fn the_policy_of_a_key_comes_first_and_goes_with_the_key() {
        let before = "[gateway]\n[policies.a]\nwhen = \"true\"\n[policies.b]\nwhen = \"true\"\n";
        let mut document: DocumentMut = before.parse().unwrap();
        let add = KeyChange::Add(NewKey {
            servers: ["x", "y"].map(|it| ServerName::try_new(it).unwrap()).into(),
            ..NewKey::default()
        });
        apply(&mut document, "k.1", add, 0).unwrap();
        let text = document.to_string();
        let places = ["[policies.key-k_1]", "[policies.a]", "[policies.b]"].map(|it| text.find(it));
        assert!(places.is_sorted() && places[0].is_some(), "{text}");
        assert!(text.contains(r#"!(server in ["x", "y"])"#), "{text}");
        let mut document: DocumentMut = text.parse().unwrap();
        apply(&mut document, "k.1", KeyChange::Remove, 0).unwrap();
        assert_eq!(document.to_string(), before);
    }

    #[test]
    fn keys_in_an_inline_table_are_supported() {
        let text = "[auth]\nkeys = { a = { hash = \"x\" } }\n";
        let mut document: DocumentMut = text.parse().unwrap();
        apply(&mut document, "a", KeyChange::Rotate(None), 0).unwrap();
        apply(&mut document, "b", plain(), 0).unwrap();
        let text = document.to_string();
        let parsed: toml::Table = text.parse().unwrap();
        let keys = parsed["auth"]["keys"].as_table().unwrap();
        assert_eq!(keys.keys().collect::<Vec<_>>(), ["a", "b"], "{text}");
        assert_ne!(keys["a"]["hash"].as_str(), Some("x"));
    }
}
