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
