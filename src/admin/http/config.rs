//! `/config`: the servers of the configuration file.

use actix_web::http::StatusCode;

use super::answer::ApiAnswer;
use super::request::ApiRequest;
use crate::admin::config_order::EntryOrder;
use crate::protocol::Failure;

pub(super) async fn list(call: ApiRequest<'_>) -> Result<ApiAnswer, Failure> {
    order(call, EntryOrder::List, StatusCode::OK).await
}

pub(super) async fn one(call: ApiRequest<'_>) -> Result<ApiAnswer, Failure> {
    let get = EntryOrder::Get(call.name().to_owned());
    order(call, get, StatusCode::OK).await
}

pub(super) async fn create(mut call: ApiRequest<'_>) -> Result<ApiAnswer, Failure> {
    let create = EntryOrder::Create(call.body.take().unwrap_or_default());
    order(call, create, StatusCode::CREATED).await
}

pub(super) async fn update(mut call: ApiRequest<'_>) -> Result<ApiAnswer, Failure> {
    let body = call.body.take().unwrap_or_default();
    let update = EntryOrder::Update(call.name().to_owned(), body);
    order(call, update, StatusCode::OK).await
}

pub(super) async fn delete(call: ApiRequest<'_>) -> Result<ApiAnswer, Failure> {
    let delete = EntryOrder::Delete(call.name().to_owned());
    order(call, delete, StatusCode::NO_CONTENT).await
}

async fn order(
    call: ApiRequest<'_>,
    order: EntryOrder,
    status: StatusCode,
) -> Result<ApiAnswer, Failure> {
    let orders = &call.operator.config_orders;
    let answer = orders.ask(order, call.if_match).await?;
    Ok(ApiAnswer::with_tag(status, answer.body, &answer.etag))
}
