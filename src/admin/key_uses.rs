//! Last-used times of API keys, in a file of the data directory. The gateway writes it
//! periodically, and `mcpvisor keys` reads it without a running gateway.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::auth::ApiKey;
use crate::store::write_private;
use crate::telemetry::rfc3339;

const FILE: &str = "key-uses.json";

/// Last-used times in milliseconds since 1970, by key hash.
pub type KeyUses = BTreeMap<String, u64>;

/// Last-used times of these keys.
pub fn key_uses(keys: &[ApiKey]) -> KeyUses {
    let used = keys
        .iter()
        .filter_map(|key| Some((key.hash.to_string(), key.last_use.get()?)));
    used.collect()
}

/// Reads the stored times. An unreadable file counts as empty.
pub fn read_key_uses(data_dir: &Path) -> KeyUses {
    let text = std::fs::read(data_dir.join(FILE)).unwrap_or_default();
    serde_json::from_slice(&text).unwrap_or_default()
}

/// # Errors
///
/// Returns the system's error when the file cannot be written.
pub fn write_key_uses(data_dir: &Path, uses: &KeyUses) -> io::Result<()> {
    write_private(&data_dir.join(FILE), &serde_json::to_vec(uses)?)
}

/// A key without its hash, for operators. `uses` holds stored times in addition to the key's own.
pub fn key_view(key: &ApiKey, uses: &KeyUses, now: u64) -> KeyView {
    let used = uses.get(&key.hash.to_string()).copied();
    KeyView {
        name: key.name.clone(),
        expires_at: key.expires_at.map(rfc3339),
        expired: key.expires_at.is_some_and(|expires| expires <= now),
        last_used_at: key.last_use.get().or(used).map(rfc3339),
    }
}

/// A key of a client, without its hash.
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KeyView {
    pub name: String,
    pub expires_at: Option<String>,
    pub expired: bool,
    pub last_used_at: Option<String>,
}
