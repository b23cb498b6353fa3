//! Any text as a configuration: it is read or refused with errors that a terminal can show, and
//! that do not tell what a variable holds.

#![no_main]

use std::ffi::OsString;
use std::path::Path;

use libfuzzer_sys::fuzz_target;
use mcpvisor::config::{Config, Environment};

const SECRET: &str = "s3cr3t-Value";

/// Every variable whose name ends so holds a secret, and there is no other.
struct Secrets;

impl Environment for Secrets {
    fn var(&self, name: &str) -> Option<OsString> {
        name.ends_with("TOKEN").then(|| SECRET.into())
    }
}

fuzz_target!(|bytes: &[u8]| {
    let text = String::from_utf8_lossy(bytes);
    if text.contains(SECRET) {
        return;
    }
    let said = match Config::parse(&text, "config.toml", Path::new("/nowhere"), &Secrets) {
        Ok(loaded) => loaded.warnings.join("\n"),
        Err(error) => error.to_string(),
    };
    assert!(!said.contains(SECRET), "{said}");
    let is_safe = |c: char| c == '\n' || c == '\t' || !c.is_control();
    assert!(said.chars().all(is_safe), "{said:?}");
});
