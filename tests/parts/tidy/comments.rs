//! What comments name exists.

use std::path::Path;

use crate::tidy::sources;

/// The words in backticks of a text.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// The modules that a line of a list describes: `//! - \`name\`, \`other\`: …`.
fn described(line: &str) -> impl Iterator<Item = &str> {
    let list = line
        .split_once("`:")
        .filter(|_| line.starts_with("//! - `"));
    let names = quoted(list.map_or("", |(names, _)| names));
    names.filter(|name| name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'))
}

#[test]
fn the_list_of_modules_at_the_head_of_a_folder_names_no_other() {
    let mut found = 0;
    for source in sources("src") {
        let Some(folder) = source
            .path
            .parent()
            .filter(|_| source.path.ends_with("mod.rs"))
        else {
            continue;
        };
        for name in source.text.lines().flat_map(described) {
            found += 1;
            let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
            let is_there = folder.join(format!("{name}.rs")).exists() || folder.join(name).is_dir();
            assert!(is_there, "{}: no module `{name}`", source.path.display());
        }
    }
    assert!(found > 10, "{found}");
}

#[test]
fn a_file_that_a_comment_names_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for directory in ["src", "tests", "benches", "fuzz"] {
        for source in sources(directory) {
            let comments = source.text.lines().map(str::trim);
            let comments = comments.filter(|line| line.starts_with("//"));
            for name in comments.flat_map(quoted).filter(|name| names_a_file(name)) {
                let beside = source.path.parent().unwrap_or(Path::new(""));
                let places = [Path::new(""), Path::new("src"), beside];
                let mut places = places.iter().map(|place| root.join(place).join(name));
                let is_there = places.any(|path| path.exists());
                assert!(is_there, "{}: no file `{name}`", source.path.display());
            }
        }
    }
}

/// Whether a word is the path of a file or a folder of this repository.
fn names_a_file(word: &str) -> bool {
    let is_path = word
        .bytes()
        .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"_-./".contains(&b));
    let folders = ["src/", "tests/", "docs/", "contrib/", "fuzz/", "benches/"];
    is_path && (word.ends_with(".rs") || folders.iter().any(|folder| word.starts_with(folder)))
}
