//! The running gateway as operators see it, and its answers: the same for the command line and the
//! API.

use std::fmt;
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::LocalBoxFuture;
use serde::Serialize;
use serde_json::{Value, json};

use super::api_token::ApiToken;
use super::config_order::ConfigOrders;
use super::control_request::{ControlRequest, LoginOrder, Parameters, PinApproval};
use super::crashes::{Crashes, DatedReport};
use super::history::{RecordsError, history_page, log_page};
use super::login_visit::LoginVisit;
use super::status::{LimitView, Status, ToolView, ViewAccess};
use crate::catalog::{PinKind, ViewSettings};
use crate::credentials::CredentialView;
use crate::downstream::ServerOrder;
use crate::history::History;
use crate::id::ViewId;
use crate::metrics::Metrics;
use crate::protocol::{ErrorKind, Failure, Request};
use crate::sessions::Sessions;
use crate::supervision::Arbiters;
use crate::telemetry::{Counters, LogLine, LogRecords, one_line};

/// The outcome of an order: a sentence for people either way.
pub type OrderOutcome = Result<String, Failure>;

/// The gateway, as operators see it. May be used on any arbiter.
pub trait Operator: Send + Sync {
    fn status(&self) -> Status;

    /// The names of all servers, in config order.
    fn server_names(&self) -> Vec<String>;

    /// The tools that clients of a view see, in list order.
    fn tools(&self, view: &ViewId) -> Vec<ToolView>;

    /// The endpoint of all servers, and the views of the configuration, with their settings.
    fn views(&self) -> Vec<(ViewId, ViewSettings)>;

    /// Which tools of a view its clients may use; `None` where there are no policies.
    fn view_access(&self, view: &ViewId) -> Option<ViewAccess>;

    /// How many tools that are, and roughly the tokens that their list costs a model.
    fn tools_cost(&self, view: &ViewId) -> (usize, usize);

    /// Serves a client of this view behind a socket; the future ends when it has left.
    ///
    /// # Errors
    ///
    /// Returns the system's error when the socket or its threads cannot be used.
    fn serve_client(
        &self,
        view: ViewId,
        socket: UnixStream,
    ) -> io::Result<LocalBoxFuture<'static, ()>>;

    fn metrics(&self) -> &Metrics;

    fn counters(&self) -> &Counters;

    fn sessions(&self) -> &Sessions;

    /// The threads on which actors live.
    fn arbiters(&self) -> &Arbiters;

    /// The API keys without their hashes, a JSON object each.
    fn keys(&self) -> Vec<Value>;

    /// Where changes of the configuration go.
    fn config_orders(&self) -> &ConfigOrders;

    /// The token of the API; none where nothing listens.
    fn token(&self) -> Option<&ApiToken>;

    /// A link to the dashboard that signs in once, within some minutes.
    ///
    /// # Errors
    ///
    /// Says why there is no dashboard.
    fn login_link(&self) -> Result<String, Failure>;

    /// Carries out an order, or says why not. A server is found by its name and by its id.
    fn order(&self, server: &str, order: ServerOrder) -> LocalBoxFuture<'static, OrderOutcome>;

    /// Carries out what is asked about the login at a server, found by its name or id: that of the
    /// gateway, or of the user of this name.
    fn login(
        &self,
        server: &str,
        principal: Option<String>,
        order: LoginOrder,
    ) -> LocalBoxFuture<'static, Result<Value, Failure>>;

    /// Takes one step of a login on behalf of a browser.
    fn visit_login(&self, visit: LoginVisit) -> LocalBoxFuture<'static, Result<Value, Failure>>;

    /// The logins at servers.
    fn logins(&self) -> LocalBoxFuture<'static, Vec<CredentialView>>;

    /// The kept lines of a server, oldest first.
    ///
    /// # Errors
    ///
    /// Says why there are none.
    fn logs(&self, server: &str) -> Result<Vec<LogLine>, Failure>;

    /// The crash reports of a server, or of all, as [`super::crashes`] returns them. A server that
    /// is not configured any more may have some.
    ///
    /// # Errors
    ///
    /// Says why they cannot be read.
    fn crashes(&self, server: Option<&str>) -> LocalBoxFuture<'static, Result<Crashes, Failure>>;

    /// The newest crash reports of a server, whole, the newest first.
    ///
    /// # Errors
    ///
    /// Says why they cannot be read.
    fn crash_reports(
        &self,
        server: &str,
        most: usize,
    ) -> LocalBoxFuture<'static, Result<Vec<DatedReport>, Failure>>;

    /// The limits of a server that are in force.
    ///
    /// # Errors
    ///
    /// Says why there are none.
    fn limits(&self, server: &str) -> Result<Vec<LimitView>, Failure>;

    /// The pins of all servers, and the texts that are not approved, a JSON object each.
    fn pins(&self) -> Vec<Value>;

    /// One pin with its definitions and their difference. The server is found by its name or id.
    ///
    /// # Errors
    ///
    /// Says why there is none.
    fn pin(&self, server: &str, of: (PinKind, &str)) -> Result<Value, Failure>;

    /// Approves what a server lists under a name, or everything that it lists; with a digest only
    /// that definition. Answers with the names of which something was approved.
    fn approve_pins(
        &self,
        server: &str,
        of: Option<(PinKind, String)>,
        digest: Option<String>,
    ) -> LocalBoxFuture<'static, Result<Value, Failure>>;

    fn history(&self) -> History;

    fn log_records(&self) -> LogRecords;

    /// Makes a call of the history again, and returns its JSON-RPC answer.
    fn replay(&self, id: &str) -> LocalBoxFuture<'static, Result<Value, RecordsError>>;

    /// The JSON-RPC answer of one server, found by its name or id, under its own names; or why it
    /// cannot be asked.
    fn ask(
        &self,
        server: &str,
        request: Request,
    ) -> LocalBoxFuture<'static, Result<Bytes, Failure>>;
}

/// Why a server cannot be operated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inoperable<'a> {
    /// No such server; these are there.
    Unknown(&'a [&'a str]),
    Disabled,
    /// With what it lacks.
    Misconfigured(&'a str),
    /// It is being added or removed.
    Absent,
}

impl Inoperable<'_> {
    /// The refusal for somebody who named the server. The name may be anything that was typed.
    pub fn failure(&self, server: &str) -> Failure {
        let name: String = server.chars().take(64).collect();
        let message = format!("server {name:?} {self}");
        let kind = match self {
            Self::Unknown(_) => return Failure::new(ErrorKind::ServerNotFound, message),
            Self::Disabled => ErrorKind::Conflict,
            Self::Misconfigured(_) => ErrorKind::ServerMisconfigured,
            Self::Absent => ErrorKind::ServerUnavailable,
        };
        Failure::new(kind, message).server(name)
    }
}

impl fmt::Display for Inoperable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown([]) => f.write_str("is not configured; no server is"),
            Self::Unknown(known) => {
                write!(f, "is not configured; there are: {}", known.join(", "))
            }
            Self::Disabled => {
                f.write_str("is disabled: remove `enabled = false` from the configuration")
            }
            Self::Misconfigured(why) => write!(f, "is misconfigured: {why}"),
            Self::Absent => f.write_str("is being added or removed; try again in a moment"),
        }
    }
}

/// The answer to a request, as JSON: `refused` with a sentence, or what was asked for.
pub(super) async fn answer(operator: Arc<dyn Operator>, request: ControlRequest) -> Value {
    let operator = &*operator;
    match request {
        ControlRequest::Status => json!({ "status": operator.status() }),
        ControlRequest::Tools { view } => {
            let known = known_view(operator, &view);
            done("tools", known.map(|()| json!(operator.tools(&view))))
        }
        ControlRequest::Client { view } => {
            done("client", known_view(operator, &view).map(|()| json!({})))
        }
        ControlRequest::ReadConfig => {
            let config = operator.config_orders().reload().await;
            done("config", config.map(|view| json!(view)))
        }
        ControlRequest::Token { rotate } => done(
            "token",
            token(operator.token(), rotate).await.map(Value::from),
        ),
        ControlRequest::LoginLink => done("link", operator.login_link().map(Value::from)),
        ControlRequest::Logs {
            server,
            after,
            last,
        } => {
            let lines = operator.logs(&server);
            let lines = lines.map(|lines| json!(selected(lines, after, last)));
            done("logs", lines)
        }
        ControlRequest::Crashes { server } => {
            let crashes = operator.crashes(server.as_deref()).await;
            done("crashes", crashes.map(|crashes| json!(crashes)))
        }
        ControlRequest::History { parameters } => recorded(
            "page",
            history_page(&operator.history(), pairs(&parameters)).await,
        ),
        ControlRequest::Replay { id } => recorded("answer", operator.replay(&id).await),
        ControlRequest::GatewayLog { parameters } => recorded(
            "page",
            log_page(&operator.log_records(), pairs(&parameters)),
        ),
        ControlRequest::Logins => json!({ "logins": operator.logins().await }),
        ControlRequest::Login {
            server,
            principal,
            order,
        } => done("login", operator.login(&server, principal, order).await),
        ControlRequest::FinishLogin { answer } => {
            done("login", operator.visit_login(pasted(&answer)).await)
        }
        ControlRequest::Pins => json!({ "pins": operator.pins() }),
        ControlRequest::Pin { server, kind, tool } => {
            done("pin", operator.pin(&server, (kind, &tool)))
        }
        ControlRequest::ApprovePins(of) => approve(operator, of).await,
        ControlRequest::Restart { server } => order(operator, server, ServerOrder::Restart).await,
        ControlRequest::Stop { server } => order(operator, server, ServerOrder::Stop).await,
        ControlRequest::Start { server } => order(operator, server, ServerOrder::Start).await,
        ControlRequest::Kill { server } => order(operator, server, ServerOrder::Kill).await,
        ControlRequest::Trip { server, tool } => {
            order(operator, server, ServerOrder::Trip(tool)).await
        }
        ControlRequest::Reset { server, tool } => {
            order(operator, server, ServerOrder::Reset(tool)).await
        }
    }
}

async fn approve(operator: &dyn Operator, of: PinApproval) -> Value {
    let item = of.tool.map(|name| (of.kind, name));
    let approved = operator.approve_pins(&of.server, item, of.digest);
    done("pins", approved.await)
}

async fn order(operator: &dyn Operator, server: String, order: ServerOrder) -> Value {
    done(
        "done",
        operator.order(&server, order).await.map(Value::from),
    )
}

/// The query of a pasted address, or the whole text if it has none.
fn pasted(address: &str) -> LoginVisit {
    let query = address.split_once('?').map_or(address, |(_, query)| query);
    let query = query.split('#').next().unwrap_or_default().to_owned();
    LoginVisit::Pasted { query }
}

/// # Errors
///
/// Says that there is no such view.
pub(super) fn known_view(operator: &dyn Operator, view: &ViewId) -> Result<(), Failure> {
    if operator.sessions().has_view(view) {
        return Ok(());
    }
    let view = Option::<String>::from(view.clone()).unwrap_or_default();
    let message = format!("there is no view `{}`", one_line(&view));
    Err(Failure::new(ErrorKind::NotFound, message))
}

fn done(name: &str, outcome: Result<Value, Failure>) -> Value {
    match outcome {
        Ok(done) => serde_json::json!({ name: done }),
        Err(why) => refused(&why),
    }
}

fn refused(why: &Failure) -> serde_json::Value {
    serde_json::json!({ "refused": why.message })
}

async fn token(token: Option<&ApiToken>, rotate: bool) -> Result<String, Failure> {
    let token = token.ok_or_else(|| no_api("API and no token"))?;
    if rotate {
        token.rotate().await.map_err(|error| {
            let message = format!("the new token cannot be kept, the old one holds: {error}");
            Failure::new(ErrorKind::Internal, message)
        })?;
    }
    Ok(token.expose())
}

/// The refusal of a gateway that listens nowhere; it has no `missing`.
pub fn no_api(missing: &str) -> Failure {
    let message = format!("this gateway serves one client over stdio: it has no {missing}");
    Failure::new(ErrorKind::Conflict, message)
}

fn pairs(parameters: &Parameters) -> impl Iterator<Item = (&str, &str)> {
    parameters
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()))
}

fn recorded(name: &str, found: Result<impl Serialize, RecordsError>) -> Value {
    match found {
        Ok(found) => serde_json::json!({ name: found }),
        Err(why) => serde_json::json!({ "refused": why.to_string() }),
    }
}

/// The lines after number `after`, at most the last so many. A number beyond all of them is of
/// lines that were forgotten, as by a restart: then it counts as none.
pub(super) fn selected(mut lines: Vec<LogLine>, after: u64, last: Option<usize>) -> Vec<LogLine> {
    let newest = lines.last().map_or(0, |line| line.sequence);
    if after <= newest {
        lines.retain(|line| line.sequence > after);
    }
    let skipped = last.map_or(0, |last| lines.len().saturating_sub(last));
    lines.split_off(skipped)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::LogSource;

    #[test]
    fn new_lines_are_selected_by_number() {
        let line = |sequence| LogLine {
            sequence,
            at: 0,
            source: LogSource::Stderr,
            text: String::new(),
        };
        let cases: [(u64, Option<usize>, &[u64]); 7] = [
            (0, None, &[3, 4, 5]),
            (3, None, &[4, 5]),
            (5, None, &[]),
            (9, None, &[3, 4, 5]),
            (0, Some(2), &[4, 5]),
            (4, Some(2), &[5]),
            (0, Some(0), &[]),
        ];
        for (after, last, expected) in cases {
            let lines = selected((3..=5).map(line).collect(), after, last);
            let numbers: Vec<u64> = lines.iter().map(|line| line.sequence).collect();
            assert_eq!(numbers, expected, "{after} {last:?}");
        }
        assert!(selected(Vec::new(), 7, None).is_empty());
    }

    #[test]
    fn a_server_that_cannot_be_operated_is_reported_with_the_reason() {
        let table = [
            (Inoperable::Unknown(&["a", "b"]), "there are: a, b"),
            (Inoperable::Unknown(&[]), "no server is"),
            (Inoperable::Disabled, "enabled = false"),
            (
                Inoperable::Misconfigured("`T` is not set"),
                "`T` is not set",
            ),
            (Inoperable::Absent, "try again"),
        ];
        for (why, word) in table {
            let sentence = why.failure("x\u{1b}[1m").message;
            assert!(sentence.contains(word), "{sentence}");
            assert!(!sentence.contains('\u{1b}'), "{sentence}");
        }
        let long = Inoperable::Disabled.failure(&"x".repeat(10_000)).message;
        assert!(long.len() < 200, "{long}");
    }

    #[test]
    fn requests_are_one_line_of_json() {
        let request = ControlRequest::Stop {
            server: "a\nb".to_owned(),
        };
        let line = serde_json::to_string(&request).unwrap();
        assert_eq!(line, r#"{"ask":"stop","server":"a\nb"}"#);
        assert_eq!(
            serde_json::from_str::<ControlRequest>(&line).unwrap(),
            request
        );
    }
}
