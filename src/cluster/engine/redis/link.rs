//! The connection to the engine: opened by one task, replaced when it leads nowhere.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, ConnectionInfo, Pipeline, RedisConnectionInfo,
    RedisError, TlsCertificates, Value, cmd,
};
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, watch};
use tokio::time::{sleep, timeout};

use super::EngineSpec;
use super::scripts::{INCARNATION, MEMBER, RECORD};
use crate::cluster::engine::{EngineError, REQUEST_TIMEOUT};

/// How many requests wait for the engine at most; beyond that it counts as away.
const REQUESTS_MAX: usize = 10_000;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// How often a connection is opened if there is none.
const CONNECT_EVERY: Duration = Duration::from_millis(250);

/// The connection, shared by all who ask. It lives on the runtime of the cluster's thread, so that
/// no busy worker delays the engine's answers for others.
pub(super) struct Link {
    spec: EngineSpec,
    /// The connection, or why there is none. Requests wait while it is first opened, and fail at
    /// once when it was lost.
    current: watch::Sender<Option<Result<Arc<Connected>, String>>>,
    requests: Semaphore,
    failures: AtomicU64,
}

struct Connected {
    node: ConnectionAddr,
    connection: MultiplexedConnection,
}

impl Link {
    pub(super) fn open(spec: EngineSpec, runtime: &Handle) -> Arc<Self> {
        let link = Arc::new(Self {
            spec,
            current: watch::Sender::new(None),
            requests: Semaphore::new(REQUESTS_MAX),
            failures: AtomicU64::new(0),
        });
        runtime.spawn(keep_connected(Arc::downgrade(&link)));
        link
    }

    pub(super) fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    /// Sends commands and returns their answers, within [`REQUEST_TIMEOUT`].
    pub(super) async fn send(&self, commands: Pipeline) -> Result<Vec<Value>, EngineError> {
        let answer = match self.requests.try_acquire() {
            Ok(_permit) => {
                let sent = timeout(REQUEST_TIMEOUT, self.exchange(&commands)).await;
                sent.unwrap_or(Err(EngineError::Timeout))
            }
            Err(_) => Err(EngineError::Overloaded),
        };
        if answer.is_err() {
            self.failures.fetch_add(1, Ordering::Relaxed);
        }
        answer
    }

    async fn exchange(&self, commands: &Pipeline) -> Result<Vec<Value>, EngineError> {
        let mut current = self.current.subscribe();
        let opened = current.wait_for(Option::is_some).await;
        // The sender lives in `self`.
        let opened = opened.ok().and_then(|opened| opened.clone());
        let opened = opened.unwrap_or_else(|| Err("connecting".to_owned()));
        let connected = opened.map_err(EngineError::Away)?;
        let mut connection = connected.connection.clone();
        let sent = match commands.query_async(&mut connection).await {
            // The engine forgets scripts when it restarts or is told to.
            Err(error) if error.code() == Some("NOSCRIPT") => match load(&mut connection).await {
                Ok(()) => commands.query_async(&mut connection).await,
                Err(error) => Err(error),
            },
            sent => sent,
        };
        sent.map_err(|error| {
            let is_replica = error.code() == Some("READONLY");
            if error.is_io_error() || error.is_unrecoverable_error() || is_replica {
                self.close(&connected, &error.to_string());
                return EngineError::Away(error.to_string());
            }
            EngineError::Refused(error.to_string())
        })
    }

    /// Closes a connection, unless it was replaced already.
    fn close(&self, connected: &Arc<Connected>, why: &str) {
        self.current.send_if_modified(|current| {
            let is_open = matches!(current, Some(Ok(it)) if Arc::ptr_eq(it, connected));
            if is_open {
                *current = Some(Err(why.to_owned()));
            }
            is_open
        });
    }

    /// Closes a connection that does not answer or leads to a former primary. Called after each
    /// beat, because a planned fail-over leaves connections to the former primary open for seconds,
    /// where every write succeeds and is lost.
    pub(super) async fn check(&self, failure: Option<&EngineError>) {
        let Some(Ok(connected)) = self.current.borrow().clone() else {
            return;
        };
        if failure == Some(&EngineError::Timeout) {
            self.close(&connected, "the engine does not answer");
        } else if self.spec.primary.is_some()
            && let Ok(primary) = primary(&self.spec).await
            && *primary.addr() != connected.node
        {
            self.close(&connected, "another node is the primary");
        }
    }
}

/// Opens a connection whenever there is none.
async fn keep_connected(link: Weak<Link>) {
    while let Some(link) = link.upgrade() {
        let is_connected = matches!(*link.current.borrow(), Some(Ok(_)));
        if !is_connected {
            let connected = connect(&link.spec).await;
            link.current.send_replace(Some(connected.map(Arc::new)));
        }
        drop(link);
        sleep(CONNECT_EVERY).await;
    }
}

async fn connect(spec: &EngineSpec) -> Result<Connected, String> {
    let node = primary(spec).await?;
    let opened = async {
        let mut connection = open(spec, &node).await?;
        load(&mut connection).await.map(|()| connection)
    };
    Ok(Connected {
        connection: opened.await.map_err(|why| why.to_string())?,
        node: node.addr().clone(),
    })
}

async fn load(connection: &mut MultiplexedConnection) -> Result<(), RedisError> {
    for script in [&RECORD, &MEMBER, &INCARNATION] {
        script.load_async(connection).await?;
    }
    Ok(())
}

/// The node to use: the only one, or the one that the first Sentinel that answers names.
///
/// # Errors
///
/// Returns why no Sentinel names one.
pub(super) async fn primary(spec: &EngineSpec) -> Result<ConnectionInfo, String> {
    let Some(name) = &spec.primary else {
        return Ok(spec.hosts[0].clone());
    };
    let mut failure = String::new();
    for sentinel in &spec.hosts {
        match ask_sentinel(spec, sentinel, name).await {
            Ok(Some((host, port))) => return Ok(spec.node(host, port)),
            Ok(None) => failure = format!("no Sentinel knows the primary `{name}`"),
            Err(why) => failure = format!("Sentinel {}: {why}", sentinel.addr()),
        }
    }
    Err(failure)
}

async fn ask_sentinel(
    spec: &EngineSpec,
    sentinel: &ConnectionInfo,
    name: &str,
) -> Result<Option<(String, u16)>, RedisError> {
    // Sentinels have the engine's password or none.
    let mut connection = match open(spec, sentinel).await {
        Err(error) if !error.is_io_error() => {
            let anonymous = RedisConnectionInfo::default().set_skip_set_lib_name();
            open(spec, &sentinel.clone().set_redis_settings(anonymous)).await?
        }
        opened => opened?,
    };
    let mut asked = cmd("SENTINEL");
    asked.arg("GET-MASTER-ADDR-BY-NAME").arg(name);
    asked.query_async(&mut connection).await
}

/// Opens a connection to one node and signs in.
///
/// # Errors
///
/// Fails if the node does not answer within [`CONNECT_TIMEOUT`], or refuses.
pub(super) async fn open(
    spec: &EngineSpec,
    node: &ConnectionInfo,
) -> Result<MultiplexedConnection, RedisError> {
    let client = match node.addr() {
        ConnectionAddr::TcpTls { .. } => {
            let certificates = TlsCertificates {
                client_tls: None,
                root_cert: spec.ca.clone(),
            };
            Client::build_with_tls(node.clone(), certificates)?
        }
        _ => Client::open(node.clone())?,
    };
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(CONNECT_TIMEOUT))
        .set_response_timeout(Some(CONNECT_TIMEOUT));
    let opened = client.get_multiplexed_async_connection_with_config(&config);
    opened.await
}
