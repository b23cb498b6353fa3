//! Formats a configuration for display, without comments and secrets.

use toml::Table;

use crate::config::mask_config;

/// The displayed form of a TOML file; empty if it is not valid TOML.
pub fn shown(text: &str) -> String {
    let shown = || {
        let table: Table = text.parse().ok()?;
        let mut config = serde_json::to_value(table).ok()?;
        mask_config(&mut config);
        toml::to_string_pretty(&Table::try_from(config).ok()?).ok()
    };
    shown().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_shown_without_secrets_and_with_all_that_runs() {
        let text = r#"
            # headers = { Authorization = "Bearer S0" }
            [servers.one]
            command = "uvx"
            args = ["mcp-server-git", "--api-key", "/S1", "/srv/data"]
            env = { A = "S2" }
            [servers.two]
            url = "https://a.example/mcp"
        "#;
        let shown = shown(text);
        for number in 0..=2 {
            assert!(!shown.contains(&format!("S{number}")), "S{number}: {shown}");
        }
        for plain in [
            "uvx",
            "mcp-server-git",
            "/srv/data",
            "https://a.example/mcp",
        ] {
            assert!(shown.contains(plain), "{plain}: {shown}");
        }
        assert_eq!(super::shown("no TOML"), "");
    }
}
