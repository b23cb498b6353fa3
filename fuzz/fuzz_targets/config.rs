//! Fuzzes the configuration parser: any text is accepted or refused with printable errors that do
//! not reveal the value of a variable.

#![no_main]

use std::ffi::OsString;
use std::path::Path;

use libfuzzer_sys::fuzz_target;
use mcpvisor::config::{Config, Environment};

const SECRET: &str = "s3cr3t-Value";

/// An environment in which every variable named `…TOKEN` holds a secret and no other variable
/// exists.
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
