//! Checks an engine before replicas use it: version, role and policy for a full memory.

use redis::cmd;

use super::EngineSpec;
use super::link::{open, primary};
use super::rows::info;

/// The engine's answers to `INFO`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineFacts {
    /// Version of Redis, or the one that Valkey is compatible with.
    pub version: String,
    /// `valkey` or `redis`.
    pub kind: String,
    /// Policy for a full memory (`maxmemory-policy`).
    pub eviction: String,
    pub is_primary: bool,
}

impl EngineFacts {
    /// Whether the engine has the commands that this gateway uses: 6.2 has `CLIENT INFO`.
    pub fn is_new_enough(&self) -> bool {
        let mut parts = self.version.split('.').map(|it| it.parse().unwrap_or(0));
        (parts.next().unwrap_or(0), parts.next().unwrap_or(0)) >= (6, 2)
    }
}

/// Connects to the engine once and asks what it is.
///
/// # Errors
///
/// Returns why the engine cannot be reached.
pub async fn check_engine(spec: &EngineSpec) -> Result<EngineFacts, String> {
    let node = primary(spec).await?;
    let asked = async {
        let mut connection = open(spec, &node).await?;
        cmd("INFO").query_async::<String>(&mut connection).await
    };
    let text = asked.await.map_err(|why| why.to_string())?;
    let value = |name| info(&text, name).map(str::to_owned);
    Ok(EngineFacts {
        version: value("redis_version").unwrap_or_default(),
        kind: value("server_name").unwrap_or_else(|| "redis".to_owned()),
        eviction: value("maxmemory_policy").unwrap_or_default(),
        is_primary: value("role").is_none_or(|role| role == "master"),
    })
}
