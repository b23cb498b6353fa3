//! Converts the notifications that a server sends outside of calls into events for clients.

use crate::downstream::connection::control::Control;
use crate::downstream::connection::listen_filter::without_subscription;
use crate::downstream::server_event::ServerEvent;
use crate::protocol::{Method, Notification};

impl Control {
    /// The event that a notification means for clients.
    pub(super) fn event_of(&self, notification: Notification) -> Option<ServerEvent> {
        let is_modern = self.is_modern();
        let notification = match is_modern {
            true => without_subscription(notification),
            false => notification,
        };
        match notification.method {
            // A client with a connection of its own is notified even if the lists are unchanged.
            Method::ToolsListChanged
            | Method::PromptsListChanged
            | Method::ResourcesListChanged
                if self.spec.key.session().is_none() =>
            {
                None
            }
            Method::ResourcesUpdated => Some(ServerEvent::ResourceUpdated(notification)),
            // Belongs to a request, but the line does not say which one.
            Method::LogMessage if is_modern => None,
            Method::LogMessage => Some(ServerEvent::Log(notification)),
            Method::Cancelled | Method::Progress => None,
            Method::Tasks => Some(ServerEvent::Task {
                declaration: self.spec.settings().declaration(),
                notification,
            }),
            // Belongs to a task that is no longer followed here.
            Method::TaskStatus => None,
            // A client of the other era would not understand it.
            Method::Other(_) if is_modern => None,
            _ => Some(ServerEvent::Other(notification)),
        }
    }
}
