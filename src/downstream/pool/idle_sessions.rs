//! Idle sessions of single clients at an HTTP server: only the data to continue in them is kept, so
//! that an idle client costs little memory.

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use parking_lot::Mutex;

use crate::downstream::connection::handshake::Negotiated;
use crate::downstream::connection_key::ConnectionKey;
use crate::transport::{Connector, HttpSession};

/// Maximum sessions that are ended concurrently.
const ENDED_TOGETHER: usize = 16;

/// A client's session at a server, without a connection.
#[derive(Clone)]
pub(crate) struct IdleSession {
    pub(crate) session: HttpSession,
    /// The server's answer to the session's handshake.
    pub(crate) negotiated: Arc<Negotiated>,
    /// Connector that ends the session.
    pub(crate) connector: Arc<dyn Connector>,
    /// Lists that calls could have changed since they were read.
    pub(crate) called: u8,
    /// Whether lists were read in this session.
    pub(crate) is_listed: bool,
    /// Milliseconds since the start of the server's pool.
    pub(crate) last_used: u64,
}

#[derive(Default)]
pub(crate) struct IdleSessions {
    by_key: Mutex<HashMap<ConnectionKey, IdleSession>>,
    /// The last handshake answer, shared because a server's answers are usually equal.
    negotiated: Mutex<Option<Arc<Negotiated>>>,
}

impl IdleSessions {
    pub(crate) fn add(&self, key: ConnectionKey, mut idle: IdleSession) {
        idle.negotiated = self.shared_answer(idle.negotiated);
        self.by_key.lock().insert(key, idle);
    }

    pub(crate) fn take(&self, key: &ConnectionKey) -> Option<IdleSession> {
        self.by_key.lock().remove(key)
    }

    /// Takes the least recently used session.
    pub(crate) fn take_oldest(&self) -> Option<(ConnectionKey, IdleSession)> {
        let mut table = self.by_key.lock();
        let (key, _) = table.iter().min_by_key(|(_, idle)| idle.last_used)?;
        let key = key.clone();
        table.remove_entry(&key)
    }

    pub(crate) fn take_all(
        &self,
        leaves: impl Fn(&ConnectionKey) -> bool,
    ) -> Vec<(ConnectionKey, IdleSession)> {
        let mut table = self.by_key.lock();
        table.extract_if(|key, _| leaves(key)).collect()
    }

    /// Reads an idle session.
    pub(crate) fn look<T>(
        &self,
        key: &ConnectionKey,
        look: impl FnOnce(&IdleSession) -> T,
    ) -> Option<T> {
        self.by_key.lock().get(key).map(look)
    }

    pub(crate) fn len(&self) -> usize {
        self.by_key.lock().len()
    }

    fn shared_answer(&self, answer: Arc<Negotiated>) -> Arc<Negotiated> {
        let mut last = self.negotiated.lock();
        match &*last {
            Some(last) if *last == answer => last.clone(),
            _ => last.insert(answer).clone(),
        }
    }
}

impl IdleSession {
    /// Ends the session at its server.
    async fn end(self, grace: Duration) {
        if let Some(link) = self.connector.resume(self.session, Rc::new(|_| {})) {
            link.close(grace).await;
        }
    }
}

/// Ends sessions at their servers, each within `grace`.
pub(crate) async fn end_all(sessions: Vec<IdleSession>, grace: Duration) {
    let mut sessions = sessions.into_iter();
    loop {
        let some = sessions.by_ref().take(ENDED_TOGETHER);
        let ending: Vec<_> = some.map(|session| session.end(grace)).collect();
        if ending.is_empty() {
            return;
        }
        join_all(ending).await;
    }
}
