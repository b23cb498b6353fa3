//! Value kinds for numbers, choices and tables.

use std::fmt::Display;
use std::marker::PhantomData;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

use serde::Serialize;
use serde_json::{Map, Value as Json, json};

use super::texts::texts;
use super::{Key, KeyTable, Keys, ValueKind};
use crate::config::checks::{VARIABLES, glob};
use crate::config::problem::nearest;
use crate::config::section::{Scalar, Section, ValueError};
use crate::config::units::{parse_duration, parse_size, show_duration, show_size};
use crate::transport::InheritEnv;

/// Schema of a value that can also be written as a string with `${…}`.
fn or_variable(schema: Json) -> Json {
    json!({ "anyOf": [schema, { "$ref": "#/$defs/variable" }] })
}

/// Integer types that settings use.
pub(crate) trait Whole:
    Copy + Display + FromStr + Serialize + TryFrom<u64> + TryInto<u64>
{
}

impl<T: Copy + Display + FromStr + Serialize + TryFrom<u64> + TryInto<u64>> Whole for T {}

fn whole<T: Whole>(written: Option<i64>) -> Option<T> {
    T::try_from(u64::try_from(written?).ok()?).ok()
}

/// A number, duration or size within limits.
pub(crate) struct RangeKind<T> {
    name: &'static str,
    allowed: RangeInclusive<T>,
    parse: fn(&Scalar) -> Option<T>,
    toml: fn(&T) -> String,
    schema: fn(&RangeInclusive<T>) -> Json,
    needs_unit: bool,
}

pub(crate) fn duration(allowed: RangeInclusive<Duration>) -> RangeKind<Duration> {
    RangeKind {
        name: "a duration",
        allowed,
        parse: |scalar| match scalar {
            Scalar::Text { text, .. } => parse_duration(text),
            _ => None,
        },
        toml: |value| format!("\"{}\"", show_duration(*value)),
        schema: |_| json!({ "$ref": "#/$defs/duration" }),
        needs_unit: true,
    }
}

/// A size in bytes.
pub(crate) fn size<T: Whole>(allowed: RangeInclusive<T>) -> RangeKind<T> {
    RangeKind {
        name: "a size",
        allowed,
        parse: |scalar| match scalar {
            Scalar::Text { text, .. } => T::try_from(parse_size(text)?).ok(),
            Scalar::Integer(number) => whole(*number),
            _ => None,
        },
        toml: |value| format!("\"{}\"", show_size((*value).try_into().unwrap_or(u64::MAX))),
        schema: |allowed| {
            let bytes = number_schema("integer", allowed);
            json!({ "anyOf": [bytes, { "$ref": "#/$defs/size" }] })
        },
        needs_unit: false,
    }
}

/// An integer.
pub(crate) fn count<T: Whole>(allowed: RangeInclusive<T>) -> RangeKind<T> {
    RangeKind {
        name: "a number",
        allowed,
        parse: |scalar| match scalar {
            Scalar::Integer(number) => whole(*number),
            filled_in => filled_in.parse(),
        },
        toml: |value| value.to_string(),
        schema: |allowed| or_variable(number_schema("integer", allowed)),
        needs_unit: false,
    }
}

/// A number that can have a fraction.
pub(crate) fn factor(allowed: RangeInclusive<f64>) -> RangeKind<f64> {
    RangeKind {
        name: "a number",
        allowed,
        parse: |scalar| match scalar {
            Scalar::Float(number) => Some(*number),
            Scalar::Integer(number) => number.map(|number| number as f64),
            filled_in => filled_in.parse(),
        },
        toml: |value| format!("{value:?}"),
        schema: |allowed| or_variable(number_schema("number", allowed)),
        needs_unit: false,
    }
}

fn number_schema<T: Serialize>(name: &str, allowed: &RangeInclusive<T>) -> Json {
    json!({ "type": name, "minimum": allowed.start(), "maximum": allowed.end() })
}

impl<T: Copy + PartialOrd> ValueKind for RangeKind<T> {
    type Value = T;

    fn must_be(&self) -> String {
        let bound = |value: &T| match (self.toml)(value) {
            quoted if quoted.starts_with('"') => format!("`{quoted}`"),
            number => number.trim_end_matches(".0").to_owned(),
        };
        let (from, to) = (bound(self.allowed.start()), bound(self.allowed.end()));
        let never = if from == "`\"0s\"`" {
            " (`\"0s\"` turns it off)"
        } else {
            ""
        };
        format!("{} from {from} to {to}{never}", self.name)
    }

    fn schema(&self) -> Json {
        (self.schema)(&self.allowed)
    }

    fn toml(&self, value: &T) -> Option<String> {
        Some((self.toml)(value))
    }

    fn read(&self, section: &Section<'_>, key: &'static str) -> Option<T> {
        section.scalar(
            key,
            || self.must_be(),
            |scalar| {
                let value = (self.parse)(scalar).filter(|value| self.allowed.contains(value));
                value.ok_or_else(|| match scalar {
                    Scalar::Integer(Some(number)) if self.needs_unit && *number >= 0 => {
                        let help = format!("write it with its unit, such as `\"{number}s\"`");
                        ValueError::as_declared().help(&help)
                    }
                    _ => ValueError::as_declared(),
                })
            },
        )
    }
}

/// `true` or `false`.
pub(crate) struct FlagKind;

pub(crate) fn flag() -> FlagKind {
    FlagKind
}

impl ValueKind for FlagKind {
    type Value = bool;

    fn must_be(&self) -> String {
        "`true` or `false`".to_owned()
    }

    fn schema(&self) -> Json {
        or_variable(json!({ "type": "boolean" }))
    }

    fn toml(&self, value: &bool) -> Option<String> {
        Some(value.to_string())
    }

    fn read(&self, section: &Section<'_>, key: &'static str) -> Option<bool> {
        section.scalar(key, || self.must_be(), Self::parse)
    }
}

impl FlagKind {
    pub(crate) fn parse(scalar: &Scalar) -> Result<bool, ValueError> {
        let flag = match scalar {
            Scalar::Flag(flag) => Some(*flag),
            filled_in => filled_in.parse(),
        };
        flag.ok_or_else(ValueError::as_declared)
    }
}

/// Exit codes of a program.
pub(crate) struct ExitCodesKind;

impl ValueKind for ExitCodesKind {
    type Value = Vec<i32>;

    fn must_be(&self) -> String {
        "an array of exit codes from 0 to 255".to_owned()
    }

    fn schema(&self) -> Json {
        let code = json!({ "type": "integer", "minimum": 0, "maximum": 255 });
        json!({ "type": "array", "items": code })
    }

    fn toml(&self, codes: &Vec<i32>) -> Option<String> {
        let codes: Vec<String> = codes.iter().map(i32::to_string).collect();
        Some(format!("[{}]", codes.join(", ")))
    }

    fn read(&self, section: &Section<'_>, key: &'static str) -> Option<Vec<i32>> {
        let codes = section.small_integers(key, &self.must_be())?;
        Some(codes.into_iter().map(i32::from).collect())
    }
}

/// Which variables a program inherits: a flag, or globs over variable names.
pub(crate) struct InheritEnvKind;

impl ValueKind for InheritEnvKind {
    type Value = InheritEnv;

    fn must_be(&self) -> String {
        format!("`true`, `false` or an array of strings, each {VARIABLES}")
    }

    fn schema(&self) -> Json {
        let [flag, globs] = [flag().schema(), texts(VARIABLES, glob).schema()];
        json!({ "anyOf": [flag, globs] })
    }

    fn toml(&self, value: &InheritEnv) -> Option<String> {
        match value {
            InheritEnv::All => Some("true".to_owned()),
            InheritEnv::Matching(globs) if globs.is_empty() => Some("false".to_owned()),
            InheritEnv::Matching(globs) => texts(VARIABLES, glob).toml(globs),
        }
    }

    fn read(&self, section: &Section<'_>, key: &'static str) -> Option<InheritEnv> {
        if section.is_array(key) {
            let globs = texts(VARIABLES, glob).read(section, key)?;
            return Some(InheritEnv::Matching(globs));
        }
        let all = section.scalar(key, || self.must_be(), FlagKind::parse)?;
        Some(if all {
            InheritEnv::All
        } else {
            InheritEnv::default()
        })
    }
}

/// One of a few words; several words can share a meaning.
pub(crate) struct ChoiceKind<T: 'static>(&'static [(&'static str, T)]);

pub(crate) fn choice<T>(words: &'static [(&'static str, T)]) -> ChoiceKind<T> {
    ChoiceKind(words)
}

impl<T> ChoiceKind<T> {
    fn words(&self) -> impl Iterator<Item = &'static str> {
        self.0.iter().map(|(word, _)| *word)
    }
}

impl<T: Copy + PartialEq> ValueKind for ChoiceKind<T> {
    type Value = T;

    fn must_be(&self) -> String {
        let words: Vec<&str> = self.words().collect();
        format!("one of `\"{}\"`", words.join("\"`, `\""))
    }

    fn schema(&self) -> Json {
        or_variable(json!({ "enum": self.words().collect::<Vec<_>>() }))
    }

    fn toml(&self, value: &T) -> Option<String> {
        let (word, _) = self.0.iter().find(|(_, choice)| choice == value)?;
        Some(format!("\"{word}\""))
    }

    fn read(&self, section: &Section<'_>, key: &'static str) -> Option<T> {
        section.scalar(
            key,
            || self.must_be(),
            |scalar| {
                let must_be = ValueError::as_declared();
                let Scalar::Text { text, is_filled_in } = scalar else {
                    return Err(must_be);
                };
                match self.0.iter().find(|(word, _)| word == text) {
                    Some((_, choice)) => Ok(*choice),
                    None if *is_filled_in => Err(must_be),
                    None => Err(match nearest(text, self.words()) {
                        Some(word) => must_be.help(&format!("did you mean `\"{word}\"`?")),
                        None => must_be,
                    }),
                }
            },
        )
    }
}

/// A value that can be absent.
pub(crate) struct OptionalKind<K> {
    kind: K,
    example: &'static str,
}

/// `example` is shown in the default file, as TOML.
pub(crate) fn optional<K>(kind: K, example: &'static str) -> OptionalKind<K> {
    OptionalKind { kind, example }
}

impl<K: ValueKind> ValueKind for OptionalKind<K> {
    type Value = Option<K::Value>;

    fn must_be(&self) -> String {
        self.kind.must_be()
    }

    fn schema(&self) -> Json {
        self.kind.schema()
    }

    fn toml(&self, value: &Option<K::Value>) -> Option<String> {
        self.kind.toml(value.as_ref()?)
    }

    fn read(&self, section: &Section<'_>, key: &'static str) -> Option<Option<K::Value>> {
        self.kind.read(section, key).map(Some)
    }

    fn show(&self, value: &Option<K::Value>) -> Option<String> {
        match value {
            Some(value) => self.kind.show(value),
            None => Some("none".to_owned()),
        }
    }

    fn example(&self) -> Option<&'static str> {
        Some(self.example)
    }
}

/// A table with keys of its own.
pub(crate) struct TableKind<S> {
    label: &'static str,
    example: Option<&'static str>,
    keys: PhantomData<S>,
}

/// `label` names the table in errors.
pub(crate) fn table<S>(label: &'static str) -> TableKind<S> {
    TableKind {
        label,
        example: None,
        keys: PhantomData,
    }
}

impl<S> TableKind<S> {
    /// Shows this line in the default file instead of the table's keys, which are explained
    /// elsewhere.
    pub(crate) fn such_as(self, example: &'static str) -> Self {
        Self {
            example: Some(example),
            ..self
        }
    }
}

impl<S: Keys> ValueKind for TableKind<S> {
    type Value = S::Values;

    fn must_be(&self) -> String {
        "a table".to_owned()
    }

    fn schema(&self) -> Json {
        table_schema(&S::declared())
    }

    fn toml(&self, _: &S::Values) -> Option<String> {
        None
    }

    fn read(&self, section: &Section<'_>, key: &'static str) -> Option<S::Values> {
        let mut values = S::Values::default();
        self.read_into(section, key, &mut values);
        Some(values)
    }

    fn read_into(&self, section: &Section<'_>, key: &'static str, place: &mut S::Values) {
        S::read(&section.table(key), place);
    }

    fn table(&self) -> Option<KeyTable> {
        Some(KeyTable {
            example: self.example,
            ..KeyTable::of::<S>(self.label)
        })
    }
}

/// A table of named tables that all have the same keys. Reads nothing itself: the entries are read
/// by name, on top of defaults from other tables.
pub(crate) struct NamedTablesKind<S> {
    label: &'static str,
    name_pattern: &'static str,
    keys: PhantomData<S>,
}

pub(crate) fn named_tables<S>(
    label: &'static str,
    name_pattern: &'static str,
) -> NamedTablesKind<S> {
    NamedTablesKind {
        label,
        name_pattern,
        keys: PhantomData,
    }
}

impl<S: Keys> ValueKind for NamedTablesKind<S> {
    type Value = ();

    fn must_be(&self) -> String {
        "a table of tables".to_owned()
    }

    fn schema(&self) -> Json {
        json!({
            "type": "object",
            "propertyNames": { "pattern": self.name_pattern },
            "additionalProperties": table_schema(&S::declared()),
        })
    }

    fn toml(&self, (): &()) -> Option<String> {
        None
    }

    fn read(&self, _: &Section<'_>, _: &'static str) -> Option<()> {
        None
    }

    fn table(&self) -> Option<KeyTable> {
        Some(KeyTable::of::<S>(self.label))
    }
}

/// JSON Schema of a table that allows only these keys.
pub(crate) fn table_schema(keys: &[Key]) -> Json {
    let properties: Map<String, Json> = keys
        .iter()
        .map(|key| (key.name.to_owned(), key.property()))
        .collect();
    json!({ "type": "object", "additionalProperties": false, "properties": properties })
}
