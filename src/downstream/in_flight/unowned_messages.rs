//! Messages that name no call, such as log lines on the general stream of an HTTP server, on which
//! official SDKs send the lines of calls.

use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::time::Instant;

use crate::downstream::caller::Caller;
use crate::downstream::connection::spec::ConnectionSpec;
use crate::downstream::connection_key::{ConnectionKey, ConnectionOwner};
use crate::downstream::server_event::{RoutedServerEvent, ServerEvent};
use crate::protocol::{Notification, Request};
use crate::telemetry::LogSource;

/// How long after a call its client still receives such lines: the answer comes on another stream
/// and can overtake them.
const LATE_LINES: Duration = Duration::from_secs(1);

/// A message of the server that names no call, passed along the links of a connection until one of
/// them has the client's calls.
pub(crate) enum UnownedMessage {
    Request(Request),
    Line(UnownedLine),
}

pub(crate) struct UnownedLine {
    pub(crate) notification: Notification,
    recent: RecentClient,
}

/// Client of the calls that ended last.
#[derive(Clone, Default)]
pub(crate) enum RecentClient {
    #[default]
    Nobody,
    One(Arc<Caller>, Instant),
    /// Calls of several clients ended within a short time.
    Several(Instant),
}

impl RecentClient {
    /// Records that a call of this client ended.
    pub(super) fn add(&mut self, caller: &Arc<Caller>, at: Instant) {
        *self = match self {
            Self::One(last, before) if is_same_client(last, caller) => {
                Self::One(caller.clone(), at.max(*before))
            }
            Self::One(_, before) | Self::Several(before) if are_close(*before, at) => {
                Self::Several(at.max(*before))
            }
            Self::One(_, before) | Self::Several(before) if *before > at => return,
            _ => Self::One(caller.clone(), at),
        };
    }

    fn merge(&mut self, other: &Self) {
        match (&*self, other) {
            (_, Self::One(caller, at)) => self.add(caller, *at),
            (Self::One(_, before) | Self::Several(before), Self::Several(at))
                if *before > *at && !are_close(*before, *at) => {}
            (_, Self::Several(at)) => *self = Self::Several(*at),
            (_, Self::Nobody) => {}
        }
    }

    /// The client that receives a late line.
    fn client(&self, now: Instant) -> Option<&Arc<Caller>> {
        match self {
            Self::One(caller, at) if are_close(*at, now) => Some(caller),
            _ => None,
        }
    }
}

pub(super) fn is_same_client(one: &Caller, other: &Caller) -> bool {
    one.session.is_some() && one.session == other.session
}

fn are_close(one: Instant, other: Instant) -> bool {
    one.max(other) - one.min(other) < LATE_LINES
}

impl UnownedLine {
    pub(crate) fn new(notification: Notification) -> Self {
        Self {
            notification,
            recent: RecentClient::Nobody,
        }
    }

    /// Adds a link that has no call for the line, with the client of the calls that ended last.
    pub(super) fn passed(mut self, recent: &RecentClient) -> Self {
        self.recent.merge(recent);
        self
    }

    /// Sends a line that no link has a call for to the one client whose call just ended; otherwise
    /// keeps it for operators.
    pub(crate) fn settle(self, spec: &ConnectionSpec) {
        let is_idle = spec.load.has_only(0);
        let client = self.recent.client(Instant::now()).filter(|_| is_idle);
        let Some((client, session)) = client.and_then(|it| Some((it, it.session?))) else {
            let line = shown_log_line(&self.notification);
            return spec.of_server.log.push(LogSource::Message, &line);
        };
        let owner = ConnectionOwner::Session(session, client.audience());
        (spec.of_all.listener)(RoutedServerEvent {
            server: spec.server.clone(),
            key: ConnectionKey {
                owner,
                ..spec.key.clone()
            },
            event: ServerEvent::Log(self.notification),
        });
    }
}

/// A log line as shown to operators.
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
        return "log line of an unexpected shape".to_owned();
    };
    let source = format!("{} {}", line.level, line.logger);
    format!("{}: {}", source.trim(), line.data.get())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::downstream::client_info::ClientInfo;
    use crate::id::{Principal, SessionId, ViewId};
    use crate::protocol::{DeclaredCapabilities, Revision};

    fn caller(session: Option<SessionId>) -> Arc<Caller> {
        Arc::new(Caller {
            principal: Principal::Anonymous,
            scopes: None,
            view: ViewId::Default,
            session,
            revision: Revision::NEWEST_LEGACY,
            profile: DeclaredCapabilities::default(),
            level: None,
            client: None,
            info: ClientInfo::default(),
        })
    }

    #[tokio::test(start_paused = true)]
    async fn a_late_line_is_for_the_only_client_whose_call_just_ended() {
        let [a, b] =
            [1, 2].map(|number| caller(Some(SessionId::new(uuid::Uuid::from_u128(number)))));
        let nobody = caller(None);
        let begun = Instant::now();
        let at = |millis| begun + Duration::from_millis(millis);
        // The calls that ended, with their times; the time of the line; the client that receives
        // it.
        type Case<'a> = (&'a [(&'a Arc<Caller>, u64)], u64, Option<&'a Arc<Caller>>);
        let table: [Case<'_>; 8] = [
            (&[], 0, None),
            (&[(&a, 0)], 999, Some(&a)),
            (&[(&a, 0)], 1000, None),
            (&[(&a, 0), (&a, 500)], 1400, Some(&a)),
            (&[(&a, 0), (&b, 500)], 600, None),
            (&[(&a, 0), (&b, 1000)], 1100, Some(&b)),
            (&[(&a, 0), (&b, 500), (&b, 1600)], 1700, Some(&b)),
            (&[(&nobody, 0), (&nobody, 500)], 600, None),
        ];
        for (ended, now, expected) in table {
            for is_turned in [false, true] {
                let mut recent = RecentClient::default();
                let mut ended: Vec<_> = ended.to_vec();
                if is_turned && ended.len() < 3 {
                    ended.reverse();
                }
                for (caller, millis) in ended {
                    let mut other = RecentClient::default();
                    other.add(caller, at(millis));
                    recent.merge(&other);
                }
                let found = recent.client(at(now)).map(|caller| caller.session);
                assert_eq!(found, expected.map(|caller| caller.session), "{now}");
            }
        }
    }
}
