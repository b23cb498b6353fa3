//! Client of the operator API for the command line, over the control socket in the data directory.

use std::path::Path;
use std::time::Duration;

use reqwest::header::HeaderValue;
use reqwest::{Method, RequestBuilder, Response};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader, ReadHalf, WriteHalf};
use url::Url;

use super::client_error::ClientError;
use super::crashes::Crashes;
use super::local_socket::reachable_socket;
use super::messages::{
    Approved, ApprovedDefinition, DashboardLink, Explanation, Logins, Notices, Ordered,
    PastedAddress, Pins, ServerLogs, Token, ToolOfServer, Tools, VERSION, VERSION_HEADER,
    VIEW_HEADER, WantedVersion,
};
use super::notices::Notice;
use super::status::{ConfigView, Status, ToolView};
use crate::catalog::PinKind;
use crate::credentials::CredentialView;
use crate::downstream::ServerOrder;
use crate::id::ViewId;
use crate::publisher::{PinDetail, PinView};
use crate::store::ShortPath;
use crate::telemetry::{LogLine, one_line};
use crate::transport::install_crypto_provider;

/// Maximum size of an answer, and of a message to an MCP client, in bytes.
const ANSWER_MAX: usize = 64 * 1024 * 1024;

/// Maximum wait for an answer. An order can take up to 8 s.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// Sends requests to the gateway that uses a data directory.
pub struct OperatorClient {
    http: reqwest::Client,
    base: Url,
    /// Keeps the socket path valid while requests are made.
    _socket: ShortPath,
}

/// Both directions of an MCP client's connection.
pub type ClientHalves = (
    BufReader<ReadHalf<reqwest::Upgraded>>,
    WriteHalf<reqwest::Upgraded>,
);

/// The error object of the API.
#[derive(Deserialize)]
struct ErrorObject {
    error: ErrorMessage,
}

#[derive(Deserialize)]
struct ErrorMessage {
    message: String,
}

/// Fetches the status of the gateway that uses this data directory.
///
/// # Errors
///
/// As [`OperatorClient::open`] and [`OperatorClient::status`].
pub async fn ask_status(data_dir: &Path) -> Result<Status, ClientError> {
    let client = OperatorClient::open(data_dir)?;
    // Boxed so that the caller's future does not hold the buffers of the whole exchange.
    Box::pin(client.status()).await
}

impl OperatorClient {
    /// # Errors
    ///
    /// Returns [`ClientError::NotRunning`] when no gateway uses this data directory.
    pub fn open(data_dir: &Path) -> Result<Self, ClientError> {
        let not_running = || ClientError::NotRunning(data_dir.to_owned());
        let socket = reachable_socket(data_dir).ok_or_else(not_running)?;
        // reqwest builds a TLS configuration even though no request uses it.
        install_crypto_provider();
        let http = reqwest::Client::builder()
            .unix_socket(socket.path.as_path())
            .tls_certs_only([])
            .timeout(ANSWER_TIMEOUT)
            .build()?;
        let base = Url::parse("http://localhost/");
        Ok(Self {
            http,
            base: base.map_err(|error| ClientError::Unanswered(error.to_string()))?,
            _socket: socket,
        })
    }

    /// # Errors
    ///
    /// Returns [`ClientError::Refused`] with the gateway's reason when it refuses the request,
    /// and the other errors when it does not answer, or when its version differs.
    pub async fn status(&self) -> Result<Status, ClientError> {
        self.get(&["api", "tree"], &[]).await
    }

    /// The status of a gateway of any version, limited to the fields that this version knows. Used
    /// for findings about the version itself.
    ///
    /// # Errors
    ///
    /// As [`OperatorClient::status`].
    pub async fn status_of_any_version(&self) -> Result<Status, ClientError> {
        let url = self.url(&["api", "tree"], &[]);
        read(self.http.get(url).send().await?).await
    }

    /// The tools that clients of a view see.
    ///
    /// # Errors
    ///
    /// As [`OperatorClient::status`].
    pub async fn tools(&self, view: ViewId) -> Result<Vec<ToolView>, ClientError> {
        let view: Option<String> = view.into();
        let query = view.as_deref().map(|view| ("view", view));
        let page: Tools = self.get(&["api", "tools"], query.as_slice()).await?;
        Ok(page.tools)
    }

    /// Opens an MCP client connection to this view: newline-delimited JSON-RPC in both directions.
    ///
    /// # Errors
    ///
    /// As [`OperatorClient::status`].
    pub async fn open_client(&self, view: ViewId) -> Result<ClientHalves, ClientError> {
        let mut request = self.http.request(Method::CONNECT, self.base.clone());
        if let Some(view) = Option::<String>::from(view) {
            request = request.header(VIEW_HEADER.as_str(), view);
        }
        let response = accepted(request).await?;
        let (reader, writer) = tokio::io::split(response.upgrade().await?);
        Ok((BufReader::new(reader), writer))
    }

    /// Makes the gateway reload its configuration file, and returns the result.
    ///
    /// # Errors
    ///
    /// As [`OperatorClient::status`].
    pub async fn reload_config(&self) -> Result<ConfigView, ClientError> {
        self.post(&["api", "config", "reload"], &[], None).await
    }

    /// Carries out an order for a server, and returns the outcome as text.
    ///
    /// # Errors
    ///
    /// As [`OperatorClient::status`].
    pub async fn order(&self, server: &str, order: ServerOrder) -> Result<String, ClientError> {
        let (verb, body) = match order {
            ServerOrder::Start => ("start", None),
            ServerOrder::Stop => ("stop", None),
            ServerOrder::Restart => ("restart", None),
            ServerOrder::Kill => ("kill", None),
            ServerOrder::Trip(tool) => ("trip", Some(json!(ToolOfServer { tool }))),
            ServerOrder::Reset(tool) => ("reset", Some(json!(ToolOfServer { tool }))),
            ServerOrder::Upgrade(to) => ("upgrade", Some(json!(WantedVersion { to }))),
        };
        let path = ["api", "servers", server, verb];
        let done: Ordered = self.post(&path, &[], body).await?;
        Ok(done.message)
    }

    /// Buffered log lines of a server after line number `after`.
    ///
    /// # Errors
    ///
    /// As [`OperatorClient::status`].
    pub async fn logs(&self, server: &str, after: u64) -> Result<Vec<LogLine>, ClientError> {
        let after = after.to_string();
        let path = ["api", "servers", server, "logs"];
        let logs: ServerLogs = self.get(&path, &[("after", &after)]).await?;
        Ok(logs.entries)
    }

    /// Crash reports of one server, or of all servers.
    ///
    /// # Errors
    ///
    /// As [`OperatorClient::status`].
    pub async fn crashes(&self, server: Option<&str>) -> Result<Crashes, ClientError> {
        let query = server.map(|server| ("server", server));
        self.get(&["api", "crashes"], query.as_slice()).await
    }

    /// Explains the next steps of a server in sentences.
    ///
    /// # Errors
    ///
    /// As [`OperatorClient::status`].
    pub async fn explain(&self, server: &str) -> Result<Vec<String>, ClientError> {
        let explanation: Explanation = self
            .get(&["api", "servers", server, "explain"], &[])
            .await?;
        Ok(explanation.sentences)
    }

    /// Replays a call from the history, and returns its JSON-RPC answer.
    ///
    /// # Errors
    ///
    /// As [`OperatorClient::status`].
    pub async fn replay(&self, id: &str) -> Result<Value, ClientError> {
        self.post(&["api", "history", id, "replay"], &[], None)
            .await
    }

    /// The API token. `rotate` replaces it first.
    ///
    /// # Errors
    ///
    /// As [`OperatorClient::status`].
    pub async fn token(&self, rotate: bool) -> Result<String, ClientError> {
        let shown: Token = match rotate {
            true => self.post(&["api", "token", "rotate"], &[], None).await?,
            false => self.get(&["api", "token"], &[]).await?,
        };
        Ok(shown.token)
    }

    /// A single-use link that signs in to the dashboard.
    ///
    /// # Errors
    ///
    /// As [`OperatorClient::status`].
    pub async fn dashboard_link(&self) -> Result<String, ClientError> {
        let made: DashboardLink = self.post(&["api", "dashboard", "link"], &[], None).await?;
        Ok(made.link)
    }

    /// The pins of all servers.
    ///
    /// # Errors
    ///
    /// As [`OperatorClient::status`].
    pub async fn pins(&self) -> Result<Vec<PinView>, ClientError> {
        let page: Pins = self.get(&["api", "pins"], &[]).await?;
        Ok(page.pins)
    }

    /// One pin with its definitions.
    ///
    /// # Errors
    ///
    /// As [`OperatorClient::status`].
    pub async fn pin(
        &self,
        server: &str,
        (kind, name): (PinKind, &str),
    ) -> Result<PinDetail, ClientError> {
        let query = [("kind", kind.as_str())];
        self.get(&["api", "pins", server, name], &query).await
    }

    /// Approves one item of a server, or everything that it lists. A digest limits the approval to
    /// that definition. Returns the approved names.
    ///
    /// # Errors
    ///
    /// As [`OperatorClient::status`].
    pub async fn approve(
        &self,
        server: &str,
        of: Option<(PinKind, &str)>,
        digest: Option<String>,
    ) -> Result<Vec<String>, ClientError> {
        let done: Approved = match of {
            None => {
                let path = ["api", "servers", server, "approve"];
                self.post(&path, &[], None).await?
            }
            Some((kind, name)) => {
                let path = ["api", "pins", server, name, "approve"];
                let body = json!(ApprovedDefinition { digest });
                let query = [("kind", kind.as_str())];
                self.post(&path, &query, Some(body)).await?
            }
        };
        Ok(done.approved)
    }

    /// All notices for operators, dismissed ones included.
    ///
    /// # Errors
    ///
    /// As [`OperatorClient::status`].
    pub async fn notices(&self) -> Result<Vec<Notice>, ClientError> {
        let all: Notices = self.get(&["api", "notices"], &[]).await?;
        Ok(all.notices)
    }

    /// Dismisses a notice, or shows it again. Returns the notice.
    ///
    /// # Errors
    ///
    /// As [`OperatorClient::status`].
    pub async fn set_dismissed(&self, id: &str, dismissed: bool) -> Result<Notice, ClientError> {
        let verb = if dismissed { "dismiss" } else { "restore" };
        self.post(&["api", "notices", id, verb], &[], None).await
    }

    /// All logins at servers.
    ///
    /// # Errors
    ///
    /// As [`OperatorClient::status`].
    pub async fn logins(&self) -> Result<Vec<CredentialView>, ClientError> {
        let all: Logins = self.get(&["api", "logins"], &[]).await?;
        Ok(all.logins)
    }

    /// Completes a login with the address that the browser was redirected to.
    ///
    /// # Errors
    ///
    /// As [`OperatorClient::status`].
    pub async fn finish_login(&self, address: String) -> Result<(), ClientError> {
        let body = json!(PastedAddress { address });
        let path = ["api", "logins", "finish"];
        let _: Value = self.post(&path, &[], Some(body)).await?;
        Ok(())
    }

    pub(super) async fn get<T: DeserializeOwned>(
        &self,
        path: &[&str],
        query: &[(&str, &str)],
    ) -> Result<T, ClientError> {
        answer(self.http.get(self.url(path, query))).await
    }

    pub(super) async fn post<T: DeserializeOwned>(
        &self,
        path: &[&str],
        query: &[(&str, &str)],
        body: Option<Value>,
    ) -> Result<T, ClientError> {
        let mut request = self.http.post(self.url(path, query));
        if let Some(body) = body {
            let json = HeaderValue::from_static("application/json");
            let request_body = body.to_string();
            request = request.header(reqwest::header::CONTENT_TYPE, json);
            request = request.body(request_body);
        }
        answer(request).await
    }

    fn url(&self, path: &[&str], query: &[(&str, &str)]) -> Url {
        let mut url = self.base.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.clear().extend(path);
        }
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        url
    }
}

/// The body of the answer to a request.
async fn answer<T: DeserializeOwned>(request: RequestBuilder) -> Result<T, ClientError> {
    read(accepted(request).await?).await
}

async fn read<T: DeserializeOwned>(response: Response) -> Result<T, ClientError> {
    let body = body(response).await?;
    serde_json::from_slice(&body).map_err(|error| ClientError::Answer(error.to_string()))
}

/// The response to a request that the gateway does not refuse.
async fn accepted(request: RequestBuilder) -> Result<Response, ClientError> {
    let response = request.send().await?;
    let version = response.headers().get(VERSION_HEADER.as_str());
    let version = version.and_then(|version| version.to_str().ok());
    match version {
        Some(VERSION) => {}
        Some(other) => return Err(ClientError::OtherVersion(one_line(other))),
        None => return Err(ClientError::Answer("it names no version".to_owned())),
    }
    if response.status().is_success() {
        return Ok(response);
    }
    let refusal = serde_json::from_slice(&body(response).await?);
    let ErrorObject { error } = refusal.map_err(|error| ClientError::Answer(error.to_string()))?;
    Err(ClientError::Refused(error.message))
}

async fn body(mut response: Response) -> Result<Vec<u8>, ClientError> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await? {
        if body.len() + chunk.len() > ANSWER_MAX {
            let message = format!("it is longer than {ANSWER_MAX} bytes");
            return Err(ClientError::Answer(message));
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

/// Reads one line of bounded length. Returns an empty line at the end of the input.
///
/// # Errors
///
/// Returns the system's error.
pub async fn read_line(
    reader: &mut BufReader<ReadHalf<reqwest::Upgraded>>,
) -> std::io::Result<String> {
    let mut line = String::new();
    reader.take(ANSWER_MAX as u64).read_line(&mut line).await?;
    Ok(line)
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt as _;
    use tokio::net::UnixListener;

    use super::*;
    use crate::admin::data_dir::DataDir;

    /// Answers every connection with the same text.
    async fn serve(listener: UnixListener, answer: &str) {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut head = [0; 1024];
            // A connection without a request is a probe for a running gateway.
            if stream.read(&mut head).await.is_ok_and(|length| length > 0) {
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
        }
    }

    #[tokio::test]
    async fn a_gateway_of_another_version_is_reported_as_such() {
        let table = [
            (
                "HTTP/1.1 200 OK\r\nMcpvisor-Version: 0.0.1\r\nContent-Length: 2\r\n\r\n{}",
                "the gateway is mcpvisor 0.0.1",
            ),
            (
                "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}",
                "it may be another version",
            ),
            (
                "{\"refused\":\"not understood\"}\n",
                "it may be another version",
            ),
        ];
        for (answer, expected) in table {
            let directory = tempfile::tempdir().unwrap();
            let socket = DataDir::control_socket(directory.path());
            let listener = UnixListener::bind(socket).unwrap();
            let asked = tokio::select! {
                asked = ask_status(directory.path()) => asked,
                () = serve(listener, answer) => unreachable!(),
            };
            let error = asked.unwrap_err().to_string();
            assert!(error.contains(expected), "{answer}: {error}");
        }
    }

    #[tokio::test]
    async fn the_doctor_reads_the_status_of_another_version() {
        let directory = tempfile::tempdir().unwrap();
        let socket = DataDir::control_socket(directory.path());
        let listener = UnixListener::bind(socket).unwrap();
        let answer = "HTTP/1.1 200 OK\r\nMcpvisor-Version: 0.0.1\r\nContent-Length: 19\r\n\r\n\
                      {\"version\":\"0.0.1\"}";
        let client = OperatorClient::open(directory.path());
        let asked = async { client.unwrap().status_of_any_version().await };
        let status = tokio::select! {
            status = asked => status.unwrap(),
            () = serve(listener, answer) => unreachable!(),
        };
        assert_eq!(status.version, "0.0.1");
    }

    #[tokio::test]
    async fn a_directory_without_a_gateway_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let asked = ask_status(directory.path()).await;
        assert!(matches!(asked, Err(ClientError::NotRunning(_))));
    }
}
