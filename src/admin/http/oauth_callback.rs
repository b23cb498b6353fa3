//! `/oauth/callback`, where authorization servers send browsers back to.

use actix_web::http::StatusCode;
use actix_web::http::header::{self, HeaderValue};
use actix_web::{HttpRequest, HttpResponse, web};
use serde_json::{Value, json};

use super::api::{Check, note_denial};
use super::help::{document, escaped};
use super::{AdminEndpoints, with_title_case_headers};
use crate::protocol::{ErrorKind, Failure};

/// It needs no token, as a browser comes here from elsewhere: its `state` is known only to the one
/// who began the sign-in.
pub(super) async fn callback(
    request: HttpRequest,
    endpoints: web::Data<AdminEndpoints>,
    check: web::Data<Check>,
) -> HttpResponse {
    let parts = endpoints.parts().await;
    let done = match check(&request) {
        Ok(()) => {
            let operator = &parts.operator;
            let finished = operator.finish_login(request.query_string().to_owned());
            let refused = |failure: &Failure| note_denial(&request, failure, operator.counters());
            finished.await.inspect_err(refused)
        }
        Err(refused) => Err(refused),
    };
    let (status, body) = match &done {
        Ok(granted) => (StatusCode::OK, granted.clone()),
        Err(failure) => (StatusCode::BAD_REQUEST, refusal(&request, failure)),
    };
    let accept = request.headers().get(header::ACCEPT);
    let wants_page = accept.is_some_and(|it| it.to_str().is_ok_and(|it| it.contains("text/html")));
    let mut response = HttpResponse::build(status);
    response.insert_header((header::CACHE_CONTROL, HeaderValue::from_static("no-store")));
    response.insert_header((
        header::REFERRER_POLICY,
        HeaderValue::from_static("no-referrer"),
    ));
    if !wants_page {
        return with_title_case_headers(response.json(body));
    }
    let policy = HeaderValue::from_static("default-src 'none'; style-src 'unsafe-inline'");
    response.insert_header((header::CONTENT_SECURITY_POLICY, policy));
    response.content_type("text/html; charset=utf-8");
    with_title_case_headers(response.body(page(&done)))
}

/// As MCP Inspector reads it: the code of the authorization server, where it refused.
fn refusal(request: &HttpRequest, failure: &Failure) -> Value {
    let query = web::Query::<Vec<(String, String)>>::from_query(request.query_string());
    let query = query.map(web::Query::into_inner).unwrap_or_default();
    let error = query.iter().find(|(name, _)| name == "error");
    let is_plain = |code: &&str| code.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
    let code = error.map(|(_, code)| code.as_str()).filter(is_plain);
    let is_refused = failure.kind == ErrorKind::LoginFailed;
    let code = code.filter(|_| is_refused).unwrap_or(failure.kind.as_str());
    json!({ "success": false, "error": code, "errorDescription": failure.message })
}

fn page(done: &Result<Value, Failure>) -> String {
    match done {
        Ok(granted) => {
            let server = escaped(granted["serverName"].as_str().unwrap_or_default());
            let text = format!(
                "<h1>Signed in</h1>\n<p>mcpvisor has a token for <b>{server}</b>, which connects \
                 now. You can close this page.</p>\n"
            );
            document("Signed in", &text)
        }
        Err(failure) => {
            let why = escaped(&failure.message);
            let text = format!(
                "<h1>Not signed in</h1>\n<p>{why}.</p>\n<p>Begin again where you got the \
                 link, or with <code>mcpvisor auth login</code>.</p>\n"
            );
            document("Not signed in", &text)
        }
    }
}
