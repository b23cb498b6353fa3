//! `/openapi.json`: the endpoints of the table of routes, with the schemas of `openapi.json`.

use std::sync::LazyLock;

use actix_web::{HttpResponse, Resource, web};
use bytes::Bytes;
use serde_json::{Map, Value, json};

use super::request::BodyRule;
use super::route::Route;
use super::routes::ROUTES;
use super::{only_get, with_title_case_headers};

/// Parameters of queries and paths, and schemas, each with an example.
const DECLARED: &str = include_str!("openapi.json");

static DOCUMENT: LazyLock<Bytes> = LazyLock::new(|| Bytes::from(document(ROUTES).to_string()));

pub(super) fn resource() -> Resource {
    let answer = || {
        let mut response = HttpResponse::Ok();
        let response = response.content_type("application/json");
        std::future::ready(with_title_case_headers(response.body(DOCUMENT.clone())))
    };
    web::resource("/openapi.json")
        .route(web::get().to(answer))
        .route(web::head().to(answer))
        .default_service(web::route().to(only_get))
}

fn document(routes: &[Route]) -> Value {
    let declared: Value = serde_json::from_str(DECLARED).unwrap_or_default();
    let mut paths = Map::new();
    for route in routes.iter().filter(|route| !route.is_owners) {
        let path = paths.entry(route.path).or_insert_with(|| json!({}));
        path[route.method.to_ascii_lowercase()] = operation(route, &declared);
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "mcpvisor",
            "version": env!("CARGO_PKG_VERSION"),
            "summary": "What operators ask of the gateway and order",
            "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" },
        },
        "servers": [{ "url": "/" }],
        "security": [{ "token": [] }, { "bearer": [] }],
        "paths": paths,
        "components": {
            "schemas": declared["schemas"],
            "securitySchemes": {
                "token": { "type": "apiKey", "in": "header", "name": "X-Session-Token" },
                "bearer": { "type": "http", "scheme": "bearer" },
            },
        },
    })
}

fn operation(route: &Route, declared: &Value) -> Value {
    let doc = &route.doc;
    let mut responses = Map::new();
    responses.insert(
        doc.status.to_owned(),
        answer(doc.answers, &declared["schemas"]),
    );
    let mut failures = vec!["400", "401", "403"];
    if route.path.contains('{') {
        failures.push("404");
    }
    failures.push("default");
    for status in failures {
        let mut failure = answer("Error", &declared["schemas"]);
        failure["description"] = json!("Why not");
        responses.insert(status.to_owned(), failure);
    }
    let mut operation = json!({
        "operationId": operation_id(route),
        "tags": [tag(route)],
        "summary": doc.summary,
        "parameters": parameters(route, declared),
        "responses": responses,
    });
    if !doc.takes.is_empty() {
        operation["requestBody"] = json!({
            "required": route.body == BodyRule::Required,
            "content": content("application/json", doc.takes, &declared["schemas"]),
        });
    }
    operation
}

/// The subject of the endpoint.
fn tag(route: &Route) -> &'static str {
    let mut parts = route.path.split('/');
    parts.rfind(|part| is_tag(part)).unwrap_or_default()
}

fn is_tag(part: &str) -> bool {
    let resources = [
        "tree", "servers", "tools", "pins", "keys", "sessions", "history", "logs", "events",
        "logins",
    ];
    resources.contains(&part) || matches!(part, "oauth" | "loglevel" | "config")
}

/// `getServersServerLogs` for `GET /api/servers/{server}/logs`.
fn operation_id(route: &Route) -> String {
    let words = route
        .path
        .split(|letter: char| !letter.is_ascii_alphabetic());
    let words = words.filter(|word| !word.is_empty() && *word != "api");
    let mut id = route.method.to_ascii_lowercase();
    for word in words {
        let (first, rest) = word.split_at_checked(1).unwrap_or_default();
        id.push_str(&first.to_ascii_uppercase());
        id.push_str(rest);
    }
    id
}

fn parameters(route: &Route, declared: &Value) -> Vec<Value> {
    let segments = route.path.split('/');
    let segments = segments.filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    let segments = segments.map(|name| parameter(name, "path", &declared["segments"][name]));
    let query = route.query.iter();
    // One that differs from others of its name has the tag before it.
    let known = &declared["parameters"];
    let query = query.map(|name| match &known[format!("{}.{name}", tag(route))] {
        Value::Null => parameter(name, "query", &known[name]),
        special => parameter(name, "query", special),
    });
    let mut all: Vec<Value> = segments.chain(query).collect();
    if route.doc.answers == "Events" {
        all.push(json!({
            "name": "Last-Event-ID",
            "in": "header",
            "description": "The `id` of the last event that was read",
            "schema": { "type": "string" },
        }));
    }
    if route.path.starts_with("/config") && route.method != "GET" {
        all.push(json!({
            "name": "If-Match",
            "in": "header",
            "description": "The `ETag` that the file must have; 412 if it has another",
            "schema": { "type": "string" },
        }));
    }
    all
}

fn parameter(name: &str, place: &str, declared: &Value) -> Value {
    let mut parameter = json!({ "name": name, "in": place, "required": place == "path" });
    for (member, value) in declared.as_object().into_iter().flatten() {
        parameter[member] = value.clone();
    }
    parameter
}

fn answer(schema: &str, schemas: &Value) -> Value {
    let media = match schema {
        "" => return json!({ "description": "Done" }),
        "Events" => "text/event-stream",
        _ => "application/json",
    };
    json!({ "description": "As asked for", "content": content(media, schema, schemas) })
}

fn content(media: &str, schema: &str, schemas: &Value) -> Value {
    let reference = format!("#/components/schemas/{schema}");
    json!({ media: {
        "schema": { "$ref": reference },
        "example": schemas[schema]["examples"][0],
    } })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_endpoint_is_described_and_nothing_else() {
        let document = document(ROUTES);
        let mut described = BTreeSet::new();
        for (path, operations) in document["paths"].as_object().unwrap() {
            for (method, operation) in operations.as_object().unwrap() {
                assert!(operation["summary"].as_str().unwrap().len() > 5, "{path}");
                assert_ne!(operation["tags"], json!([""]), "{path}");
                described.insert(format!("{} {path}", method.to_uppercase()));
            }
        }
        let routes = ROUTES.iter();
        let routes = routes.map(|route| format!("{} {}", route.method, route.path));
        assert_eq!(described, routes.collect());
    }

    #[test]
    fn every_parameter_body_and_answer_has_a_schema_and_an_example() {
        let declared: Value = serde_json::from_str(DECLARED).unwrap();
        let schemas = declared["schemas"].as_object().unwrap();
        let (mut used, mut ids) = (BTreeSet::from(["Error"]), BTreeSet::new());
        for route in ROUTES {
            let operation = operation(route, &declared);
            let id = operation["operationId"].as_str().unwrap().to_owned();
            assert!(ids.insert(id.clone()), "{id} twice");
            for parameter in operation["parameters"].as_array().unwrap() {
                assert!(parameter["schema"].is_object(), "{id}: {parameter}");
                let is_header = parameter["in"] == "header";
                assert!(
                    is_header || !parameter["example"].is_null(),
                    "{id}: {parameter}"
                );
            }
            let has_body = route.body != BodyRule::None;
            assert_eq!(has_body, !route.doc.takes.is_empty(), "{id}");
            assert_eq!(
                matches!(route.doc.status, "204" | "302"),
                route.doc.answers.is_empty(),
                "{id}"
            );
            for schema in [route.doc.takes, route.doc.answers] {
                assert!(
                    schema.is_empty() || schemas.contains_key(schema),
                    "{id}: {schema}"
                );
                used.insert(schema);
            }
        }
        used.remove("");
        let unused = schemas.keys().filter(|name| !used.contains(name.as_str()));
        assert_eq!(unused.collect::<Vec<_>>(), Vec::<&String>::new());
    }

    #[test]
    fn every_example_fits_its_schema() {
        let document = document(ROUTES);
        for (name, schema) in document["components"]["schemas"].as_object().unwrap() {
            let whole = json!({
                "$ref": format!("#/components/schemas/{name}"),
                "components": document["components"],
            });
            let validator = jsonschema::validator_for(&whole).unwrap();
            let examples = schema["examples"].as_array();
            let example = examples.and_then(|examples| examples.first());
            let example = example.unwrap_or_else(|| panic!("{name} has no example"));
            let found = validator
                .validate(example)
                .map_err(|error| error.to_string());
            assert_eq!(found, Ok(()), "{name}");
        }
    }
}
