//! The documentation says what the code does.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use mcpvisor::protocol::{ErrorKind, Extension, KNOWN_EXTENSIONS, MemberPath, Revision};

mod cli;
mod commands;
mod limits;
mod links;
mod packages;
mod snippets;

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

/// The row of an extension in its table.
fn extension_row(extension: &Extension) -> String {
    let cell = |parts: Vec<String>| match parts.is_empty() {
        true => "–".to_owned(),
        false => parts.join("; "),
    };
    let methods = extension.methods.iter();
    let requests = methods.clone().map(|method| {
        let setting = method.setting.map(|it| format!(", if it declares `{it}`"));
        let (name, route) = (method.name, method.route.as_str());
        format!("`{name}`: {route}{}", setting.unwrap_or_default())
    });
    let uri = |path: &MemberPath| format!("`{}`", path.join(".").replace(".[]", "[]"));
    let uris = extension.uris.iter();
    let uris = uris.chain(methods.flat_map(|method| method.uris)).map(uri);
    let (name, eras, judged) = (extension.name, extension.eras, extension.judged);
    let (requests, uris) = (cell(requests.collect()), cell(uris.collect()));
    format!("| `{name}` | {eras} | {requests} | {uris} | {judged} |")
}

#[test]
fn every_extension_is_in_the_table() {
    let text = read("docs/revisions.md");
    let rows = text.lines().filter(|line| line.starts_with("| `io."));
    let expected: Vec<String> = KNOWN_EXTENSIONS.iter().map(extension_row).collect();
    assert_eq!(
        rows.collect::<Vec<_>>(),
        expected,
        "{}",
        expected.join("\n")
    );
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
        // Other attributes and comments can be between, as in `proptest!`.
        let mut head = before.take_while(|line| line.starts_with('#') || line.starts_with("//"));
        head.any(|line| line.starts_with("#[test") || line.contains("::test"))
    })
}

/// Where the test `suite::file::test` may stand. A suite is a folder of `tests/`, or of one of its folders.
fn files_of(test: &str) -> Vec<String> {
    let mut parts: Vec<&str> = test.split("::").collect();
    parts.pop();
    match parts.split_first() {
        Some((&"lib", module)) => {
            let module = module.join("/");
            ["", "/mod", "/tests", "/tests/mod"]
                .map(|end| format!("src/{module}{end}.rs"))
                .to_vec()
        }
        Some((suite, ["main"])) => files_of_suite(suite, "mod"),
        Some((suite, file)) => files_of_suite(suite, &file.join("/")),
        None => Vec::new(),
    }
}

fn files_of_suite(suite: &str, file: &str) -> Vec<String> {
    ["", "parts/", "peers/"]
        .map(|folder| format!("tests/{folder}{suite}/{file}.rs"))
        .to_vec()
}

/// Whether a line begins a guarantee: `1. **…` or `- **…`.
fn begins_guarantee(line: &str) -> bool {
    let Some((before, _)) = line.split_once(" **") else {
        return false;
    };
    before == "-"
        || before
            .strip_suffix('.')
            .is_some_and(|n| n.parse::<u32>().is_ok())
}

/// The guarantees of a document, each with the text up to the next one or the next heading.
fn guarantees(text: &str) -> Vec<String> {
    let mut items: Vec<String> = Vec::new();
    let mut inside = false;
    for line in text.lines() {
        if line.starts_with("## ") {
            inside = false;
        }
        if begins_guarantee(line) {
            inside = true;
            items.push(String::new());
        }
        if inside && let Some(item) = items.last_mut() {
            item.push_str(line);
        }
    }
    items
}

#[test]
fn every_guarantee_names_tests_that_exist() {
    for (file, at_least) in [("docs/supervision.md", 30), ("docs/security.md", 4)] {
        let items = guarantees(&read(file));
        assert!(items.len() >= at_least, "{file}: {}", items.len());
        for item in items {
            assert!(item.contains("::"), "{file}: no test is named: {item}");
            assert_tests_exist(file, &item);
        }
    }
    // Tables of this page name tests as well.
    let file = "docs/security.md";
    assert_tests_exist(file, &read(file));
}

/// Fails unless each test that a text names in backticks, `suite::file::test`, exists.
fn assert_tests_exist(file: &str, text: &str) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let named = text.split('`').skip(1).step_by(2);
    for test in named.filter(|name| name.contains("::")) {
        let name = test.rsplit("::").next().unwrap();
        let files = files_of(test);
        let found = files.iter().any(|file| has_test(&root.join(file), name));
        assert!(found, "{file}: `{test}` does not exist in {files:?}");
    }
}

#[test]
fn every_feature_of_another_system_has_its_proof() {
    let file = "docs/coming-from.md";
    let text = read(file);
    let mut rows: BTreeMap<char, usize> = BTreeMap::new();
    for line in text.lines() {
        let cells: Vec<&str> = line.split(" | ").collect();
        let [id, feature, proof] = cells.as_slice() else {
            continue;
        };
        let Some((system, number)) = id
            .strip_prefix("| ")
            .and_then(|id| Some((id.chars().next()?, id.get(1..)?.parse::<usize>().ok()?)))
        else {
            continue;
        };
        let rows = rows.entry(system).or_default();
        *rows += 1;
        assert_eq!(*rows, number, "{file}: {id}");
        let is_done = !feature.contains(". Not yet: ");
        let has_proof = proof.contains("::") || proof.contains("](");
        assert_eq!(is_done, has_proof, "{file}: {line}");
        assert_tests_exist(file, proof);
    }
    let expected = [('A', 32), ('D', 57), ('I', 106), ('P', 80), ('T', 60)];
    assert_eq!(rows, BTreeMap::from(expected));
}

/// The files of some kinds below a directory of the project, as paths within the project.
fn files_below(directory: &str, kinds: &[&str]) -> Vec<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut open = vec![PathBuf::from(directory)];
    let mut found = Vec::new();
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(root.join(&directory)).unwrap() {
            let entry = entry.unwrap();
            let path = directory.join(entry.file_name());
            let name = entry.file_name().into_string().unwrap();
            if entry.file_type().unwrap().is_dir() {
                if name != "target" && name != "node_modules" {
                    open.push(path);
                }
            } else if kinds.iter().any(|kind| name.ends_with(kind)) {
                found.push(path.to_str().unwrap().replace('\\', "/"));
            }
        }
    }
    found.sort();
    found
}

/// Whether a word is the id of a rule: `S-CANC-01`, `S-TASK-L-04`.
fn is_rule_id(word: &str) -> bool {
    let parts: Vec<&str> = word.split('-').collect();
    let (Some((first, rest)), true) = (parts.split_first(), (3..=4).contains(&parts.len())) else {
        return false;
    };
    let (number, topics) = rest.split_last().unwrap();
    let is_topic = |part: &&str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_uppercase());
    ["S", "C", "B"].contains(first)
        && topics[0].len() > 1
        && topics.iter().all(is_topic)
        && number.len() == 2
        && number.bytes().all(|b| b.is_ascii_digit())
}

/// The id with which the name of a test begins: `s_canc_01_a_cancelled_call`.
fn rule_id_of_name(name: &str) -> Option<String> {
    let parts: Vec<&str> = name.split('_').collect();
    let ids = (3..=4).filter_map(|count| Some(parts.get(..count)?.join("-").to_uppercase()));
    ids.into_iter()
        .find(|id| name.bytes().all(|b| !b.is_ascii_uppercase()) && is_rule_id(id))
}

/// The ids that a text cites, and each range of them, which is no citation.
fn citations(text: &str) -> (BTreeSet<String>, Vec<String>) {
    let is_of_word = |letter: char| letter.is_ascii_alphanumeric() || "-_".contains(letter);
    let words: Vec<&str> = text
        .split(|letter| !is_of_word(letter))
        .filter(|word| !word.is_empty())
        .collect();
    let written = words.iter().filter(|word| is_rule_id(word));
    let mut ids: BTreeSet<String> = written.map(|word| (*word).to_owned()).collect();
    ids.extend(words.iter().filter_map(|word| rule_id_of_name(word)));
    let is_range =
        |three: &&[&str]| three[1] == "to" && is_rule_id(three[0]) && is_rule_id(three[2]);
    let ranges = words.windows(3).filter(is_range);
    (ids, ranges.map(|three| three.join(" ")).collect())
}

/// Where each id is cited.
type Citations = BTreeMap<String, BTreeSet<String>>;

/// All citations of the project, and the faults of how they are written.
fn all_citations() -> (Citations, Vec<String>) {
    let kinds = ["rs", "md", "toml", "mjs", "py", "sh"].map(|kind| format!(".{kind}"));
    let kinds: Vec<&str> = kinds.iter().map(String::as_str).collect();
    let mut files = vec!["README.md".to_owned(), "CHANGELOG.md".to_owned()];
    for directory in ["src", "tests", "benches", "fuzz", "docs"] {
        files.extend(files_below(directory, &kinds));
    }
    // The rows themselves, and the faulty ones below.
    files.retain(|file| file != "docs/rules.md" && file != "tests/parts/docs/mod.rs");
    let mut cited = Citations::new();
    let mut faults = Vec::new();
    for file in files {
        let (ids, ranges) = citations(&read(&file));
        faults.extend(
            ranges
                .iter()
                .map(|range| format!("{file}: cite each of {range}")),
        );
        for id in ids {
            cited.entry(id).or_default().insert(file.clone());
        }
    }
    (cited, faults)
}

/// Whether a file of `src/` other than tests cites a rule.
fn is_implemented(id: &str, cited: &Citations) -> bool {
    let is_code = |file: &String| {
        let mut parts = file.split(['/', '.']);
        file.starts_with("src/") && !parts.any(|part| part == "tests")
    };
    cited.get(id).is_some_and(|files| files.iter().any(is_code))
}

/// A row of docs/rules.md: `| [ID](page)<br>revisions | summary<br>tests |`.
struct Rule<'a> {
    id: &'a str,
    /// Page of the specification; `None` for decisions of this project.
    page: Option<&'a str>,
    revisions: &'a str,
    summary: &'a str,
    tests: &'a str,
}

impl<'a> Rule<'a> {
    /// `None` for lines that are not a row of a rule, an error for malformed rows.
    fn parse(line: &'a str) -> Option<Result<Self, String>> {
        let inner = line.strip_prefix("| ")?.strip_suffix(" |")?;
        if ["Rule |", "---"].iter().any(|head| inner.starts_with(head)) {
            return None;
        }
        let parse = || {
            let (rule, text) = inner.split_once(" | ")?;
            let (id, revisions) = rule.split_once("<br>")?;
            let (summary, tests) = text.split_once("<br>")?;
            let link = id.strip_prefix('[').and_then(|id| id.strip_suffix(')'));
            let (id, page) = match link.and_then(|link| link.split_once("](")) {
                Some((id, page)) => (id, Some(page)),
                None => (id, None),
            };
            let rule = Self {
                id,
                page,
                revisions,
                summary,
                tests,
            };
            (!text.contains(" | ")).then_some(rule)
        };
        Some(parse().ok_or_else(|| format!("{inner} is malformed")))
    }
}

/// Whether a cell names revisions: `all`, one, `to` or `from` one, or one `to` another.
fn names_revisions(cell: &str) -> bool {
    let is_one = |word: &str| word.parse::<Revision>().is_ok();
    match cell.split(' ').collect::<Vec<_>>()[..] {
        ["all"] => true,
        [one] | ["to" | "from", one] => is_one(one),
        [first, "to", last] => is_one(first) && is_one(last) && first < last,
        _ => false,
    }
}

/// Whether a link leads to a page of the specification; decisions of this project (`B-`) need none.
fn names_a_page(rule: &Rule<'_>) -> bool {
    const OTHERS: [&str; 2] = [
        "https://modelcontextprotocol.github.io/ext-tasks/specification/2026-07-28/tasks.html",
        "https://modelcontextprotocol.io/docs/tutorials/security/security_best_practices",
    ];
    let is_path = |path: &str| {
        let is_of_path = |b: u8| b.is_ascii_lowercase() || b"/-".contains(&b);
        !path.is_empty() && path.bytes().all(is_of_path)
    };
    let Some(page) = rule.page else {
        return rule.id.starts_with("B-");
    };
    let dated = page.strip_prefix("https://modelcontextprotocol.io/specification/");
    let dated = dated.and_then(|page| page.split_once('/'));
    OTHERS.contains(&page)
        || dated
            .is_some_and(|(revision, path)| revision.parse::<Revision>().is_ok() && is_path(path))
}

/// Whether a cell names tests that exist, or says why there is none.
fn names_tests(cell: &str) -> bool {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let exists = |test: &str| {
        let name = test.rsplit("::").next().unwrap();
        let mut files = files_of(test).into_iter();
        files.any(|file| has_test(&root.join(file), name))
    };
    let quoted = |test: &str| {
        let test = test.strip_prefix('`')?.strip_suffix('`')?;
        Some(exists(test))
    };
    match cell.strip_prefix("none yet: ") {
        Some(reason) => !reason.is_empty(),
        None => cell.split(", ").all(|test| quoted(test) == Some(true)),
    }
}

fn faults_of_rule(rule: &Rule<'_>, cited: &Citations) -> Vec<&'static str> {
    let checks = [
        (is_rule_id(rule.id), "has no id"),
        (names_revisions(rule.revisions), "names no revisions"),
        (names_a_page(rule), "names no page of the specification"),
        (!rule.summary.is_empty(), "says no rule"),
        (
            is_implemented(rule.id, cited),
            "is cited by no file of src/",
        ),
        (names_tests(rule.tests), "names a test that does not exist"),
    ];
    let faults = checks.into_iter().filter(|(holds, _)| !holds);
    faults.map(|(_, fault)| fault).collect()
}

fn faults_of_rules(text: &str, cited: &Citations) -> Vec<String> {
    let mut faults = Vec::new();
    let mut ids = BTreeSet::new();
    for rule in text.lines().filter_map(Rule::parse) {
        let rule = match rule {
            Ok(rule) => rule,
            Err(fault) => {
                faults.push(fault);
                continue;
            }
        };
        let of_rule = faults_of_rule(&rule, cited);
        faults.extend(of_rule.iter().map(|fault| format!("{} {fault}", rule.id)));
        if !ids.insert(rule.id) {
            faults.push(format!("{} has two rows", rule.id));
        }
    }
    for (id, files) in cited.iter().filter(|(id, _)| !ids.contains(id.as_str())) {
        faults.push(format!("{id} has no row; it is cited in {files:?}"));
    }
    faults
}

#[test]
fn every_rule_that_is_cited_has_its_row() {
    let (cited, mut faults) = all_citations();
    faults.extend(faults_of_rules(&read("docs/rules.md"), &cited));
    assert!(faults.is_empty(), "docs/rules.md:\n{}", faults.join("\n"));
    assert!(cited.len() > 150, "{} ids", cited.len());
}

#[test]
fn every_fault_of_a_row_is_found() {
    let citing = "src/a.rs: (S-CANC-01). tests/a.rs: fn s_canc_01_a_call() S-TASK-L-02";
    let (ids, ranges) = citations(citing);
    assert_eq!(ids, ["S-CANC-01", "S-TASK-L-02"].map(str::to_owned).into());
    assert!(ranges.is_empty());
    let (_, ranges) = citations("(S-CANC-01 to S-CANC-04)");
    assert_eq!(ranges, ["S-CANC-01 to S-CANC-04"]);

    let files = ["src/a.rs", "src/a/tests.rs", "tests/a.rs"].map(str::to_owned);
    let cited = Citations::from([("S-CANC-01".to_owned(), files.into())]);
    let test = "`docs::x`".replace("docs::x", "it::batches::a_batch_is_answered_as_a_batch");
    let page = "https://modelcontextprotocol.io/specification/2025-11-25/basic/index";
    let good = format!("| [S-CANC-01]({page})<br>all | Words<br>{test} |");
    let faults = |text: &str| faults_of_rules(text, &cited);
    assert_eq!(faults(&good), [""; 0]);
    let link = format!("[S-CANC-01]({page})");
    let table = [
        ("", "", "S-CANC-01 has no row; it is cited in {\"src/a.rs\""),
        ("S-CANC-01", "S-canc-01", "S-canc-01 has no id"),
        (">all", ">some", "S-CANC-01 names no revisions"),
        (">all", ">to 2025-11-26", "S-CANC-01 names no revisions"),
        ("2025-11-25/", "", "S-CANC-01 names no page"),
        (&link, "S-CANC-01", "S-CANC-01 names no page"),
        ("Words", "", "S-CANC-01 says no rule"),
        ("S-CANC-01", "S-CANC-02", "S-CANC-02 is cited by no file"),
        ("a_batch_is", "no_batch_is", "S-CANC-01 names a test"),
        (&test, "none yet: ", "S-CANC-01 names a test"),
        (&test, "", "S-CANC-01 names a test"),
        ("Words<br>", "", "[S-CANC-01]"),
        ("Words", "Words | more", "[S-CANC-01]"),
    ];
    for (from, to, fault) in table {
        let text = match from {
            "" => String::new(),
            from => good.replace(from, to),
        };
        let found = faults(&text);
        assert!(
            found.iter().any(|found| found.starts_with(fault)),
            "{text}: {found:?}"
        );
    }
    let twice = faults(&format!("{good}\n{good}"));
    assert_eq!(twice, ["S-CANC-01 has two rows"]);
    let files = BTreeSet::from(["src/a/tests.rs".to_owned()]);
    let cited = Citations::from([("S-CANC-01".to_owned(), files)]);
    let tested_only = faults_of_rules(&good, &cited);
    assert_eq!(tested_only, ["S-CANC-01 is cited by no file of src/"]);
}
