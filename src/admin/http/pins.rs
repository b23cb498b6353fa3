//! `/api/pins`: the texts of servers, approved or not.

use serde_json::{Value, json};
use url::form_urlencoded;

use super::answer::ApiAnswer;
use super::request::{ApiRequest, invalid};
use crate::catalog::PinKind;
use crate::protocol::Failure;

/// The states that a pin may be listed by.
const STATES: [&str; 4] = ["pinned", "changed", "new", "unlisted"];

pub(super) async fn list(call: ApiRequest<'_>) -> Result<ApiAnswer, Failure> {
    let page = call.query.page()?;
    if let Some(state) = call.query.text("state")
        && !STATES.contains(&state)
    {
        let message = format!("`state` must be one of {}", STATES.join(", "));
        return Err(invalid(message));
    }
    let mut pins = call.parts.operator.pins();
    let kind = call.query.text("kind").map(|_| kind(&call)).transpose()?;
    let (server, state) = (call.query.server()?, call.query.text("state"));
    let kind = kind.map(PinKind::as_str);
    for (filter, wanted) in [("server", server), ("state", state), ("kind", kind)] {
        if let Some(wanted) = wanted {
            pins.retain(|pin| pin[filter] == wanted);
        }
    }
    let total = pins.len();
    let shown: Vec<Value> = pins
        .into_iter()
        .skip(page.offset)
        .take(page.limit)
        .collect();
    Ok(ApiAnswer::json(json!({
        "pins": shown,
        "total": total,
        "limit": page.limit,
        "offset": page.offset,
    })))
}

pub(super) async fn one(call: ApiRequest<'_>) -> Result<ApiAnswer, Failure> {
    let of = (kind(&call)?, &*item_name(&call));
    let pin = call.parts.operator.pin(call.name(), of);
    pin.map(ApiAnswer::json)
}

pub(super) async fn approve(call: ApiRequest<'_>) -> Result<ApiAnswer, Failure> {
    let digest = call.sole_text("digest")?;
    let of = (kind(&call)?, item_name(&call));
    let operator = &call.parts.operator;
    let approved = operator.approve_pins(call.name(), Some(of), digest);
    approved.await.map(ApiAnswer::json)
}

pub(super) async fn approve_all(call: ApiRequest<'_>) -> Result<ApiAnswer, Failure> {
    let operator = &call.parts.operator;
    let approved = operator.approve_pins(call.name(), None, None);
    approved.await.map(ApiAnswer::json)
}

fn kind(call: &ApiRequest<'_>) -> Result<PinKind, Failure> {
    let Some(named) = call.query.text("kind") else {
        return Ok(PinKind::default());
    };
    let known = PinKind::ALL.map(PinKind::as_str).join(", ");
    PinKind::named(named).ok_or_else(|| invalid(format!("`kind` must be one of {known}")))
}

/// The item that the path names. A server may give it any name, so it is decoded.
fn item_name(call: &ApiRequest<'_>) -> String {
    let segment = call.segments.get(1).copied().unwrap_or_default();
    // A path has no `+` for spaces.
    let segment = segment.replace('+', "%2B");
    let segment = segment.replace('&', "%26").replace('=', "%3D");
    let mut decoded = form_urlencoded::parse(segment.as_bytes());
    let name = decoded.next().map(|(name, _)| name.into_owned());
    name.unwrap_or_default()
}
