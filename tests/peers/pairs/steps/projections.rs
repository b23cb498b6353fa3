//! Items that read differently for a client of another revision.

use mcpvisor::protocol::Revision;
use serde_json::{Value, json};

use super::{must, text};
use crate::pairs::client::Step;
use crate::pairs::pair::Cell;

pub(super) async fn embedded(cell: &Cell) -> Step {
    let result = cell.client.call("s__embedded", "").await?;
    let inside = &result["content"][0]["resource"]["text"];
    must(*inside == "inside", "another resource", &result)
}

/// Content of a kind that older clients do not know comes to them as a text.
async fn content(cell: &Cell, tool: &str, kind: &str, since: Revision) -> Step<Value> {
    let result = cell.client.call(tool, "").await?;
    let expected = if cell.pair.client >= since {
        kind
    } else {
        "text"
    };
    must(
        result["content"][0]["type"] == expected,
        "another kind",
        &result,
    )?;
    Ok(result)
}

pub(super) async fn audio(cell: &Cell) -> Step {
    content(cell, "s__audio", "audio", Revision::V2025_03_26).await?;
    Ok(())
}

pub(super) async fn link(cell: &Cell) -> Step {
    let result = content(cell, "s__link", "resource_link", Revision::V2025_06_18).await?;
    let received = result.to_string().contains("test://notes/linked");
    must(received, "no address", &result)
}

pub(super) async fn structured(cell: &Cell) -> Step {
    let result = cell.client.call("s__structured", "").await?;
    let expected = json!({ "words": ["a", "b"] });
    is_structured(cell, &result, expected)
}

/// Up to 2025-11-25 what is structured is an object.
pub(super) async fn array(cell: &Cell) -> Step {
    let result = cell.client.call("s__array", "").await?;
    let words = json!(["a", "b"]);
    match cell.client.modern() || cell.pair.client < Revision::V2025_06_18 {
        true => is_structured(cell, &result, words),
        false => is_structured(cell, &result, json!({ "result": words })),
    }
}

fn is_structured(cell: &Cell, result: &Value, expected: Value) -> Step {
    if cell.pair.client >= Revision::V2025_06_18 {
        let same = result["structuredContent"] == expected;
        return must(same, "other structured content", result);
    }
    let said: Option<Value> = serde_json::from_str(text(result)).ok();
    must(said == Some(expected), "another text", result)
}
