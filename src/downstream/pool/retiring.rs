//! The names of servers that were changed or removed, until their last connection has ended.
//!
//! Connections of a server that has the name next begin only afterwards, when ports and locks are
//! free.

use tokio::sync::watch;

use crate::id::ServerName;

/// One name for each server that retires.
#[derive(Clone, Default)]
pub(crate) struct RetiringServers(watch::Sender<Vec<ServerName>>);

/// A server retires until this is dropped.
pub(crate) struct Retirement {
    all: RetiringServers,
    name: ServerName,
}

impl Drop for Retirement {
    fn drop(&mut self) {
        self.all.0.send_modify(|names| {
            if let Some(place) = names.iter().position(|name| *name == self.name) {
                names.swap_remove(place);
            }
        });
    }
}

impl RetiringServers {
    pub(crate) fn enter(&self, name: ServerName) -> Retirement {
        self.0.send_modify(|names| names.push(name.clone()));
        let all = self.clone();
        Retirement { all, name }
    }

    pub(crate) fn has(&self, name: &ServerName) -> bool {
        self.0.borrow().contains(name)
    }

    /// Waits until none of this name is left.
    pub(crate) async fn gone(&self, name: &ServerName) {
        self.wait(|names| !names.contains(name)).await;
    }

    /// Waits until none is left.
    pub(crate) async fn all_gone(&self) {
        self.wait(|names| names.is_empty()).await;
    }

    async fn wait(&self, is_over: impl Fn(&[ServerName]) -> bool) {
        let mut names = self.0.subscribe();
        // It fails only without a sender, and we hold one.
        drop(names.wait_for(|names| is_over(names)).await.map(drop));
    }
}
