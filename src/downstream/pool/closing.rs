//! Closes connections of a server and reports it to the publisher.

use std::sync::Arc;

use crate::downstream::connection::spec::{CallSenders, ConnectionSpec};
use crate::downstream::connection_key::ConnectionKey;
use crate::downstream::pool::idle_sessions::{IdleSession, end_all};
use crate::downstream::pool::own_connections::OpenedConnection;
use crate::downstream::pool::server::Server;
use crate::downstream::server_event::{RoutedServerEvent, ServerEvent, ServerEventListener};
use crate::supervision::{ChildPhase, ChildRef};

/// Closes connections that were removed from the pool.
pub(crate) fn close(listener: &ServerEventListener, server: &Server, own: Vec<OpenedConnection>) {
    for OpenedConnection { key, child, spec } in own {
        child.stop();
        // The catalog knows only connections whose lists were read.
        if *spec.listed.borrow() {
            tell_closed(listener, server, key);
        }
    }
}

/// Ends the idle sessions for which `leaves` returns true.
pub(crate) fn end_idle(
    listener: &ServerEventListener,
    server: &Server,
    leaves: impl Fn(&ConnectionKey) -> bool,
) {
    let ending = server.own.idle.take_all(leaves);
    if !ending.is_empty() {
        actix_rt::spawn(ended(listener, server, ending));
    }
}

/// Ends idle sessions at the server.
pub(super) fn ended(
    listener: &ServerEventListener,
    server: &Server,
    ending: Vec<(ConnectionKey, IdleSession)>,
) -> impl Future<Output = ()> + use<> {
    let mut sessions = Vec::with_capacity(ending.len());
    for (key, session) in ending {
        if session.is_listed {
            tell_closed(listener, server, key);
        }
        sessions.push(session);
    }
    end_all(sessions, server.settings().supervision.shutdown_timeout / 3)
}

/// Reports that a client's own connection is no longer in use.
pub(crate) fn tell_closed(listener: &ServerEventListener, server: &Server, key: ConnectionKey) {
    listener(RoutedServerEvent {
        server: server.name().clone(),
        key,
        event: ServerEvent::Closed,
    });
}

/// Reports that lists which were read over closed connections have to be read again.
pub(crate) fn lists_outdated(listener: &ServerEventListener, server: &Server) {
    listener(RoutedServerEvent {
        server: server.name().clone(),
        key: ConnectionKey::shared(),
        event: ServerEvent::ListsOutdated,
    });
}

/// Closes a connection of another era if the server turns out not to speak it.
pub(super) async fn close_if_refused(
    listener: ServerEventListener,
    server: Arc<Server>,
    spec: Arc<ConnectionSpec>,
    child: ChildRef<CallSenders>,
) {
    let mut changes = child.subscribe();
    let settled = changes.wait_for(|snapshot| {
        let phase = snapshot.status.phase();
        !matches!(phase, ChildPhase::Idle | ChildPhase::Starting)
    });
    // On an error, the supervisor is gone and has closed the connection.
    drop(settled.await);
    if server.refuses(&spec.key) {
        let refused = server.own.take_out(|key| *key == spec.key);
        close(&listener, &server, refused);
    }
}

/// Stops all connections of a server and ends the idle sessions of clients. The future resolves
/// when all of them have ended.
pub(crate) fn stop(
    listener: &ServerEventListener,
    server: &Server,
) -> impl Future<Output = ()> + use<> {
    let own = server.own.take_out(|_| true);
    let mut children: Vec<_> = own.iter().map(|own| own.child.clone()).collect();
    children.extend(server.rollout.abandon("the server ends"));
    close(listener, server, own);
    let idle = ended(listener, server, server.own.idle.take_all(|_| true));
    lists_outdated(listener, server);
    server.shared.stop();
    children.push(server.shared.clone());
    async move {
        idle.await;
        for child in children {
            child.stopped().await;
        }
    }
}
