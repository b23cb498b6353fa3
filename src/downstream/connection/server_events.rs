//! Notifications of a server that belong to no call.

use actix::Context;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::catalog::ItemKind;
use crate::downstream::connection::Connection;
use crate::downstream::connection::listen_filter::without_subscription;
use crate::downstream::server_event::{RoutedServerEvent, ServerEvent};
use crate::protocol::{Method, Notification};
use crate::telemetry::LogSource;

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
            Method::ToolsListChanged => return self.list_changed(&[ItemKind::Tools], ctx),
            Method::PromptsListChanged => return self.list_changed(&[ItemKind::Prompts], ctx),
            Method::ResourcesListChanged => {
                let kinds = [ItemKind::Resources, ItemKind::ResourceTemplates];
                return self.list_changed(&kinds, ctx);
            }
            Method::ResourcesUpdated => ServerEvent::ResourceUpdated(notification),
            // Of some request, but nobody can tell whose.
            Method::LogMessage if self.is_modern() => return,
            Method::LogMessage if self.spec.keeps_logs() => {
                let line = shown_log_line(&notification);
                return self.spec.of_server.log.push(LogSource::Message, &line);
            }
            Method::LogMessage => ServerEvent::Log(notification),
            Method::Cancelled | Method::Progress => return,
            Method::Tasks => ServerEvent::Task {
                declaration: self.spec.settings().declaration(),
                notification,
            },
            // Of a task that nobody follows here any more.
            Method::TaskStatus => return,
            // A client of the other era would not understand it.
            Method::Other(_) if self.is_modern() => return,
            _ => ServerEvent::Other(notification),
        };
        self.send_event(event);
    }

    pub(super) fn send_event(&self, event: ServerEvent) {
        let server = self.spec.server().clone();
        let key = self.spec.key.clone();
        (self.spec.of_all.listener)(RoutedServerEvent { server, key, event });
    }
}

/// A log line as operators read it.
fn shown_log_line(notification: &Notification) -> String {
    #[derive(Deserialize)]
    struct LogParams {
        #[serde(default)]
        level: String,
        #[serde(default)]
        logger: String,
        data: Box<RawValue>,
    }
    let params = notification.frame.member("params");
    let Some(line) = params.and_then(|params| params.parse::<LogParams>().ok()) else {
        return "a log line of an unexpected shape".to_owned();
    };
    let source = format!("{} {}", line.level, line.logger);
    format!("{}: {}", source.trim(), line.data.get())
}
