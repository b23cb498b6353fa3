//! Questions of servers in the middle of a call.

use mcpvisor::protocol::Revision;
use serde_json::json;

use super::{must, text};
use crate::pairs::client::Step;
use crate::pairs::pair::Cell;

async fn asks(cell: &Cell, tool: &str, method: &str, answer: &str) -> Step {
    let result = cell.client.call(tool, "").await?;
    must(text(&result).contains(answer), "another answer", &result)?;
    must(cell.client.was_asked(method), "nobody asked", &result)
}

pub(super) async fn elicit(cell: &Cell) -> Step {
    asks(cell, "s__elicit", "elicitation/create", "a client").await
}

pub(super) async fn elicit_twice(cell: &Cell) -> Step {
    let result = cell.client.call("s__elicit_twice", "").await?;
    let both = text(&result).matches("a client").count() == 2;
    must(both, "not two answers", &result)
}

pub(super) async fn decline(cell: &Cell) -> Step {
    cell.client.decline(true);
    let asked = asks(cell, "s__elicit", "elicitation/create", "decline").await;
    cell.client.decline(false);
    asked
}

pub(super) async fn open_page(cell: &Cell) -> Step {
    asks(cell, "s__open_page", "elicitation/create", "accept").await?;
    if cell.pair.client == Revision::V2025_11_25 {
        let method = "notifications/elicitation/complete";
        cell.client.note(method, |_| true).await?;
    }
    Ok(())
}

/// A server that first wants a page to be opened (-32042). How it comes to the client depends on
/// what its revision has for that.
pub(super) async fn page_first(cell: &Cell) -> Step {
    let client = &cell.client;
    let page = "https://example.com/sign-in";
    if client.revision == Revision::V2025_11_25 {
        let params = json!({ "name": "s__page_first", "arguments": {} });
        let error = client.refused("tools/call", params).await?;
        must(error["code"] == -32042, "another error", &error)?;
        let received = error["data"]["elicitations"][0]["url"] == page;
        must(received, "no page", &error)?;
    } else if !client.modern() {
        let result = client.call("s__page_first", "").await?;
        let received = result["isError"] == true && text(&result).contains(page);
        must(received, "no page", &result)?;
    }
    let result = client.call("s__page_first", "").await?;
    must(text(&result) == "signed in", "another text", &result)
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
