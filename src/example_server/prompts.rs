//! The example's prompts, and completion of their arguments.

use serde_json::{Value, json};

use super::args::{Args, schema};
use super::state::RpcError;

const STYLES: [&str; 3] = ["friendly", "formal", "pirate"];
const LANGUAGES: [&str; 8] = [
    "c",
    "go",
    "java",
    "javascript",
    "python",
    "ruby",
    "rust",
    "typescript",
];
const NAMES: [&str; 6] = ["Ada", "Alan", "Barbara", "Edsger", "Grace", "Joe"];

/// Maximum number of values in one completion, set by the protocol.
const VALUES_MAX: usize = 100;

pub(super) fn list() -> Value {
    json!({"prompts": [
        {
            "name": "about", "title": "About this server",
            "description": "Asks what this server can do; takes no arguments.",
        },
        {
            "name": "greeting", "title": "Greeting",
            "description": "Asks for a greeting in a style.",
            "arguments": [
                {"name": "name", "description": "Who is greeted.", "required": true},
                {"name": "style", "description": STYLES.join(", "), "required": false},
            ],
        },
        {
            "name": "review", "title": "Code review",
            "description": "Asks for a review of a piece of code.",
            "arguments": [
                {"name": "code", "description": "The code.", "required": true},
                {"name": "language", "description": "Its language.", "required": false},
            ],
        },
    ]})
}

pub(super) fn get(params: &Value) -> Result<Value, RpcError> {
    let Some(name) = params["name"].as_str() else {
        return Err(RpcError::params("`name` is missing or not a string"));
    };
    let (description, text) = text(name, &params["arguments"]).map_err(RpcError::params)?;
    Ok(json!({
        "description": description,
        "messages": [{"role": "user", "content": {"type": "text", "text": text}}],
    }))
}

/// Description and text of a prompt.
fn text(name: &str, arguments: &Value) -> Result<(&'static str, String), String> {
    match name {
        "about" => {
            Args::read(&schema(json!({}), &[]), arguments)?;
            let text = "What can the example server do?".to_owned();
            Ok(("What this server can do", text))
        }
        "greeting" => {
            let style = json!({"type": "string", "enum": STYLES, "default": STYLES[0]});
            let properties = json!({"name": {"type": "string"}, "style": style});
            let args = Args::read(&schema(properties, &["name"]), arguments)?;
            let (style, name) = (args.text("style"), args.text("name"));
            Ok((
                "A greeting",
                format!("Write a {style} greeting for {name}."),
            ))
        }
        "review" => {
            let text = json!({"type": "string"});
            let properties = json!({"code": text, "language": text});
            let args = Args::read(&schema(properties, &["code"]), arguments)?;
            let (language, code) = (args.text("language"), args.text("code"));
            let text = format!("Review this code:\n\n```{language}\n{code}\n```");
            Ok(("A review", text))
        }
        _ => Err(format!("unknown prompt `{name:.80}`")),
    }
}

pub(super) fn complete(params: &Value) -> Result<Value, RpcError> {
    let (reference, argument) = (&params["ref"], &params["argument"]);
    let (Some(name), Some(typed)) = (argument["name"].as_str(), argument["value"].as_str()) else {
        return Err(RpcError::params(
            "`argument` needs `name` and `value` as strings",
        ));
    };
    let owner = match reference["type"].as_str() {
        Some("ref/prompt") => reference["name"].as_str(),
        Some("ref/resource") => reference["uri"].as_str(),
        _ => {
            return Err(RpcError::params(
                "`ref.type` must be ref/prompt or ref/resource",
            ));
        }
    };
    let candidates: &[&str] = match (owner, name) {
        (Some("greeting"), "style") => &STYLES,
        (Some("review"), "language") => &LANGUAGES,
        (Some("greeting" | "example://greeting/{name}"), "name") => &NAMES,
        (Some("about" | "greeting" | "review" | "example://greeting/{name}"), _) => &[],
        _ => {
            return Err(RpcError::params(
                "`ref` names no prompt or template of this server",
            ));
        }
    };
    let typed = typed.to_lowercase();
    let fits = |candidate: &&&str| candidate.to_lowercase().starts_with(&typed);
    let values: Vec<&&str> = candidates.iter().filter(fits).take(VALUES_MAX).collect();
    Ok(json!({"completion": {"values": values, "total": values.len(), "hasMore": false}}))
}
