//! Fuzzes URI template lookups: the lines are the templates of two servers, and the last line is
//! the URI. The catalog finds one owner or none, and a plain template owns the URIs that it expands
//! to.

#![no_main]

use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use mcpvisor::catalog::{
    CatalogSettings, IngestLimits, ItemKind, NameSettings, ServerPart, Snapshot, merge,
};
use mcpvisor::id::ServerName;
use mcpvisor::protocol::RawJson;
use serde_json::json;

fuzz_target!(|bytes: &[u8]| {
    let text = String::from_utf8_lossy(bytes);
    let mut lines: Vec<&str> = text.lines().take(64).collect();
    let Some(uri) = lines.pop() else { return };
    let (even, odd) = lines.split_at(lines.len() / 2);
    let _ = catalog(&[("a", even), ("b", odd)]).resource(uri, None);
    if let Some(expanded) = lines.first().and_then(|template| expand(template)) {
        let owner = catalog(&[("a", &lines[..1])]).resource(&expanded, None);
        assert_eq!(owner.map(|owner| owner.native).as_deref(), Some(&*expanded));
    }
});

fn catalog(servers: &[(&str, &[&str])]) -> Snapshot {
    let part = |(name, templates): &(&str, &[&str])| {
        let template =
            |text: &&str| RawJson::from_value(&json!({"uriTemplate": text, "name": "t"}));
        let templates: Vec<RawJson> = templates.iter().map(template).collect();
        let part = ServerPart::new(ServerName::try_new(name).expect("a name"));
        let limits = IngestLimits::default();
        let part = part.with_list(ItemKind::ResourceTemplates, &templates, &limits);
        (Arc::new(part), NameSettings::default())
    };
    let parts: Vec<_> = servers.iter().map(part).collect();
    merge(&parts, &CatalogSettings::default())
}

/// Expands a template of `x://`, letters, slashes and at most ten `{letters}`, replacing each with
/// `v`.
fn expand(template: &str) -> Option<String> {
    let rest = template.strip_prefix("x://h/")?;
    let mut expanded = String::from("x://h/");
    for (number, piece) in rest.split('{').enumerate() {
        let literal = match number {
            0 => piece,
            1..=10 => {
                let (name, literal) = piece.split_once('}')?;
                let is_name = !name.is_empty() && name.bytes().all(|b| b.is_ascii_lowercase());
                is_name.then(|| expanded.push('v'))?;
                literal
            }
            _ => return None,
        };
        let is_plain = |b: u8| b.is_ascii_lowercase() || b == b'/';
        literal
            .bytes()
            .all(is_plain)
            .then(|| expanded.push_str(literal))?;
    }
    (template.len() < 500 && rest.contains('{')).then_some(expanded)
}
