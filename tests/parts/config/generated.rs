//! Texts that are written from the declarations of the keys: the default file, the JSON Schema, the
//! reference.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::Path;
use std::sync::LazyLock;

use jsonschema::Validator;
use mcpvisor::config::{default_file, reference, schema};
use serde_json::Value;

static VALIDATOR: LazyLock<Validator> =
    LazyLock::new(|| jsonschema::draft202012::new(&schema()).unwrap());

fn json(text: &str) -> Value {
    toml::from_str(text).unwrap()
}

/// A file that the program accepts is right by the schema, too.
pub(crate) fn assert_schema_accepts(text: &str) {
    let errors: Vec<String> = VALIDATOR
        .iter_errors(&json(text))
        .map(|error| format!("{}: {error}", error.instance_path()))
        .collect();
    assert!(errors.is_empty(), "{errors:#?}\n{text}");
}

#[test]
fn the_files_in_the_repository_are_what_the_program_prints() {
    let schema = serde_json::to_string_pretty(&schema()).unwrap() + "\n";
    for (file, verb, printed) in [
        ("config.toml", "default", default_file()),
        ("docs/config.schema.json", "schema", schema),
        ("docs/configuration.md", "reference", reference()),
    ] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
        let committed = fs::read_to_string(path).unwrap_or_default();
        assert!(
            committed == printed,
            "{file} is out of date: `cargo run config {verb} > {file}`"
        );
    }
}

#[test]
fn the_schema_is_a_schema() {
    jsonschema::draft202012::meta::validate(&schema()).unwrap();
}

#[test]
fn the_schema_accepts_the_default_file() {
    assert_schema_accepts(&default_file());
    assert_schema_accepts("");
}

#[test]
fn the_schema_refuses_what_no_gateway_reads() {
    for text in [
        "gatway = 1",
        "gateway = 1",
        "[gateway]\nlisen = \"127.0.0.1:1\"",
        "[gateway]\nsse_after = 5",
        "[gateway]\nsse_after = \"soon\"",
        "[gateway]\nlog = \"jsno\"",
        "[gateway]\nallowed_hosts = \"x\"",
        "[gateway]\nworkers = 0",
        "[gateway]\nlegacy_sse = \"yes\"",
        "[limits]\nbody = \"16 MegaByte\"",
        "[limits]\nbody = 1",
        "[sessions]\nmax = 0",
        "[supervision]\njitter = 2.0",
        "[servers.a]\ncommand = \"x\"\nzzzz = 1",
        "[servers.a]\ncommand = 5",
        "[servers.a]\ncommand = \"x\"\nargs = [5]",
        "[servers.a]\ncommand = \"x\"\nenv = { A = 5 }",
        "[servers.a]\ncommand = \"x\"\ntools = { alow = [] }",
        "[servers.a.supervision]\nwithn = \"1s\"",
        "[servers.a__b]\ncommand = \"x\"",
        "servers.a = \"npx\"",
    ] {
        assert!(!VALIDATOR.is_valid(&json(text)), "{text}");
    }
}
