//! Sessions of single clients at an HTTP server while nothing happens in them: nothing is kept but
//! what it takes to go on, so that an idle client costs next to nothing.

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;

use crate::downstream::connection::handshake::Negotiated;
use crate::downstream::connection_key::ConnectionKey;
use crate::transport::{Connector, HttpSession};

/// Sessions that are ended side by side.
const ENDED_TOGETHER: usize = 16;

/// A session that a client has at a server, without a connection.
#[derive(Clone)]
pub(crate) struct RestingSession {
    pub(crate) session: HttpSession,
    /// The answer to its handshake.
    pub(crate) negotiated: Arc<Negotiated>,
    /// For the end of the session.
    pub(crate) connector: Arc<dyn Connector>,
    /// The lists that calls may have changed since they were read.
    pub(crate) called: u8,
    /// Whether it has listed something itself.
    pub(crate) is_listed: bool,
    /// Milliseconds since the pool of the server began.
    pub(crate) last_used: u64,
}

#[derive(Default)]
pub(crate) struct RestingSessions {
    by_key: Mutex<HashMap<ConnectionKey, RestingSession>>,
    /// The last answer to a handshake: those of one server are mostly equal.
    negotiated: Mutex<Option<Arc<Negotiated>>>,
}

impl RestingSessions {
    pub(crate) fn add(&self, key: ConnectionKey, mut resting: RestingSession) {
        resting.negotiated = self.shared_answer(resting.negotiated);
        self.table().insert(key, resting);
    }

    pub(crate) fn take(&self, key: &ConnectionKey) -> Option<RestingSession> {
        self.table().remove(key)
    }

    /// Takes the one that was not used for the longest time.
    pub(crate) fn take_oldest(&self) -> Option<(ConnectionKey, RestingSession)> {
        let mut table = self.table();
        let (key, _) = table.iter().min_by_key(|(_, resting)| resting.last_used)?;
        let key = key.clone();
        table.remove_entry(&key)
    }

    pub(crate) fn take_all(
        &self,
        leaves: impl Fn(&ConnectionKey) -> bool,
    ) -> Vec<(ConnectionKey, RestingSession)> {
        let mut table = self.table();
        table.extract_if(|key, _| leaves(key)).collect()
    }

    /// Reads something of a session, if it rests.
    pub(crate) fn look<T>(
        &self,
        key: &ConnectionKey,
        look: impl FnOnce(&RestingSession) -> T,
    ) -> Option<T> {
        self.table().get(key).map(look)
    }

    pub(crate) fn len(&self) -> usize {
        self.table().len()
    }

    fn shared_answer(&self, answer: Arc<Negotiated>) -> Arc<Negotiated> {
        let mut last = self
            .negotiated
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        match &*last {
            Some(last) if *last == answer => last.clone(),
            _ => last.insert(answer).clone(),
        }
    }

    fn table(&self) -> MutexGuard<'_, HashMap<ConnectionKey, RestingSession>> {
        self.by_key.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RestingSession {
    /// Ends the session at its server.
    async fn end(self, grace: Duration) {
        if let Some(link) = self.connector.resume(self.session, Rc::new(|_| {})) {
            link.close(grace).await;
        }
    }
}

/// Ends sessions at their servers, each within `grace`.
pub(crate) async fn end_all(sessions: Vec<RestingSession>, grace: Duration) {
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
