//! Converts a pasted text into entries of servers.

use serde_json::{Value, json};
use url::Url;

use super::{Given, NoEntry, command_entry, entry_of, split_command};
use crate::config::{client_entries, is_json};

/// The servers that a URL, a command line, an `mcp.json` or a `server.json` describes, by name. Values
/// that a `server.json` asks for are empty.
///
/// # Errors
///
/// Returns why the text describes none.
pub fn pasted(text: &str) -> Result<Vec<(String, Value)>, String> {
    let text = text.trim();
    let url = Url::parse(text).ok();
    match url.filter(|url| matches!(url.scheme(), "http" | "https")) {
        Some(url) => Ok(vec![url_entry(&url, Given::default())]),
        None if is_json(text) => of_json(text),
        None => {
            let entry = split_command(text).and_then(|words| command_entry(&words));
            let why = "the text is no URL, command line or JSON of servers";
            Ok(vec![entry.ok_or(why)?])
        }
    }
}

fn of_json(text: &str) -> Result<Vec<(String, Value)>, String> {
    if let Ok(servers) = client_entries(text) {
        return Ok(servers);
    }
    let file: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let entry = |given: &Given| entry_of(&file, None, given);
    let found = match entry(&Given::default()) {
        Err(NoEntry::Missing(missing)) => entry(
            &missing
                .into_iter()
                .map(|it| (it.name, String::new()))
                .collect(),
        ),
        found => found,
    };
    match found {
        Ok(entry) => Ok(vec![entry]),
        Err(NoEntry::Unusable(why)) => Err(why),
        Err(NoEntry::Missing(_)) => Err("the JSON asks for values without names".to_owned()),
    }
}

/// The entry of a URL, and a name from its host. The given values become headers.
pub fn url_entry(url: &Url, headers: Given) -> (String, Value) {
    let host = url.host_str().unwrap_or_default();
    let name = host.trim_start_matches("www.").trim_start_matches("mcp.");
    let name = name.split('.').next().unwrap_or_default().to_owned();
    let entry = match headers.is_empty() {
        true => json!({ "url": url.as_str() }),
        false => json!({ "url": url.as_str(), "headers": headers }),
    };
    (name, entry)
}
