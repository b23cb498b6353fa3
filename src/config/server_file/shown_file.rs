//! The whole configuration file for people who look at it: as it is read, without comments, and
//! without what may be secret.

use toml::{Table, Value};

use super::form::{is_plain, names_secret, shown_url};
use super::texts::REDACTED;

/// A file in TOML; nothing of one that is not.
pub(super) fn shown(text: &str) -> String {
    let Ok(mut table) = text.parse::<Table>() else {
        return String::new();
    };
    for (key, value) in &mut table {
        hide(key, value);
    }
    toml::to_string_pretty(&table).unwrap_or_default()
}

fn hide(key: &str, value: &mut Value) {
    match (key, value) {
        ("env" | "headers", value) => hide_all(value),
        ("args", Value::Array(arguments)) => hide_arguments(arguments),
        ("url", Value::String(url)) => *url = shown_url(url),
        ("command", Value::String(command)) => {
            if let Some((program, _)) = command.split_once(char::is_whitespace) {
                *command = format!("{program} {REDACTED}");
            }
        }
        (_, Value::String(text)) if key == "hash" || names_secret(key) => {
            REDACTED.clone_into(text);
        }
        (_, Value::Array(values)) => values.iter_mut().for_each(|value| hide(key, value)),
        (_, Value::Table(table)) => {
            for (key, value) in table {
                hide(key, value);
            }
        }
        _ => {}
    }
}

fn hide_all(value: &mut Value) {
    match value {
        Value::String(text) => REDACTED.clone_into(text),
        Value::Array(values) => values.iter_mut().for_each(hide_all),
        Value::Table(table) => table.iter_mut().for_each(|(_, value)| hide_all(value)),
        _ => {}
    }
}

/// Flags, paths and packages are shown, as the API shows them.
fn hide_arguments(arguments: &mut [Value]) {
    let mut follows_secret = false;
    for argument in arguments {
        let Some(text) = argument.as_str() else {
            continue;
        };
        let is_shown = !follows_secret && is_plain(text) && !text.contains('$');
        follows_secret = is_shown && text.starts_with('-') && names_secret(text);
        if !is_shown {
            *argument = Value::String(REDACTED.to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_secret_is_in_the_file_that_is_shown() {
        let text = r#"
            # headers = { Authorization = "Bearer S0" }
            [gateway]
            listen = "127.0.0.1:1" # S1
            [auth]
            keys = [{ name = "ci", hash = "S2" }]
            [sources.a]
            key = "S3"
            url = "https://user:S4@a.example/?q=S5"
            [servers.one]
            command = "npx run --token S6"
            args = ["-y", "S7", "--api-key", "/S8", "--token=S9", "/srv/data", "${A:-S10}"]
            env = { A = "S11", B = ["S12"] }
            url = "https://a.example/mcp"
            [servers.one.headers]
            Authorization = "Bearer S13"
            [servers.one.oauth]
            client_secret = "S14"
            client_id = "shown"
        "#;
        let shown = shown(text);
        for number in 0..=14 {
            assert!(!shown.contains(&format!("S{number}")), "S{number}: {shown}");
        }
        for plain in [
            "127.0.0.1:1",
            "/srv/data",
            "-y",
            "https://a.example/mcp",
            "shown",
            "npx",
        ] {
            assert!(shown.contains(plain), "{plain}: {shown}");
        }
        assert_eq!(super::shown("no TOML"), "");
    }
}
