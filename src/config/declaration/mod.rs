//! How a key of `config.toml` is declared: once, with [`keys!`], in `config/keys`.
//!
//! A declaration is a struct whose doc comments are what users read of its keys. From it come the
//! reading of the file, the comparison of two files, and what is written about the keys: the
//! default file, the JSON Schema and the reference.

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

    /// Reads the key where `base` holds unless the file says otherwise.
    fn read_over(
        &self,
        section: &Section<'_>,
        key: &'static str,
        base: &Self::Value,
    ) -> Self::Value {
        self.read(section, key).unwrap_or_else(|| base.clone())
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

/// The keys of one table with their values. Implemented by [`keys!`].
pub(crate) trait Keys: Clone + Default {
    /// The explanation of the table.
    const ABOUT: &'static str;

    /// In the order of their declaration.
    fn declared() -> Vec<Key>;

    /// Reads a table; what it does not say is as in `base`.
    fn read(section: &Section<'_>, base: &Self) -> Self;

    /// The keys that have another value in `other`.
    fn changed(&self, other: &Self) -> Vec<Key>;

    /// Each key with its value; `None` if it is secret or a table.
    fn shown(&self) -> Vec<(&'static str, Option<String>)>;

    /// Takes over the values that need a restart from those that run.
    fn keep_fixed(&mut self, running: &Self);
}

/// Helps the compiler to see that a kind fits the type of its field.
pub(crate) fn of<V, K: ValueKind<Value = V>>(kind: K) -> K {
    kind
}

/// Declares the keys of one table:
///
/// ```text
/// keys! {
///     /// Explains the table.
///     struct ExampleKeys, check {
///         /// Explains the key.
///         idle_timeout: Duration = 30 * MINUTE, duration(SECOND..=30 * DAY), NeedsRestart;
///     }
/// }
/// ```
///
/// that is `name: type = default, kind, marks`. `check` is called with the values that were read
/// and the section; it judges values that concern each other, and may be left out.
macro_rules! keys {
    (
        $(#[doc = $about:literal])+
        struct $name:ident $(, $check:path)? {
            $(
                $(#[doc = $sentence:literal])+
                $key:ident: $value:ty = $default:expr, $kind:expr $(, $mark:ident)*;
            )+
        }
    ) => {
        $(#[doc = $about])+
        #[derive(Clone, PartialEq)]
        pub(crate) struct $name {
            $($(#[doc = $sentence])+ pub(crate) $key: $value,)+
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $($key: $default,)+ }
            }
        }

        /// Without values, since some are secret.
        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.debug_struct(stringify!($name)).finish_non_exhaustive()
            }
        }

        impl $crate::config::declaration::Keys for $name {
            const ABOUT: &'static str = concat!($($about),+);

            fn declared() -> Vec<$crate::config::declaration::Key> {
                use $crate::config::declaration::{Key, Mark, of};
                let default = Self::default();
                vec![$({
                    let kind = of::<$value, _>($kind);
                    let (name, sentence) = (stringify!($key), concat!($($sentence),+));
                    const MARKS: &[Mark] = &[$(Mark::$mark),*];
                    Key::new(name, sentence, &kind, &default.$key, MARKS)
                }),+]
            }

            fn read(section: &$crate::config::section::Section<'_>, base: &Self) -> Self {
                use $crate::config::declaration::{ValueKind as _, of};
                #[allow(unused_mut, reason = "not every table has a check")]
                let mut keys = Self {
                    $($key: of::<$value, _>($kind).read_over(section, stringify!($key), &base.$key),)+
                };
                section.refuse_unknown(&[$(stringify!($key)),+]);
                $($check(&mut keys, section);)?
                keys
            }

            fn changed(&self, other: &Self) -> Vec<$crate::config::declaration::Key> {
                let is_changed = [$(self.$key != other.$key),+];
                let keys = Self::declared().into_iter().zip(is_changed);
                keys.filter(|(_, is_changed)| *is_changed).map(|(key, _)| key).collect()
            }

            fn shown(&self) -> Vec<(&'static str, Option<String>)> {
                use $crate::config::declaration::{ValueKind as _, of};
                vec![$((stringify!($key), of::<$value, _>($kind).show(&self.$key))),+]
            }

            fn keep_fixed(&mut self, running: &Self) {
                use $crate::config::declaration::Mark;
                $(if <[Mark]>::contains(&[$(Mark::$mark),*], &Mark::NeedsRestart) {
                    self.$key = running.$key.clone();
                })+
            }
        }
    };
}

pub(crate) use keys;
