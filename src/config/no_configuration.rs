//! Errors for texts that cannot be read as a configuration at all.

use super::mask;
use super::problem::{ConfigError, Invalid, Problem};

/// Error for a JSON file without servers.
pub(super) fn json_problem(name: &str, why: String) -> ConfigError {
    let help = "a configuration is TOML: `mcpvisor config default` prints one; in JSON, only the \
                `mcpServers` or `servers` of a client are read"
        .to_owned();
    let problem = Problem::new("", why).help(help);
    ConfigError::Invalid(Invalid::new(name, "", vec![problem]))
}

/// Error for malformed TOML, with secrets masked in the lines it shows.
pub(super) fn toml_error(text: &str, name: &str, error: &toml::de::Error) -> Invalid {
    let span = error.span().unwrap_or_default();
    let line = text
        .get(..text.floor_char_boundary(span.start))
        .and_then(|before| before.rsplit('\n').next());
    let value = line
        .and_then(|line| line.split_once('='))
        .map(|(_, value)| value.trim_start());
    let is_bare = value.is_some_and(|value| !value.starts_with(['"', '\'', '[', '{']));
    let help = is_bare.then(|| "strings need quotes: `key = \"text\"`".to_owned());
    let shown = mask::masked_lines(text, &span);
    let problem = Problem::new("", format!("invalid TOML: {}", error.message()));
    Invalid::new(name, &shown, vec![problem.at(Some(span)).help(help)])
}
