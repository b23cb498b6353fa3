//! Which file imports from which, read from the paths in the sources.

use std::collections::{BTreeMap, BTreeSet};

use crate::tidy::{Source, body};

/// A module by its path, such as `["downstream", "pool"]`.
type Module = Vec<String>;

/// The names that the `use` lines of each module bring into it, with the paths that they lead to.
type UsedNames = BTreeMap<Module, BTreeMap<String, Module>>;

/// How many `use` lines of other files a path is followed through.
const HOPS_MAX: usize = 8;

/// The files of `src/` and what they name in each other.
pub(crate) struct Imports {
    edges: BTreeMap<Module, BTreeSet<Module>>,
}

impl Imports {
    pub(crate) fn of(sources: &[Source]) -> Self {
        let sources: Vec<&Source> = sources.iter().filter(|source| !source.is_test()).collect();
        let modules: BTreeSet<Module> = sources.iter().map(|source| module(source)).collect();
        let used: UsedNames = (sources.iter())
            .map(|source| (module(source), used_names(&body(source), source, &modules)))
            .collect();
        let edges = sources.iter().map(|source| {
            let from = module(source);
            let named = paths(&body(source), &from);
            let files = named.iter().filter_map(|path| file_of(path, &used));
            let others = files.filter(|to| *to != from).collect();
            (from, others)
        });
        Self {
            edges: edges.collect(),
        }
    }

    /// Files that import each other in a circle. A folder's `mod.rs` and the files of that folder may import
    /// each other. Where a `mod.rs` only passes a name on, the edge leads to the file that declares it.
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

/// The file that a path leads into: the longest beginning of the path that is a module, or the module from
/// which that one has the name that follows.
fn file_of(path: &[String], used: &UsedNames) -> Option<Module> {
    let mut path = path.to_vec();
    let mut file = None;
    for _ in 0..HOPS_MAX {
        let length = (1..=path.len())
            .rev()
            .find(|length| used.contains_key(&path[..*length]));
        let Some(length) = length else { break };
        let (module, rest) = path.split_at(length);
        file = Some(module.to_vec());
        let Some(target) = rest.first().and_then(|name| used[module].get(name)) else {
            break;
        };
        path = [target, &rest[1..]].concat();
    }
    file
}

/// The names that the `use` lines of a file bring into it, where they lead to other files of the crate.
fn used_names(text: &str, source: &Source, modules: &BTreeSet<Module>) -> BTreeMap<String, Module> {
    let from = module(source);
    let mut named = Vec::new();
    for (start, word) in text.match_indices("use ") {
        let (before, used) = text.split_at(start);
        let line = before.rsplit('\n').next().unwrap_or_default().trim();
        if line.is_empty() || line.starts_with("pub") {
            let used = used.strip_prefix(word).unwrap_or(used);
            tree(used, from.clone(), &mut named);
        }
    }
    // A relative path leads to a module of this one, or out of the crate.
    let child = |path: &Module| path.get(..=from.len()).map(<[String]>::to_vec);
    let is_of_crate = |path: &Module| {
        !path.starts_with(&from) || child(path).is_some_and(|child| modules.contains(&child))
    };
    let named = named.into_iter().filter(|(_, path)| is_of_crate(path));
    named.collect()
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
    found.into_iter().map(|(_, path)| path).collect()
}

/// Reads one path, or a tree of them in braces, and returns what follows it. Each path is found with the name
/// by which the file knows it.
fn tree<'t>(text: &'t str, base: Module, found: &mut Vec<(String, Module)>) -> &'t str {
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
        "crate" => path.clear(),
        "super" => drop(path.pop()),
        "" | "self" => {}
        name => path.push(name.to_owned()),
    }
    if let Some(rest) = rest.strip_prefix("::") {
        return tree(rest, path, found);
    }
    // `as OTHER`
    if let Some(alias) = rest.trim_start().strip_prefix("as ") {
        let alias = alias.trim_start();
        let after = alias.trim_start_matches(|c: char| c.is_alphanumeric() || c == '_');
        let name = alias.strip_suffix(after).unwrap_or(alias);
        found.push((name.to_owned(), path));
        return after;
    }
    found.push((path.last().cloned().unwrap_or_default(), path));
    rest
}
