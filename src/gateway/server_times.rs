//! Modification times of servers changed through the API, stored by server id.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::store::{Store, StoreError};
use crate::telemetry::rfc3339;

/// Times in milliseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
struct ServerTimes {
    created: u64,
    updated: u64,
}

fn key(id: &str) -> String {
    format!("server-times/{id}")
}

/// Records that a server was created, changed or removed now.
pub(super) async fn note(
    store: &dyn Store,
    id: &str,
    is_removed: bool,
    now: u64,
) -> Result<(), StoreError> {
    if is_removed {
        return store.delete(&key(id)).await;
    }
    let created = times(store, id).await.map_or(now, |times| times.created);
    let times = ServerTimes {
        created,
        updated: now,
    };
    let bytes = serde_json::to_vec(&times).unwrap_or_default();
    store.put(&key(id), Bytes::from(bytes), None).await
}

async fn times(store: &dyn Store, id: &str) -> Option<ServerTimes> {
    let bytes = store.get(&key(id)).await.ok()??;
    serde_json::from_slice(&bytes).ok()
}

/// Adds the known times to a server of the API, or to each server of a list.
pub(super) async fn add(store: &dyn Store, body: &mut Value) {
    if body.get("servers").is_none_or(|list| !list.is_array()) {
        return add_to_one(store, body).await;
    }
    let servers = body.get_mut("servers").and_then(Value::as_array_mut);
    for server in servers.into_iter().flatten() {
        add_to_one(store, server).await;
    }
}

async fn add_to_one(store: &dyn Store, server: &mut Value) {
    let Some(server) = server.as_object_mut() else {
        return;
    };
    let Some(id) = server.get("id").and_then(Value::as_str) else {
        return;
    };
    if let Some(times) = times(store, id).await {
        let created = Value::from(rfc3339(times.created));
        server.insert("createdAt".to_owned(), created);
        let updated = Value::from(rfc3339(times.updated));
        server.insert("updatedAt".to_owned(), updated);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::store::MemoryStore;

    #[tokio::test]
    async fn a_change_leaves_the_time_of_creation() {
        let store = MemoryStore::default();
        note(&store, "a", false, 1000).await.unwrap();
        note(&store, "a", false, 2000).await.unwrap();
        let mut body = json!({ "servers": [{ "id": "a" }, { "id": "b" }] });
        add(&store, &mut body).await;
        let a = json!({
            "id": "a",
            "createdAt": "1970-01-01T00:00:01.000Z",
            "updatedAt": "1970-01-01T00:00:02.000Z",
        });
        assert_eq!(body["servers"], json!([a, { "id": "b" }]));
        note(&store, "a", true, 3000).await.unwrap();
        let mut body = json!({ "id": "a" });
        add(&store, &mut body).await;
        assert_eq!(body, json!({ "id": "a" }));
    }
}
