//! The names of servers that were changed or removed, until their last connection has ended.
//!
//! Connections of a server that has the name next begin only afterwards, when ports and locks are
//! free.

use tokio::sync::watch;

use crate::id::ServerName;

/// How a server, or a connection of it, follows what it replaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Succession {
    /// When that has ended.
    After,
    /// At once: it is the same server, with another session.
    Beside,
}

/// One name for each server, or connection of it, that retires.
#[derive(Clone, Default)]
pub(crate) struct RetiringServers(watch::Sender<Vec<(ServerName, Succession)>>);

/// A server retires until this is dropped.
pub(crate) struct Retirement {
    all: RetiringServers,
    entry: (ServerName, Succession),
}

impl Drop for Retirement {
    fn drop(&mut self) {
        self.all.0.send_modify(|names| {
            if let Some(place) = names.iter().position(|entry| *entry == self.entry) {
                names.swap_remove(place);
            }
        });
    }
}

impl RetiringServers {
    pub(crate) fn enter(&self, name: ServerName, succession: Succession) -> Retirement {
        let entry = (name, succession);
        self.0.send_modify(|names| names.push(entry.clone()));
        let all = self.clone();
        Retirement { all, entry }
    }

    /// Whether those wait that have the name next.
    pub(crate) fn has(&self, name: &ServerName) -> bool {
        holds(&self.0.borrow(), name)
    }

    /// Waits until none of this name is left that these wait for.
    pub(crate) async fn gone(&self, name: &ServerName) {
        self.wait(|names| !holds(names, name)).await;
    }

    /// Waits until none is left.
    pub(crate) async fn all_gone(&self) {
        self.wait(|names| names.is_empty()).await;
    }

    async fn wait(&self, is_over: impl Fn(&[(ServerName, Succession)]) -> bool) {
        let mut names = self.0.subscribe();
        // It fails only without a sender, and we hold one.
        drop(names.wait_for(|names| is_over(names)).await.map(drop));
    }
}

fn holds(names: &[(ServerName, Succession)], name: &ServerName) -> bool {
    let mut names = names.iter();
    names.any(|(held, succession)| held == name && *succession == Succession::After)
}
