//! `/ui/servers/new` and `/ui/servers/NAME/edit`: a form for a server in the configuration.

use actix_web::http::StatusCode;
use maud::{Markup, html};
use serde_json::{Map, Value, json};

use super::shown_server::{ShownServer, values};
use crate::admin::config_order::EntryOrder;
use crate::admin::ui::fields::{Fields, field};
use crate::admin::ui::page::{FormOutcome, Page, Section, View};
use crate::admin::ui::{parts, text};
use crate::protocol::Failure;

/// Form fields that can be invalid.
const FIELDS: [&str; 8] = [
    "name",
    "command",
    "args",
    "env",
    "url",
    "headers",
    "connection",
    "request",
];

/// An error message, and the field that it concerns.
struct FormProblem {
    field: Option<&'static str>,
    message: String,
}

/// The form with its current values.
struct Form<'f> {
    /// The server to change; `None` for a new one.
    name: Option<&'f str>,
    values: Fields,
    problem: Option<FormProblem>,
}

pub(super) fn new_page(view: &View<'_>) -> Page {
    let values = vec![
        ("kind".to_owned(), "stdio".to_owned()),
        ("enabled".to_owned(), "on".to_owned()),
    ];
    page(
        view,
        &Form {
            name: None,
            values,
            problem: None,
        },
    )
}

/// # Errors
///
/// Returns an error when the file contains no such server.
pub(super) async fn edit_page(view: &View<'_>, name: &str) -> Result<Page, Failure> {
    let orders = &view.operator.config_orders;
    let entry = orders.ask(EntryOrder::Get(name.to_owned()), None).await?;
    let mut values = values(&entry.read()?);
    values.push(("etag".to_owned(), entry.etag));
    Ok(page(
        view,
        &Form {
            name: Some(name),
            values,
            problem: None,
        },
    ))
}

/// Converts a form to an API request body.
fn body(form: &Fields, is_new: bool) -> Result<Map<String, Value>, FormProblem> {
    let text = |name: &str| field(form, name).unwrap_or_default().trim();
    let mut body = Map::new();
    if is_new {
        body.insert("name".to_owned(), json!(text("name")));
    }
    match text("kind") {
        "stdio" => {
            body.insert("command".to_owned(), json!(text("command")));
            let args: Vec<&str> = lines(form, "args").collect();
            body.insert("args".to_owned(), json!(args));
            body.insert("env".to_owned(), named(form, "env", '=')?);
        }
        kind => {
            body.insert("url".to_owned(), json!(text("url")));
            body.insert("headers".to_owned(), named(form, "headers", ':')?);
            if kind == "sse" {
                body.insert("transport".to_owned(), json!("sse"));
            }
        }
    }
    let (connection, request) = (number(form, "connection")?, number(form, "request")?);
    let has_timeouts = connection.is_some() || request.is_some();
    if has_timeouts {
        let timeouts = json!({ "connection": connection, "request": request });
        body.insert("timeouts".to_owned(), timeouts);
    } else if !is_new {
        body.insert("timeouts".to_owned(), Value::Null);
    }
    match (field(form, "enabled").is_some(), is_new) {
        (false, _) => drop(body.insert("enabled".to_owned(), json!(false))),
        (true, false) => drop(body.insert("enabled".to_owned(), Value::Null)),
        (true, true) => {}
    }
    Ok(body)
}

fn lines<'f>(form: &'f Fields, name: &str) -> impl Iterator<Item = &'f str> {
    let lines = field(form, name).unwrap_or_default().lines();
    lines.map(str::trim).filter(|line| !line.is_empty())
}

fn named(form: &Fields, name: &'static str, between: char) -> Result<Value, FormProblem> {
    let mut named = Map::new();
    for (index, line) in lines(form, name).enumerate() {
        let Some((key, value)) = line.split_once(between) else {
            let message = format!("line {} has no `{between}`", index + 1);
            return Err(FormProblem {
                field: Some(name),
                message,
            });
        };
        named.insert(key.trim().to_owned(), json!(value.trim()));
    }
    Ok(Value::Object(named))
}

fn number(form: &Fields, name: &'static str) -> Result<Option<u64>, FormProblem> {
    let text = field(form, name).unwrap_or_default().trim();
    if text.is_empty() {
        return Ok(None);
    }
    text.parse().map(Some).map_err(|_| FormProblem {
        field: Some(name),
        message: "must be a number of milliseconds".to_owned(),
    })
}

/// The form field for a key of the file, such as `servers.one.url`, or for a member of the API.
fn field_of(key: &str) -> Option<&'static str> {
    let member = match key.strip_prefix("servers.") {
        // The key of the server itself is its name.
        Some(below) => below.split_once('.').map_or("name", |(_, member)| member),
        None => key,
    };
    let mut parts = member.split(['.', '[']);
    let named = match (parts.next()?, parts.next()) {
        ("timeouts", Some(timeout)) => timeout,
        ("supervision", Some("connect_timeout")) => "connection",
        ("request_timeout", _) => "request",
        (member, _) => member,
    };
    FIELDS.into_iter().find(|field| *field == named)
}

/// # Errors
///
/// Returns the reason why nothing was written, if it does not concern a single field.
pub(super) async fn create(view: &View<'_>, fields: &Fields) -> Result<FormOutcome, Failure> {
    let outcome = match body(fields, true) {
        Err(problem) => Err(problem),
        Ok(body) => {
            let orders = &view.operator.config_orders;
            let created = orders.ask(EntryOrder::Create(body), None).await;
            created.map_err(problem)
        }
    };
    Ok(match outcome {
        Ok(created) => {
            let ShownServer { name, .. } = created.read()?;
            FormOutcome::Done {
                to: format!("/ui/servers/{name}"),
                message: format!("`{name}` was added"),
            }
        }
        Err(problem) => again(view, None, fields, problem),
    })
}

/// # Errors
///
/// As [`create`].
pub(super) async fn update(
    view: &View<'_>,
    name: &str,
    fields: &Fields,
) -> Result<FormOutcome, Failure> {
    let outcome = match body(fields, false) {
        Err(problem) => Err(problem),
        Ok(body) => {
            let orders = &view.operator.config_orders;
            let etag = field(fields, "etag").map(str::to_owned);
            let order = EntryOrder::Update(name.to_owned(), body);
            orders.ask(order, etag).await.map_err(problem)
        }
    };
    Ok(match outcome {
        Ok(_) => FormOutcome::Done {
            to: format!("/ui/servers/{name}"),
            message: format!("`{name}` was changed"),
        },
        Err(problem) => again(view, Some(name), fields, problem),
    })
}

fn problem(failure: Failure) -> FormProblem {
    FormProblem {
        field: failure.key().and_then(field_of),
        message: failure.message,
    }
}

/// The submitted form with its error messages.
fn again(
    view: &View<'_>,
    name: Option<&str>,
    fields: &Fields,
    problem: FormProblem,
) -> FormOutcome {
    let form = Form {
        name,
        values: fields.clone(),
        problem: Some(problem),
    };
    FormOutcome::Page(StatusCode::UNPROCESSABLE_ENTITY, page(view, &form))
}

fn page(view: &View<'_>, form: &Form<'_>) -> Page {
    let title = match form.name {
        Some(name) => format!("Edit {name}"),
        None => "Add a server".to_owned(),
    };
    let general = form.problem.as_ref().filter(|problem| {
        problem.field.is_none() || (problem.field == Some("name") && form.name.is_some())
    });
    let action = match form.name {
        Some(name) => format!("/ui/servers/{name}/edit"),
        None => "/ui/servers/new".to_owned(),
    };
    Page::new(Section::Servers, title.clone()).fixed(html! {
        p .crumb { a href="/ui/servers" { "Servers" } }
        (parts::heading(&title, None))
        @if let Some(problem) = general {
            p .notice.bad role="alert" { (text::sentence(&problem.message)) }
        }
        form .card.padded.server-form method="post" action=(action) {
            (parts::form_token(view))
            @if let Some(etag) = field(&form.values, "etag") { input type="hidden" name="etag" value=(etag); }
            @if form.name.is_none() {
                (input(form, "name", "Name", html! { "Letters, digits, “-” and “_”. Tools are called NAME__TOOL." }))
            }
            (kinds(form))
            div .for-program {
                (input(form, "command", "Command", html! { "The program, such as " code { "npx" } }))
                (area(form, "args", "Arguments", html! { "One per line." }))
                (area(form, "env", "Environment", html! { code { "NAME=value" } ", one per line." }))
            }
            div .for-url {
                (input(form, "url", "URL", html! { "Such as " code { "https://example.com/mcp" } }))
                (area(form, "headers", "Headers", html! { code { "Name: value" } ", one per line." }))
            }
            @if form.name.is_some() {
                p .hint { "Values shown as " code { "[REDACTED]" } " stay unchanged." }
            }
            details open[has_timeouts(form)] {
                summary { "Timeouts" }
                (input(form, "connection", "Connect timeout in milliseconds", html! { "Empty: the default in [supervision]." }))
                (input(form, "request", "Request timeout in milliseconds", html! { "Empty: the default in [gateway]." }))
            }
            div .field.check {
                label { input type="checkbox" name="enabled" value="on" checked[field(&form.values, "enabled").is_some()]; "Enabled" }
            }
            div .actions {
                button .primary type="submit" { @if form.name.is_some() { "Save" } @else { "Add" } }
                a .button href="/ui/servers" { "Cancel" }
            }
        }
    })
}

fn has_timeouts(form: &Form<'_>) -> bool {
    let is_set = |name| field(&form.values, name).is_some_and(|value| !value.is_empty());
    is_set("connection") || is_set("request")
}

fn kinds(form: &Form<'_>) -> Markup {
    let chosen = field(&form.values, "kind").unwrap_or("stdio");
    html! {
        fieldset {
            legend { "Kind" }
            div .choices {
                @for (kind, name) in [("stdio", "A program"), ("http", "A URL"), ("sse", "A URL over HTTP+SSE")] {
                    label { input type="radio" name="kind" value=(kind) checked[kind == chosen]; (name) }
                }
            }
        }
    }
}

fn input(form: &Form<'_>, name: &'static str, label: &str, hint: Markup) -> Markup {
    let value = field(&form.values, name).unwrap_or_default();
    let attributes = Attributes::of(form, name);
    html! {
        div .field {
            label for=(name) { (label) }
            input id=(name) name=(name) value=(value) spellcheck="false" autocapitalize="off"
                autocomplete="off" aria-describedby=(attributes.described_by)
                aria-invalid=[attributes.is_invalid];
            (attributes.below(name, hint))
        }
    }
}

fn area(form: &Form<'_>, name: &'static str, label: &str, hint: Markup) -> Markup {
    let value = field(&form.values, name).unwrap_or_default();
    let attributes = Attributes::of(form, name);
    html! {
        div .field {
            label for=(name) { (label) }
            textarea id=(name) name=(name) rows="3" spellcheck="false" autocapitalize="off"
                aria-describedby=(attributes.described_by) aria-invalid=[attributes.is_invalid] {
                (value)
            }
            (attributes.below(name, hint))
        }
    }
}

/// Attributes that link a field to its hint and error message.
struct Attributes<'f> {
    described_by: String,
    is_invalid: Option<&'static str>,
    error: Option<&'f str>,
}

impl<'f> Attributes<'f> {
    fn of(form: &'f Form<'_>, name: &str) -> Self {
        let problem = form.problem.as_ref();
        let problem = problem.filter(|problem| problem.field == Some(name));
        let described_by = match problem {
            Some(_) => format!("{name}-error {name}-hint"),
            None => format!("{name}-hint"),
        };
        Self {
            described_by,
            is_invalid: problem.map(|_| "true"),
            error: problem.map(|problem| problem.message.as_str()),
        }
    }

    fn below(&self, name: &str, hint: Markup) -> Markup {
        html! {
            @if let Some(error) = self.error {
                p .error id=(format!("{name}-error")) role="alert" { (text::sentence(error)) }
            }
            p .hint id=(format!("{name}-hint")) { (hint) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(pairs: &[(&str, &str)]) -> Fields {
        let pairs = pairs.iter();
        pairs
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect()
    }

    #[test]
    fn a_form_becomes_the_body_of_the_api() {
        let program = fields(&[
            ("kind", "stdio"),
            ("name", " one "),
            ("command", "npx"),
            ("args", "-y\r\n\r\npackage\r\n"),
            ("env", "A=b=c\nD="),
            ("url", "https://left.alone"),
            ("request", "250"),
            ("enabled", "on"),
        ]);
        let expected = json!({
            "name": "one", "command": "npx", "args": ["-y", "package"],
            "env": {"A": "b=c", "D": ""},
            "timeouts": {"connection": null, "request": 250},
        });
        assert_eq!(Value::Object(body(&program, true).ok().unwrap()), expected);
        let url = fields(&[
            ("kind", "sse"),
            ("url", "https://a"),
            ("headers", "X-A: b: c"),
        ]);
        let expected = json!({
            "url": "https://a", "headers": {"X-A": "b: c"}, "transport": "sse",
            "timeouts": null, "enabled": false,
        });
        assert_eq!(Value::Object(body(&url, false).ok().unwrap()), expected);
        let table = [
            (&[("kind", "stdio"), ("env", "A=b\nnonsense")][..], "env"),
            (&[("kind", "http"), ("headers", "nonsense")], "headers"),
            (&[("kind", "http"), ("connection", "soon")], "connection"),
            (&[("kind", "stdio"), ("request", "-1")], "request"),
        ];
        for (form, expected) in table {
            let problem = body(&fields(form), true).err().unwrap();
            assert_eq!(problem.field, Some(expected));
        }
    }

    #[test]
    fn a_problem_is_shown_beside_the_field_of_its_key() {
        let table = [
            ("name", Some("name")),
            ("servers.One", Some("name")),
            ("servers.one.command", Some("command")),
            ("args[1]", Some("args")),
            ("servers.one.env.TOKEN", Some("env")),
            ("servers.one.url", Some("url")),
            (
                "servers.one.supervision.connect_timeout",
                Some("connection"),
            ),
            ("servers.one.request_timeout", Some("request")),
            ("timeouts.request", Some("request")),
            ("timeouts.connection", Some("connection")),
            ("timeouts", None),
            ("else", None),
            ("", None),
        ];
        for (key, expected) in table {
            assert_eq!(field_of(key), expected, "{key}");
        }
    }

    #[test]
    fn an_entry_fills_the_form_and_comes_back_the_same() {
        let entry = json!({
            "id": "one", "name": "one", "transport": "stdio", "command": "npx",
            "args": ["-y", "[REDACTED]"], "env": {"A": "[REDACTED]"}, "headers": {},
            "timeouts": {"connection": 5000, "request": null},
        });
        let shown: ShownServer = serde_json::from_value(entry.clone()).unwrap();
        let back = body(&values(&shown), false).ok().unwrap();
        for member in ["command", "args", "env", "timeouts"] {
            assert_eq!(back.get(member), entry.get(member));
        }
        assert_eq!(back.get("enabled"), Some(&Value::Null));
    }
}
