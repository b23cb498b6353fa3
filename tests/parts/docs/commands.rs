//! Commands in the documents are those that the program has.

use std::path::Path;

use clap::Parser as _;
use clap::error::ErrorKind;
use mcpvisor::cli::Arguments;

use crate::docs::links::documents;
use crate::docs::read;
use crate::docs::snippets::snippets;

/// Splits a script into its simple commands, each as its words: enough of a shell for examples.
/// Those inside of `$(…)` come first.
fn commands(script: &str) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    let mut words: Vec<String> = Vec::new();
    let mut word = String::new();
    let mut begun = false;
    let mut quote = None;
    let mut letters = script.chars().peekable();
    while let Some(letter) = letters.next() {
        match (quote, letter) {
            (Some(open), _) if letter == open => quote = None,
            (None, '\'' | '"') => (quote, begun) = (Some(letter), true),
            (None | Some('"'), '\\') => match letters.next() {
                Some('\n') | None => {}
                Some(escaped) => word.push(escaped),
            },
            (None | Some('"'), '$') if letters.peek() == Some(&'(') => {
                letters.next();
                found.extend(commands(&substitution(&mut letters)));
                (begun, word) = (true, word + "$(…)");
            }
            (Some(_), _) => word.push(letter),
            (None, '#') if !begun => while letters.next_if(|letter| *letter != '\n').is_some() {},
            (None, letter) if letter.is_whitespace() || ";|&".contains(letter) => {
                if begun {
                    words.push(std::mem::take(&mut word));
                    begun = false;
                }
                if !matches!(letter, ' ' | '\t') && !words.is_empty() {
                    found.push(std::mem::take(&mut words));
                }
            }
            (None, letter) => (begun, word) = (true, word + letter.to_string().as_str()),
        }
    }
    if begun {
        words.push(word);
    }
    found.push(words);
    found.retain(|words| !words.is_empty());
    found
}

/// The script of a `$(…)` whose beginning was read.
fn substitution(letters: &mut impl Iterator<Item = char>) -> String {
    let mut depth = 1;
    letters
        .take_while(|letter| {
            match letter {
                '(' => depth += 1,
                ')' => depth -= 1,
                _ => {}
            }
            depth > 0
        })
        .collect()
}

/// The arguments of `mcpvisor` in a command, if it is one of that, also as `cargo run`.
fn arguments(words: &[String]) -> Option<Vec<&str>> {
    let is_variable = |word: &&String| {
        let name = word.split_once('=').map(|(name, _)| name);
        name.is_some_and(|name| name.chars().all(|l| l.is_ascii_uppercase() || l == '_'))
    };
    let words = words
        .iter()
        .skip_while(|word| is_variable(word) || *word == "sudo");
    let words: Vec<&str> = words.map(String::as_str).collect();
    let rest = match words.as_slice() {
        [program, rest @ ..] if *program == "mcpvisor" || program.ends_with("/mcpvisor") => rest,
        ["cargo", "run", rest @ ..] => {
            let of_cargo = |word: &&&str| ["--release", "--locked", "--quiet"].contains(*word);
            let skipped = rest.iter().take_while(of_cargo).count();
            let rest = &rest[skipped..];
            rest.strip_prefix(&["--"]).unwrap_or(rest)
        }
        _ => return None,
    };
    let is_redirection = |word: &&str| word.starts_with(['<', '>']) || word.starts_with("2>");
    let end = rest.iter().position(is_redirection);
    Some(rest[..end.unwrap_or(rest.len())].to_vec())
}

/// Why the program does not take these arguments; where a sentence only names a command, what it
/// needs beside may be missing.
fn refusal(arguments: &[&str], in_a_sentence: bool) -> Option<String> {
    let words = std::iter::once("mcpvisor").chain(arguments.iter().copied());
    let error = Arguments::try_parse_from(words).err()?;
    let accepted = match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => true,
        ErrorKind::MissingRequiredArgument
        | ErrorKind::MissingSubcommand
        | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => in_a_sentence,
        // An option whose value is left out.
        ErrorKind::InvalidValue => {
            in_a_sentence && error.to_string().contains("a value is required")
        }
        _ => false,
    };
    (!accepted).then(|| error.to_string())
}

/// The script of a snippet; of a terminal's, the lines that somebody typed.
fn script(language: &str, text: &str) -> String {
    match language {
        "console" => {
            let typed = text.lines().filter_map(|line| line.strip_prefix("$ "));
            typed.collect::<Vec<_>>().join("\n")
        }
        _ => text.to_owned(),
    }
}

/// A file of the project that a command runs and that is not there, or a suite of tests.
fn missing(words: &[String]) -> Option<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    if let Some(word) = words.first()
        && ["tests/", "contrib/", "fuzz/", ".ci/"]
            .iter()
            .any(|start| word.starts_with(start))
        && !root.join(word).exists()
    {
        return Some(word.clone());
    }
    let mut suites = words.windows(2).filter(|two| two[0] == "--test");
    let is_there = |name: &str| {
        let tests = root.join("tests");
        tests.join(format!("{name}.rs")).exists() || tests.join(name).join("main.rs").exists()
    };
    let suite = suites.find(|two| words[0] == "cargo" && !is_there(&two[1]))?;
    Some(format!("--test {}", suite[1]))
}

#[test]
fn every_command_is_one_that_the_program_has() {
    let mut faults = Vec::new();
    let mut found = 0;
    for snippet in snippets() {
        if !["sh", "console"].contains(&snippet.language.as_str()) {
            continue;
        }
        for words in commands(&script(&snippet.language, &snippet.text)) {
            if let Some(arguments) = arguments(&words) {
                found += 1;
                let refusal = refusal(&arguments, false);
                faults.extend(refusal.map(|why| format!("{}: {words:?}: {why}", snippet.place)));
            }
            faults.extend(missing(&words).map(|what| format!("{}: no {what}", snippet.place)));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert!(found > 50, "{found}");
}

/// The commands that the sentences of a document name: `mcpvisor servers logs NAME`.
fn named(text: &str) -> Vec<String> {
    let mut prose = String::new();
    let mut fenced = false;
    for line in text.lines() {
        fenced ^= line.trim_start().starts_with("```");
        if !fenced {
            prose.push_str(line);
            prose.push('\n');
        }
    }
    let quoted = prose.split('`').skip(1).step_by(2);
    let quoted = quoted.filter(|text| text.starts_with("mcpvisor ") && !text.contains('…'));
    // What may be left out stands in brackets.
    let plain = quoted.map(|text| text.replace(['[', ']'], " "));
    plain
        .map(|text| text.replace(" URL", " http://127.0.0.1/"))
        .collect()
}

#[test]
fn every_command_in_a_sentence_is_one_that_the_program_has() {
    let mut faults = Vec::new();
    let mut found = 0;
    let mut documents = documents();
    documents.retain(|file| file != "CHANGELOG.md");
    for file in documents {
        for text in named(&read(&file)) {
            found += 1;
            let words: Vec<&str> = text.split_whitespace().skip(1).collect();
            faults.extend(refusal(&words, true).map(|why| format!("{file}: `{text}`: {why}")));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert!(found > 50, "{found}");
}

#[test]
fn scripts_are_split_into_commands() {
    let cases: [(&str, &[&[&str]]); 8] = [
        ("a b  c # d\n", &[&["a", "b", "c"]]),
        ("a 'b c' \"d e\"\nf", &[&["a", "b c", "d e"], &["f"]]),
        ("a \\\n  b", &[&["a", "b"]]),
        ("a | b && c; d", &[&["a"], &["b"], &["c"], &["d"]]),
        ("A=$(b c) d", &[&["b", "c"], &["A=$(…)", "d"]]),
        ("a '{\n\"b\":1}'", &[&["a", "{\n\"b\":1}"]]),
        ("a \"$(b \"c\")\"", &[&["b", "c"], &["a", "$(…)"]]),
        ("a b#c ''", &[&["a", "b#c", ""]]),
    ];
    for (script, expected) in cases {
        assert_eq!(commands(script), expected, "{script}");
    }
    let cases: [(&str, Option<&[&str]>); 6] = [
        ("mcpvisor status", Some(&["status"])),
        ("PORT=1 ./target/release/mcpvisor > log", Some(&[])),
        (
            "cargo run --release -- status --json",
            Some(&["status", "--json"]),
        ),
        ("cargo run config schema", Some(&["config", "schema"])),
        ("cargo test", None),
        ("echo mcpvisor", None),
    ];
    for (script, expected) in cases {
        let words = &commands(script)[0];
        assert_eq!(arguments(words).as_deref(), expected, "{script}");
    }
}

#[test]
fn faulty_commands_are_found() {
    let cases: [(&str, bool, bool); 7] = [
        ("status --json", true, true),
        ("status --jsn", false, false),
        ("servers logs", false, true),
        ("servers log files", false, false),
        ("stdio --connect", false, true),
        ("stdio --connect nowhere", false, false),
        ("keys add a --expires-in soon", false, false),
    ];
    for (text, alone, in_a_sentence) in cases {
        let words: Vec<&str> = text.split(' ').collect();
        assert_eq!(refusal(&words, false).is_none(), alone, "{text}");
        assert_eq!(refusal(&words, true).is_none(), in_a_sentence, "{text}");
    }
    let faulty = [
        "tests/no/run.sh",
        "cargo test --test none",
        "contrib/no.sh a",
    ];
    for script in faulty {
        assert!(missing(&commands(script)[0]).is_some(), "{script}");
    }
    assert!(missing(&commands("cargo test --test parts docs")[0]).is_none());
}
