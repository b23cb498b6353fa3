//! Gathers what is found while a configuration is read, and suggests which key was meant.

use std::cell::RefCell;
use std::ops::Range;

use super::interpolate::Interpolation;
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

/// The keys of one table, by what errors call it.
pub(crate) type KnownKeys = (&'static str, Vec<&'static str>);

/// Gathers what is found while a document is read.
pub(crate) struct Reader<'a> {
    pub(crate) interpolation: Interpolation<'a>,
    /// All tables of the file, for suggestions.
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

    /// Says that the server which is being read cannot be used, though the file is right.
    pub(crate) fn unusable(&self, why: String) {
        self.unusable.borrow_mut().push(why);
    }

    /// Takes what made the server that was read last unusable.
    pub(crate) fn take_unusable(&self) -> Vec<String> {
        self.unusable.take()
    }

    /// Says that a key is unknown, and which of the `known` keys of its table may be meant.
    pub(crate) fn unknown_key(&self, key: &str, path: &str, span: Range<usize>, known: &[&str]) {
        let help = suggest(key, known, &(self.tables)());
        let problem = Problem::new(path, format!("unknown key `{path}`"));
        self.problem(problem.at(Some(span)).help(help));
    }

    pub(crate) fn has_problems(&self) -> bool {
        !self.problems.borrow().is_empty()
    }

    /// The problems and the warnings.
    pub(crate) fn finish(self) -> (Vec<Problem>, Vec<String>) {
        (self.problems.into_inner(), self.warnings.into_inner())
    }
}

fn suggest(key: &str, known: &[&str], tables: &[KnownKeys]) -> Option<String> {
    let alias = ALIASES.iter().find(|(name, _)| *name == key);
    if let Some((_, meant)) = alias.filter(|(_, meant)| known.contains(meant)) {
        return Some(format!("here it is called `{meant}`"));
    }
    if let Some((label, _)) = tables.iter().find(|(_, keys)| keys.contains(&key)) {
        return Some(format!("`{key}` is a key of {label}"));
    }
    match nearest(key, known.iter().copied()) {
        Some(meant) => Some(format!("did you mean `{meant}`?")),
        None => Some(format!("known keys are `{}`", known.join("`, `"))),
    }
}
