//! Typed access to one table of the file, with the position of every key.
//!
//! Problems are collected by the [`Reader`]; reading continues after an error.

use std::borrow::Cow;
use std::ops::Range;

use serde_json::{Map, Value as Json};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::interpolate::{InterpolationError, interpolate};
use super::problem::Problem;
use super::reader::Reader;

/// Where to report a problem caused by the environment.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Scope {
    /// Adds it to the problems of the file.
    Gateway,
    /// Makes one server unusable; other servers still run.
    Server,
}

/// A value that is neither a table nor an array.
pub(crate) enum Scalar {
    Text {
        text: String,
        /// Whether it contained a `${…}`.
        is_filled_in: bool,
    },
    /// `None` if the number is out of range.
    Integer(Option<i64>),
    Float(f64),
    Flag(bool),
    Other,
}

impl Scalar {
    /// Parses a number or flag that came from a variable.
    pub(crate) fn parse<T: std::str::FromStr>(&self) -> Option<T> {
        match self {
            Self::Text {
                text,
                is_filled_in: true,
            } => text.trim().parse().ok(),
            _ => None,
        }
    }
}

/// One string with its position.
#[derive(Clone)]
pub(crate) struct ConfigText {
    pub(crate) value: String,
    /// The full key, including the index in an array.
    path: String,
    span: Range<usize>,
    is_filled_in: bool,
}

/// Why a value is refused: describes what it must be, and never quotes the value.
pub(crate) struct ValueError {
    /// `None` uses the description of the declaration.
    must_be: Option<String>,
    help: Option<String>,
}

impl ValueError {
    pub(crate) fn as_declared() -> Self {
        Self {
            must_be: None,
            help: None,
        }
    }

    pub(crate) fn help(mut self, help: &str) -> Self {
        self.help = Some(help.to_owned());
        self
    }
}

impl From<&str> for ValueError {
    fn from(must_be: &str) -> Self {
        Self {
            must_be: Some(must_be.to_owned()),
            help: None,
        }
    }
}

/// One table of the file, or the place where it could be.
pub(crate) struct Section<'r> {
    pub(crate) reader: &'r Reader<'r>,
    path: String,
    scope: Scope,
    table: Option<&'r DeTable<'r>>,
    /// Span of the table's name.
    named_at: Option<Range<usize>>,
}

impl<'r> Section<'r> {
    /// The root table of a document.
    pub(crate) fn root(reader: &'r Reader<'r>, table: &'r DeTable<'r>) -> Self {
        Self {
            reader,
            path: String::new(),
            scope: Scope::Gateway,
            table: Some(table),
            named_at: None,
        }
    }

    /// The full path of a key of this section.
    pub(crate) fn path(&self, key: &str) -> String {
        if self.path.is_empty() {
            key.to_owned()
        } else {
            format!("{}.{key}", self.path)
        }
    }

    /// The full path of this section.
    pub(crate) fn name(&self) -> &str {
        &self.path
    }

    fn entry(&self, key: &str) -> Option<&'r Spanned<DeValue<'r>>> {
        self.table?.get(key)
    }

    /// The raw string of a key, with `${…}` not filled in.
    pub(crate) fn written_text(&self, key: &str) -> Option<&'r str> {
        self.entry(key)?.get_ref().as_str()
    }

    /// Whether the value of a key is an array.
    pub(crate) fn is_array(&self, key: &str) -> bool {
        self.entry(key)
            .is_some_and(|value| value.get_ref().is_array())
    }

    /// Whether the file sets a key.
    pub(crate) fn has(&self, key: &str) -> bool {
        self.entry(key).is_some()
    }

    /// A table inside this one; empty if the file does not have it.
    pub(crate) fn table(&self, key: &str) -> Section<'r> {
        let entry = self.entry(key);
        Section {
            reader: self.reader,
            path: self.path(key),
            scope: self.scope,
            table: entry.and_then(|value| self.as_table(key, value)),
            named_at: entry.map(Spanned::span),
        }
    }

    /// The servers inside this table, like [`Section::named_tables`]; a value missing in the
    /// environment makes only the affected server unusable.
    pub(crate) fn servers(&self) -> Vec<(&'r str, Range<usize>, Section<'r>)> {
        let mut servers = self.named_tables();
        for (_, _, section) in &mut servers {
            section.scope = Scope::Server;
        }
        servers
    }

    /// The tables inside this one, in file order, each with the span of its name.
    pub(crate) fn named_tables(&self) -> Vec<(&'r str, Range<usize>, Section<'r>)> {
        let entries = self.table.into_iter().flat_map(|table| table.iter());
        let named = |(key, value): (&'r Spanned<_>, &'r Spanned<DeValue<'r>>)| {
            let name: &'r Cow<'r, str> = key.get_ref();
            let section = Section {
                reader: self.reader,
                path: self.path(name),
                scope: self.scope,
                table: Some(self.as_table(name, value)?),
                named_at: Some(key.span()),
            };
            Some((name.as_ref(), key.span(), section))
        };
        entries.filter_map(named).collect()
    }

    /// The named tables inside this one, in file order.
    pub(crate) fn tables(&self) -> Vec<(&'r str, Section<'r>)> {
        let names = self.table.into_iter().flat_map(|table| table.keys());
        let names = names.map(|name| name.get_ref().as_ref());
        names.map(|name| (name, self.table(name))).collect()
    }

    fn as_table(&self, key: &str, value: &'r Spanned<DeValue<'r>>) -> Option<&'r DeTable<'r>> {
        let table = value.get_ref().as_table();
        if table.is_none() {
            let path = self.path(key);
            let message = format!("`{path}` must be a table");
            self.reader
                .problem(Problem::new(&path, message).at(Some(value.span())));
        }
        table
    }

    /// Reports every key that is not in `known`.
    pub(crate) fn refuse_unknown(&self, known: &[&'static str]) {
        for key in self.table.into_iter().flat_map(|table| table.keys()) {
            let name: &str = key.get_ref();
            if !known.contains(&name) {
                let path = self.path(name);
                self.reader.unknown_key(name, &path, key.span(), known);
            }
        }
    }

    /// Parses and checks a value; problems are reported.
    pub(crate) fn checked<T>(
        &self,
        text: &ConfigText,
        must_be: &str,
        result: Result<T, ValueError>,
    ) -> Option<T> {
        let refuse = |error| {
            let span = text.span.clone();
            self.refuse_value(&text.path, span, text.is_filled_in, must_be, error);
        };
        result.map_err(refuse).ok()
    }

    /// Reports an invalid value: as a problem of the file or, if the environment contributed to a
    /// server's value, of this server only.
    fn refuse_value(
        &self,
        path: &str,
        span: Range<usize>,
        is_filled_in: bool,
        must_be: &str,
        error: ValueError,
    ) {
        let from = if is_filled_in {
            " (after `${…}` was filled in)"
        } else {
            ""
        };
        let must_be = error.must_be.as_deref().unwrap_or(must_be);
        let message = format!("`{path}`{from} must be {must_be}");
        if is_filled_in && self.scope == Scope::Server {
            self.reader.unusable(message);
        } else {
            self.reader
                .problem(Problem::new(path, message).at(Some(span)).help(error.help));
        }
    }

    /// Reports conflicting keys; points at the first of them in the file.
    pub(crate) fn refuse(&self, keys: &[&str], message: String, help: impl Into<Option<String>>) {
        let table = self.table;
        let written = keys.iter().find_map(|key| table?.get_key_value(*key));
        let span = written.map(|(key, value)| key.span().start..value.span().end);
        let key = keys.first().copied().unwrap_or_default();
        self.reader
            .problem(Problem::new(&self.path(key), message).at(span).help(help));
    }

    /// Reports that the whole section is invalid; points at its name.
    pub(crate) fn refuse_table(&self, message: String, help: impl Into<Option<String>>) {
        let problem = Problem::new(&self.path, message)
            .at(self.named_at.clone())
            .help(help);
        self.reader.problem(problem);
    }

    /// Fills in a string; failures are reported.
    fn fill_in(&self, path: &str, span: &Range<usize>, text: &str) -> Option<String> {
        match interpolate(text, self.reader.interpolation) {
            Ok(value) => Some(value.into_owned()),
            Err(InterpolationError::Missing { what, .. }) if self.scope == Scope::Server => {
                self.reader.unusable(format!("`{path}`: {what}"));
                None
            }
            Err(InterpolationError::Missing { what, help }) => {
                let problem = Problem::new(path, format!("`{path}`: {what}"));
                self.reader
                    .problem(problem.at(Some(span.clone())).help(help));
                None
            }
            Err(InterpolationError::Written(what)) => {
                let problem = Problem::new(path, format!("`{path}` contains {what}"));
                self.reader.problem(problem.at(Some(span.clone())));
                None
            }
        }
    }

    /// Parses the value of a key with `parse`.
    pub(crate) fn scalar<T>(
        &self,
        key: &str,
        must_be: impl FnOnce() -> String,
        parse: impl FnOnce(&Scalar) -> Result<T, ValueError>,
    ) -> Option<T> {
        let value = self.entry(key)?;
        let path = self.path(key);
        let scalar = match value.get_ref() {
            DeValue::String(text) => Scalar::Text {
                text: self.fill_in(&path, &value.span(), text)?,
                is_filled_in: text.contains("${"),
            },
            DeValue::Integer(number) => {
                let digits = number.as_str();
                Scalar::Integer(i64::from_str_radix(digits, number.radix()).ok())
            }
            DeValue::Float(number) => Scalar::Float(number.as_str().parse().unwrap_or(f64::NAN)),
            DeValue::Boolean(flag) => Scalar::Flag(*flag),
            _ => Scalar::Other,
        };
        let is_filled_in = matches!(&scalar, Scalar::Text { is_filled_in, .. } if *is_filled_in);
        let refuse = |error| {
            self.refuse_value(&path, value.span(), is_filled_in, &must_be(), error);
        };
        parse(&scalar).map_err(refuse).ok()
    }

    pub(crate) fn text(&self, key: &str) -> Option<ConfigText> {
        self.text_of(self.path(key), self.entry(key)?)
    }

    fn text_of(&self, path: String, value: &Spanned<DeValue<'_>>) -> Option<ConfigText> {
        let span = value.span();
        let DeValue::String(text) = value.get_ref() else {
            let found = value.get_ref().type_str();
            let must_be = format!("a string in quotes, not {found}");
            self.refuse_value(&path, span, false, &must_be, ValueError::as_declared());
            return None;
        };
        Some(ConfigText {
            value: self.fill_in(&path, &span, text)?,
            path,
            span,
            is_filled_in: text.contains("${"),
        })
    }

    /// An array of strings; `None` if the file does not set it.
    pub(crate) fn texts(&self, key: &str) -> Option<Vec<ConfigText>> {
        let must_be = "an array of strings, such as `[\"a\", \"b\"]`";
        let entries = self.entries_of(key, must_be)?;
        let text = |(path, value)| self.text_of(path, value);
        Some(entries.into_iter().filter_map(text).collect())
    }

    /// A table of any values as JSON, in which strings are filled in; `None` if the file does not
    /// have it.
    pub(crate) fn json(&self, key: &str) -> Option<Map<String, Json>> {
        let value = self.entry(key)?;
        self.as_table(key, value)?;
        match self.json_of(&self.path(key), value) {
            Some(Json::Object(table)) => Some(table),
            _ => None,
        }
    }

    fn json_of(&self, path: &str, value: &Spanned<DeValue<'_>>) -> Option<Json> {
        Some(match value.get_ref() {
            DeValue::String(text) => Json::from(self.fill_in(path, &value.span(), text)?),
            DeValue::Integer(number) => {
                Json::from(i64::from_str_radix(number.as_str(), number.radix()).ok()?)
            }
            DeValue::Float(number) => Json::from(number.as_str().parse::<f64>().ok()?),
            DeValue::Boolean(flag) => Json::from(*flag),
            DeValue::Datetime(time) => Json::from(time.to_string()),
            DeValue::Array(values) => {
                let values = values.iter().map(|value| self.json_of(path, value));
                Json::Array(values.collect::<Option<_>>()?)
            }
            DeValue::Table(table) => {
                let members = table.iter().map(|(name, value)| {
                    Some((name.get_ref().to_string(), self.json_of(path, value)?))
                });
                Json::Object(members.collect::<Option<_>>()?)
            }
        })
    }

    /// An array of integers from 0 to 255; `None` if the file does not set it.
    pub(crate) fn small_integers(&self, key: &str, must_be: &str) -> Option<Vec<u8>> {
        let entries = self.entries_of(key, must_be)?;
        let read = |(path, value): (String, &Spanned<DeValue<'_>>)| {
            let number = match value.get_ref() {
                DeValue::Integer(number) => {
                    u8::from_str_radix(number.as_str(), number.radix()).ok()
                }
                _ => None,
            };
            if number.is_none() {
                let error = ValueError::as_declared();
                self.refuse_value(
                    &path,
                    value.span(),
                    false,
                    "an integer from 0 to 255",
                    error,
                );
            }
            number
        };
        Some(entries.into_iter().filter_map(read).collect())
    }

    /// The entries of an array with their paths; `None` if the file does not set it.
    fn entries_of(&self, key: &str, must_be: &str) -> Option<Vec<(String, &Spanned<DeValue<'r>>)>> {
        let value = self.entry(key)?;
        let path = self.path(key);
        let Some(array) = value.get_ref().as_array() else {
            let error = ValueError::as_declared();
            self.refuse_value(&path, value.span(), false, must_be, error);
            return None;
        };
        let entries = array.iter().enumerate();
        Some(
            entries
                .map(|(index, value)| (format!("{path}[{index}]"), value))
                .collect(),
        )
    }

    /// A table of named strings, in file order, with the position of each name; `None` if the file
    /// does not have it.
    pub(crate) fn named_texts(&self, key: &str) -> Option<Vec<(ConfigText, ConfigText)>> {
        let table = self.as_table(key, self.entry(key)?)?;
        let named = |(name, value): (&Spanned<Cow<'_, str>>, _)| {
            let path = format!("{}.{}", self.path(key), name.get_ref());
            let name = ConfigText {
                value: name.get_ref().to_string(),
                path: path.clone(),
                span: name.span(),
                is_filled_in: false,
            };
            Some((name, self.text_of(path, value)?))
        };
        Some(table.iter().filter_map(named).collect())
    }
}
