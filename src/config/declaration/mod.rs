//! Declares the keys of `config.toml`, each once, with [`keys!`] in `config/keys`.
//!
//! Values are read into the settings of the components, which also define the defaults. The doc
//! comments of a declaration are the user-facing documentation of its keys. The declarations drive
//! the parser, the comparison of two files, the default file, the JSON Schema and the reference.

pub(crate) mod kinds;
pub(crate) mod texts;

use std::sync::Arc;

use serde_json::{Value as Json, json};

use super::section::Section;

/// A kind of value: how it is written, checked and described.
pub(crate) trait ValueKind {
    type Value: Clone;

    /// Describes the allowed values, to follow "must be"; quoted by errors and the reference.
    fn must_be(&self) -> String;

    /// The JSON Schema of a value.
    fn schema(&self) -> Json;

    /// The value as TOML; `None` for an absent or secret value.
    fn toml(&self, value: &Self::Value) -> Option<String>;

    /// Reads the key; `None` if it is missing or was refused.
    fn read(&self, section: &Section<'_>, key: &'static str) -> Option<Self::Value>;

    /// Reads the key into `place`, which is left unchanged if the file does not set the key.
    fn read_into(&self, section: &Section<'_>, key: &'static str, place: &mut Self::Value) {
        if let Some(value) = self.read(section, key) {
            *place = value;
        }
    }

    /// Formats a value for people.
    fn show(&self, value: &Self::Value) -> Option<String> {
        Some(self.toml(value)?.replace('"', ""))
    }

    /// Value that the default file shows instead of the default.
    fn example(&self) -> Option<&'static str> {
        None
    }

    /// Keys inside the value, if it is a table.
    fn table(&self) -> Option<KeyTable> {
        None
    }
}

/// A mark on a key in [`keys!`]. Changes to a key without a mark apply immediately.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    /// Changes apply when the gateway restarts.
    NeedsRestart,
    /// Changes reconnect the server.
    Reconnects,
    /// Changes are sent to every server.
    ForServers,
    ForStdioServers,
    ForHttpServers,
    /// The value can contain secrets.
    Secret,
}

/// A declared key, as the generators of documentation see it.
#[derive(Clone)]
pub(crate) struct Key {
    pub(crate) name: &'static str,
    /// One-line description.
    pub(crate) sentence: String,
    pub(crate) must_be: String,
    /// Default value in TOML; `None` if the key has none.
    pub(crate) default: Option<String>,
    pub(crate) example: Option<&'static str>,
    pub(crate) marks: &'static [Mark],
    /// Built when it is requested: the start of the gateway needs no schema.
    schema: Arc<dyn Fn() -> Json + Send + Sync>,
    pub(crate) table: Option<KeyTable>,
}

/// A declared table.
#[derive(Clone)]
pub(crate) struct KeyTable {
    /// Name of the table in errors, such as `[gateway]`.
    pub(crate) label: &'static str,
    pub(crate) about: String,
    pub(crate) keys: Vec<Key>,
    /// Line that replaces the table's keys in the default file if another table explains them.
    pub(crate) example: Option<&'static str>,
}

impl KeyTable {
    pub(crate) fn of<K: Keys>(label: &'static str) -> Self {
        Self {
            label,
            about: K::ABOUT.trim().to_owned(),
            keys: K::declared(),
            example: None,
        }
    }
}

impl Key {
    pub(crate) fn new<K: ValueKind + Send + Sync + 'static>(
        name: &'static str,
        doc_comment: &str,
        kind: K,
        default: &K::Value,
        marks: &'static [Mark],
    ) -> Self {
        Self {
            name,
            sentence: doc_comment.trim().to_owned(),
            must_be: kind.must_be(),
            default: kind.toml(default),
            example: kind.example(),
            marks,
            table: kind.table(),
            schema: Arc::new(move || kind.schema()),
        }
    }

    /// JSON Schema of the key within its table.
    pub(crate) fn property(&self) -> Json {
        let mut property = (self.schema)();
        property["description"] = json!(self.sentence);
        let default = self.default.as_ref().and_then(|default| {
            let table: toml::Table = toml::from_str(&format!("default = {default}")).ok()?;
            serde_json::to_value(table.get("default")?).ok()
        });
        if let Some(default) = default {
            property["default"] = default;
        }
        property
    }

    pub(crate) fn is(&self, mark: Mark) -> bool {
        self.marks.contains(&mark)
    }
}

/// One table of the file. Implemented by [`keys!`].
pub(crate) trait Keys: Send + Sync + 'static {
    /// The settings that hold the values of the keys.
    type Values: Clone + Default;

    /// Description of the table.
    const ABOUT: &'static str;

    /// All keys, in the order of their declaration.
    fn declared() -> Vec<Key>;

    /// Reads a table into the settings; settings that it does not mention stay unchanged.
    fn read(section: &Section<'_>, values: &mut Self::Values);

    /// The keys whose values differ.
    fn changed(one: &Self::Values, other: &Self::Values) -> Vec<Key>;

    /// Each key with its value; `None` if the value is secret or a table.
    fn shown(values: &Self::Values) -> Vec<(&'static str, Option<String>)>;

    /// Copies the values that need a restart from the running settings.
    fn keep_fixed(values: &mut Self::Values, running: &Self::Values);
}

/// Helps type inference match a kind to the type of its field.
pub(crate) fn of<V, K: ValueKind<Value = V>>(_place: &V, kind: K) -> K {
    kind
}

/// Declares the keys of one table and the settings that hold their values:
///
/// ```text
/// keys! {
///     /// Explains the table.
///     ExampleTable for ExampleSettings, check {
///         /// Explains the key.
///         idle_timeout in limits.idle: duration(SECOND..=30 * DAY), NeedsRestart;
///     }
/// }
/// ```
///
/// Each line is `key in place: kind, marks`. Without `in`, the place is the field with the key's
/// name. The default comes from the settings. The optional function `check` runs after the table
/// was read and validates values that depend on each other.
macro_rules! keys {
    (
        $(#[doc = $about:literal])+
        $table:ident for $values:ty $(, $check:path)? {
            $(
                $(#[doc = $sentence:literal])+
                $key:ident $(in $($place:ident).+)?: $kind:expr $(, $mark:ident)*;
            )+
        }
    ) => {
        $(#[doc = $about])+
        pub(crate) enum $table {}

        impl $crate::config::declaration::Keys for $table {
            type Values = $values;

            const ABOUT: &'static str = concat!($($about),+);

            fn declared() -> Vec<$crate::config::declaration::Key> {
                use $crate::config::declaration::{Key, Mark, of, place};
                let default = <$values>::default();
                vec![$({
                    let place = &place!(default, $key $($($place).+)?);
                    let (name, sentence) = (stringify!($key), concat!($($sentence),+));
                    const MARKS: &[Mark] = &[$(Mark::$mark),*];
                    Key::new(name, sentence, of(place, $kind), place, MARKS)
                }),+]
            }

            fn read(section: &$crate::config::section::Section<'_>, values: &mut $values) {
                use $crate::config::declaration::{ValueKind as _, of, place};
                $({
                    let place = &mut place!(values, $key $($($place).+)?);
                    of(place, $kind).read_into(section, stringify!($key), place);
                })+
                section.refuse_unknown(&[$(stringify!($key)),+]);
                $($check(values, section);)?
            }

            fn changed(one: &$values, other: &$values) -> Vec<$crate::config::declaration::Key> {
                use $crate::config::declaration::place;
                let is_changed = [$(
                    place!(one, $key $($($place).+)?) != place!(other, $key $($($place).+)?)
                ),+];
                let keys = Self::declared().into_iter().zip(is_changed);
                keys.filter(|(_, is_changed)| *is_changed).map(|(key, _)| key).collect()
            }

            fn shown(values: &$values) -> Vec<(&'static str, Option<String>)> {
                use $crate::config::declaration::{ValueKind as _, of, place};
                vec![$({
                    let place = &place!(values, $key $($($place).+)?);
                    (stringify!($key), of(place, $kind).show(place))
                }),+]
            }

            fn keep_fixed(values: &mut $values, running: &$values) {
                use $crate::config::declaration::{Mark, place};
                $(if <[Mark]>::contains(&[$(Mark::$mark),*], &Mark::NeedsRestart) {
                    place!(values, $key $($($place).+)?)
                        .clone_from(&place!(running, $key $($($place).+)?));
                })+
            }
        }
    };
}

/// The settings field that holds a key's value.
macro_rules! place {
    ($values:ident, $key:ident) => { $values.$key };
    ($values:ident, $key:ident $($place:ident).+) => { $values.$($place).+ };
}

pub(crate) use {keys, place};
