//! Leaves the sessions that a server opened before a new sign-in, which can be for another account.

use std::sync::Arc;

use actix::Context;
use tokio::time::{sleep, timeout};

use crate::downstream::pool::closing::{end_idle, lists_outdated, tell_closed};
use crate::downstream::pool::connection_manager::ConnectionManager;
use crate::downstream::pool::own_connections::{OpenedConnection, is_opened};
use crate::downstream::pool::retiring::Succession;
use crate::downstream::pool::server::{LOOK_EVERY, Server};
use crate::downstream::settings::CredentialsChoice;
use crate::id::{CredentialContext, ServerName};

impl ConnectionManager {
    /// See [`crate::downstream::Downstreams::leave_sessions`].
    pub(super) fn leave_sessions(
        &self,
        name: &ServerName,
        whose: &CredentialContext,
        ctx: &mut Context<Self>,
    ) {
        let Some(server) = self.servers.load().get(name).cloned() else {
            return;
        };
        if whose.user().is_some() {
            for opened in server.own.take_opened(whose) {
                self.retire_connection(server.clone(), opened);
            }
            end_idle(&self.parts.listener, &server, |key| {
                key.credentials == *whose
            });
            return;
        }
        let settings = server.settings();
        if settings.credentials == CredentialsChoice::User {
            // The shared connection is used only for lists.
            if is_opened(&server.spec, &server.shared) {
                server.shared.reconnect_now("login");
            }
            return;
        }
        let mut has_opened = is_opened(&server.spec, &server.shared);
        has_opened |= server.own.idle.len() > 0;
        (server.own).each_spec(|spec, child| has_opened |= is_opened(spec, child));
        if has_opened {
            self.start_or_replace(&settings, None, Succession::Beside, ctx);
        }
    }

    /// Retires a connection: the next call opens a new one, and calls in flight get
    /// `shutdown_timeout` to finish.
    fn retire_connection(&self, server: Arc<Server>, opened: OpenedConnection) {
        tell_closed(&self.parts.listener, &server, opened.key);
        lists_outdated(&self.parts.listener, &server);
        let retirement = (self.retiring).enter(server.name().clone(), Succession::Beside);
        actix_rt::spawn(async move {
            let ended = async {
                loop {
                    // A call that has already found the connection can still be in transit to it.
                    sleep(LOOK_EVERY).await;
                    if opened.spec.load.is_idle() {
                        break;
                    }
                }
            };
            let drain = server.settings().supervision.shutdown_timeout;
            if timeout(drain, ended).await.is_err() {
                log::warn!(
                    server = server.name().as_str();
                    "calls over the connection from before the new sign-in did not finish in time"
                );
            }
            opened.child.stop();
            opened.child.stopped().await;
            drop(retirement);
        });
    }
}
