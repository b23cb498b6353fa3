//! Messages that name no call: questions, and log lines, which official SDKs send on the general
//! stream of an HTTP server.

use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::time::Instant;

use crate::downstream::caller::Caller;
use crate::downstream::connection::spec::ConnectionSpec;
use crate::downstream::connection_key::{Audience, ConnectionOwner};
use crate::downstream::in_flight::CallsInFlight;
use crate::downstream::in_flight::pending_questions::LinkUsers;
use crate::downstream::separation::SeparationReason;
use crate::downstream::server_event::{ServerEvent, SharedQuestion};
use crate::downstream::server_request::{
    asks_client, gateway_answer, refusal, undeclared, undeclared_refusal,
};
use crate::id::{Principal, SessionId};
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
    /// Calls of several clients ended within a short time; with their principal, if it is the same.
    Several(Instant, Option<Principal>),
}

impl RecentClient {
    /// Records that a call of this client ended.
    pub(super) fn add(&mut self, caller: &Arc<Caller>, at: Instant) {
        *self = match self {
            Self::One(last, before) if last.is_same_client(caller) => {
                Self::One(caller.clone(), at.max(*before))
            }
            Self::One(last, before) if are_close(*before, at) => {
                let is_same = last.principal == caller.principal;
                Self::Several(at.max(*before), is_same.then(|| caller.principal.clone()))
            }
            Self::Several(before, principal) if are_close(*before, at) => {
                let principal = principal.take().filter(|it| *it == caller.principal);
                Self::Several(at.max(*before), principal)
            }
            Self::One(_, before) | Self::Several(before, _) if *before > at => return,
            _ => Self::One(caller.clone(), at),
        };
    }

    fn merge(&mut self, other: &Self) {
        match (&*self, other) {
            (_, Self::One(caller, at)) => self.add(caller, *at),
            (Self::One(_, before) | Self::Several(before, _), Self::Several(at, _))
                if *before > *at && !are_close(*before, *at) => {}
            (_, Self::Several(at, _)) => *self = Self::Several(*at, None),
            (_, Self::Nobody) => {}
        }
    }

    /// Whether a call of another principal can have ended a moment ago.
    fn is_of_other(&self, principal: &Principal, now: Instant) -> bool {
        match self {
            Self::Nobody => false,
            Self::One(caller, at) => caller.principal != *principal && are_close(*at, now),
            Self::Several(at, of_all) => of_all.as_ref() != Some(principal) && are_close(*at, now),
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

/// A client of a shared connection that the server's question is for.
struct SharingClient {
    session: Option<SessionId>,
    audience: Audience,
}

impl SharingClient {
    fn of(caller: &Caller) -> Self {
        Self {
            session: caller.session,
            audience: caller.audience(),
        }
    }
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
        let profile = spec.declared();
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

    /// Handles a question that names no call, on a shared connection: it is for the client of the
    /// only call that can have caused it.
    fn on_unattributed(&mut self, request: Request) {
        let client = self.client_of_questions();
        if request.method == Method::RootsList {
            return self.on_roots(request, client);
        }
        let spec = self.server.spec.clone();
        let separation = &spec.of_server.separation;
        match client {
            Some(client) => match undeclared(&request, &client.audience.profile) {
                Some(capability) if spec.declares_all() => {
                    separation.require(SeparationReason::AsksUndeclared);
                    self.server
                        .link
                        .write(undeclared_refusal(&request, capability));
                }
                _ => self.ask_sole_client(request, client),
            },
            None => {
                separation.require(SeparationReason::Unattributed);
                match self.users {
                    LinkUsers::Nobody => self.answer_from_gateway(&request),
                    LinkUsers::One(_) | LinkUsers::Sessionless | LinkUsers::Several => {
                        self.server.link.write(refusal(&request));
                    }
                }
            }
        }
    }

    /// Handles a request for roots, which apply to the whole connection: its only client so far
    /// keeps it, and later ones with roots get others. Nobody else's roots are put into a process
    /// that clients share.
    fn on_roots(&mut self, request: Request, client: Option<SharingClient>) {
        let spec = self.server.spec.clone();
        let separation = &spec.of_server.separation;
        separation.require(SeparationReason::Roots);
        let is_of_all = spec.declares_all();
        let is_only_client = spec.key.is_shared()
            && matches!(self.users, LinkUsers::One(_) | LinkUsers::Sessionless);
        match client.filter(|client| client.audience.profile.has_roots()) {
            Some(client) if !is_of_all || is_only_client => {
                separation.claim(spec.key.owner.clone(), client.session);
                self.ask_sole_client(request, client);
            }
            None if !is_of_all => self.server.link.write(refusal(&request)),
            _ => self.answer_from_gateway(&request),
        }
    }

    fn ask_sole_client(&mut self, request: Request, client: SharingClient) {
        match client.session {
            Some(session) => {
                self.ask_client(request, ConnectionOwner::Session(session, client.audience));
            }
            // The request belongs to the only call in flight.
            None => drop(self.ask_any(request)),
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

    /// The client that receives questions which name no call: the one that keeps the connection;
    /// the only session that ever called; before the first call, the one that opened the connection;
    /// otherwise the client of all calls that the server may be working on. `None` if there can be
    /// several.
    fn client_of_questions(&self) -> Option<SharingClient> {
        let spec = &self.server.spec;
        let of_audience = |session| {
            let audience = spec.key.owner.audience().filter(|_| !spec.declares_all());
            let (session, audience) = (Some(session), audience?.clone());
            Some(SharingClient { session, audience })
        };
        let claimant = spec.of_server.separation.claimant(&spec.key.owner);
        if let Some(client) = claimant.and_then(of_audience) {
            return Some(client);
        }
        match &self.users {
            LinkUsers::Nobody => return spec.opener.and_then(of_audience),
            LinkUsers::One(caller) => return Some(SharingClient::of(caller)),
            LinkUsers::Sessionless | LinkUsers::Several => {}
        }
        let now = Instant::now();
        let caller = &self.calls.newest()?.caller;
        let is_only_one = match caller.session {
            Some(session) => {
                let mut in_flight = self.calls.iter().map(|call| call.caller.session);
                in_flight.all(|it| it == Some(session)) && self.abandoned.are_of(session, now)
            }
            None => self.calls.len() == 1 && self.abandoned.are_none(now),
        };
        // Clients' tasks can also ask questions, and so can a call that was just answered.
        let is_late = self.recent.is_of_other(&caller.principal, now);
        (is_only_one && !is_late && !spec.client_tasks.any(now)).then(|| SharingClient::of(caller))
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
    use crate::id::ViewId;
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

    #[tokio::test(start_paused = true)]
    async fn a_question_after_a_call_of_another_principal_reaches_nobody() {
        let of = |principal: Principal, number| {
            let session = SessionId::new(uuid::Uuid::from_u128(number));
            let caller = Caller::clone(&caller(Some(session)));
            Arc::new(Caller {
                principal,
                ..caller
            })
        };
        let bob = Principal::of("https://issuer.example", "bob");
        let [a, b] = [1, 2].map(|number| of(Principal::Anonymous, number));
        let c = of(bob, 3);
        let begun = Instant::now();
        let at = |millis| begun + Duration::from_millis(millis);
        // The calls that ended, with their times; whether one of another principal than the
        // anonymous one can have ended a moment before.
        type Case<'a> = (&'a [(&'a Arc<Caller>, u64)], u64, bool);
        let table: [Case<'_>; 7] = [
            (&[], 0, false),
            (&[(&a, 0), (&b, 500)], 600, false),
            (&[(&c, 0)], 999, true),
            (&[(&c, 0)], 1000, false),
            (&[(&a, 0), (&c, 500)], 600, true),
            (&[(&c, 0), (&a, 500), (&b, 900)], 1400, true),
            (&[(&a, 0), (&b, 500), (&a, 1600)], 1700, false),
        ];
        for (ended, now, expected) in table {
            let mut recent = RecentClient::default();
            for (caller, millis) in ended {
                recent.add(caller, at(*millis));
            }
            let found = recent.is_of_other(&Principal::Anonymous, at(now));
            assert_eq!(found, expected, "{now}");
        }
    }
}
