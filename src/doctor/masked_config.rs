//! A configuration without anything that may be secret, for others to read.

use serde_json::{Map, Value};
use url::Url;

use crate::telemetry::MASK;
use crate::transport::public_url;

/// Keys whose texts are words of this program, addresses of this machine or names, and no secrets.
const PLAIN_KEYS: [&str; 15] = [
    "endpoint",
    "era",
    "expose",
    "inherit_env",
    "kind",
    "listen",
    "log",
    "prefix",
    "resources",
    "servers",
    "sharing",
    "transport",
    "tree_resource",
    "type",
    "wrap",
];

/// The configuration with every text masked that is not known to be harmless. Numbers, names of
/// tables and keys, durations, sizes and names of variables stay.
pub fn masked_config(config: &Value) -> Value {
    masked("", config)
}

fn masked(key: &str, value: &Value) -> Value {
    match value {
        Value::Object(members) => {
            let members = members.iter();
            let members = members.map(|(name, value)| (name.clone(), masked(name, value)));
            Value::Object(members.collect::<Map<_, _>>())
        }
        Value::Array(values) => values.iter().map(|value| masked(key, value)).collect(),
        Value::String(text) => masked_text(key, text).into(),
        other => other.clone(),
    }
}

fn masked_text(key: &str, text: &str) -> String {
    match key {
        "command" => {
            let program = text.split_whitespace().next().unwrap_or_default();
            return match program.len() == text.len() {
                true => text.to_owned(),
                false => format!("{program} {MASK}"),
            };
        }
        "url" => {
            let url = Url::parse(text).ok().filter(|_| !text.contains("${"));
            return url.map_or_else(|| MASK.to_owned(), |url| public_url(&url));
        }
        _ => {}
    }
    let is_shown = PLAIN_KEYS.contains(&key) || is_amount(text) || is_variable(text);
    if is_shown { text } else { MASK }.to_owned()
}

/// A duration or a size, as `30s`, `1m 30s` or `16MiB`.
fn is_amount(text: &str) -> bool {
    const LONGEST: usize = 12;
    let is_one = |word: &str| {
        let unit = word.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
        unit.len() < word.len()
            && matches!(
                unit,
                "ms" | "s" | "m" | "min" | "h" | "d" | "B" | "KiB" | "MiB" | "GiB" | "KB" | "MB"
            )
    };
    text.len() <= LONGEST && !text.is_empty() && text.split(' ').all(is_one)
}

/// A `${NAME}` and nothing else: it names a secret and is none.
fn is_variable(text: &str) -> bool {
    let name = text
        .strip_prefix("${")
        .and_then(|rest| rest.strip_suffix('}'));
    let legal = |c: char| c.is_ascii_alphanumeric() || c == '_';
    name.is_some_and(|name| name.chars().all(legal))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_what_is_known_to_be_harmless_is_shown() {
        let config = json!({
            "gateway": {"listen": "127.0.0.1:1", "endpoint": "/mcp", "idle": "1m 30s", "body": "16MiB", "stateless": true},
            "servers": {
                "one": {
                    "command": "npx", "args": ["-y", "secret"], "env": {"A": "secret", "B": "${B}", "C": "${C:-secret}"},
                    "sharing": "session",
                },
                "two": {"url": "https://u:secret@a.example/mcp/9f8e7d6c5b4a39281706f5e4d3c2b1a0?k=secret", "headers": {"X": "secret", "Y": "5s secret"}},
                "three": {"url": "https://${SECRET}/x", "command": "run --key secret"},
            },
            "auth": {"keys": {"first": {"hash": "sha256:secret"}}},
            "views": {"work": {"servers": ["one"]}},
        });
        let masked = masked_config(&config);
        assert!(!masked.to_string().contains("secret"), "{masked:#}");
        assert_eq!(masked["gateway"], config["gateway"]);
        assert_eq!(masked["views"], config["views"]);
        let one = &masked["servers"]["one"];
        assert_eq!(one["command"], "npx");
        assert_eq!(one["sharing"], "session");
        assert_eq!(one["env"], json!({"A": MASK, "B": "${B}", "C": MASK}));
        let url = masked["servers"]["two"]["url"].as_str().unwrap();
        assert!(url.starts_with("https://a.example/mcp/"), "{url}");
        assert_eq!(masked["servers"]["three"]["command"], format!("run {MASK}"));
        for text in ["", "5", "s", "123456789012s", "1s;x", "1s  2s"] {
            assert!(!is_amount(text), "{text}");
        }
    }
}
