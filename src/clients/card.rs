//! Reads the card of a server, which describes it before a client connects (SEP-2127).

use serde_json::Value;
use url::Url;

/// Maximum length of a name from a card, in characters.
const NAME_MAX: usize = 64;

/// Maximum length of a description from a card, in characters.
const DESCRIPTION_MAX: usize = 200;

/// The URL of the card of the server at a URL.
pub fn card_url(server: &Url) -> Url {
    let mut url = server.clone();
    let path = format!("{}/server-card", server.path().trim_end_matches('/'));
    url.set_path(&path);
    url.set_query(None);
    url.set_fragment(None);
    url
}

/// The name of a server, without its namespace, and its description; `None` if the document is no
/// card. Where the server is, the card does not decide: the URL is already known.
pub fn read_card(document: &[u8]) -> Option<(String, String)> {
    let card: Value = serde_json::from_slice(document).ok()?;
    card["remotes"].as_array()?;
    let text = |member: &str| card[member].as_str().unwrap_or_default();
    let name = text("name").rsplit('/').next().unwrap_or_default();
    let description = text("description").chars().take(DESCRIPTION_MAX).collect();
    let is_name = !name.is_empty() && name.chars().count() <= NAME_MAX;
    is_name.then(|| (name.to_owned(), description))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_card_is_below_the_endpoint() {
        for (server, card) in [
            ("https://a.example/mcp", "https://a.example/mcp/server-card"),
            (
                "https://a.example/mcp/?k=1#x",
                "https://a.example/mcp/server-card",
            ),
            ("https://a.example", "https://a.example/server-card"),
        ] {
            assert_eq!(card_url(&Url::parse(server).unwrap()).as_str(), card);
        }
    }

    #[test]
    fn only_a_card_names_a_server() {
        let card = json!({"name": "io.a/docs", "description": "Docs", "remotes": []});
        let read = |card: &Value| read_card(card.to_string().as_bytes());
        assert_eq!(read(&card), Some(("docs".to_owned(), "Docs".to_owned())));
        let with = |name: &str, value: Value| {
            let mut card = card.clone();
            card[name] = value;
            read(&card)
        };
        assert_eq!(with("name", json!("io.a/")), None);
        assert_eq!(with("name", json!(1)), None);
        assert_eq!(with("name", json!("x".repeat(65))), None);
        assert_eq!(with("remotes", Value::Null), None);
        let (_, description) = with("description", json!("é".repeat(999))).unwrap();
        assert_eq!(description.chars().count(), DESCRIPTION_MAX);
        assert_eq!(read_card(b"<html>"), None);
    }
}
