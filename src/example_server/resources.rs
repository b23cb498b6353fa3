//! The example's resources: three fixed ones, of which one changes, and a template.

use serde_json::{Value, json};

use super::state::{ExampleSession, RpcError};

/// The resource that the tool `touch` changes.
pub(super) const COUNTER: &str = "example://counter";
const ABOUT: &str = "example://about";
const DOT: &str = "example://dot.png";
const GREETING: &str = "example://greeting/";

/// Maximum length of a name in a greeting, in bytes.
const NAME_MAX: usize = 256;

const ABOUT_TEXT: &str = "# The example server of mcpvisor\n\nIt is a separate process that the \
gateway starts, monitors and restarts. Call its tool `crash` to see it restart.\n";

/// A PNG of one pixel.
const DOT_BASE64: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWj\
R9awAAAABJRU5ErkJggg==";

pub(super) fn list() -> Value {
    json!({"resources": [
        {
            "uri": ABOUT, "name": "about", "title": "About this server",
            "description": "What the example server is.",
            "mimeType": "text/markdown", "size": ABOUT_TEXT.len(),
        },
        {
            "uri": COUNTER, "name": "counter", "title": "Counter",
            "description": "How often the tool `touch` was called. It can be subscribed to.",
            "mimeType": "text/plain",
        },
        {
            "uri": DOT, "name": "dot.png", "title": "A dot",
            "description": "A picture of one pixel, to try binary contents.",
            "mimeType": "image/png",
        },
    ]})
}

pub(super) fn templates() -> Value {
    json!({"resourceTemplates": [{
        "uriTemplate": format!("{GREETING}{{name}}"), "name": "greeting", "title": "Greeting",
        "description": "A greeting for the name in the address.", "mimeType": "text/plain",
    }]})
}

pub(super) fn read(session: &ExampleSession, params: &Value) -> Result<Value, RpcError> {
    let uri = known_uri(params)?;
    let content = match uri {
        ABOUT => json!({"uri": uri, "mimeType": "text/markdown", "text": ABOUT_TEXT}),
        DOT => json!({"uri": uri, "mimeType": "image/png", "blob": DOT_BASE64}),
        COUNTER => {
            let text = session.state().touched.to_string();
            json!({"uri": uri, "mimeType": "text/plain", "text": text})
        }
        _ => {
            let name = uri.strip_prefix(GREETING).unwrap_or_default();
            json!({"uri": uri, "mimeType": "text/plain", "text": format!("Hello, {name}!")})
        }
    };
    Ok(json!({"contents": [content]}))
}

pub(super) fn subscribe(session: &ExampleSession, params: &Value) -> Result<Value, RpcError> {
    let uri = known_uri(params)?;
    if uri.starts_with(GREETING) {
        return Err(RpcError::params(format!(
            "`{uri}` never changes: only {COUNTER} does"
        )));
    }
    session.state().subscribed.insert(uri.to_owned());
    Ok(json!({}))
}

pub(super) fn unsubscribe(session: &ExampleSession, params: &Value) -> Result<Value, RpcError> {
    let uri = known_uri(params)?;
    session.state().subscribed.remove(uri);
    Ok(json!({}))
}

/// The `uri` of the request, if such a resource exists (-32002 if not: S-RES).
fn known_uri(params: &Value) -> Result<&str, RpcError> {
    let Some(uri) = params["uri"].as_str() else {
        return Err(RpcError::params("`uri` is missing or not a string"));
    };
    let greeting = uri.strip_prefix(GREETING);
    let is_greeting = greeting.is_some_and(|name| !name.is_empty() && name.len() <= NAME_MAX);
    if [ABOUT, COUNTER, DOT].contains(&uri) || is_greeting {
        return Ok(uri);
    }
    let mut refusal = RpcError::new(-32002, "resource not found");
    refusal.data = Some(json!({"uri": uri}));
    Err(refusal)
}
