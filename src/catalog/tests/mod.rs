mod apps;
mod ingest;
mod merging;
mod pinning;
mod properties;
mod rewriting;
mod routing;
mod skills;
mod storing;
mod unlisted;

use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value, json};

use crate::id::ServerName;
use crate::protocol::{RawJson, Revision};

use super::{CatalogSettings, IngestLimits, ItemKind, NameSettings, ServerPart, Snapshot, merge};

fn server(name: &str) -> ServerName {
    ServerName::try_new(name).unwrap()
}

fn raw(text: &str) -> RawJson {
    RawJson::try_new(Bytes::copy_from_slice(text.as_bytes())).unwrap()
}

fn settings() -> CatalogSettings {
    CatalogSettings {
        tree_resource: false,
        name_max: 45,
        page_items: 100,
        instructions_max: 4096,
        ..CatalogSettings::default()
    }
}

fn tool(name: &str) -> Value {
    json!({"name": name, "inputSchema": {"type": "object"}})
}

fn resource(uri: &str) -> Value {
    json!({"uri": uri, "name": "r"})
}

fn template(uri: &str) -> Value {
    json!({"uriTemplate": uri, "name": "t"})
}

/// The skill in a folder, with its `SKILL.md` and these other files.
fn skill(folder: &str, files: &[&str]) -> Value {
    let name = folder.rsplit('/').next();
    let files = ["SKILL.md"].iter().chain(files);
    let files = files.map(|file| {
        let digest = format!("sha256:{}", "0".repeat(64));
        json!({"uri": format!("skill://{folder}/{file}"), "digest": digest, "size": 7})
    });
    json!({
        "uri": format!("skill://{folder}/SKILL.md"),
        "frontmatter": {"name": name, "description": "d"},
        "resources": files.collect::<Vec<_>>(),
    })
}

fn list(items: &[Value]) -> Vec<RawJson> {
    items.iter().map(RawJson::from_value).collect()
}

fn part(name: &str) -> ServerPart {
    ServerPart::new(server(name))
}

fn with(part: ServerPart, kind: ItemKind, items: &[Value]) -> ServerPart {
    part.with_list(kind, &list(items), &IngestLimits::default())
}

fn tools(name: &str, tools: &[&str]) -> ServerPart {
    let tools: Vec<_> = tools.iter().map(|name| tool(name)).collect();
    with(part(name), ItemKind::Tools, &tools)
}

fn resources(name: &str, uris: &[&str], templates: &[&str]) -> ServerPart {
    let uris: Vec<_> = uris.iter().map(|uri| resource(uri)).collect();
    let templates: Vec<_> = templates.iter().map(|uri| template(uri)).collect();
    let part = with(part(name), ItemKind::Resources, &uris);
    with(part, ItemKind::ResourceTemplates, &templates)
}

/// Names as in `docs` (the server's name is the prefix) or `docs=d` (a different prefix).
fn named(part: ServerPart, prefix: Option<&str>) -> (Arc<ServerPart>, NameSettings) {
    let names = NameSettings {
        prefix: prefix.map(str::to_owned),
        ..NameSettings::default()
    };
    (Arc::new(part), names)
}

fn merged(parts: &[ServerPart]) -> Snapshot {
    let parts: Vec<_> = parts.iter().map(|part| named(part.clone(), None)).collect();
    merge(&parts, &settings())
}

/// All items of a list, read page by page like a client.
fn read_all(snapshot: &Snapshot, kind: ItemKind) -> Vec<Value> {
    let mut items = Vec::new();
    let mut cursor: Option<String> = None;
    loop {
        let page = snapshot
            .page(kind, cursor.as_deref(), Revision::NEWEST_LEGACY)
            .unwrap();
        let page: Value = page.parse().unwrap();
        items.extend(page[kind.member()].as_array().unwrap().iter().cloned());
        match page.get("nextCursor") {
            Some(next) => cursor = Some(next.as_str().unwrap().to_owned()),
            None => return items,
        }
    }
}

fn keys(snapshot: &Snapshot, kind: ItemKind) -> Vec<String> {
    let key = |item: &Value| item[kind.key()].as_str().unwrap().to_owned();
    read_all(snapshot, kind).iter().map(key).collect()
}
