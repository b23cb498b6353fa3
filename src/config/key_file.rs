//! Changes the API keys of a configuration file, for `mcpvisor keys`.

use std::path::{Path, PathBuf};

use secrecy::{ExposeSecret as _, SecretString};
use toml_edit::{DocumentMut, Item, Table, TableLike};

use super::environment::Environment;
use super::keys::is_key_name;
use super::server_file::{check, replace};
use super::{Config, ConfigError, json as json_file, place};
use crate::auth::{TokenHash, expiry_millis, random_token};

/// Prefix of every key, so that people and secret scanners recognise one.
const KEY_PREFIX: &str = "mcpvisor_";

/// The file whose keys are changed.
pub struct KeyFile<'a> {
    path: PathBuf,
    environment: &'a dyn Environment,
}

/// A change to the keys of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyChange {
    /// Creates a key with scopes and an optional expiry time (RFC 3339).
    Add {
        expires: Option<String>,
        scopes: Vec<String>,
    },
    /// Replaces a key with a new one. The new key expires at this time, or when the old one would
    /// have.
    Rotate(Option<String>),
    Remove,
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
    let expires = |known: &dyn TableLike| Some(known.get("expires")?.as_str()?.to_owned());
    let (expires, scopes) = match (change, known) {
        (KeyChange::Add { .. }, Some(_)) => {
            return Err(format!(
                "key `{name}` already exists: `mcpvisor keys rotate {name}` replaces it"
            ));
        }
        (KeyChange::Rotate(_) | KeyChange::Remove, None) => {
            return Err(format!(
                "the configuration has no key `{name}`: `mcpvisor keys` lists its keys"
            ));
        }
        (KeyChange::Remove, Some(_)) => {
            keys.remove(name);
            return Ok(None);
        }
        (KeyChange::Add { expires, scopes }, None) => (expires, scopes),
        (KeyChange::Rotate(at @ Some(_)), _) => (at, Vec::new()),
        (KeyChange::Rotate(None), Some(known)) => (expires(known), Vec::new()),
    };
    if let Some(expires) = &expires
        && expiry_millis(expires).is_some_and(|expires| expires <= now)
    {
        return Err(format!(
            "key `{name}` would already be expired: set a new lifetime with `--expires-in`"
        ));
    }
    let token = random_token().map_err(|error| error.to_string())?;
    let key = SecretString::from(format!("{KEY_PREFIX}{}", token.expose_secret()));
    let hash = TokenHash::of(key.expose_secret()).to_string();
    let is_new = known.is_none();
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
    if let Some(expires) = expires {
        entry.insert("expires", toml_edit::value(expires));
    }
    if !scopes.is_empty() {
        let scopes: toml_edit::Array = scopes.iter().collect();
        entry.insert("scopes", toml_edit::value(scopes));
    }
    if is_at_end {
        document.set_trailing("");
    }
    Ok(Some(key))
}

/// Returns the table of all keys, creating it if it is missing.
fn keys_of(document: &mut DocumentMut) -> Result<&mut dyn TableLike, String> {
    fn implicit() -> Item {
        let mut table = Table::new();
        table.set_implicit(true);
        Item::Table(table)
    }
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
        let add = |expires| KeyChange::Add {
            expires,
            scopes: Vec::new(),
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
        KeyChange::Add {
            expires: None,
            scopes: Vec::new(),
        }
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
        let add = KeyChange::Add {
            expires: None,
            scopes: vec!["mcpvisor:admin".to_owned(), "read".to_owned()],
        };
        apply(&mut document, "a", add, 0).unwrap();
        apply(&mut document, "a", KeyChange::Rotate(None), 0).unwrap();
        let text = document.to_string();
        assert!(
            text.contains("scopes = [\"mcpvisor:admin\", \"read\"]\n"),
            "{text}"
        );
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
