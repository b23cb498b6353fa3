//! How a key of `config.toml` is declared: once, with [`keys!`], in `config/keys`.
//!
//! The values are read into the settings of the parts, which also have the defaults. Doc comments
//! of a declaration are what users read of its keys. From it come the reading of the file, the
//! comparison of two files, and what is written about the keys: the default file, the JSON Schema
//! and the reference.

pub(crate) mod kinds;
pub(crate) mod texts;

use serde_json::{Value as Json, json};

use super::section::Section;

/// A kind of value: how it is written, checked and described.
pub(crate) trait ValueKind {
    type Value: Clone;

    /// The values that are allowed, in words after "must be"; errors and the reference quote it.
    fn must_be(&self) -> String;

    /// The JSON Schema of a value.
    fn schema(&self) -> Json;

    /// A value as it is written in the file; `None` for no value, and for secrets.
    fn toml(&self, value: &Self::Value) -> Option<String>;

    /// Reads the key; `None` when it is not there, or was refused.
    fn read(&self, section: &Section<'_>, key: &'static str) -> Option<Self::Value>;

    /// Reads the key into its place, which stays as it is when the file does not say otherwise.
    fn read_into(&self, section: &Section<'_>, key: &'static str, place: &mut Self::Value) {
        if let Some(value) = self.read(section, key) {
            *place = value;
        }
    }

    /// A value for people.
    fn show(&self, value: &Self::Value) -> Option<String> {
        Some(self.toml(value)?.replace('"', ""))
    }

    /// A value to show in the default file instead of the default.
    fn example(&self) -> Option<&'static str> {
        None
    }

    /// The keys inside, for a table.
    fn table(&self) -> Option<KeyTable> {
        None
    }
}

/// A mark behind a key in [`keys!`]. A change of a key without a mark is applied at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    /// A change is applied by the next start of the gateway.
    NeedsRestart,
    /// A change ends the connections of the server, and begins new ones.
    Reconnects,
    /// A change is handed to every server.
    ForServers,
    ForStdioServers,
    ForHttpServers,
    /// Its texts may be secret.
    Secret,
}

/// A declared key, for those who write about it.
#[derive(Clone, Debug)]
pub(crate) struct Key {
    pub(crate) name: &'static str,
    /// Its explanation, in one line.
    pub(crate) sentence: String,
    pub(crate) must_be: String,
    /// Its default in TOML; `None` where there is none.
    pub(crate) default: Option<String>,
    pub(crate) example: Option<&'static str>,
    pub(crate) marks: &'static [Mark],
    pub(crate) schema: Json,
    pub(crate) table: Option<KeyTable>,
}

/// A declared table.
#[derive(Clone, Debug)]
pub(crate) struct KeyTable {
    /// How errors call it, as `[gateway]`.
    pub(crate) label: &'static str,
    pub(crate) about: String,
    pub(crate) keys: Vec<Key>,
    /// A line that stands for its keys in the default file, where another table explains them.
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
    pub(crate) fn new<K: ValueKind>(
        name: &'static str,
        doc_comment: &str,
        kind: &K,
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
            schema: kind.schema(),
            table: kind.table(),
        }
    }

    /// The key in the JSON Schema of its table.
    pub(crate) fn property(&self) -> Json {
        let mut property = self.schema.clone();
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
pub(crate) trait Keys {
    /// The settings that hold the values of the keys.
    type Values: Clone + Default;

    /// The explanation of the table.
    const ABOUT: &'static str;

    /// In the order of their declaration.
    fn declared() -> Vec<Key>;

    /// Reads a table into the settings; what it does not say stays as it is.
    fn read(section: &Section<'_>, values: &mut Self::Values);

    /// The keys whose values differ.
    fn changed(one: &Self::Values, other: &Self::Values) -> Vec<Key>;

    /// Each key with its value; `None` if it is secret or a table.
    fn shown(values: &Self::Values) -> Vec<(&'static str, Option<String>)>;

    /// Takes over the values that need a restart from those that run.
    fn keep_fixed(values: &mut Self::Values, running: &Self::Values);
}

/// Helps the compiler to see that a kind fits the type of its place.
pub(crate) fn of<V, K: ValueKind<Value = V>>(_place: &V, kind: K) -> K {
    kind
}

/// Declares the keys of one table, and in which settings their values are kept:
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
/// that is `key in place: kind, marks`. Without `in` the place is the field of the same name. The
/// default is the one of the settings. `check` is called with the settings after the table was
/// read; it judges values that concern each other, and may be left out.
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
                    Key::new(name, sentence, &of(place, $kind), place, MARKS)
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

/// The place of a key in its settings.
macro_rules! place {
    ($values:ident, $key:ident) => { $values.$key };
    ($values:ident, $key:ident $($place:ident).+) => { $values.$($place).+ };
}

pub(crate) use {keys, place};
