//! What was written: the TOML tree with the place of every key, and typed access to it.
//!
//! A [`Section`] is read key by key; what is asked for is thereby known, so a key that nobody
//! asked for is unknown. All that is wrong is gathered, nothing stops at the first error.

use std::ops::{Range, RangeInclusive};
use std::time::Duration;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::interpolate::{Failure, interpolate};
use super::problem::{Problem, nearest};
use super::reader::{Reader, Unknown};
use super::value::{parse_duration, parse_size, show_duration, show_size};

/// Where a problem that the environment caused goes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Scope {
    /// Into the problems of the file.
    Gateway,
    /// Makes one server unusable; the others run.
    Server,
}

/// A value that is no table and no array.
enum Scalar {
    Text(String),
    Integer(Option<i64>),
    Float(f64),
    Flag(bool),
    Other,
}

/// One text with its place.
#[derive(Clone)]
pub(super) struct Text {
    pub(super) value: String,
    /// The full key, with the index in an array.
    pub(super) path: String,
    span: Range<usize>,
    interpolated: bool,
}

/// What a value must be instead; holds no value.
pub(super) struct Refusal {
    must_be: String,
    help: Option<String>,
}

impl Refusal {
    pub(super) fn help(mut self, help: &str) -> Self {
        self.help = Some(help.to_owned());
        self
    }
}

impl From<String> for Refusal {
    fn from(must_be: String) -> Self {
        Self {
            must_be,
            help: None,
        }
    }
}

impl From<&str> for Refusal {
    fn from(must_be: &str) -> Self {
        Self::from(must_be.to_owned())
    }
}

/// One table, read key by key.
pub(super) struct Section<'r> {
    pub(super) reader: &'r Reader<'r>,
    path: String,
    kind: &'static str,
    scope: Scope,
    table: Option<&'r DeTable<'r>>,
    /// Where its name stands.
    named_at: Option<Range<usize>>,
    asked: Vec<&'static str>,
}

impl<'r> Section<'r> {
    /// The whole document.
    pub(super) fn root(reader: &'r Reader<'r>, table: &'r DeTable<'r>) -> Self {
        Self {
            reader,
            path: String::new(),
            kind: "",
            scope: Scope::Gateway,
            table: Some(table),
            named_at: None,
            asked: Vec::new(),
        }
    }

    /// The full name of a key of this section.
    pub(super) fn path(&self, key: &str) -> String {
        if self.path.is_empty() {
            key.to_owned()
        } else {
            format!("{}.{key}", self.path)
        }
    }

    fn entry(&mut self, key: &'static str) -> Option<&'r Spanned<DeValue<'r>>> {
        self.asked.push(key);
        self.table?.get(key)
    }

    /// The full name of this section.
    pub(super) fn name(&self) -> &str {
        &self.path
    }

    /// Whether a key was written.
    pub(super) fn has(&self, key: &str) -> bool {
        self.table.is_some_and(|table| table.contains_key(key))
    }

    /// A table inside this one; empty when it was not written.
    pub(super) fn section(&mut self, key: &'static str, kind: &'static str) -> Section<'r> {
        let entry = self.entry(key);
        let table = entry.and_then(|value| self.table_of(key, value));
        Section {
            reader: self.reader,
            path: self.path(key),
            kind,
            scope: self.scope,
            table,
            named_at: entry.map(Spanned::span),
            asked: Vec::new(),
        }
    }

    /// The tables inside this one under free names, in the order of the file.
    pub(super) fn members(&self, kind: &'static str) -> Vec<(&'r str, Range<usize>, Section<'r>)> {
        let entries = self.table.into_iter().flat_map(|table| table.iter());
        let member = |(key, value): (&'r Spanned<_>, &'r Spanned<DeValue<'r>>)| {
            let name: &'r std::borrow::Cow<'r, str> = key.get_ref();
            let section = Section {
                reader: self.reader,
                path: self.path(name),
                kind,
                scope: Scope::Server,
                table: Some(self.table_of(name, value)?),
                named_at: Some(key.span()),
                asked: Vec::new(),
            };
            Some((name.as_ref(), key.span(), section))
        };
        entries.filter_map(member).collect()
    }

    fn table_of(&self, key: &str, value: &'r Spanned<DeValue<'r>>) -> Option<&'r DeTable<'r>> {
        let table = value.get_ref().as_table();
        if table.is_none() {
            let message = format!("`{}` must be a table", self.path(key));
            self.reader
                .problem(Problem::new(&self.path(key), message).at(Some(value.span())));
        }
        table
    }

    /// Ends the reading: what was not asked for is unknown.
    pub(super) fn finish(self) {
        let keys = self.table.into_iter().flat_map(|table| table.keys());
        let unknown = keys.filter(|key| !self.asked.contains(&key.get_ref().as_ref()));
        let unknown: Vec<Unknown> = unknown
            .map(|key| Unknown {
                kind: self.kind,
                key: key.get_ref().to_string(),
                path: self.path(key.get_ref()),
                span: key.span(),
            })
            .collect();
        self.reader
            .section_read(self.kind, self.asked, unknown.into_iter());
    }

    /// Says that a key's value is wrong: in the file, or, where the environment took part in a
    /// server's value, for this server only.
    fn refuse_value(&self, path: &str, span: Range<usize>, interpolated: bool, why: Refusal) {
        let from = if interpolated {
            " (after its `${…}` was filled in)"
        } else {
            ""
        };
        let message = format!("`{path}`{from} must be {}", why.must_be);
        if interpolated && self.scope == Scope::Server {
            self.reader.unusable(message);
        } else {
            self.reader
                .problem(Problem::new(path, message).at(Some(span)).help(why.help));
        }
    }

    /// Says that a text is wrong.
    pub(super) fn refuse_text(&self, text: &Text, why: impl Into<Refusal>) {
        self.refuse_value(&text.path, text.span.clone(), text.interpolated, why.into());
    }

    /// Says that keys do not go together; points at the first of them that was written.
    pub(super) fn refuse(&self, keys: &[&str], message: String, help: impl Into<Option<String>>) {
        let table = self.table;
        let written = keys.iter().find_map(|key| table?.get_key_value(*key));
        let span = written.map(|(key, value)| key.span().start..value.span().end);
        let key = keys.first().copied().unwrap_or_default();
        self.reader
            .problem(Problem::new(&self.path(key), message).at(span).help(help));
    }

    /// Says that the whole section is wrong; points at its name.
    pub(super) fn refuse_table(&self, message: String, help: impl Into<Option<String>>) {
        let problem = Problem::new(&self.path, message)
            .at(self.named_at.clone())
            .help(help);
        self.reader.problem(problem);
    }

    /// Fills in a text; a failure is reported.
    fn fill_in(&self, path: &str, span: &Range<usize>, text: &str) -> Option<String> {
        match interpolate(text, self.reader.sources) {
            Ok(value) => Some(value.into_owned()),
            Err(Failure::Missing { what, .. }) if self.scope == Scope::Server => {
                self.reader.unusable(format!("`{path}`: {what}"));
                None
            }
            Err(Failure::Missing { what, help }) => {
                let problem = Problem::new(path, format!("`{path}`: {what}"));
                self.reader
                    .problem(problem.at(Some(span.clone())).help(help));
                None
            }
            Err(Failure::Written(what)) => {
                let problem = Problem::new(path, format!("`{path}` holds {what}"));
                self.reader.problem(problem.at(Some(span.clone())));
                None
            }
        }
    }

    /// The value of a key after `parse`, which says what it must be instead.
    fn scalar<T>(
        &mut self,
        key: &'static str,
        parse: impl FnOnce(&Scalar, bool) -> Result<T, Refusal>,
    ) -> Option<T> {
        let value = self.entry(key)?;
        let path = self.path(key);
        let mut interpolated = false;
        let scalar = match value.get_ref() {
            DeValue::String(text) => {
                interpolated = text.contains("${");
                Scalar::Text(self.fill_in(&path, &value.span(), text)?)
            }
            DeValue::Integer(number) => {
                let digits = number.as_str();
                Scalar::Integer(i64::from_str_radix(digits, number.radix()).ok())
            }
            DeValue::Float(number) => Scalar::Float(number.as_str().parse().unwrap_or(f64::NAN)),
            DeValue::Boolean(flag) => Scalar::Flag(*flag),
            _ => Scalar::Other,
        };
        match parse(&scalar, interpolated) {
            Ok(value) => Some(value),
            Err(why) => {
                self.refuse_value(&path, value.span(), interpolated, why);
                None
            }
        }
    }

    pub(super) fn duration(
        &mut self,
        key: &'static str,
        default: Duration,
        allowed: RangeInclusive<Duration>,
    ) -> Duration {
        let must_be = || {
            let (from, to) = (
                show_duration(*allowed.start()),
                show_duration(*allowed.end()),
            );
            let never = if allowed.start().is_zero() {
                " (`\"0s\"` turns it off)"
            } else {
                ""
            };
            Refusal::from(format!("a duration from `\"{from}\"` to `\"{to}\"`{never}"))
        };
        let value = self.scalar(key, |scalar, _| match scalar {
            Scalar::Text(text) => parse_duration(text)
                .filter(|duration| allowed.contains(duration))
                .ok_or_else(must_be),
            Scalar::Integer(Some(number)) if *number >= 0 => {
                Err(must_be().help(&format!("write it with its unit, as `\"{number}s\"`")))
            }
            _ => Err(must_be()),
        });
        value.unwrap_or(default)
    }

    /// A number of bytes.
    pub(super) fn size(
        &mut self,
        key: &'static str,
        default: usize,
        allowed: RangeInclusive<u64>,
    ) -> usize {
        let must_be = || {
            let (from, to) = (show_size(*allowed.start()), show_size(*allowed.end()));
            Refusal::from(format!("a size from `\"{from}\"` to `\"{to}\"`"))
        };
        let value = self.scalar(key, |scalar, _| {
            let bytes = match scalar {
                Scalar::Text(text) => parse_size(text),
                Scalar::Integer(number) => number.and_then(|number| u64::try_from(number).ok()),
                _ => None,
            };
            bytes
                .filter(|bytes| allowed.contains(bytes))
                .and_then(|bytes| usize::try_from(bytes).ok())
                .ok_or_else(must_be)
        });
        value.unwrap_or(default)
    }

    pub(super) fn count(
        &mut self,
        key: &'static str,
        default: usize,
        allowed: RangeInclusive<usize>,
    ) -> usize {
        let value = self.scalar(key, |scalar, interpolated| {
            let number = match scalar {
                Scalar::Integer(number) => number.and_then(|number| usize::try_from(number).ok()),
                Scalar::Text(text) if interpolated => text.trim().parse().ok(),
                _ => None,
            };
            let must_be = || format!("a number from {} to {}", allowed.start(), allowed.end());
            number
                .filter(|number| allowed.contains(number))
                .ok_or_else(|| must_be().into())
        });
        value.unwrap_or(default)
    }

    pub(super) fn factor(
        &mut self,
        key: &'static str,
        default: f64,
        allowed: RangeInclusive<f64>,
    ) -> f64 {
        let value = self.scalar(key, |scalar, interpolated| {
            let number = match scalar {
                Scalar::Float(number) => Some(*number),
                Scalar::Integer(number) => number.map(|number| number as f64),
                Scalar::Text(text) if interpolated => text.trim().parse().ok(),
                _ => None,
            };
            let must_be = || format!("a number from {} to {}", allowed.start(), allowed.end());
            number
                .filter(|number| allowed.contains(number))
                .ok_or_else(|| must_be().into())
        });
        value.unwrap_or(default)
    }

    pub(super) fn flag(&mut self, key: &'static str, default: bool) -> bool {
        let value = self.scalar(key, |scalar, interpolated| match scalar {
            Scalar::Flag(flag) => Ok(*flag),
            Scalar::Text(text) if interpolated => text
                .trim()
                .parse()
                .map_err(|_| Refusal::from("`true` or `false`")),
            _ => Err(Refusal::from("`true` or `false`")),
        });
        value.unwrap_or(default)
    }

    /// One of a few words.
    pub(super) fn choice<T: Copy>(
        &mut self,
        key: &'static str,
        default: T,
        choices: &[(&str, T)],
    ) -> T {
        let value = self.scalar(key, |scalar, interpolated| {
            let words: Vec<&str> = choices.iter().map(|(word, _)| *word).collect();
            let must_be = Refusal::from(format!("one of `\"{}\"`", words.join("\"`, `\"")));
            let Scalar::Text(text) = scalar else {
                return Err(must_be);
            };
            match choices.iter().find(|(word, _)| word == text) {
                Some((_, choice)) => Ok(*choice),
                None if interpolated => Err(must_be),
                None => Err(match nearest(text, words.iter().copied()) {
                    Some(word) => must_be.help(&format!("did you mean `\"{word}\"`?")),
                    None => must_be,
                }),
            }
        });
        value.unwrap_or(default)
    }

    pub(super) fn text(&mut self, key: &'static str) -> Option<Text> {
        let value = self.entry(key)?;
        self.text_of(self.path(key), value)
    }

    fn text_of(&self, path: String, value: &Spanned<DeValue<'_>>) -> Option<Text> {
        let span = value.span();
        let DeValue::String(text) = value.get_ref() else {
            let found = value.get_ref().type_str();
            self.refuse_value(
                &path,
                span,
                false,
                format!("a text in quotes, not {found}").into(),
            );
            return None;
        };
        let interpolated = text.contains("${");
        let value = self.fill_in(&path, &span, text)?;
        Some(Text {
            value,
            path,
            span,
            interpolated,
        })
    }

    /// An array of texts; `None` when it was not written.
    pub(super) fn texts(&mut self, key: &'static str) -> Option<Vec<Text>> {
        let value = self.entry(key)?;
        let path = self.path(key);
        let Some(array) = value.get_ref().as_array() else {
            let must_be = Refusal::from("an array of texts, as `[\"a\", \"b\"]`");
            self.refuse_value(&path, value.span(), false, must_be);
            return None;
        };
        let text = |(index, value)| self.text_of(format!("{path}[{index}]"), value);
        Some(array.iter().enumerate().filter_map(text).collect())
    }

    /// A table of texts under free names, in the order of the file, each with the text of its
    /// name.
    pub(super) fn named_texts(&mut self, key: &'static str) -> Vec<(Text, Text)> {
        let Some(value) = self.entry(key) else {
            return Vec::new();
        };
        let Some(table) = self.table_of(key, value) else {
            return Vec::new();
        };
        let named = |(name, value): (&Spanned<std::borrow::Cow<'_, str>>, _)| {
            let path = format!("{}.{}", self.path(key), name.get_ref());
            let name = Text {
                value: name.get_ref().to_string(),
                path: path.clone(),
                span: name.span(),
                interpolated: false,
            };
            Some((name, self.text_of(path, value)?))
        };
        table.iter().filter_map(named).collect()
    }
}
