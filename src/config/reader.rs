//! Gathers what is found while a configuration is read, and judges unknown keys at the end, when
//! all known ones have been asked for.

use std::cell::RefCell;
use std::ops::Range;

use super::interpolate::Sources;
use super::problem::{Problem, nearest};

/// Keys that other programs or older habits use, and what they are called here.
const ALIASES: [(&str, &str); 14] = [
    ("mcpServers", "servers"),
    ("mcp_servers", "servers"),
    ("server", "servers"),
    ("port", "listen"),
    ("host", "listen"),
    ("address", "listen"),
    ("type", "transport"),
    ("disabled", "enabled"),
    ("timeout", "request_timeout"),
    ("http_headers", "headers"),
    ("environment", "env"),
    ("workdir", "cwd"),
    ("enabled_tools", "tools"),
    ("disabled_tools", "tools"),
];

/// An unknown key, judged when all sections are known.
pub(super) struct Unknown {
    pub(super) kind: &'static str,
    pub(super) key: String,
    pub(super) path: String,
    pub(super) span: Range<usize>,
}

/// Gathers what is found while a document is read.
pub(super) struct Reader<'a> {
    pub(super) sources: Sources<'a>,
    problems: RefCell<Vec<Problem>>,
    unusable: RefCell<Vec<String>>,
    warnings: RefCell<Vec<String>>,
    unknown: RefCell<Vec<Unknown>>,
    known: RefCell<Vec<(&'static str, Vec<&'static str>)>>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(sources: Sources<'a>) -> Self {
        Self {
            sources,
            problems: RefCell::default(),
            unusable: RefCell::default(),
            warnings: RefCell::default(),
            unknown: RefCell::default(),
            known: RefCell::default(),
        }
    }

    pub(super) fn problem(&self, problem: Problem) {
        self.problems.borrow_mut().push(problem);
    }

    pub(super) fn warn(&self, warning: String) {
        self.warnings.borrow_mut().push(warning);
    }

    /// Says that the server which is being read cannot be used, though the file is right.
    pub(super) fn unusable(&self, why: String) {
        self.unusable.borrow_mut().push(why);
    }

    /// Says what a section was asked for, and which keys nobody asked for.
    pub(super) fn section_read(
        &self,
        kind: &'static str,
        asked: Vec<&'static str>,
        unknown: impl Iterator<Item = Unknown>,
    ) {
        self.unknown.borrow_mut().extend(unknown);
        let mut known = self.known.borrow_mut();
        if !known.iter().any(|(other, _)| *other == kind) {
            known.push((kind, asked));
        }
    }

    /// What made the server that was read last unusable.
    pub(super) fn take_unusable(&self) -> Vec<String> {
        self.unusable.take()
    }

    /// All keys by section, as `("[gateway]", ["listen", …])`.
    #[cfg(test)]
    pub(super) fn known(&self) -> Vec<(&'static str, Vec<&'static str>)> {
        self.known.borrow().clone()
    }

    /// The problems, unknown keys included, and the warnings.
    pub(super) fn finish(self) -> (Vec<Problem>, Vec<String>) {
        let mut problems = self.problems.into_inner();
        let known = self.known.into_inner();
        problems.extend(self.unknown.into_inner().into_iter().map(|unknown| {
            let help = suggest(&unknown, &known);
            Problem::new(&unknown.path, format!("unknown key `{}`", unknown.path))
                .at(Some(unknown.span))
                .help(help)
        }));
        (problems, self.warnings.into_inner())
    }
}

fn suggest(unknown: &Unknown, known: &[(&'static str, Vec<&'static str>)]) -> Option<String> {
    let own = known.iter().find(|(kind, _)| *kind == unknown.kind);
    let own: &[&str] = own.map_or(&[], |(_, keys)| keys);
    let alias = ALIASES
        .iter()
        .find(|(name, _)| *name == unknown.key)
        .map(|(_, key)| *key);
    if let Some(key) = alias.filter(|key| own.contains(key)) {
        return Some(format!("here it is called `{key}`"));
    }
    let elsewhere = known
        .iter()
        .find(|(_, keys)| keys.contains(&unknown.key.as_str()));
    if let Some((kind, _)) = elsewhere.filter(|(kind, _)| !kind.is_empty()) {
        return Some(format!("`{}` is a key of {kind}", unknown.key));
    }
    match nearest(&unknown.key, own.iter().copied()) {
        Some(key) => Some(format!("did you mean `{key}`?")),
        None if own.is_empty() => None,
        None => Some(format!("known keys are `{}`", own.join("`, `"))),
    }
}
