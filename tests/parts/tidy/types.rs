//! In how many files the methods of one type are.

use std::collections::{BTreeMap, BTreeSet};

use crate::tidy::{body, part, sources};

/// A type whose methods need more files consists of several types that have no name yet.
const FILES_MAX: usize = 4;

/// The name of the type that an `impl` block is about: `impl<T> From<X> for a::Name<T> where …` is about `Name`.
fn implemented(header: &str) -> Option<&str> {
    let mut rest = header.strip_prefix("impl")?;
    if rest.starts_with('<') {
        let (mut depth, mut before) = (0_usize, ' ');
        let end = rest.find(|letter| {
            match letter {
                '<' => depth += 1,
                // `->` closes nothing.
                '>' if before != '-' => depth -= 1,
                _ => {}
            }
            before = letter;
            depth == 0
        });
        rest = rest.get(end? + 1..)?;
    }
    let rest = rest.strip_prefix(' ')?;
    let rest = rest.split(" where ").next()?;
    let name = rest.split_once(" for ").map_or(rest, |(_, name)| name);
    let name = name.split(['<', ' ', '{']).next()?;
    name.rsplit("::").next()
}

#[test]
fn the_methods_of_a_type_are_in_few_files() {
    let mut files: BTreeMap<(String, String), BTreeSet<String>> = BTreeMap::new();
    for source in sources("src").iter().filter(|source| !source.is_test()) {
        let Some(part) = part(&source.path) else {
            continue;
        };
        let text = body(source).replace("\nwhere", " where ");
        for name in text.lines().filter_map(implemented) {
            let files = files.entry((part.clone(), name.to_owned())).or_default();
            files.insert(source.path.display().to_string());
        }
    }
    assert!(files.len() > 300, "only {} types were found", files.len());
    let spread: Vec<_> = files
        .iter()
        .filter(|(_, files)| files.len() > FILES_MAX)
        .collect();
    assert!(
        spread.is_empty(),
        "methods of one type in more than {FILES_MAX} files; make a type of a part of its fields: {spread:#?}"
    );
}
