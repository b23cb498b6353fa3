//! Events that servers send of their own accord.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::basics::RESOURCE;
use super::{holds_name, must};
use crate::pairs::client::{Started, Step};
use crate::pairs::pair::Cell;
use crate::pairs::server::META_SUBSCRIPTION;
use crate::pairs::table::MODERN;

pub(super) async fn log(cell: &Cell) -> Step {
    let client = &cell.client;
    let lines = || client.notes(|note| note["method"] == "notifications/message");
    client.call("s__log", "nobody listens").await?;
    // Before 2026-07-28 a server decides which lines a client without a level gets; a later server
    // sends none unless the gateway asks for them.
    let is_unasked = cell.pair.client >= MODERN || cell.pair.server < MODERN;
    must(
        !is_unasked || lines().is_empty(),
        "a line that nobody wants",
        &Value::from(lines()),
    )?;
    let lines = || client.notes(|note| note["params"]["data"] == "hear me");
    client.want_log().await?;
    // The level may reach the server a moment later.
    let deadline = Instant::now() + client.patience();
    while lines().is_empty() {
        if Instant::now() > deadline {
            return Err("no line came".to_owned());
        }
        client.call("s__log", "hear me").await?;
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let line = lines().swap_remove(0);
    let said = line["params"]["data"] == "hear me" && line["params"]["level"] == "warning";
    must(said, "another line", &line)
}

/// Listens, in the revision that does it by one long request.
async fn listen(cell: &Cell, wanted: Value) -> Step<Option<Started>> {
    let client = &cell.client;
    if !client.modern() {
        return Ok(None);
    }
    let params = json!({ "notifications": wanted });
    let listening = client.start("subscriptions/listen", params);
    let id = json!(listening.id);
    let agreed = client
        .note("notifications/subscriptions/acknowledged", |it| {
            it["_meta"][META_SUBSCRIPTION] == id
        })
        .await?;
    must(agreed["notifications"] == wanted, "not all of it", &agreed)?;
    Ok(Some(listening))
}

/// A notification of a subscription says which one; others say nothing.
fn of(listening: Option<&Started>, params: &Value) -> bool {
    match listening {
        Some(listening) => params["_meta"][META_SUBSCRIPTION] == listening.id,
        None => params["_meta"].get(META_SUBSCRIPTION).is_none(),
    }
}

async fn leave(cell: &Cell, listening: Option<Started>) {
    let Some(listening) = listening else {
        return;
    };
    if cell.client.cancels_by_closing() {
        listening.sending.abort();
    } else {
        let params = json!({ "requestId": listening.id });
        cell.client.notify("notifications/cancelled", params);
    }
}

pub(super) async fn updates(cell: &Cell) -> Step {
    let client = &cell.client;
    let params = json!({ "uri": RESOURCE });
    let listening = listen(cell, json!({ "resourceSubscriptions": [RESOURCE] })).await?;
    if !client.modern() {
        client.ask("resources/subscribe", params.clone()).await?;
    }
    cell.seen(&format!("watches {RESOURCE}")).await?;
    client.call("s__touch", "").await?;
    client
        .note("notifications/resources/updated", |it| {
            it["uri"] == RESOURCE && of(listening.as_ref(), it)
        })
        .await?;
    if !client.modern() {
        client.ask("resources/unsubscribe", params).await?;
    }
    leave(cell, listening).await;
    Ok(())
}

pub(super) async fn list_changed(cell: &Cell) -> Step {
    let client = &cell.client;
    let listening = listen(cell, json!({ "toolsListChanged": true })).await?;
    client.call("s__grow", "").await?;
    // An earlier change may be told late.
    let received = || {
        let like = |note: &Value| {
            note["method"] == "notifications/tools/list_changed"
                && of(listening.as_ref(), &note["params"])
        };
        client.notes(like).len()
    };
    let deadline = Instant::now() + client.patience();
    let mut seen = 0;
    loop {
        if received() > seen {
            seen += 1;
            let result = client.ask("tools/list", json!({})).await?;
            if holds_name(&result["tools"], "s__grown") {
                break;
            }
        }
        if Instant::now() > deadline {
            return Err("the change was not told".to_owned());
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    leave(cell, listening).await;
    let result = client.call("s__grown", "tall").await?;
    must(super::text(&result) == "tall", "another text", &result)
}
