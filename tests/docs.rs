//! The documentation says what the code does.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::Path;

use mcpvisor::protocol::ErrorKind;

fn read(file: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).unwrap()
}

#[test]
fn every_error_code_is_explained() {
    let text = read("docs/errors.md");
    let lines: Vec<&str> = text.lines().collect();
    for kind in ErrorKind::ALL {
        let (code, retryable) = (kind.as_str(), if kind.retryable() { "yes" } else { "no" });
        let (rpc, http) = (kind.rpc_code(), kind.http_status());
        let row = format!("| [`{code}`](#{code}) | {rpc} | {http} | {retryable} |");
        assert!(lines.contains(&row.as_str()), "docs/errors.md lacks {row}");
        let heading = format!("## {code}");
        let at = lines.iter().position(|line| *line == heading);
        let at = at.unwrap_or_else(|| panic!("docs/errors.md lacks {heading}"));
        assert!(!lines[at + 2].is_empty(), "{heading} says nothing");
    }
    let headings = lines.iter().filter(|line| line.starts_with("## ")).count();
    assert_eq!(headings, ErrorKind::ALL.len(), "a code that does not exist");
}

/// Whether a file has a test of this name.
fn has_test(path: &Path, name: &str) -> bool {
    let text = fs::read_to_string(path).unwrap_or_default();
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let is_it = |line: &str| {
        let line = line.strip_prefix("async ").unwrap_or(line);
        line.strip_prefix("fn ")
            .and_then(|rest| rest.strip_prefix(name))
            .is_some_and(|rest| rest.starts_with('('))
    };
    let at = lines.iter().position(|line| is_it(line));
    at.is_some_and(|at| {
        let before = lines[..at].iter().rev();
        // In `proptest!` and elsewhere other attributes and comments may stand between.
        let mut head = before.take_while(|line| line.starts_with('#') || line.starts_with("//"));
        head.any(|line| line.starts_with("#[test") || line.contains("::test"))
    })
}

/// Where the test `suite::file::test` may stand.
fn files_of(test: &str) -> Vec<String> {
    let mut parts: Vec<&str> = test.split("::").collect();
    parts.pop();
    match parts.split_first() {
        Some((&"lib", module)) => {
            let module = module.join("/");
            ["", "/mod", "/tests"]
                .map(|end| format!("src/{module}{end}.rs"))
                .to_vec()
        }
        Some((suite, file)) => vec![format!("tests/{suite}/{}.rs", file.join("/"))],
        None => Vec::new(),
    }
}

#[test]
fn every_guarantee_names_tests_that_exist() {
    let text = read("docs/supervision.md");
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut guarantees = 0;
    let mut tests = 0;
    let is_numbered = |line: &&str| {
        line.split_once(". **")
            .is_some_and(|(n, _)| n.parse::<u32>().is_ok())
    };
    let mut items: Vec<String> = Vec::new();
    for line in text.lines() {
        if is_numbered(&line) {
            guarantees += 1;
            items.push(String::new());
        }
        if line.starts_with("## ") {
            items.push(String::from("heading"));
        }
        if let Some(item) = items.last_mut() {
            item.push_str(line);
        }
    }
    for item in items.iter().filter(|item| !item.starts_with("heading")) {
        let named: Vec<&str> = item.split('`').skip(1).step_by(2).collect();
        let named: Vec<&str> = named
            .into_iter()
            .filter(|name| name.contains("::"))
            .collect();
        assert!(!named.is_empty(), "no test is named: {item}");
        for test in named {
            tests += 1;
            let name = test.rsplit("::").next().unwrap();
            let files = files_of(test);
            let found = files.iter().any(|file| has_test(&root.join(file), name));
            assert!(found, "`{test}` does not exist in {files:?}");
        }
    }
    assert!(
        guarantees >= 30 && tests > guarantees,
        "{guarantees}, {tests}"
    );
}

#[test]
fn links_between_the_documents_lead_somewhere() {
    let mut links = 0;
    for file in ["README.md", "docs/contributing.md", "docs/errors.md"] {
        let directory = Path::new(file).parent().unwrap();
        for part in read(file).split("](").skip(1) {
            let target = part.split(')').next().unwrap();
            let path = target.split('#').next().unwrap();
            if target.contains("://") || path.is_empty() {
                continue;
            }
            links += 1;
            let root = Path::new(env!("CARGO_MANIFEST_DIR"));
            let found = root.join(directory).join(path);
            assert!(found.exists(), "{file} links to {target}");
        }
    }
    assert!(links > 3);
}

#[test]
fn every_anchor_of_the_readme_is_a_heading() {
    let text = read("README.md");
    let anchor = |heading: &str| {
        let kept = heading.chars().filter_map(|letter| match letter {
            ' ' | '-' => Some('-'),
            letter if letter.is_alphanumeric() || letter == '_' => {
                Some(letter.to_ascii_lowercase())
            }
            _ => None,
        });
        kept.collect::<String>()
    };
    let headings: Vec<String> = text
        .lines()
        .filter_map(|line| line.trim_start_matches('#').strip_prefix(' '))
        .map(anchor)
        .collect();
    for part in text.split("](#").skip(1) {
        let target = part.split(')').next().unwrap();
        assert!(
            headings.iter().any(|heading| heading == target),
            "#{target}"
        );
    }
}
