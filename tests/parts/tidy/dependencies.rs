//! The crates that the project is built from: licences, sources, and one version of each.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use serde_json::Value;

/// Licences that allow the crate to be used in a program under Apache-2.0.
const LICENCES: &[&str] = &[
    "Apache-2.0",
    "BSD-2-Clause",
    "BSD-3-Clause",
    // The Boost licence. The similarly named Business Source License is BUSL.
    "BSL-1.0",
    "CC0-1.0",
    "CDLA-Permissive-2.0",
    "ISC",
    "MIT",
    "MIT-0",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

/// Crates that are not used, with the reason.
const BANNED: &[(&str, &str)] = &[
    ("aws-lc-rs", "minutes of C to build, beside ring"),
    ("native-tls", "TLS is rustls everywhere"),
    ("openssl-sys", "TLS is rustls everywhere"),
];

/// Crates that are there in several versions, since those that use them disagree.
const DUPLICATES: &[(&str, &str)] = &[
    ("base64", "a test dependency is ahead"),
    (
        "bit-set",
        "regular expressions and the parser of conditions",
    ),
    ("bit-vec", "regular expressions and property tests"),
    ("getrandom", "each generation of random crates has its own"),
    (
        "h2",
        "of awc and of hyper, which exports traces; both are of its maintainers",
    ),
    (
        "http",
        "actix-web stays on 0.2; what exports traces is on 1",
    ),
    ("r-efi", "of getrandom, for UEFI only"),
    ("rand", "exporting traces is behind"),
    ("rand_core", "of getrandom"),
    ("syn", "derive macros move to 3 one by one"),
    ("synstructure", "of syn"),
    ("windows-sys", "for Windows only"),
];

fn packages() -> Vec<Value> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let mut command = Command::new(cargo);
    command.args(["metadata", "--locked", "--format-version", "1"]);
    command.current_dir(env!("CARGO_MANIFEST_DIR"));
    let output = command.output().unwrap();
    assert!(output.status.success(), "cargo metadata failed");
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    metadata["packages"].as_array().unwrap().clone()
}

/// Whether a licence expression can be satisfied: one alternative of each part that is demanded.
fn is_allowed(expression: &str) -> bool {
    let expression = expression.replace(['(', ')'], "").replace('/', " OR ");
    expression.split(" AND ").all(|part| {
        let mut alternatives = part.split(" OR ").map(str::trim);
        alternatives.any(|licence| LICENCES.contains(&licence))
    })
}

#[test]
fn dependencies_are_free_to_use_and_come_from_one_registry_in_one_version() {
    let packages = packages();
    let mut sources = BTreeSet::new();
    let mut versions: BTreeMap<&str, usize> = BTreeMap::new();
    for package in &packages {
        let name = package["name"].as_str().unwrap();
        let licence = package["license"].as_str().unwrap_or("none");
        assert!(is_allowed(licence), "{name} has the licence {licence}");
        let banned = BANNED.iter().find(|(banned, _)| *banned == name);
        assert!(banned.is_none(), "{name} is not used: {banned:?}");
        *versions.entry(name).or_default() += 1;
        match package["source"].as_str() {
            Some(source) => {
                sources.insert(source);
            }
            None => assert_eq!(name, "mcpvisor", "a crate by its path"),
        }
    }
    let is_registry = |source: &&str| source.starts_with("registry+");
    assert!(
        sources.len() == 1 && sources.iter().all(is_registry),
        "more than one source: {sources:?}"
    );
    let found = versions.iter().filter(|(_, count)| **count > 1);
    let found: Vec<&str> = found.map(|(name, _)| *name).collect();
    let known: Vec<&str> = DUPLICATES.iter().map(|(name, _)| *name).collect();
    assert_eq!(found, known, "crates in several versions");
}

#[test]
fn a_licence_is_allowed_if_one_alternative_of_each_part_is() {
    for (expression, expected) in [
        ("MIT", true),
        ("MIT/Apache-2.0", true),
        ("Apache-2.0 OR BSL-1.0", true),
        ("(MIT OR GPL-3.0-only) AND Unicode-3.0", true),
        ("MIT AND GPL-3.0-only", false),
        ("GPL-3.0-only", false),
        ("none", false),
    ] {
        assert_eq!(is_allowed(expression), expected, "{expression}");
    }
}
