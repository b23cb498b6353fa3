//! The framework as a server that wants a token, with authorization servers of every kind: the
//! gateway has to sign in to it.

use std::fs;

use super::{Bench, NEW, OLD};
use crate::node::{PATIENCE, end_of};

/// Each with the revision that it is run for.
const SCENARIOS: [(&str, &[&str]); 4] = [
    (
        "2025-03-26",
        &[
            "2025-03-26-oauth-metadata-backcompat",
            "2025-03-26-oauth-endpoint-fallback",
        ],
    ),
    (OLD, OF_BOTH),
    (NEW, OF_BOTH),
    (
        NEW,
        &[
            "resource-mismatch",
            "offline-access-scope",
            "offline-access-not-supported",
            "authorization-server-migration",
            "iss-supported",
            "iss-not-advertised",
            "iss-supported-missing",
            "iss-wrong-issuer",
            "iss-unexpected",
            "iss-normalized",
            "metadata-issuer-mismatch",
        ],
    ),
];

const OF_BOTH: &[&str] = &[
    "metadata-default",
    "metadata-var1",
    "metadata-var2",
    "metadata-var3",
    "basic-cimd",
    "scope-from-www-authenticate",
    "scope-from-scopes-supported",
    "scope-omitted-when-undefined",
    "scope-step-up",
    "scope-retry-limit",
    "token-endpoint-auth-basic",
    "token-endpoint-auth-post",
    "token-endpoint-auth-none",
    "pre-registration",
];

/// Of extensions; the framework runs them for no revision.
const EXTENSIONS: [&str; 6] = [
    "client-credentials-basic",
    "client-credentials-jwt",
    "dpop",
    "dpop-nonce",
    "enterprise-managed-authorization",
    "wif-jwt-bearer",
];

impl Bench {
    /// What the framework says of a scenario that failed.
    fn sign_in(&self, cell: &str, scenario: &str, revision: Option<&str>) -> Result<(), String> {
        let results = self.results(cell).join(scenario);
        let script = self.scripts.join("auth.mjs");
        let command = format!("{} {}", self.node.display(), script.display());
        let mut framework = self.framework(&results);
        framework.args(["client", "--scenario", &format!("auth/{scenario}")]);
        if let Some(revision) = revision {
            framework.args(["--spec-version", revision]);
        }
        framework.args(["--timeout", "60000", "--command", &command]);
        framework.env("MCPVISOR", env!("CARGO_BIN_EXE_mcpvisor"));
        let mut process = framework.spawn().unwrap();
        match end_of(&mut process, PATIENCE * 2) {
            Some(status) if status.success() => Ok(()),
            _ => Err(fs::read_to_string(results.join("told")).unwrap()),
        }
    }
}

#[test]
fn the_gateway_signs_in_wherever_the_framework_wants_a_token() {
    let Some(bench) = Bench::new() else { return };
    let mut failed = Vec::new();
    let mut judge = |cell: &str, scenario: &str, revision| {
        if super::wanted(cell)
            && let Err(received) = bench.sign_in(cell, scenario, revision)
        {
            failed.push(format!("{cell} {scenario}:\n{received}"));
        }
    };
    for (revision, scenarios) in SCENARIOS {
        let cell = format!("auth/{revision}");
        for scenario in scenarios {
            judge(&cell, scenario, Some(revision));
        }
    }
    for scenario in EXTENSIONS {
        judge("auth/extensions", scenario, None);
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}
