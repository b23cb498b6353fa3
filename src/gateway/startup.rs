//! Starts the gateway's listeners and exporters.

use std::future::pending;
use std::io;
use std::net::TcpListener;
use std::rc::Rc;
use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::LocalBoxFuture;

use super::StartError;
use super::place::{listen, listen_for_peers, shown_place};
use super::stdio::STDIO_DIR;
use crate::admin::{AdminEndpoints, CrashWriter, MetricsExporter, MetricsServer, Operator};
use crate::cluster::Cluster;
use crate::config::Config;
use crate::front::{FrontListener, FrontServer, FrontTls, PeerListener};
use crate::id::ViewId;
use crate::store::DirectoryLease;
use crate::telemetry::{Counters, unix_millis};
use crate::traces::Traces;

/// How clients reach a gateway.
pub enum Clients {
    /// HTTP on a socket that a service manager opened and keeps open, so that connections are left
    /// to the next process at shutdown, or on one that the gateway opens.
    Http(Option<TcpListener>),
    /// One client on stdin and stdout, which uses this view.
    Stdio(ViewId),
}

impl Clients {
    /// Whether clients connect over HTTP.
    pub(super) fn is_http(&self) -> bool {
        matches!(self, Self::Http(_))
    }

    /// Serves the client on stdin and stdout. The future completes when the client has left;
    /// pending answers are written while the gateway stops (S-STDIO-05). Without such a client, it
    /// never completes.
    ///
    /// # Errors
    ///
    /// Returns the system's error when threads cannot be created.
    pub(super) fn serve(self, server: &FrontServer) -> io::Result<LocalBoxFuture<'static, ()>> {
        Ok(match self {
            Self::Http(_) => pending().boxed_local(),
            Self::Stdio(view) => server.serve_stdio(view)?.boxed_local(),
        })
    }
}

/// The socket for clients, and whether it was inherited, so that another process may serve it after
/// this one.
pub(super) fn open_listener(
    clients: &mut Clients,
    config: &Config,
) -> Result<(Option<FrontListener>, bool), StartError> {
    Ok(match clients {
        Clients::Http(inherited) => match inherited.take() {
            Some(inherited) => (Some(FrontListener::Tcp(inherited)), true),
            None => (Some(listen(&config.front)?), false),
        },
        Clients::Stdio(_) => (None, false),
    })
}

/// Opens the socket for other replicas.
///
/// # Errors
///
/// Fails if the address cannot be used.
fn listen_to_peers(cluster: &Cluster) -> Result<PeerListener, StartError> {
    let answering = cluster.clone();
    Ok(PeerListener {
        listener: listen_for_peers(cluster.listen())?,
        tls: cluster.hop_server_tls(),
        ping: Arc::new(move || answering.ping_answer()),
    })
}

/// Starts the front with the operators' endpoints. It does not listen in stdio mode.
pub(super) async fn start_front(
    (listener, tls, cluster): (Option<FrontListener>, Option<FrontTls>, &Option<Cluster>),
    config: &Config,
    endpoints: &AdminEndpoints,
) -> Result<Rc<FrontServer>, StartError> {
    let Some(listener) = listener else {
        return Ok(Rc::new(FrontServer::without_listener()?));
    };
    let peers = cluster.as_ref().map(listen_to_peers).transpose()?;
    let (endpoints, path) = (endpoints.clone(), config.front.endpoint.clone());
    let scheme = config.front.scheme();
    let routes = move |app: &mut _, check: &_, operators: &_| {
        endpoints.routes(app, (scheme, &path), (check, operators));
    };
    let server = FrontServer::start((listener, tls), peers, &config.front, routes).await?;
    Ok(Rc::new(server))
}

/// Serves metrics, and exports them to a collector if the environment enables it.
pub(super) fn start_metrics(
    listener: Option<TcpListener>,
    config: &Config,
    operator: &Arc<Operator>,
) -> io::Result<(Option<MetricsServer>, Option<MetricsExporter>)> {
    let start = |listener| MetricsServer::start(listener, operator.clone());
    let server = listener.map(start).transpose()?;
    let export = config.metrics_export.clone().and_then(|settings| {
        let started = MetricsExporter::start(settings, operator.clone());
        let warn = |error: &io::Error| log::warn!(error:%; "metrics export is disabled");
        started.inspect_err(warn).ok()
    });
    Ok((server, export))
}

/// Starts the thread that writes crash reports.
///
/// # Errors
///
/// Fails if the thread cannot be started.
pub(super) fn start_crashes(
    config: &Config,
    (counters, lease): (&Counters, &DirectoryLease),
) -> io::Result<CrashWriter> {
    let of_reports = (lease.clone(), counters.clone());
    CrashWriter::start(&config.data_dir, of_reports, unix_millis)
}

/// Traces requests if the environment enables it. Invalid settings only cause a warning, because
/// they may be meant for other programs.
pub(super) fn start_traces(config: &Config, counters: &Counters) -> Traces {
    let Some(settings) = &config.traces else {
        return Traces::default();
    };
    let started = Traces::start(settings, counters.clone());
    started.unwrap_or_else(|error| {
        log::warn!(error:%; "tracing is disabled");
        Traces::default()
    })
}

pub(super) fn log_start(address: &str, config: &Config) {
    let front = &config.front;
    match address {
        STDIO_DIR => log::info!("serves one client over stdin and stdout"),
        address => log::info!("serves {}{}", shown_place(address, front), front.endpoint),
    }
}
