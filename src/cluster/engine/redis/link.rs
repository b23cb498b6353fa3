//! The connection to the engine: opened, watched and replaced by one task.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionAddr, IntoConnectionInfo as _, Pipeline,
    RedisConnectionInfo, RedisError, TlsCertificates, Value,
};
use secrecy::ExposeSecret as _;
use tokio::runtime::Handle;
use tokio::sync::{Notify, Semaphore, SetOnce};
use tokio::time::{sleep, timeout};

use super::EngineSpec;
use super::scripts::TEXTS;
use crate::cluster::engine::{EngineError, REQUEST_TIMEOUT};

/// How many requests wait for the engine at most; beyond that it counts as away.
const REQUESTS_MAX: usize = 10_000;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// How long after a failed attempt the next one follows.
const RETRY_AFTER: Duration = Duration::from_millis(250);

/// The connection, shared by all who ask. It lives on the runtime of the cluster's thread, so that no
/// worker that is busy delays the engine's answers for others.
pub(super) struct Link {
    spec: EngineSpec,
    runtime: Handle,
    current: Mutex<Current>,
    requests: Semaphore,
    failures: AtomicU64,
    /// Asks for a connection.
    wanted: Notify,
    /// The first attempt to connect has ended. Until then requests wait instead of failing.
    tried: SetOnce<()>,
}

struct Current {
    connection: Option<MultiplexedConnection>,
    /// Epoch of the node that the connection leads to.
    node: (String, u16),
    number: u64,
    /// Why there is no connection.
    error: String,
}

impl Link {
    pub(super) fn open(spec: EngineSpec, runtime: Handle) -> Arc<Self> {
        let link = Arc::new(Self {
            current: Mutex::new(Current {
                connection: None,
                node: (String::new(), 0),
                number: 0,
                error: "connecting".to_owned(),
            }),
            spec,
            runtime,
            requests: Semaphore::new(REQUESTS_MAX),
            failures: AtomicU64::new(0),
            wanted: Notify::new(),
            tried: SetOnce::new(),
        });
        let weak = Arc::downgrade(&link);
        link.runtime.spawn(async move {
            while let Some(link) = weak.upgrade() {
                let retry = link.keep().await;
                drop(link);
                sleep(retry).await;
            }
        });
        link
    }

    pub(super) fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    /// Sends commands and returns their answers, within [`REQUEST_TIMEOUT`].
    pub(super) async fn send(
        self: Arc<Self>,
        commands: Pipeline,
    ) -> Result<Vec<Value>, EngineError> {
        let link = Arc::clone(&self);
        let sent = self.runtime.spawn(async move {
            let Ok(_permit) = link.requests.try_acquire() else {
                return Err(EngineError::Overloaded);
            };
            let sent = timeout(REQUEST_TIMEOUT, link.exchange(&commands)).await;
            sent.unwrap_or(Err(EngineError::Timeout))
        });
        // The cluster's thread can be stuck like any other.
        let answer = match timeout(2 * REQUEST_TIMEOUT, sent).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err(EngineError::Away("the gateway stops".to_owned())),
            Err(_) => Err(EngineError::Timeout),
        };
        if answer.is_err() {
            self.failures.fetch_add(1, Ordering::Relaxed);
        }
        answer
    }

    async fn exchange(&self, commands: &Pipeline) -> Result<Vec<Value>, EngineError> {
        self.tried.wait().await;
        let (mut connection, number) = self.connection()?;
        let first = commands.query_async(&mut connection).await;
        let sent = match first {
            // The engine forgets scripts when it restarts or is told to.
            Err(error) if error.code() == Some("NOSCRIPT") => {
                load(&mut connection).await.map_err(|why| refused(&why))?;
                commands.query_async(&mut connection).await
            }
            sent => sent,
        };
        sent.map_err(|error| {
            let is_replica = error.code() == Some("READONLY");
            if error.is_io_error() || error.is_unrecoverable_error() || is_replica {
                self.drop_connection(number, &error.to_string());
                return EngineError::Away(error.to_string());
            }
            refused(&error)
        })
    }

    fn connection(&self) -> Result<(MultiplexedConnection, u64), EngineError> {
        let current = self.current.lock();
        let connection = current.connection.clone();
        let connection = connection.ok_or_else(|| EngineError::Away(current.error.clone()))?;
        Ok((connection, current.number))
    }

    /// Closes the connection, unless it was replaced already.
    fn drop_connection(&self, number: u64, why: &str) {
        let mut current = self.current.lock();
        if current.number == number {
            current.connection = None;
            why.clone_into(&mut current.error);
            self.wanted.notify_one();
        }
    }

    /// Closes a connection that does not answer or leads to a former primary. Called with each beat,
    /// because a planned fail-over leaves connections to the former primary open for seconds, where
    /// every write succeeds and is lost.
    pub(super) async fn check(self: Arc<Self>, beat: Result<(), EngineError>) {
        let number = self.current.lock().number;
        if beat == Err(EngineError::Timeout) {
            self.drop_connection(number, "the engine does not answer");
        } else if self.spec.sentinel.is_some() {
            let link = Arc::clone(&self);
            let asked = self.runtime.spawn(async move { link.primary().await });
            let node = self.current.lock().node.clone();
            if let Ok(Ok(primary)) = asked.await
                && primary != node
            {
                self.drop_connection(number, "another node is the primary");
            }
        }
    }

    /// Opens a connection if there is none; otherwise waits until one is wanted.
    async fn keep(&self) -> Duration {
        if self.current.lock().connection.is_some() {
            // The link can be dropped meanwhile, so the wait is short.
            let _ = timeout(CONNECT_TIMEOUT, self.wanted.notified()).await;
            return Duration::ZERO;
        }
        let connected = self.connect().await;
        let retry = {
            let mut current = self.current.lock();
            match connected {
                Ok((connection, node)) => {
                    current.number += 1;
                    current.connection = Some(connection);
                    current.node = node;
                    Duration::ZERO
                }
                Err(error) => {
                    current.error = error;
                    RETRY_AFTER
                }
            }
        };
        // Only the first attempt sets it.
        let _ = self.tried.set(());
        retry
    }

    async fn connect(&self) -> Result<(MultiplexedConnection, (String, u16)), String> {
        let node = self.primary().await?;
        let opened = open(&self.spec, &node, true).await;
        let mut connection = opened.map_err(|why| why.to_string())?;
        let loaded = load(&mut connection).await;
        loaded.map_err(|why| why.to_string())?;
        Ok((connection, node))
    }

    /// The node to use: the only one, or the one that a Sentinel names.
    async fn primary(&self) -> Result<(String, u16), String> {
        primary(&self.spec).await
    }
}

fn refused(error: &RedisError) -> EngineError {
    EngineError::Refused(error.to_string())
}

/// The node to use: the only one, or the one that the first Sentinel that answers names.
///
/// # Errors
///
/// Returns why no Sentinel names one.
pub(super) async fn primary(spec: &EngineSpec) -> Result<(String, u16), String> {
    let Some(name) = &spec.sentinel else {
        return spec.hosts.first().cloned().ok_or_else(String::new);
    };
    let mut failure = String::new();
    for sentinel in &spec.hosts {
        match ask_sentinel(spec, sentinel, name).await {
            Ok(Some((host, port))) => return Ok((host, port)),
            Ok(None) => failure = format!("no Sentinel knows the primary `{name}`"),
            Err(why) => failure = format!("Sentinel {}:{}: {why}", sentinel.0, sentinel.1),
        }
    }
    Err(failure)
}

async fn ask_sentinel(
    spec: &EngineSpec,
    sentinel: &(String, u16),
    name: &str,
) -> Result<Option<(String, u16)>, RedisError> {
    // Sentinels have the engine's password or none.
    let mut connection = match open(spec, sentinel, true).await {
        Err(error) if !error.is_io_error() => open(spec, sentinel, false).await?,
        opened => opened?,
    };
    let mut asked = Cmd::new();
    asked
        .arg("SENTINEL")
        .arg("GET-MASTER-ADDR-BY-NAME")
        .arg(name);
    asked.query_async(&mut connection).await
}

/// Opens a connection to one node and signs in.
///
/// # Errors
///
/// Fails if the node does not answer within [`CONNECT_TIMEOUT`], or refuses.
pub(super) async fn open(
    spec: &EngineSpec,
    (host, port): &(String, u16),
    signs_in: bool,
) -> Result<MultiplexedConnection, RedisError> {
    let mut settings = RedisConnectionInfo::default().set_skip_set_lib_name();
    if signs_in {
        settings = settings.set_db(spec.database);
        if let Some(user) = &spec.user {
            settings = settings.set_username(user);
        }
        if let Some(password) = &spec.password {
            settings = settings.set_password(password.expose_secret());
        }
    }
    let (host, port) = (host.clone(), *port);
    let client = if spec.has_tls {
        let address = ConnectionAddr::TcpTls {
            host,
            port,
            insecure: false,
            tls_params: None,
        };
        let info = address.into_connection_info()?.set_redis_settings(settings);
        let certificates = TlsCertificates {
            client_tls: None,
            root_cert: spec.ca.clone(),
        };
        Client::build_with_tls(info, certificates)?
    } else {
        let info = ConnectionAddr::Tcp(host, port).into_connection_info()?;
        Client::open(info.set_redis_settings(settings))?
    };
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(CONNECT_TIMEOUT))
        .set_response_timeout(Some(REQUEST_TIMEOUT));
    let opened = client.get_multiplexed_async_connection_with_config(&config);
    opened.await
}

async fn load(connection: &mut MultiplexedConnection) -> Result<(), RedisError> {
    let mut commands = Pipeline::new();
    for text in TEXTS {
        commands.cmd("SCRIPT").arg("LOAD").arg(*text).ignore();
    }
    commands.query_async(connection).await
}
