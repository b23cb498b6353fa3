//! Generates the OpenAPI document of the API from the routes and the types of their bodies and
//! answers. `OPENAPI=write cargo test --lib openapi` writes it.

use std::collections::BTreeSet;
use std::path::Path;

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::{Map, Value, json};

use super::request::BodyRule;
use super::route::Route;
use super::routes::ROUTES;
use crate::admin::crashes::Crashes;
use crate::admin::messages::{
    Approved, ApprovedDefinition, Explanation, Keys, LogLevel, LoginRedirect, Logins, Notices,
    Ordered, Pins, ServerLogs, Servers, Sessions, ToolOfServer, Tools, WantedVersion,
};
use crate::admin::notices::Notice;
use crate::admin::operator::{LoginPage, RenewedToken};
use crate::admin::status::{ServerStatus, Status};
use crate::history::{CallPage, RecordedCall};
use crate::publisher::PinDetail;
use crate::sessions::SessionView;
use crate::telemetry::LogPage;

/// Parameters of queries and paths, and schemas that have no Rust type: servers in the
/// configuration file, which is edited as text, and messages of servers.
const DECLARED: &str = include_str!("declared.json");

const DOCUMENT: &str = "docs/openapi.json";

/// Prefix of references to schemas.
const SCHEMAS: &str = "/components/schemas";

/// The body of a request or an answer.
enum Body {
    None,
    Typed(fn(&mut SchemaGenerator) -> Schema),
    /// A schema of [`DECLARED`].
    Declared(&'static str),
}

/// Each route with the schemas of its body and its answer: `METHOD PATH [BODY] -> STATUS [ANSWER]:
/// SUMMARY`.
const OPERATIONS: &str = "\
GET /api/tree -> 200 Status: Shows the whole gateway
GET /api/servers -> 200 Servers: Lists the servers
GET /api/servers/{server} -> 200 ServerStatus: Shows a server
POST /api/servers/{server}/start -> 200 Ordered: Takes a server into service again
POST /api/servers/{server}/stop -> 200 Ordered: Takes a server out of service
POST /api/servers/{server}/restart -> 200 Ordered: Connects a server anew
POST /api/servers/{server}/trip ToolOfServer -> 200 Ordered: Sends no calls to a server, or to a tool of it
POST /api/servers/{server}/reset ToolOfServer -> 200 Ordered: Sends calls again
POST /api/servers/{server}/upgrade WantedVersion -> 200 Ordered: Tries another version of a server beside the running one
GET /api/servers/{server}/logs -> 200 ServerLogs: Shows the last lines of a server
GET /api/servers/{server}/crashes -> 200 Crashes: Shows the crash reports of a server
GET /api/servers/{server}/explain -> 200 Explanation: Tells what happens next to a server and why
POST /api/servers/{server}/login LoginRedirect -> 200 LoginPage: Begins a login at a server
GET /api/logins -> 200 Logins: Lists the logins at servers
GET /oauth/authorize/{server} -> 302: Leads to the page to sign in at
POST /oauth/refresh/{server} -> 200 RenewedToken: Renews the token for a server
DELETE /oauth/token/{server} -> 204: Forgets the token for a server, and revokes it
GET /api/tools -> 200 Tools: Lists the tools that clients see
GET /api/pins -> 200 Pins: Lists the pins of servers
GET /api/pins/{server}/{name} -> 200 PinDetail: Shows a pin with its definitions
POST /api/servers/{server}/approve -> 200 Approved: Approves everything that a server lists, as it is
POST /api/pins/{server}/{name}/approve ApprovedDefinition -> 200 Approved: Approves an item as it is
GET /api/sessions -> 200 Sessions: Lists the sessions of clients
GET /api/sessions/{handle} -> 200 SessionView: Shows a session
DELETE /api/sessions/{handle} -> 204: Ends a session
GET /api/notices -> 200 Notices: Lists the notices for operators
POST /api/notices/{notice}/dismiss -> 200 Notice: Hides a notice from the status
POST /api/notices/{notice}/restore -> 200 Notice: Shows a notice again
GET /api/keys -> 200 Keys: Lists the API keys
GET /api/history -> 200 CallPage: Lists calls, the newest first
GET /api/history/{call} -> 200 RecordedCall: Shows a call
POST /api/history/{call}/replay -> 200 JsonRpcAnswer: Makes a call again
GET /api/logs -> 200 LogPage: Lists records of the log, the newest first
GET /api/events -> 200 Events: Tells what happens, as server-sent events
GET /api/loglevel -> 200 LogLevel: Shows the log level
PUT /api/loglevel LogLevel -> 200 LogLevel: Changes the log level until the next start
GET /config -> 200 ConfigServers: Lists the servers of the configuration
POST /config NewConfigServer -> 201 ConfigServer: Adds a server
GET /config/{server} -> 200 ConfigServer: Shows a server of the configuration
PUT /config/{server} ConfigServerChange -> 200 ConfigServer: Changes a server
DELETE /config/{server} -> 204: Removes a server";

type TypedSchema = (String, fn(&mut SchemaGenerator) -> Schema);

fn typed<T: JsonSchema>() -> TypedSchema {
    let schema = |generator: &mut SchemaGenerator| generator.subschema_for::<T>();
    (T::schema_name().into_owned(), schema)
}

/// The schemas that are generated from Rust types.
fn typed_schemas() -> Vec<TypedSchema> {
    vec![
        typed::<Approved>(),
        typed::<ApprovedDefinition>(),
        typed::<CallPage>(),
        typed::<Crashes>(),
        typed::<Explanation>(),
        typed::<Keys>(),
        typed::<LogLevel>(),
        typed::<LogPage>(),
        typed::<LoginPage>(),
        typed::<LoginRedirect>(),
        typed::<Logins>(),
        typed::<Notice>(),
        typed::<Notices>(),
        typed::<Ordered>(),
        typed::<PinDetail>(),
        typed::<Pins>(),
        typed::<RecordedCall>(),
        typed::<RenewedToken>(),
        typed::<ServerLogs>(),
        typed::<ServerStatus>(),
        typed::<Servers>(),
        typed::<SessionView>(),
        typed::<Sessions>(),
        typed::<Status>(),
        typed::<ToolOfServer>(),
        typed::<WantedVersion>(),
        typed::<Tools>(),
    ]
}

/// The description of a route, apart from its parameters and errors.
struct Operation {
    route: &'static str,
    summary: &'static str,
    takes: Body,
    answers: Body,
    status: &'static str,
}

fn operations() -> Vec<Operation> {
    let typed = typed_schemas();
    let body = |name: Option<&'static str>| {
        let Some(name) = name else { return Body::None };
        let found = typed.iter().find(|(known, _)| known == name);
        found.map_or(Body::Declared(name), |(_, schema)| Body::Typed(*schema))
    };
    let operation = |line: &'static str| {
        let (about, summary) = line.split_once(": ").unwrap();
        let (asked, answered) = about.split_once(" -> ").unwrap();
        let takes = asked.splitn(3, ' ').nth(2);
        let (status, answers) = answered.split_at(3);
        Operation {
            route: takes.map_or(asked, |takes| asked.strip_suffix(takes).unwrap().trim_end()),
            summary,
            takes: body(takes),
            answers: body(answers.strip_prefix(' ')),
            status,
        }
    };
    OPERATIONS.lines().map(operation).collect()
}

/// Builds the document.
struct DocumentWriter {
    declared: Value,
    generator: SchemaGenerator,
    /// The names of the declared schemas that are used.
    used: BTreeSet<&'static str>,
}

impl DocumentWriter {
    fn new() -> Self {
        let settings = SchemaSettings::draft2020_12().for_serialize();
        let settings = settings.with(|settings| {
            settings.definitions_path = SCHEMAS.into();
            settings.meta_schema = None;
        });
        Self {
            declared: serde_json::from_str(DECLARED).unwrap(),
            generator: settings.into_generator(),
            used: BTreeSet::new(),
        }
    }

    fn document(mut self) -> Value {
        let operations = operations();
        let mut paths: Map<String, Value> = Map::new();
        for route in ROUTES.iter().filter(|route| !route.is_owners) {
            let name = format!("{} {}", route.method, route.path);
            let mut described = operations.iter();
            let operation = described.find(|operation| operation.route == name);
            let operation = operation.unwrap_or_else(|| panic!("{name} is not described"));
            let operation = self.operation(route, operation);
            let path = paths.entry(route.path).or_insert_with(|| json!({}));
            let methods = path.as_object_mut().unwrap();
            methods.insert(route.method.to_ascii_lowercase(), operation);
        }
        let described: usize = paths
            .values()
            .map(|path| path.as_object().unwrap().len())
            .sum();
        assert_eq!(described, operations.len(), "a described route is none");
        let error = self.content("application/json", &Body::Declared("Error"));
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
                "schemas": self.schemas(),
                "responses": { "Failure": { "description": "Why not", "content": error } },
                "securitySchemes": {
                    "token": { "type": "apiKey", "in": "header", "name": "X-Session-Token" },
                    "bearer": { "type": "http", "scheme": "bearer" },
                },
            },
        })
    }

    /// Schemas of the types, and the declared schemas, by name.
    fn schemas(mut self) -> Map<String, Value> {
        let mut all = self.generator.take_definitions(true);
        all.values_mut().for_each(remove_defaults);
        for (name, schema) in self
            .declared
            .pointer("/schemas")
            .unwrap()
            .as_object()
            .unwrap()
        {
            // Each declared schema is used; `ConfigServers` refers to `ConfigServer`.
            assert!(self.used.contains(&**name), "{name} is not used");
            assert!(
                all.insert(name.clone(), schema.clone()).is_none(),
                "{name} twice"
            );
        }
        all.sort_keys();
        all
    }

    fn operation(&mut self, route: &Route, operation: &Operation) -> Value {
        let mut responses = Map::new();
        let answer = match &operation.answers {
            Body::None => json!({ "description": "Done" }),
            body => {
                let media = match body {
                    Body::Declared("Events") => "text/event-stream",
                    _ => "application/json",
                };
                json!({ "description": "As asked for", "content": self.content(media, body) })
            }
        };
        responses.insert(operation.status.to_owned(), answer);
        let mut failures = vec!["400", "401", "403"];
        if route.path.contains('{') {
            failures.push("404");
        }
        failures.push("default");
        for status in failures {
            let failure = json!({ "$ref": "#/components/responses/Failure" });
            responses.insert(status.to_owned(), failure);
        }
        let mut described = json!({
            "operationId": operation_id(route),
            "tags": [tag(route)],
            "summary": operation.summary,
            "parameters": self.parameters(route),
            "responses": responses,
        });
        let has_body = !matches!(operation.takes, Body::None);
        assert_eq!(
            has_body,
            route.body != BodyRule::None,
            "{}",
            operation.route
        );
        if has_body {
            let body = json!({
                "required": route.body == BodyRule::Required,
                "content": self.content("application/json", &operation.takes),
            });
            let described = described.as_object_mut().unwrap();
            described.insert("requestBody".to_owned(), body);
        }
        described
    }

    fn parameters(&self, route: &Route) -> Vec<Value> {
        let segments = route.path.split('/');
        let segments = segments.filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
        let segments = segments.map(|name| self.parameter("segments", name, name));
        let query = route.query.iter().map(|name| {
            // A parameter that differs between tags is declared as `tag.name`.
            let special = format!("{}.{name}", tag(route));
            match self.declared.pointer(&format!("/parameters/{special}")) {
                Some(_) => self.parameter("parameters", &special, name),
                None => self.parameter("parameters", name, name),
            }
        });
        let mut all: Vec<Value> = segments.chain(query).collect();
        let mut header = |name: &str, description: &str| {
            all.push(json!({
                "name": name,
                "in": "header",
                "description": description,
                "schema": { "type": "string" },
            }));
        };
        if tag(route) == "events" {
            header("Last-Event-ID", "The `id` of the last event that was read");
        }
        if tag(route) == "config" && route.method != "GET" {
            header(
                "If-Match",
                "The `ETag` that the file must have; 412 if it has another",
            );
        }
        all
    }

    fn parameter(&self, place: &str, declared: &str, name: &str) -> Value {
        let pointer = format!("/{place}/{declared}");
        let declared = self.declared.pointer(&pointer).and_then(Value::as_object);
        let declared = declared.unwrap_or_else(|| panic!("{pointer} is not declared"));
        let is_segment = place == "segments";
        let mut parameter = Map::new();
        parameter.insert("name".to_owned(), json!(name));
        let place = if is_segment { "path" } else { "query" };
        parameter.insert("in".to_owned(), json!(place));
        parameter.insert("required".to_owned(), json!(is_segment));
        parameter.extend(declared.clone());
        Value::Object(parameter)
    }

    fn content(&mut self, media: &str, body: &Body) -> Value {
        let mut content = Map::new();
        match body {
            Body::None => {}
            Body::Typed(schema) => {
                let schema = schema(&mut self.generator).to_value();
                content.insert("schema".to_owned(), schema);
            }
            Body::Declared(name) => {
                self.used.insert(name);
                let reference = format!("#{SCHEMAS}/{name}");
                content.insert("schema".to_owned(), json!({ "$ref": reference }));
                let example = format!("/schemas/{name}/examples/0");
                let example = self.declared.pointer(&example);
                let example = example.unwrap_or_else(|| panic!("{name} has no example"));
                content.insert("example".to_owned(), example.clone());
            }
        }
        json!({ media: content })
    }
}

/// Removes default values, which only matter to clients that read an older gateway's answers.
fn remove_defaults(schema: &mut Value) {
    match schema {
        Value::Object(members) => {
            members.remove("default");
            members.values_mut().for_each(remove_defaults);
        }
        Value::Array(items) => items.iter_mut().for_each(remove_defaults),
        _ => {}
    }
}

/// The tag under which the endpoint is listed.
fn tag(route: &Route) -> &'static str {
    const SUBJECTS: &[&str] = &[
        "tree", "servers", "tools", "pins", "notices", "keys", "sessions", "history", "logs",
        "events", "logins", "oauth", "loglevel", "config",
    ];
    let mut parts = route.path.split('/');
    let found = parts.rfind(|part| SUBJECTS.contains(part));
    found.unwrap_or_else(|| panic!("{} has no subject", route.path))
}

/// The operation id, such as `getServersServerLogs` for `GET /api/servers/{server}/logs`.
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

#[test]
fn the_served_openapi_tests_is_made_of_the_types() {
    let made = format!("{:#}\n", DocumentWriter::new().document());
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(DOCUMENT);
    if std::env::var("OPENAPI").is_ok_and(|wish| wish == "write") {
        std::fs::write(&file, &made).unwrap();
    }
    let found = std::fs::read_to_string(&file).unwrap();
    assert!(
        found == made,
        "{DOCUMENT} is not as the types are: `OPENAPI=write cargo test --lib openapi` writes it"
    );
}

#[test]
fn every_operation_of_the_openapi_tests_has_a_name_of_its_own() {
    let mut ids = BTreeSet::new();
    for route in ROUTES.iter().filter(|route| !route.is_owners) {
        assert!(ids.insert(operation_id(route)), "{} twice", route.path);
    }
}

#[test]
fn every_declared_example_fits_its_schema() {
    let document = DocumentWriter::new().document();
    let components = document.pointer("/components").unwrap();
    let declared: Value = serde_json::from_str(DECLARED).unwrap();
    for (name, schema) in declared.pointer("/schemas").unwrap().as_object().unwrap() {
        let whole = json!({ "$ref": format!("#{SCHEMAS}/{name}"), "components": components });
        let validator = jsonschema::validator_for(&whole).unwrap();
        let example = schema.pointer("/examples/0").unwrap();
        let found = validator
            .validate(example)
            .map_err(|error| error.to_string());
        assert_eq!(found, Ok(()), "{name}");
    }
}
