//! Which file imports from which, read from the paths in the sources.

use std::collections::{BTreeMap, BTreeSet};

use crate::tidy::{Source, body};

/// A module by its path, such as `["downstream", "pool"]`.
type Module = Vec<String>;

/// The files of `src/` and what they name in each other.
pub(crate) struct Imports {
    edges: BTreeMap<Module, BTreeSet<Module>>,
}

impl Imports {
    pub(crate) fn of(sources: &[Source]) -> Self {
        let sources: Vec<&Source> = sources.iter().filter(|source| !source.is_test()).collect();
        let modules: BTreeSet<Module> = sources.iter().map(|source| module(source)).collect();
        let edges = sources.iter().map(|source| {
            let from = module(source);
            let named = paths(&body(source), &from);
            let files = named.iter().filter_map(|path| file_of(path, &modules));
            let others = files.filter(|to| *to != from).collect();
            (from, others)
        });
        Self {
            edges: edges.collect(),
        }
    }

    /// Files that import each other in a circle. A folder's `mod.rs` and the files of that folder
    /// may: they are one story.
    pub(crate) fn circles(&self) -> Vec<Vec<String>> {
        let reach: BTreeMap<&Module, BTreeSet<&Module>> = (self.edges.keys())
            .map(|from| (from, self.reachable(from)))
            .collect();
        let mut circles = BTreeSet::new();
        for (from, all) in &reach {
            let circle: Vec<String> = (all.iter())
                .filter(|to| reach[*to].contains(from))
                .map(|member| member.join("::"))
                .collect();
            if circle.len() > 1 {
                circles.insert(circle);
            }
        }
        circles.into_iter().collect()
    }

    fn reachable(&self, from: &Module) -> BTreeSet<&Module> {
        let mut found = BTreeSet::new();
        let mut open = vec![from];
        while let Some(at) = open.pop() {
            let Some((at, next)) = self.edges.get_key_value(at) else {
                continue;
            };
            for to in next.iter().filter(|to| !is_parent_and_child(at, to)) {
                if found.insert(to) {
                    open.push(to);
                }
            }
        }
        found
    }
}

fn is_parent_and_child(one: &Module, other: &Module) -> bool {
    let (short, long) = if one.len() < other.len() {
        (one, other)
    } else {
        (other, one)
    };
    long.len() == short.len() + 1 && long.starts_with(short)
}

fn module(source: &Source) -> Module {
    let path = source.path.with_extension("");
    let mut module: Module = (path.components().skip(1))
        .map(|part| part.as_os_str().to_string_lossy().into_owned())
        .collect();
    if module.last().is_some_and(|last| last == "mod") {
        module.pop();
    }
    module
}

/// The file that a path leads into: its longest beginning that is a module.
fn file_of(path: &[String], modules: &BTreeSet<Module>) -> Option<Module> {
    (1..=path.len())
        .rev()
        .map(|length| path[..length].to_vec())
        .find(|start| modules.contains(start))
}

/// All paths of a text that begin with `crate::` or `super::`, from the crate's root on.
fn paths(text: &str, from: &Module) -> Vec<Module> {
    let mut found = Vec::new();
    for (start, word) in ["crate::", "super::"]
        .iter()
        .flat_map(|word| text.match_indices(word))
    {
        let (before, path) = text.split_at(start);
        let before = before.chars().next_back();
        // The second `super::` of two belongs to the path that the first begins.
        if before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == ':') {
            continue;
        }
        let base = if word == "crate::" {
            Module::new()
        } else {
            from[..from.len().saturating_sub(1)].to_vec()
        };
        tree(path.strip_prefix(word).unwrap_or(path), base, &mut found);
    }
    found
}

/// Reads one path, or a tree of them in braces, and returns what follows it.
fn tree<'t>(text: &'t str, base: Module, found: &mut Vec<Module>) -> &'t str {
    let text = text.trim_start();
    if let Some(mut rest) = text.strip_prefix('{') {
        loop {
            rest = rest.trim_start();
            if let Some(after) = rest.strip_prefix('}') {
                return after;
            }
            let after = tree(rest, base.clone(), found).trim_start();
            let after = after.strip_prefix(',').unwrap_or(after);
            if after.len() == rest.len() {
                return after;
            }
            rest = after;
        }
    }
    let end = text
        .find(|c: char| !c.is_alphanumeric() && c != '_')
        .unwrap_or(text.len());
    let (name, rest) = text.split_at(end);
    let mut path = base;
    match name {
        "super" => drop(path.pop()),
        "" | "self" => {}
        name => path.push(name.to_owned()),
    }
    if let Some(rest) = rest.strip_prefix("::") {
        return tree(rest, path, found);
    }
    found.push(path);
    // `as OTHER`
    match rest.trim_start().strip_prefix("as ") {
        Some(alias) => {
            let alias = alias.trim_start();
            alias.trim_start_matches(|c: char| c.is_alphanumeric() || c == '_')
        }
        None => rest,
    }
}
