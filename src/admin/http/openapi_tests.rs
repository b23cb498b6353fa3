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
    Approved, ApprovedDefinition, Keys, LogLevel, LoginRedirect, Logins, Ordered, Pins, ServerLogs,
    Servers, Sessions, ToolOfServer, Tools,
};
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

fn typed<T: JsonSchema>() -> Body {
    Body::Typed(|generator| generator.subschema_for::<T>())
}

/// The description of a route, apart from its parameters and errors.
struct Operation {
    route: &'static str,
    summary: &'static str,
    takes: Body,
    answers: Body,
    status: &'static str,
}

impl Operation {
    fn new(route: &'static str, summary: &'static str) -> Self {
        Self {
            route,
            summary,
            takes: Body::None,
            answers: Body::None,
            status: "200",
        }
    }

    fn takes(mut self, body: Body) -> Self {
        self.takes = body;
        self
    }

    fn answers(mut self, body: Body) -> Self {
        self.answers = body;
        self
    }

    fn status(mut self, status: &'static str) -> Self {
        self.status = status;
        self
    }
}

#[expect(clippy::too_many_lines, reason = "a table with a row for each route")]
fn operations() -> Vec<Operation> {
    vec![
        Operation::new("GET /api/tree", "Shows the whole gateway").answers(typed::<Status>()),
        Operation::new("GET /api/servers", "Lists the servers").answers(typed::<Servers>()),
        Operation::new("GET /api/servers/{server}", "Shows a server")
            .answers(typed::<ServerStatus>()),
        Operation::new(
            "POST /api/servers/{server}/start",
            "Takes a server into service again",
        )
        .answers(typed::<Ordered>()),
        Operation::new(
            "POST /api/servers/{server}/stop",
            "Takes a server out of service",
        )
        .answers(typed::<Ordered>()),
        Operation::new(
            "POST /api/servers/{server}/restart",
            "Connects a server anew",
        )
        .answers(typed::<Ordered>()),
        Operation::new(
            "POST /api/servers/{server}/trip",
            "Sends no calls to a server, or to a tool of it",
        )
        .takes(typed::<ToolOfServer>())
        .answers(typed::<Ordered>()),
        Operation::new("POST /api/servers/{server}/reset", "Sends calls again")
            .takes(typed::<ToolOfServer>())
            .answers(typed::<Ordered>()),
        Operation::new(
            "GET /api/servers/{server}/logs",
            "Shows the last lines of a server",
        )
        .answers(typed::<ServerLogs>()),
        Operation::new(
            "GET /api/servers/{server}/crashes",
            "Shows the crash reports of a server",
        )
        .answers(typed::<Crashes>()),
        Operation::new(
            "POST /api/servers/{server}/login",
            "Begins a login at a server",
        )
        .takes(typed::<LoginRedirect>())
        .answers(typed::<LoginPage>()),
        Operation::new("GET /api/logins", "Lists the logins at servers").answers(typed::<Logins>()),
        Operation::new(
            "GET /oauth/authorize/{server}",
            "Leads to the page to sign in at",
        )
        .status("302"),
        Operation::new(
            "POST /oauth/refresh/{server}",
            "Renews the token for a server",
        )
        .answers(typed::<RenewedToken>()),
        Operation::new(
            "DELETE /oauth/token/{server}",
            "Forgets the token for a server, and revokes it",
        )
        .status("204"),
        Operation::new("GET /api/tools", "Lists the tools that clients see")
            .answers(typed::<Tools>()),
        Operation::new("GET /api/pins", "Lists the pins of servers").answers(typed::<Pins>()),
        Operation::new(
            "GET /api/pins/{server}/{name}",
            "Shows a pin with its definitions",
        )
        .answers(typed::<PinDetail>()),
        Operation::new(
            "POST /api/servers/{server}/approve",
            "Approves everything that a server lists, as it is",
        )
        .answers(typed::<Approved>()),
        Operation::new(
            "POST /api/pins/{server}/{name}/approve",
            "Approves an item as it is",
        )
        .takes(typed::<ApprovedDefinition>())
        .answers(typed::<Approved>()),
        Operation::new("GET /api/sessions", "Lists the sessions of clients")
            .answers(typed::<Sessions>()),
        Operation::new("GET /api/sessions/{handle}", "Shows a session")
            .answers(typed::<SessionView>()),
        Operation::new("DELETE /api/sessions/{handle}", "Ends a session").status("204"),
        Operation::new("GET /api/keys", "Lists the API keys").answers(typed::<Keys>()),
        Operation::new("GET /api/history", "Lists calls, the newest first")
            .answers(typed::<CallPage>()),
        Operation::new("GET /api/history/{call}", "Shows a call").answers(typed::<RecordedCall>()),
        Operation::new("POST /api/history/{call}/replay", "Makes a call again")
            .answers(Body::Declared("JsonRpcAnswer")),
        Operation::new(
            "GET /api/logs",
            "Lists records of the log, the newest first",
        )
        .answers(typed::<LogPage>()),
        Operation::new(
            "GET /api/events",
            "Tells what happens, as server-sent events",
        )
        .answers(Body::Declared("Events")),
        Operation::new("GET /api/loglevel", "Shows the log level").answers(typed::<LogLevel>()),
        Operation::new(
            "PUT /api/loglevel",
            "Changes the log level until the next start",
        )
        .takes(typed::<LogLevel>())
        .answers(typed::<LogLevel>()),
        Operation::new("GET /config", "Lists the servers of the configuration")
            .answers(Body::Declared("ConfigServers")),
        Operation::new("POST /config", "Adds a server")
            .takes(Body::Declared("NewConfigServer"))
            .answers(Body::Declared("ConfigServer"))
            .status("201"),
        Operation::new(
            "GET /config/{server}",
            "Shows a server of the configuration",
        )
        .answers(Body::Declared("ConfigServer")),
        Operation::new("PUT /config/{server}", "Changes a server")
            .takes(Body::Declared("ConfigServerChange"))
            .answers(Body::Declared("ConfigServer")),
        Operation::new("DELETE /config/{server}", "Removes a server").status("204"),
    ]
}

/// Builds the document.
struct Writer {
    declared: Value,
    generator: SchemaGenerator,
    /// The names of the declared schemas that are used.
    used: BTreeSet<&'static str>,
}

impl Writer {
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
        "tree", "servers", "tools", "pins", "keys", "sessions", "history", "logs", "events",
        "logins", "oauth", "loglevel", "config",
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
    let made = format!("{:#}\n", Writer::new().document());
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
    let document = Writer::new().document();
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
