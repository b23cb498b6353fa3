//! Tracks servers that were changed or removed until their last connection has ended.
//!
//! A new server of the same name starts its connections only afterwards, when ports and locks are
//! free.

use tokio::sync::watch;

use crate::id::ServerName;

/// When a successor starts, relative to the server or connection that it replaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Succession {
    /// After the predecessor has ended.
    After,
    /// At once, because it is the same server with a new session.
    Beside,
    /// It serves already, and the calls of its predecessor finish.
    Promoted,
}

/// One entry for each retiring server or connection.
#[derive(Clone, Default)]
pub(crate) struct RetiringServers(watch::Sender<Vec<(ServerName, Succession)>>);

/// Keeps a server in the list of retiring servers until it is dropped.
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

    /// Whether a new server of this name still has to wait.
    pub(crate) fn has(&self, name: &ServerName) -> bool {
        holds(&self.0.borrow(), name)
    }

    /// Waits until a new server of this name can start.
    pub(crate) async fn gone(&self, name: &ServerName) {
        self.wait(|names| !holds(names, name)).await;
    }

    /// Waits until all retiring servers have ended.
    pub(crate) async fn all_gone(&self) {
        self.wait(|names| names.is_empty()).await;
    }

    async fn wait(&self, is_over: impl Fn(&[(ServerName, Succession)]) -> bool) {
        let mut names = self.0.subscribe();
        // This fails only without a sender, and `self` holds one.
        drop(names.wait_for(|names| is_over(names)).await.map(drop));
    }
}

fn holds(names: &[(ServerName, Succession)], name: &ServerName) -> bool {
    let mut names = names.iter();
    names.any(|(held, succession)| held == name && *succession == Succession::After)
}
