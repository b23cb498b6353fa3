//! What servers ask of clients in the middle of a call.

use serde_json::json;

use super::{must, text};
use crate::client::Step;
use crate::pair::Cell;

async fn asks(cell: &Cell, tool: &str, method: &str, answer: &str) -> Step {
    let result = cell.client.call(tool, "").await?;
    must(text(&result).contains(answer), "another answer", &result)?;
    must(cell.client.was_asked(method), "nobody asked", &result)
}

pub(super) async fn elicit(cell: &Cell) -> Step {
    asks(cell, "s__elicit", "elicitation/create", "a client").await
}

pub(super) async fn sample(cell: &Cell) -> Step {
    asks(cell, "s__sample", "sampling/createMessage", "fine").await
}

pub(super) async fn roots(cell: &Cell) -> Step {
    asks(cell, "s__roots", "roots/list", "file:///of/the/client").await
}

pub(super) async fn roots_changed(cell: &Cell) -> Step {
    let method = "notifications/roots/list_changed";
    if cell.client.modern() {
        return Err(format!("such a client has no {method}"));
    }
    cell.client.notify(method, json!({}));
    cell.seen(method).await
}
