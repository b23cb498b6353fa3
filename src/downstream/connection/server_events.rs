//! Handles a server's notifications that belong to no call.

use actix::Context;

use crate::downstream::connection::Connection;
use crate::downstream::connection::listen_filter::without_subscription;
use crate::downstream::in_flight::unowned_lines::UnownedLine;
use crate::downstream::list_changes::changed_kinds;
use crate::downstream::server_event::{RoutedServerEvent, ServerEvent};
use crate::downstream::worker_channel::WorkerChannelCommand;
use crate::protocol::{Method, Notification};

impl Connection {
    pub(super) fn on_notification(&mut self, notification: Notification, ctx: &mut Context<Self>) {
        if notification.method == Method::SubscriptionsAcknowledged {
            return self.on_acknowledged(&notification, ctx);
        }
        if !self.listening.is_current(&notification) {
            return;
        }
        let notification = if self.is_modern() {
            without_subscription(notification)
        } else {
            notification
        };
        let event = match notification.method {
            Method::ToolsListChanged
            | Method::PromptsListChanged
            | Method::ResourcesListChanged => {
                self.list_changed(changed_kinds(&notification.method), ctx);
                // A client with a connection of its own is notified even if the lists are
                // unchanged.
                if self.spec.key.session().is_none() {
                    return;
                }
                ServerEvent::Other(notification)
            }
            Method::ResourcesUpdated => ServerEvent::ResourceUpdated(notification),
            // Belongs to a request, but the line does not say which one.
            Method::LogMessage if self.is_modern() => return,
            Method::LogMessage if self.spec.keeps_logs() => {
                return self.on_unowned_line(notification);
            }
            Method::LogMessage => ServerEvent::Log(notification),
            Method::Cancelled | Method::Progress => return,
            Method::Tasks => ServerEvent::Task {
                declaration: self.spec.settings().declaration(),
                notification,
            },
            // Belongs to a task that is no longer followed here.
            Method::TaskStatus => return,
            // A client of the other era would not understand it.
            Method::Other(_) if self.is_modern() => return,
            _ => ServerEvent::Other(notification),
        };
        self.send_event(event);
    }

    /// Sends a log line that names no call to the only client with calls in flight, or with calls
    /// that just ended; otherwise keeps it for operators.
    fn on_unowned_line(&mut self, notification: Notification) {
        let line = UnownedLine::new(notification);
        let Some(calls) = self.state.calls_mut() else {
            return;
        };
        let Some(line) = calls.take_line(line) else {
            return;
        };
        let channels = self.state.worker_channels().iter();
        let mut channels: Vec<_> = channels.map(|channel| channel.address.clone()).collect();
        match channels.pop() {
            Some(first) => first.do_send(WorkerChannelCommand::Line(Box::new(line), channels)),
            None => line.settle(&self.spec),
        }
    }

    pub(super) fn send_event(&self, event: ServerEvent) {
        let server = self.spec.server().clone();
        let key = self.spec.key.clone();
        (self.spec.of_all.listener)(RoutedServerEvent { server, key, event });
    }
}
