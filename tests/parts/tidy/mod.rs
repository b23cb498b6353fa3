//! The form of the code: layers, words, lengths. A rule that fails names the place.

#![expect(clippy::unwrap_used, reason = "in a test that is the answer")]

mod comments;
mod dependencies;
mod imports;
mod types;

use std::fs;
use std::path::{Path, PathBuf};

use imports::Imports;

/// A longer file, in lines, is looked at: it has a part that deserves a name of its own, or it
/// stands in [`LONG`]. A type is not cut into several files for its length.
const LINES_MAX: usize = 500;

/// Files that are longer, with the reason.
const LONG: &[(&str, &str)] = &[];

/// Circles of files that import each other, as they were when the rule began to follow names through `mod.rs`.
const CIRCLES: &[&str] = &[
    "catalog::item ↔ catalog::model_text ↔ catalog::pins ↔ catalog::server_part ↔ catalog::settings ↔ catalog::tool_override ↔ catalog::uri",
    "catalog::search ↔ catalog::snapshot",
    "masking::arguments ↔ masking::url",
    "protocol::envelope ↔ protocol::envelope::raw_json ↔ protocol::json",
    "protocol::error ↔ protocol::revision",
];

/// The parts of `src/` and their layers: a part imports only from smaller ones. The same table is
/// in docs/architecture.md.
const LAYERS: &[(&str, u8)] = &[
    ("id", 0),
    ("masking", 0),
    ("memory", 0),
    ("cipher", 1),
    ("protocol", 1),
    ("sandbox", 1),
    ("telemetry", 1),
    ("bridge", 2),
    ("catalog", 3),
    ("cluster", 2),
    ("credentials", 2),
    ("metrics", 2),
    ("traces", 2),
    ("store", 1),
    ("supervision", 2),
    ("auth", 3),
    ("history", 3),
    ("transport", 3),
    ("downstream", 4),
    ("sources", 4),
    ("publisher", 5),
    ("calls", 6),
    ("sessions", 7),
    ("admin", 8),
    ("front", 8),
    ("config", 9),
    ("clients", 10),
    ("gateway", 11),
    // Beside the layers: only `main` uses them, and they use nothing of the gateway.
    ("cassette", 11),
    ("cli", 11),
    ("doctor", 11),
    ("example_server", 11),
    // Of the binary.
    ("commands", 12),
];

/// A crate that only some parts may name.
const BOUND: &[(&str, &[&str])] = &[
    (
        "actix::",
        &[
            "supervision",
            "downstream",
            "publisher",
            "calls",
            "sessions",
            "gateway",
            "commands",
        ],
    ),
    ("actix_web::", &["admin", "front"]),
    ("actix_cors::", &["front"]),
    ("awc::", &["transport"]),
    ("notify::", &["config"]),
];

/// Parts that only compute: no I/O, no clock, no threads, no randomness of their own.
const PURE: &[&str] = &["bridge", "catalog", "protocol"];

/// Crates and modules through which a program acts or looks at the world.
const ACTS: &[&str] = &[
    "actix",
    "awc::",
    "tokio::",
    "std::fs",
    "std::net",
    "std::process",
    "std::thread",
    "std::env",
    "std::io",
    "Instant",
    "SystemTime",
    "log::",
    "Mutex",
];

struct Source {
    path: PathBuf,
    text: String,
}

impl Source {
    /// A file of unit tests beside the code that they test.
    fn is_test(&self) -> bool {
        self.path.components().any(|part| {
            matches!(
                part.as_os_str().to_str(),
                Some("tests" | "tests.rs" | "properties.rs")
            )
        })
    }
}

/// The code of a file without its comments and its module of unit tests.
fn body(source: &Source) -> String {
    let before_tests = source.text.split("#[cfg(test)]\nmod tests").next();
    let lines = code(before_tests.unwrap_or_default()).map(|(_, line)| line);
    lines.collect::<Vec<_>>().join("\n")
}

fn sources(directory: &str) -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join(directory);
    let mut found = Vec::new();
    let mut open = vec![root];
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).unwrap();
                let root = env!("CARGO_MANIFEST_DIR");
                let path = path.strip_prefix(root).unwrap().to_owned();
                found.push(Source { path, text });
            }
        }
    }
    assert!(!found.is_empty(), "{directory} has no sources");
    found
}

/// The part of `src/` that a file belongs to; `None` for `lib.rs` and `main.rs`.
fn part(path: &Path) -> Option<String> {
    let name = path.components().nth(1)?.as_os_str().to_str()?;
    let name = name.strip_suffix(".rs").unwrap_or(name);
    (!matches!(name, "lib" | "main")).then(|| name.to_owned())
}

fn layer(part: &str) -> u8 {
    let found = LAYERS.iter().find(|(name, _)| *name == part);
    found
        .unwrap_or_else(|| {
            panic!("`{part}` has no layer: give it one here and in docs/architecture.md")
        })
        .1
}

/// The parts that a file names as `crate::PART`.
fn imports(text: &str) -> impl Iterator<Item = &str> {
    text.split("crate::").skip(1).filter_map(|rest| {
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_')?;
        let name = rest.get(..end)?;
        LAYERS.iter().any(|(part, _)| *part == name).then_some(name)
    })
}

/// The text without comments, so that prose may use any word.
fn code(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let lines = text.lines().enumerate();
    lines
        .map(|(number, line)| (number + 1, line))
        .filter(|(_, line)| !line.trim_start().starts_with("//"))
}

#[test]
fn a_part_imports_only_from_layers_below() {
    for source in sources("src") {
        let Some(part) = part(&source.path) else {
            continue;
        };
        for import in imports(&source.text).filter(|import| *import != part) {
            assert!(
                layer(import) < layer(&part),
                "{}: `{part}` imports from `{import}`, which is not below it",
                source.path.display()
            );
        }
    }
}

#[test]
fn files_of_a_part_do_not_import_each_other_in_circles() {
    let circles = Imports::of(&sources("src")).circles();
    let lines: Vec<String> = circles.iter().map(|circle| circle.join(" ↔ ")).collect();
    assert_eq!(
        lines, CIRCLES,
        "left: circles of files, as they are; right: as listed, which may only become fewer"
    );
}

#[test]
fn pure_parts_name_nothing_that_acts() {
    for part in PURE {
        for source in sources(&format!("src/{part}")) {
            let body = body(&source);
            let named = ACTS.iter().find(|word| body.contains(**word));
            assert!(
                named.is_none() || source.is_test(),
                "{}: `{part}` is pure, but names `{}`",
                source.path.display(),
                named.unwrap_or(&"")
            );
        }
    }
}

#[test]
fn a_crate_is_named_only_where_it_belongs() {
    for source in sources("src") {
        let Some(part) = part(&source.path) else {
            continue;
        };
        for (name, allowed) in BOUND {
            let used = code(&source.text).find(|(_, line)| {
                line.trim_start().starts_with(&format!("use {name}"))
                    || line.contains(&format!(" {name}"))
            });
            if let Some((line, _)) = used.filter(|_| !allowed.contains(&part.as_str())) {
                panic!("{}:{line}: `{part}` names `{name}`", source.path.display());
            }
        }
    }
}

#[test]
fn supervision_knows_nothing_of_what_it_supervises() {
    for source in sources("src/supervision") {
        for (line, text) in source.text.lines().enumerate() {
            let text = text.replace("mcpvisor::", "");
            for word in ["mcp", "MCP", "session", "catalog"] {
                assert!(
                    !text.contains(word),
                    "{}:{}: `{word}` is no word of supervision",
                    source.path.display(),
                    line + 1
                );
            }
        }
    }
}

#[test]
fn files_are_short_and_finished() {
    let unfinished = [
        "TODO",
        "FIXME",
        "XXX",
        "#[ignore",
        "#[should_panic",
        "todo!(",
        "unimplemented!(",
    ];
    for directory in ["src", "tests", "benches"] {
        for source in sources(directory) {
            let path = source.path.display();
            let lines = source.text.lines().count();
            let is_long = LONG.iter().any(|(long, _)| source.path.ends_with(long));
            assert!(
                lines <= LINES_MAX || is_long,
                "{path} has {lines} lines: find the part that deserves a name"
            );
            if source.path.ends_with("tests/parts/tidy/mod.rs") {
                continue;
            }
            for (line, text) in source.text.lines().enumerate() {
                let word = unfinished.iter().find(|word| text.contains(**word));
                assert!(word.is_none(), "{path}:{}: {word:?}", line + 1);
            }
        }
    }
}

#[test]
fn the_words_of_the_glossary_are_used() {
    for source in sources("src") {
        for (line, text) in source.text.lines().enumerate() {
            let text = text.to_ascii_lowercase();
            assert!(
                !text.contains("upstream"),
                "{}:{}: say `downstream` for servers, `client` for the other side",
                source.path.display(),
                line + 1
            );
        }
    }
}

#[test]
fn dangerous_code_has_its_place() {
    let places: &[(&str, &[&str])] = &[
        ("unsafe {", &["src/memory/heap.rs", "src/sandbox/child.rs"]),
        (
            "SystemTime",
            &["src/telemetry", "src/store", "src/traces/exporter.rs"],
        ),
        (
            "std::process::Command",
            &["src/sandbox/child.rs", "src/sandbox/launcher"],
        ),
        ("panic!(", &[]),
        ("static mut", &[]),
    ];
    for source in sources("src") {
        let is_test = source
            .path
            .components()
            .any(|part| part.as_os_str() == "tests");
        let body = source.text.split("#[cfg(test)]").next().unwrap_or_default();
        if is_test || source.path.to_string_lossy().contains("tests.rs") {
            continue;
        }
        for (word, allowed) in places {
            let here = allowed.iter().any(|place| source.path.starts_with(place));
            if let Some((line, _)) = code(body).find(|(_, line)| line.contains(word) && !here) {
                panic!(
                    "{}:{line}: `{word}` does not belong here",
                    source.path.display()
                );
            }
        }
    }
}

#[test]
fn the_map_in_the_architecture_names_every_part() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let text = fs::read_to_string(root.join("docs/architecture.md")).unwrap();
    for (part, layer) in LAYERS {
        let row = text
            .lines()
            .find(|line| line.starts_with(&format!("| `{part}` |")));
        let row = row.unwrap_or_else(|| panic!("docs/architecture.md has no row for `{part}`"));
        assert!(
            row.starts_with(&format!("| `{part}` | {layer} |")),
            "another layer: {row}"
        );
    }
}

#[test]
fn the_paths_for_contributors_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let text = fs::read_to_string(root.join("docs/contributing.md")).unwrap();
    let quoted: Vec<&str> = text.split('`').skip(1).step_by(2).collect();
    for word in quoted.iter().filter(|word| word.starts_with("src/")) {
        assert!(
            root.join(word).exists(),
            "docs/contributing.md: no `{word}`"
        );
    }
}
