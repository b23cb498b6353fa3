//! `/api/pins`: definitions of servers, approved or pending.

use super::answer::ApiAnswer;
use super::request::{ApiRequest, invalid};
use crate::admin::messages::{Approved, ApprovedDefinition, Pins};
use crate::catalog::PinKind;
use crate::protocol::Failure;
use crate::publisher::ListedState;

pub(super) async fn list(call: ApiRequest<'_>) -> Result<ApiAnswer, Failure> {
    let page = call.page()?;
    let mut pins = call.operator.pins();
    let kind = call.query.text("kind").map(|_| kind(&call)).transpose()?;
    let (server, state) = (call.query.server()?, state(&call)?);
    pins.retain(|pin| {
        server.is_none_or(|server| pin.server == server)
            && state.is_none_or(|state| pin.state == state)
            && kind.is_none_or(|kind| pin.kind == kind)
    });
    let (pins, page) = page.of(pins);
    Ok(ApiAnswer::json(Pins { pins, page }))
}

pub(super) async fn one(call: ApiRequest<'_>) -> Result<ApiAnswer, Failure> {
    let of = (kind(&call)?, item_name(&call));
    let pin = call.operator.pin(call.name(), of);
    pin.map(ApiAnswer::json)
}

pub(super) async fn approve(mut call: ApiRequest<'_>) -> Result<ApiAnswer, Failure> {
    let ApprovedDefinition { digest } = call.read_body()?;
    let of = Some((kind(&call)?, item_name(&call)));
    approve_listed(&call, of, digest.as_deref()).await
}

pub(super) async fn approve_all(call: ApiRequest<'_>) -> Result<ApiAnswer, Failure> {
    approve_listed(&call, None, None).await
}

async fn approve_listed(
    call: &ApiRequest<'_>,
    of: Option<(PinKind, &str)>,
    digest: Option<&str>,
) -> Result<ApiAnswer, Failure> {
    let approved = call.operator.approve_pins(call.name(), of, digest).await?;
    Ok(ApiAnswer::json(Approved { approved }))
}

/// The state selected by the query.
fn state(call: &ApiRequest<'_>) -> Result<Option<ListedState>, Failure> {
    let Some(named) = call.query.text("state") else {
        return Ok(None);
    };
    let mut all = ListedState::ALL.into_iter();
    let found = all.find(|state| state.as_str() == named);
    let known = ListedState::ALL.map(ListedState::as_str).join(", ");
    let found = found.ok_or_else(|| invalid(format!("`state` must be one of {known}")));
    found.map(Some)
}

fn kind(call: &ApiRequest<'_>) -> Result<PinKind, Failure> {
    let Some(named) = call.query.text("kind") else {
        return Ok(PinKind::default());
    };
    let known = PinKind::ALL.map(PinKind::as_str).join(", ");
    PinKind::named(named).ok_or_else(|| invalid(format!("`kind` must be one of {known}")))
}

/// The item in the path after the server.
fn item_name<'a>(call: &'a ApiRequest<'_>) -> &'a str {
    call.segments.get(1).map_or("", String::as_str)
}
