//! `/openapi.json`: the document that `openapi_tests.rs` makes of the routes and the types of their
//! answers.

use actix_web::{HttpResponse, Resource, web};

use super::{only_get, with_title_case_headers};

/// Made when the tests run, so that the program needs no code for it.
const DOCUMENT: &str = include_str!("../../../docs/openapi.json");

pub(super) fn resource() -> Resource {
    let answer = || {
        let mut response = HttpResponse::Ok();
        let response = response.content_type("application/json");
        std::future::ready(with_title_case_headers(response.body(DOCUMENT)))
    };
    web::resource("/openapi.json")
        .route(web::get().to(answer))
        .route(web::head().to(answer))
        .default_service(web::route().to(only_get))
}
