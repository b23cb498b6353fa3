//! Masks a configuration for display.

use serde_json::Value;

use crate::masking::{
    MASK, argument_spans, command_spans, hide, holds_secret, is_variable, shown_arguments,
    shown_url,
};

/// Masks the secrets of a configuration: the values of `env`, of `headers`, of keys with secret
/// names, and anything that looks like a secret in other strings. References to secrets, such as
/// `${TOKEN}`, stay visible.
pub fn mask_config(config: &mut Value) {
    mask("", config);
}

fn mask(key: &str, value: &mut Value) {
    match value {
        Value::Object(members) if matches!(key, "env" | "headers") => {
            members.values_mut().for_each(hide_all);
        }
        Value::Object(members) => {
            for (name, value) in members {
                mask(name, value);
            }
        }
        Value::Array(values) if key == "args" => {
            let texts = values
                .iter()
                .map(|value| value.as_str().unwrap_or_default());
            let shown = shown_arguments(texts, MASK);
            for (value, shown) in values
                .iter_mut()
                .zip(shown)
                .filter(|(value, _)| value.is_string())
            {
                *value = shown.into();
            }
        }
        Value::Array(values) => values.iter_mut().for_each(|value| mask(key, value)),
        Value::String(text) => *text = shown(key, text),
        _ => {}
    }
}

fn shown(key: &str, text: &str) -> String {
    match key {
        _ if is_variable(text) => text.to_owned(),
        "env" | "headers" | "hash" => MASK.to_owned(),
        "url" | "engine" => shown_url(text, MASK),
        "command" => hide(text, command_spans(text), MASK),
        _ if holds_secret(key) => MASK.to_owned(),
        _ => hide(text, argument_spans("", text), MASK),
    }
}

fn hide_all(value: &mut Value) {
    match value {
        Value::String(text) if !is_variable(text) => MASK.clone_into(text),
        Value::Array(values) => values.iter_mut().for_each(hide_all),
        Value::Object(members) => members.values_mut().for_each(hide_all),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_secrets_are_hidden() {
        let mut config = json!({
            "gateway": {"listen": "127.0.0.1:1", "endpoint": "/mcp", "idle": "1m 30s", "body": "16MiB", "stateless": true},
            "servers": {
                "one": {
                    "command": "uvx", "args": ["mcp-server-git", "--token", "S1", "--x-token=S2", "--repository", "/srv/data"],
                    "env": {"A": "S3", "B": "${B}", "C": "${C:-S4}", "D": ["S5"]}, "sharing": "session",
                },
                "two": {"url": "https://u:S6@a.example/mcp/9f8e7d6c5b4a39281706f5e4d3c2b1a0?k=S7", "headers": {"X": "Bearer S8"}},
                "three": {"url": "https://${HOST}/x", "command": "run --key S9", "oauth": {"client_id": "me", "client_secret": "S0"}},
            },
            "auth": {"keys": {"first": {"hash": "sha256:S1"}}},
            "sources": {"team": {"key": "S2", "url": "https://a.example"}},
            "cluster": {"engine": "redis+sentinel://u:S3@a:1,b:2/main", "secret": ["S4", "S5"]},
            "views": {"work": {"servers": ["one"]}},
            "policies": {"p": {"when": "tool.name == \"delete\""}},
        });
        let written = config.clone();
        mask_config(&mut config);
        let shown = config.to_string();
        for number in 0..10 {
            assert!(!shown.contains(&format!("S{number}")), "S{number}: {shown}");
        }
        for part in ["gateway", "views", "policies"] {
            assert_eq!(config[part], written[part]);
        }
        let [one, two, three] = ["one", "two", "three"].map(|name| &config["servers"][name]);
        assert_eq!(
            one["args"],
            json!([
                "mcp-server-git",
                "--token",
                MASK,
                "--x-token=***",
                "--repository",
                "/srv/data"
            ])
        );
        assert_eq!(
            one["env"],
            json!({"A": MASK, "B": "${B}", "C": MASK, "D": [MASK]})
        );
        assert_eq!(two["url"], "https://***@a.example/mcp/***?k=***");
        assert_eq!(three["command"], "run --key ***");
        assert_eq!(three["url"], "https://${HOST}/x");
        assert_eq!(three["oauth"]["client_id"], "me");
    }
}
