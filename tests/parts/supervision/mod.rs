//! Proof of the guarantees of `mcpvisor::supervision`, one module per kind.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "in a test that is the answer"
)]

mod deaths;
mod idle;
mod memory;
mod stopping;
mod storm;
mod support;
mod temporary;
mod time;
mod waiting;

/// The list of guarantees names a test for each; here each name must be one.
#[test]
fn every_guarantee_names_tests_that_exist() {
    let sources = [
        (
            "backoff",
            include_str!("../../../src/supervision/backoff.rs"),
        ),
        (
            "machine",
            include_str!("../../../src/supervision/machine/tests.rs"),
        ),
        (
            "properties",
            include_str!("../../../src/supervision/machine/properties.rs"),
        ),
        ("deaths", include_str!("deaths.rs")),
        ("idle", include_str!("idle.rs")),
        ("stopping", include_str!("stopping.rs")),
        ("storm", include_str!("storm.rs")),
        ("temporary", include_str!("temporary.rs")),
        ("time", include_str!("time.rs")),
        ("waiting", include_str!("waiting.rs")),
    ];
    let list = include_str!("../../../src/supervision/mod.rs");
    let mut found = 0;
    for (module, test) in list.split('`').filter_map(|word| word.split_once("::")) {
        let Some((_, source)) = sources.iter().find(|(name, _)| *name == module) else {
            continue;
        };
        assert!(
            source.contains(&format!("fn {test}(")),
            "no test {module}::{test}"
        );
        found += 1;
    }
    assert!(found > 25, "only {found} tests are named");
}
