//! `/ui/servers/new` and `/ui/servers/NAME/edit`: a form for a server in the configuration.

use actix_web::http::StatusCode;
use maud::{Markup, html};
use serde::Deserialize as _;
use serde_json::{Map, Value, json};

use super::registry;
use super::shown_server::{ShownServer, values};
use crate::admin::config_order::EntryOrder;
use crate::admin::ui::fields::{Fields, field};
use crate::admin::ui::page::{FormOutcome, Page, Section, View};
use crate::admin::ui::{parts, text};
use crate::catalog::ItemKind;
use crate::downstream::try_out;
use crate::protocol::{ErrorKind, Failure};
use crate::telemetry::counted;

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
    /// The lists of the server that was tried out with these values.
    listed: Option<String>,
}

/// Ways to find a server, with the whole form behind a button.
pub(super) async fn new_page(view: &View<'_>) -> Page {
    let values = [("kind", "stdio"), ("enabled", "on")];
    let values = values.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let form = Form::new(None, values.to_vec());
    Page::new(Section::Servers, "Add a server").fixed(html! {
        p .crumb { a href="/ui/servers" { "Servers" } }
        (parts::heading("Add a server", None))
        form .card.padded.server-form.paste method="post" action="/ui/servers/paste" {
            (parts::form_token(view))
            (parts::text_field(("paste", "Paste what you have"), ("", Some(3)), html! { "A command line, a URL, a name of the registry, an " code { "mcp.json" } " or a " code { "server.json" } "." }, None))
            button type="submit" { "Fill in" }
        }
        (registry::search(view).await)
        details .after { summary { "Write it yourself" } (form.show(view)) }
    })
}

/// # Errors
///
/// Returns an error when the file contains no such server.
pub(super) async fn edit_page(view: &View<'_>, name: &str) -> Result<Page, Failure> {
    let orders = &view.operator.config_orders;
    let entry = orders.ask(EntryOrder::Get(name.to_owned()), None).await?;
    let mut values = values(&entry.read()?);
    values.push(("etag".to_owned(), entry.etag));
    Ok(page(view, &Form::new(Some(name), values)))
}

/// Fills in the form with a pasted server, or adds all of several.
///
/// # Errors
///
/// Returns why the text describes no server, or which one cannot be added.
pub(super) async fn paste(view: &View<'_>, fields: &Fields) -> Result<FormOutcome, Failure> {
    let invalid = |why: String| Failure::new(ErrorKind::InvalidRequest, why);
    let text = field(fields, "paste").unwrap_or_default();
    let servers = (view.operator.described)(text.to_owned());
    let servers = servers.await.map_err(invalid)?;
    let filled = |(name, entry): &(String, Value)| {
        let shown = ShownServer::deserialize(entry);
        let shown = shown.map_err(|error| invalid(format!("`{name}`: {error}")))?;
        let mut values = values(&shown);
        values.push(("name".to_owned(), name.clone()));
        Ok::<_, Failure>(values)
    };
    if let [server] = servers.as_slice() {
        let form = Form::new(None, filled(server)?);
        return Ok(FormOutcome::Page(StatusCode::OK, page(view, &form)));
    }
    for server in &servers {
        let body = body(&filled(server)?, true).map_err(|it| invalid(it.message))?;
        let order = EntryOrder::Create(body);
        view.operator.config_orders.ask(order, None).await?;
    }
    Ok(FormOutcome::Done {
        to: "/ui/servers".to_owned(),
        message: format!("{} servers were added", servers.len()),
    })
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

/// Starts the server of the form, which is not saved, and shows what it lists.
pub(super) async fn test(view: &View<'_>, name: Option<&str>, fields: &Fields) -> FormOutcome {
    // A disabled server is tried out like any other.
    let mut enabled = fields.clone();
    enabled.push(("enabled".to_owned(), "on".to_owned()));
    let tried = async {
        let body = body(&enabled, name.is_none())?;
        let order = match name {
            Some(name) => EntryOrder::Update(name.to_owned(), body),
            None => EntryOrder::Create(body),
        };
        let orders = &view.operator.config_orders;
        let settings = orders.settings_after(order).await.map_err(problem)?;
        let downstreams = &view.operator.state.downstreams;
        try_out(downstreams, settings).await.map_err(problem)
    };
    let part = match tried.await {
        Err(problem) => return again(view, name, fields, problem),
        Ok(part) => part,
    };
    let lengths = ItemKind::ALL.map(|kind| (part.items(kind).len() as u64, kind.noun()));
    let counts = lengths.iter().filter(|(length, _)| *length > 0);
    let counts = counts.map(|(length, noun)| counted(*length, noun, &format!("{noun}s")));
    let form = Form {
        listed: Some(counts.collect::<Vec<_>>().join(", ")),
        ..Form::new(name, fields.clone())
    };
    FormOutcome::Page(StatusCode::OK, page(view, &form))
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
        problem: Some(problem),
        ..Form::new(name, fields.clone())
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
    Page::new(Section::Servers, title.clone()).fixed(html! {
        p .crumb { a href="/ui/servers" { "Servers" } }
        (parts::heading(&title, None))
        @if let Some(problem) = general {
            p .notice.bad role="alert" { (text::sentence(&problem.message)) }
        }
        @if let Some(listed) = &form.listed {
            p .notice role="status" { "The server works: it starts and lists " (listed) ". It is not saved yet." }
        }
        (form.show(view))
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

impl<'f> Form<'f> {
    fn new(name: Option<&'f str>, values: Fields) -> Self {
        Self {
            name,
            values,
            problem: None,
            listed: None,
        }
    }

    /// Starts the server without saving it.
    fn test_path(&self) -> String {
        match self.name {
            Some(name) => format!("/ui/servers/{name}/test"),
            None => "/ui/servers/test".to_owned(),
        }
    }

    fn show(&self, view: &View<'_>) -> Markup {
        let action = match self.name {
            Some(name) => format!("/ui/servers/{name}/edit"),
            None => "/ui/servers/new".to_owned(),
        };
        html! {
        form .card.padded.server-form method="post" action=(action) {
            (parts::form_token(view))
            @if let Some(etag) = field(&self.values, "etag") { input type="hidden" name="etag" value=(etag); }
            @if self.name.is_none() {
                (self.field("name", "Name", html! { "Letters, digits, “-” and “_”. Tools are called NAME__TOOL." }, None))
            }
            (kinds(self))
            div .for-program {
                (self.field("command", "Command", html! { "The program, such as " code { "npx" } }, None))
                (self.field("args", "Arguments", html! { "One per line." }, Some(3)))
                (self.field("env", "Environment", html! { code { "NAME=value" } ", one per line." }, Some(3)))
            }
            div .for-url {
                (self.field("url", "URL", html! { "Such as " code { "https://example.com/mcp" } }, None))
                (self.field("headers", "Headers", html! { code { "Name: value" } ", one per line." }, Some(3)))
            }
            @if self.name.is_some() {
                p .hint { "Values shown as " code { "[REDACTED]" } " stay unchanged." }
            }
            details open[has_timeouts(self)] {
                summary { "Timeouts" }
                (self.field("connection", "Connect timeout in milliseconds", html! { "Empty: the default in [supervision]." }, None))
                (self.field("request", "Request timeout in milliseconds", html! { "Empty: the default in [gateway]." }, None))
            }
            div .field.check {
                label { input type="checkbox" name="enabled" value="on" checked[field(&self.values, "enabled").is_some()]; "Enabled" }
            }
            div .actions {
                button .primary type="submit" { @if self.name.is_some() { "Save" } @else { "Add" } }
                button type="submit" formaction=(self.test_path()) { "Test" }
                a .button href="/ui/servers" { "Cancel" }
            }
        }
        }
    }

    fn field(&self, name: &str, label: &str, hint: Markup, rows: Option<u8>) -> Markup {
        let problem = self.problem.as_ref();
        let problem = problem.filter(|problem| problem.field == Some(name));
        let value = field(&self.values, name).unwrap_or_default();
        let error = problem.map(|problem| problem.message.as_str());
        parts::text_field((name, label), (value, rows), hint, error)
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
