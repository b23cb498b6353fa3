//! Links that add the gateway to a client when a browser opens them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::json;

use crate::clients::known::{Client, Link};
use crate::clients::{ENTRY, GatewayAddress};

/// The link for a client, if it has one. A link never contains a key: VS Code asks for it, and the
/// others get no link if a key is needed.
pub fn install_link(client: &Client, gateway: &GatewayAddress) -> Option<String> {
    let link = client.link?;
    let url = &gateway.url;
    let needs_key = gateway.key.is_some();
    let encoded = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
    let config = encoded(&STANDARD.encode(json!({ "url": url }).to_string()));
    match link {
        Link::VsCode => {
            let mut server = json!({ "name": ENTRY, "type": "http", "url": url });
            if needs_key {
                server["headers"] = json!({ "Authorization": "Bearer ${input:mcpvisor-key}" });
                server["inputs"] = json!([{
                    "type": "promptString", "id": "mcpvisor-key", "description": "Key",
                    "password": true
                }]);
            }
            Some(format!(
                "vscode:mcp/install?{}",
                encoded(&server.to_string())
            ))
        }
        Link::Cursor | Link::LmStudio if needs_key => None,
        Link::Cursor => Some(format!(
            "cursor://anysphere.cursor-deeplink/mcp/install?name={ENTRY}&config={config}"
        )),
        Link::LmStudio => Some(format!("lmstudio://add_mcp?name={ENTRY}&config={config}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clients::known_clients::{all, find};

    #[test]
    fn links_contain_the_address_and_never_a_key() {
        let gateway = |key: Option<&str>| GatewayAddress {
            url: "http://127.0.0.1:12006/mcp".to_owned(),
            program: "mcpvisor".into(),
            key: key.map(Into::into),
        };
        let link = |name: &str, key| install_link(find(name).unwrap(), &gateway(key));
        assert_eq!(
            link("cursor", None).unwrap(),
            "cursor://anysphere.cursor-deeplink/mcp/install?name=mcpvisor&config=\
             eyJ1cmwiOiJodHRwOi8vMTI3LjAuMC4xOjEyMDA2L21jcCJ9"
        );
        assert!(
            link("vscode", None)
                .unwrap()
                .starts_with("vscode:mcp/install?%7B%22name")
        );
        assert!(link("vscode", Some("secret")).unwrap().contains("input"));
        assert_eq!(link("cursor", Some("secret")), None);
        assert_eq!(link("zed", None), None);
        for client in all() {
            let link = install_link(client, &gateway(Some("secret")));
            assert!(link.is_none_or(|link| !link.contains("secret")));
        }
    }
}
