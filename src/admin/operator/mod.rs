//! Operations on the running gateway, shared by the API and the dashboard.

mod inoperable;
mod login_answers;
mod logins;
mod policies;
mod status;
mod view_tools;

use std::io;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::LocalBoxFuture;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use url::Url;

use super::api_token::ApiToken;
use super::config_order::{ConfigOrders, EntryOrder};
use super::crashes::{Crashes, DatedReport, crash_reports, crashes};
use super::data_dir_files::read_files;
use super::history::{RecordsError, answer_request, replay};
use super::key_uses::{KeyUses, KeyView, key_view};
use super::notices::Notice;
use super::status::{LimitView, Status};
use crate::catalog::PinKind;
use crate::credentials::CredentialView;
use crate::downstream::{Server, ServerOrder, ServerSettings, VersionChange};
use crate::id::{ServerName, ViewId};
use crate::protocol::{ErrorKind, Failure, Request, Revision};
use crate::publisher::{PinDetail, PinView};
use crate::supervision::{RolloutState, RolloutView};
use crate::telemetry::{LogLine, one_line, unix_millis};

pub(super) use inoperable::Inoperable;
pub use login_answers::LoginPage;
#[cfg(test)]
pub(super) use login_answers::RenewedToken;
pub(super) use login_answers::{
    FinishedLogin, LoginOrigin, LoginUser, OfferedLogin, TakenBackLogin,
};
pub(super) use policies::TestedCalls;
pub use status::{CertificateSource, ConfiguredServer, ConfiguredState, GatewayState, tree_source};

/// Serves an MCP client of a view over a socket. The future completes when the client disconnects.
pub type ServeClient =
    Arc<dyn Fn(ViewId, UnixStream) -> io::Result<LocalBoxFuture<'static, ()>> + Send + Sync>;

/// A question that needs the network, and the answer or why there is none.
type Asked<T> = fn(String) -> LocalBoxFuture<'static, Result<T, String>>;

/// Runs `mcpvisor clients` with these arguments for the gateway with this configuration file, and
/// returns its output or its error message.
type RunClients =
    fn(Vec<String>, Option<String>) -> LocalBoxFuture<'static, Result<String, String>>;

/// Entries of servers in the format of clients, by name.
type NamedEntries = Vec<(String, Value)>;

/// The operator's interface to the gateway. Its methods work on any arbiter.
pub struct Operator {
    pub state: Arc<GatewayState>,
    /// Address that clients connect to.
    pub listen: String,
    pub data_dir: PathBuf,
    /// The API token; `None` if the gateway does not listen.
    pub token: Option<Arc<ApiToken>>,
    /// Address that browsers return to after a login.
    pub callback: Option<Url>,
    /// The gateway's URL for browsers on this machine.
    pub own_url: Option<String>,
    /// Queue for configuration changes.
    pub config_orders: ConfigOrders,
    pub serve_client: ServeClient,
    /// Computes the effective limits of a server.
    pub limits: fn(&ServerSettings) -> Vec<LimitView>,
    /// Reads the servers that a pasted text describes, or names in the registry, in the format of
    /// clients.
    pub described: Asked<NamedEntries>,
    /// Searches the registry by a part of a name. Returns names and descriptions.
    pub search: Asked<Vec<(String, String)>>,
    pub clients: RunClients,
    /// Maximum open client connections; `None` if the gateway does not listen.
    pub clients_max: Option<usize>,
}

impl Operator {
    pub fn status(&self) -> Status {
        Status {
            clients_max: self.clients_max,
            ..self.state.status(&self.listen)
        }
    }

    /// The names of all servers, in config order.
    pub(super) fn server_names(&self) -> Vec<String> {
        let servers = self.state.servers.load();
        servers.iter().map(|server| server.name.clone()).collect()
    }

    /// All notices for operators, dismissed ones included.
    pub(super) fn notices(&self) -> Vec<Notice> {
        self.state.notices()
    }

    /// Dismisses a notice, or shows it again. Returns the notice.
    ///
    /// # Errors
    ///
    /// Returns an error when no notice has this id, or when the store does not remember the change.
    pub(super) async fn set_dismissed(&self, id: &str, dismissed: bool) -> Result<Notice, Failure> {
        let found = self.notices().into_iter().find(|notice| notice.id == id);
        let notice = found.ok_or_else(|| {
            let message = "unknown notice; `mcpvisor notices` lists the notices with their ids";
            Failure::new(ErrorKind::NotFound, message)
        })?;
        self.state.dismissed.set(id, dismissed).await?;
        Ok(Notice {
            dismissed,
            ..notice
        })
    }

    /// The API keys without their hashes.
    pub(super) fn keys(&self) -> Vec<KeyView> {
        let (keys, now) = (self.state.keys.load(), unix_millis());
        let views = keys.iter();
        views
            .map(|key| key_view(key, &KeyUses::default(), now))
            .collect()
    }

    /// A single-use link that signs in to the dashboard, valid for some minutes.
    ///
    /// # Errors
    ///
    /// Returns an error when no dashboard is available.
    pub fn login_link(&self) -> Result<String, Failure> {
        let (Some(token), Some(url)) = (&self.token, &self.own_url) else {
            return Err(no_api("dashboard"));
        };
        let code = token.mint_code().map_err(|error| {
            Failure::new(ErrorKind::Internal, format!("no randomness: {error}"))
        })?;
        Ok(format!("{url}/ui/login?code={code}"))
    }

    /// Carries out an order, and returns the outcome as text. A server is found by name or id.
    ///
    /// # Errors
    ///
    /// Returns the reason why the order was refused.
    pub(super) async fn order(&self, server: &str, order: ServerOrder) -> Result<String, Failure> {
        let found = self.state.find_operable_server(server)?;
        let upgrades = matches!(order, ServerOrder::Upgrade(_));
        let ordered = self.state.downstreams.order(found.name().clone(), order);
        let outcome = ordered.await?;
        if upgrades {
            self.keep_promoted(found);
        }
        Ok(outcome)
    }

    /// Writes the version of a running rollout into the configuration once it is promoted.
    fn keep_promoted(&self, old: Arc<Server>) {
        let Some(VersionChange { from, to, .. }) = old.rollout.change() else {
            return;
        };
        let (state, orders) = (self.state.clone(), self.config_orders.clone());
        actix_rt::spawn(async move {
            let outcome = old.rollout.outcome().await;
            let is_promoted = |view: &RolloutView| {
                view.state == RolloutState::Promoted && view.version.as_ref() == Some(&to)
            };
            if !outcome.as_ref().is_some_and(is_promoted) {
                return;
            }
            let change = EntryOrder::SetVersion {
                server: old.name().to_string(),
                from,
                to,
            };
            let note = match orders.ask(change, None).await {
                Ok(_) => "the configuration names it now".to_owned(),
                Err(failure) => format!("it is not in the configuration: {}", failure.message),
            };
            log::info!(server = old.name().as_str(); "rollout: {note}");
            if let Some(serving) = state.downstreams.get(old.name()) {
                serving.rollout.set_note(note);
            }
        });
    }

    /// The logins at servers.
    pub(super) async fn logins(&self) -> Vec<CredentialView> {
        self.state.credentials.views().await
    }

    /// Buffered log lines of a server, oldest first.
    ///
    /// # Errors
    ///
    /// Returns an error when the server has no log.
    pub(super) fn logs(&self, server: &str) -> Result<Vec<LogLine>, Failure> {
        let found = self.state.find_operable_server(server)?;
        Ok(found.log().after(0))
    }

    /// Explains the next steps of a server in sentences.
    pub(super) async fn explain(&self, name: &str) -> Result<Vec<String>, Failure> {
        Ok(self.state.find_operable_server(name)?.explain().await)
    }

    /// Crash reports of one server, or of all servers. Reports of removed servers are kept.
    ///
    /// # Errors
    ///
    /// Returns the reason why they cannot be read.
    pub(super) async fn crashes(&self, server: Option<&str>) -> Result<Crashes, Failure> {
        let (data_dir, server) = (self.data_dir.clone(), server.map(str::to_owned));
        read_files(move || crashes(&data_dir, server.as_deref())).await
    }

    /// The newest full crash reports of a server, newest first.
    ///
    /// # Errors
    ///
    /// Returns the reason why they cannot be read.
    pub(super) async fn crash_reports(
        &self,
        server: &str,
        most: usize,
    ) -> Result<Vec<DatedReport>, Failure> {
        let (data_dir, server) = (self.data_dir.clone(), server.to_owned());
        read_files(move || crash_reports(&data_dir, &server, most)).await
    }

    /// Effective limits of a server.
    ///
    /// # Errors
    ///
    /// Returns an error when the server cannot run.
    pub(super) fn limits(&self, server: &str) -> Result<Vec<LimitView>, Failure> {
        let found = self.state.find_operable_server(server)?;
        Ok((self.limits)(&found.settings()))
    }

    /// The pins of all servers, including definitions that are not approved.
    pub(super) fn pins(&self) -> Vec<PinView> {
        let pins = self.state.publisher.pins().into_iter();
        pins.map(|pin| self.state.masked_texts(pin)).collect()
    }

    /// One pin with its definitions and their difference. The server is found by name or id.
    ///
    /// # Errors
    ///
    /// Returns an error when no such pin exists.
    pub(super) fn pin(&self, server: &str, of: (PinKind, &str)) -> Result<PinDetail, Failure> {
        // Pins of a disabled server are kept.
        let name = self.state.configured_name(server)?;
        let name = ServerName::try_new(&name)
            .map_err(|error| Failure::new(ErrorKind::ServerNotFound, error.to_string()))?;
        let pin = self.state.publisher.pin(&name, of);
        pin.map(|pin| self.state.masked_texts(pin))
    }

    /// Approves a server's definitions under one name, or all of them. A digest limits the approval
    /// to that definition. Returns the approved names.
    ///
    /// # Errors
    ///
    /// Returns the reason why nothing was approved.
    pub(super) async fn approve_pins(
        &self,
        server: &str,
        of: Option<(PinKind, &str)>,
        digest: Option<&str>,
    ) -> Result<Vec<String>, Failure> {
        let found = self.state.find_operable_server(server)?;
        self.state.publisher.approve(found.name(), of, digest).await
    }

    /// Replays a call from the history, and returns its JSON-RPC answer.
    ///
    /// # Errors
    ///
    /// Returns the reason why the call cannot be replayed.
    pub(super) async fn replay(&self, id: &str) -> Result<Value, RecordsError> {
        let state = &self.state;
        let site = state.arbiters.at(0);
        let place = (site.index, &site.arbiter);
        let answer = replay(&state.history, &state.sessions, place, id).await;
        answer.map(|answer| state.masked(answer))
    }

    /// The JSON-RPC answer of one server, found by name or id, with the server's own item names.
    ///
    /// # Errors
    ///
    /// Returns the reason why the request could not be sent.
    pub(super) async fn ask(&self, server: &str, request: Request) -> Result<Bytes, Failure> {
        let found = self.state.find_operable_server(server)?;
        let view = ViewId::Server(found.name().clone());
        let site = self.state.arbiters.at(0);
        let place = (site.index, &site.arbiter);
        // Clients that send no revision expect this format.
        let as_client = (view, Revision::NEWEST_LEGACY);
        let answer = answer_request(&self.state.sessions, place, request, as_client).await;
        answer.ok_or_else(|| {
            let message = "the gateway is shutting down; retry later";
            Failure::new(ErrorKind::ShuttingDown, message)
        })
    }

    /// The view with this name, or the default view.
    ///
    /// # Errors
    ///
    /// Returns a failure when no such view exists.
    pub(super) fn view_named(&self, name: Option<&str>) -> Result<ViewId, Failure> {
        let view = ViewId::try_from(name.map(str::to_owned))
            .map_err(|error| Failure::new(ErrorKind::NotFound, error.to_string()))?;
        self.known_view(&view).map(|()| view)
    }

    /// # Errors
    ///
    /// Returns a failure when no such view exists.
    pub(super) fn known_view(&self, view: &ViewId) -> Result<(), Failure> {
        if self.state.sessions.has_view(view) {
            return Ok(());
        }
        let view = Option::<String>::from(view.clone()).unwrap_or_default();
        let message = format!("there is no view `{}`", one_line(&view));
        Err(Failure::new(ErrorKind::NotFound, message))
    }
}

impl GatewayState {
    /// Masks secrets in data that contains texts of servers.
    fn masked(&self, mut value: Value) -> Value {
        self.log.secrets().mask_json(&mut value);
        value
    }

    /// Masks secrets in a typed view that contains texts of servers.
    fn masked_texts<T: Serialize + DeserializeOwned>(&self, view: T) -> T {
        let masked = serde_json::to_value(&view).map(|value| self.masked(value));
        // Masking only replaces text with text, so the view can be parsed again.
        masked.and_then(serde_json::from_value).unwrap_or(view)
    }
}

/// The failure of a gateway that does not listen and therefore lacks `missing`.
pub fn no_api(missing: &str) -> Failure {
    let message = format!("this gateway serves one client over stdio: it has no {missing}");
    Failure::new(ErrorKind::Conflict, message)
}

/// The lines after number `after`, limited to the newest `last`. A number beyond the newest line
/// predates a restart, and counts as 0.
pub(super) fn selected(mut lines: Vec<LogLine>, after: u64, last: usize) -> Vec<LogLine> {
    let newest = lines.last().map_or(0, |line| line.sequence);
    if after <= newest {
        lines.retain(|line| line.sequence > after);
    }
    let skipped = lines.len().saturating_sub(last);
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
        let cases: [(u64, usize, &[u64]); 7] = [
            (0, usize::MAX, &[3, 4, 5]),
            (3, usize::MAX, &[4, 5]),
            (5, usize::MAX, &[]),
            (9, usize::MAX, &[3, 4, 5]),
            (0, 2, &[4, 5]),
            (4, 2, &[5]),
            (0, 0, &[]),
        ];
        for (after, last, expected) in cases {
            let lines = selected((3..=5).map(line).collect(), after, last);
            let numbers: Vec<u64> = lines.iter().map(|line| line.sequence).collect();
            assert_eq!(numbers, expected, "{after} {last:?}");
        }
        assert!(selected(Vec::new(), 7, usize::MAX).is_empty());
    }
}
