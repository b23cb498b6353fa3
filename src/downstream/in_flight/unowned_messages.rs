//! Messages that name no call: questions, and log lines, which official SDKs send on the general
//! stream of an HTTP server.

use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::time::Instant;

use crate::downstream::caller::Caller;
use crate::downstream::connection::spec::ConnectionSpec;
use crate::downstream::connection_key::ConnectionOwner;
use crate::downstream::in_flight::CallsInFlight;
use crate::downstream::in_flight::pending_questions::LinkUsers;
use crate::downstream::server_event::{ServerEvent, SharedQuestion};
use crate::downstream::server_request::{asks_client, gateway_answer, refusal};
use crate::id::SessionId;
use crate::protocol::{Method, Notification, Request};
use crate::telemetry::LogSource;

/// How long after a call its client still receives such lines: the answer comes on another stream
/// and can overtake them.
const LATE_LINES: Duration = Duration::from_secs(1);

/// A message of the server that names no call, passed along the senders of a connection until one of
/// them has the client's calls.
pub(crate) enum UnownedMessage {
    Request(Request),
    Line(UnownedLine),
}

pub(crate) struct UnownedLine {
    notification: Notification,
    /// Calls that were in flight when the line arrived, if it can concern no other.
    in_flight: Option<usize>,
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

impl CallsInFlight {
    /// Routes a request that names no call in flight: to the connection's only client; on a shared
    /// connection, to the client that owns all calls in flight (B-SHARE-01, B-ASK-01); otherwise the
    /// gateway answers. `of_ended_call`: the request arrived on the stream of an ended call, so it
    /// belongs to no other call.
    pub(super) fn route_request(&mut self, request: Request, of_ended_call: bool) {
        let spec = self.server.spec.clone();
        let key = &spec.key;
        // The next call on a leased connection comes from another client.
        let is_of_nobody = of_ended_call && key.is_leased();
        let profile = key.profile();
        let has_answer = match request.method {
            // The session decides, because it knows whether its client sees only this server.
            _ if key.session().is_some() => true,
            Method::RootsList => profile.has_roots(),
            _ => profile.can_be_asked(),
        };
        let is_for_client = has_answer && asks_client(&request.method);
        if is_for_client && key.is_exclusive() && !is_of_nobody {
            self.ask_client(request, key.owner.clone());
        } else if is_for_client && self.server.knows_call_of_requests() {
            if !of_ended_call && spec.load.has_only(1) {
                self.find_owner(UnownedMessage::Request(request));
            } else {
                self.answer_from_gateway(&request);
            }
        } else if is_for_client {
            self.on_unattributed(request);
        } else {
            self.answer_from_gateway(&request);
        }
    }

    /// Handles a question that names no call, on a shared connection. Roots apply to the whole
    /// connection, so a server that asks for them needs one connection per client.
    fn on_unattributed(&mut self, request: Request) {
        let isolation = self.server.spec.of_server.isolation.clone();
        let ConnectionOwner::Audience(audience) = self.server.spec.key.owner.clone() else {
            return self.answer_from_gateway(&request);
        };
        let session = isolation
            .claimant(&audience)
            .or_else(|| self.session_of_questions());
        match session {
            Some(session) => {
                if request.method == Method::RootsList {
                    isolation.require(&request.method);
                    isolation.claim(&audience, session);
                }
                self.ask_client(request, ConnectionOwner::Session(session, audience));
            }
            None => {
                isolation.require(&request.method);
                self.server.link.write(refusal(&request));
            }
        }
    }

    /// Asks the client of the calls in flight, or the owner's session if no call is in flight.
    fn ask_client(&mut self, request: Request, owner: ConnectionOwner) {
        if let Some(request) = self.ask_any(request) {
            let question = self.server.questions.unrelated(request);
            let event = ServerEvent::Question(SharedQuestion::new(question));
            self.server.spec.send_event(owner, event);
        }
    }

    fn answer_from_gateway(&self, request: &Request) {
        let roots = &self.server.spec.settings().roots;
        self.server.link.write(gateway_answer(request, roots));
    }

    /// The session that receives questions which name no call: the only session that ever called;
    /// before the first call, the one that opened the connection; otherwise the session of all
    /// calls that the server may be working on. `None` if there can be several.
    fn session_of_questions(&self) -> Option<SessionId> {
        match self.users {
            LinkUsers::Nobody => return self.server.spec.opener,
            LinkUsers::One(session) => return Some(session),
            LinkUsers::Several => {}
        }
        let session = self.calls.iter().next()?.caller.session?;
        let now = Instant::now();
        let mut in_flight = self.calls.iter().map(|call| call.caller.session);
        let are_same =
            in_flight.all(|it| it == Some(session)) && self.abandoned.are_of(session, now);
        // Clients' tasks can also ask questions.
        (are_same && !self.server.spec.client_tasks.any(now)).then_some(session)
    }

    /// Asks the client of the calls in flight, on a link that cannot attribute questions but serves
    /// only one client. Returns the request if no call is in flight.
    fn ask_any(&mut self, request: Request) -> Option<Request> {
        let Some(newest) = self.calls.newest().map(|call| call.number) else {
            return Some(request);
        };
        let calls = self.calls.numbers(|_| true);
        for number in &calls {
            self.calls
                .update(*number, |call| call.expires = call.deadline.latest);
        }
        let call = self.calls.get_mut(newest)?;
        let questions = &mut self.server.questions;
        questions.ask_for_any(calls, &mut call.reply, request);
        None
    }

    /// Delivers a message that names no call to the only client that it can concern; returns the
    /// message if the client's calls are not on this link.
    pub(crate) fn take_unowned(&mut self, message: UnownedMessage) -> Option<UnownedMessage> {
        match message {
            UnownedMessage::Request(request) => self.ask_any(request).map(UnownedMessage::Request),
            UnownedMessage::Line(line) => self.take_line(line).map(UnownedMessage::Line),
        }
    }

    /// Handles a message that no sender of the connection has a call for.
    pub(crate) fn settle_unowned(&self, message: UnownedMessage) {
        match message {
            UnownedMessage::Request(request) => self.answer_from_gateway(&request),
            UnownedMessage::Line(line) => line.settle(&self.server.spec),
        }
    }

    fn take_line(&mut self, line: UnownedLine) -> Option<UnownedLine> {
        // Calls can end while the line is on its way to another sender.
        let here = self.calls.len();
        let is_here = line.in_flight == Some(here) && self.server.spec.load.has_only(here);
        let number = self.calls.newest_of_sole_client().filter(|_| is_here);
        match number.and_then(|number| self.calls.get_mut(number)) {
            Some(call) => {
                call.reply.notify(line.notification, self.server.budget());
                None
            }
            None => Some(line.passed(&self.recent)),
        }
    }
}

impl UnownedLine {
    pub(super) fn new(notification: Notification, spec: &ConnectionSpec) -> Self {
        Self {
            notification,
            in_flight: spec.load.only(),
            recent: RecentClient::Nobody,
        }
    }

    /// Adds a sender that has no call for the line, with the client of the calls that ended last.
    pub(super) fn passed(mut self, recent: &RecentClient) -> Self {
        self.recent.merge(recent);
        self
    }

    /// Sends a line that no sender has a call for to the one client whose call just ended; otherwise
    /// keeps it for operators.
    fn settle(self, spec: &ConnectionSpec) {
        let is_idle = self.in_flight == Some(0) && spec.load.has_only(0);
        let client = self.recent.client(Instant::now()).filter(|_| is_idle);
        let Some((client, session)) = client.and_then(|it| Some((it, it.session?))) else {
            let line = shown_log_line(&self.notification);
            return spec.of_server.log.push(LogSource::Message, &line);
        };
        let owner = ConnectionOwner::Session(session, client.audience());
        spec.send_event(owner, ServerEvent::Log(self.notification));
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
