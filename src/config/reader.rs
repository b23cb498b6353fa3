//! Collects problems and warnings while a configuration is read, and suggests corrections for
//! unknown keys.

use std::cell::RefCell;
use std::ops::Range;

use super::interpolate::Interpolation;
use super::problem::{Problem, nearest};

/// Keys used by other programs or older versions, and their names here.
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

/// The keys of one table, by the label that errors use.
pub(crate) type KnownKeys = (&'static str, Vec<&'static str>);

/// Collects problems and warnings while a document is read.
pub(crate) struct Reader<'a> {
    pub(crate) interpolation: Interpolation<'a>,
    /// Returns all tables of the file, for suggestions.
    tables: fn() -> Vec<KnownKeys>,
    problems: RefCell<Vec<Problem>>,
    unusable: RefCell<Vec<String>>,
    warnings: RefCell<Vec<String>>,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(interpolation: Interpolation<'a>, tables: fn() -> Vec<KnownKeys>) -> Self {
        Self {
            interpolation,
            tables,
            problems: RefCell::default(),
            unusable: RefCell::default(),
            warnings: RefCell::default(),
        }
    }

    pub(crate) fn problem(&self, problem: Problem) {
        self.problems.borrow_mut().push(problem);
    }

    pub(crate) fn warn(&self, warning: &str) {
        self.warnings.borrow_mut().push(warning.to_owned());
    }

    /// Marks the server being read as unusable although the file is valid.
    pub(crate) fn unusable(&self, why: String) {
        self.unusable.borrow_mut().push(why);
    }

    /// Takes the reasons that made the last-read server unusable.
    pub(crate) fn take_unusable(&self) -> Vec<String> {
        self.unusable.take()
    }

    /// Reports an unknown key and suggests which of the `known` keys was intended.
    pub(crate) fn unknown_key(&self, key: &str, path: &str, span: Range<usize>, known: &[&str]) {
        let help = suggest(key, known, &(self.tables)());
        let problem = Problem::new(path, format!("unknown key `{path}`"));
        self.problem(problem.at(Some(span)).help(help));
    }

    pub(crate) fn has_problems(&self) -> bool {
        !self.problems.borrow().is_empty()
    }

    /// Returns the problems and the warnings.
    pub(crate) fn finish(self) -> (Vec<Problem>, Vec<String>) {
        (self.problems.into_inner(), self.warnings.into_inner())
    }
}

fn suggest(key: &str, known: &[&str], tables: &[KnownKeys]) -> Option<String> {
    let alias = ALIASES.iter().find(|(name, _)| *name == key);
    if let Some((_, meant)) = alias.filter(|(_, meant)| known.contains(meant)) {
        return Some(format!("mcpvisor calls it `{meant}`"));
    }
    if let Some((label, _)) = tables.iter().find(|(_, keys)| keys.contains(&key)) {
        return Some(format!("`{key}` is a key of {label}"));
    }
    match nearest(key, known.iter().copied()) {
        Some(meant) => Some(format!("did you mean `{meant}`?")),
        None => Some(format!("known keys are `{}`", known.join("`, `"))),
    }
}
