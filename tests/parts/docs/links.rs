//! Links between the documents lead to files and headings that are there, and the summary of the
//! book names every page.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use crate::docs::{files_below, read};

/// The documents whose links are checked.
pub(crate) fn documents() -> Vec<String> {
    let outside = ["CHANGELOG.md", "README.md", "SECURITY.md", "llms.txt"];
    let mut files: Vec<String> = outside.map(str::to_owned).into();
    files.extend(files_below("docs", &[".md"]));
    files
}

/// The lines outside of fenced code, with what is in backticks taken out.
fn prose(text: &str) -> Vec<String> {
    let mut fenced = false;
    let mut lines = Vec::new();
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        } else if !fenced {
            lines.push(line.split('`').step_by(2).collect());
        }
    }
    lines
}

/// Targets of the links of a text.
fn targets(text: &str) -> Vec<String> {
    let text = prose(text).join("\n");
    let parts = text.split("](").skip(1);
    parts
        .filter_map(|part| Some(part.split_once(')')?.0.to_owned()))
        .collect()
}

/// The anchor that a heading gets, as code hosts and mdBook make it.
fn anchor(heading: &str) -> String {
    let kept = heading.trim().chars().filter_map(|letter| match letter {
        ' ' | '-' => Some('-'),
        letter if letter.is_alphanumeric() || letter == '_' => Some(letter.to_ascii_lowercase()),
        _ => None,
    });
    kept.collect()
}

/// The anchors of a page; a heading that stands there a second time gets `-1`.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let mut fenced = false;
    let mut found = BTreeSet::new();
    for line in text.lines() {
        fenced ^= line.starts_with("```");
        let heading = line.trim_start_matches('#').strip_prefix(' ');
        let (Some(heading), false, true) = (heading, fenced, line.starts_with('#')) else {
            continue;
        };
        let anchor = anchor(heading);
        let times = seen.entry(anchor.clone()).or_default();
        found.insert(match *times {
            0 => anchor,
            times => format!("{anchor}-{times}"),
        });
        *times += 1;
    }
    found
}

/// The path within the project of what a file links to; `None` outside of the project.
fn resolve(file: &str, path: &str) -> Option<String> {
    if path.is_empty() {
        return Some(file.to_owned());
    }
    let mut resolved = PathBuf::from(file);
    resolved.pop();
    for component in Path::new(path).components() {
        match component {
            Component::Normal(name) => resolved.push(name),
            Component::ParentDir => resolved.pop().then_some(())?,
            Component::CurDir => {}
            Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    Some(resolved.to_str()?.to_owned())
}

/// What is wrong with a link of a file.
fn fault(file: &str, target: &str) -> Option<String> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (path, fragment) = target.split_once('#').unwrap_or((target, ""));
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let Some(found) = resolve(file, path).filter(|found| root.join(found).exists()) else {
        return Some(format!("{file} links to {target}, which is not there"));
    };
    if fragment.is_empty() || anchors(&read(&found)).contains(fragment) {
        return None;
    }
    Some(format!(
        "{file} links to {target}: {found} has no such heading"
    ))
}

#[test]
fn every_link_leads_somewhere() {
    let mut links = 0;
    let mut faults = Vec::new();
    for file in documents() {
        let targets = targets(&read(&file));
        links += targets.len();
        faults.extend(targets.iter().filter_map(|target| fault(&file, target)));
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert!(links > 100, "{links}");
}

#[test]
fn the_summary_and_llms_txt_name_every_page_once() {
    let mut pages = files_below("docs", &[".md"]);
    pages.retain(|page| page != "docs/SUMMARY.md");
    for (file, directory) in [("docs/SUMMARY.md", "docs/"), ("llms.txt", "")] {
        let targets = targets(&read(file)).into_iter();
        let named = targets.map(|target| format!("{directory}{target}"));
        let mut named: Vec<String> = named.filter(|page| page.starts_with("docs/")).collect();
        named.sort();
        assert_eq!(named, pages, "{file}");
    }
}

#[test]
fn faulty_links_are_found() {
    let page =
        "# A b\n## `x` (y)\n```\n# no\n[a](b)\n```\n## A b\n`[c](d)` [e](f.md#g) [h](#a-b)\n";
    assert_eq!(targets(page), ["f.md#g", "#a-b"]);
    let expected = ["a-b", "a-b-1", "x-y"].map(str::to_owned);
    assert_eq!(anchors(page), BTreeSet::from(expected));
    let cases = [
        ("docs/api.md", "errors.md#unauthorized", true),
        ("docs/api.md", "../README.md", true),
        ("docs/api.md", "https://example.com/x", true),
        ("README.md", "docs/errors.md", true),
        ("README.md", "errors.md", false),
        ("docs/api.md", "errors.md#unauthorised", false),
        ("docs/api.md", "#no-such-heading", false),
        ("docs/api.md", "../../etc/passwd", false),
        ("docs/api.md", "/etc/passwd", false),
    ];
    for (file, target, good) in cases {
        assert_eq!(fault(file, target).is_none(), good, "{file}: {target}");
    }
}
