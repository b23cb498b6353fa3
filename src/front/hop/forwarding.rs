//! Carries out the decisions about one request: reads its body, finds the owner of its session,
//! sends it there, and waits while no replica can serve it.

use std::time::Duration;

use actix_http::BoxedPayloadStream;
use actix_web::http::Method;
use actix_web::http::header::CONTENT_LENGTH;
use actix_web::{FromRequest as _, HttpRequest, HttpResponse, web};
use bytes::Bytes;
use futures_util::future::ready;
use futures_util::stream::once;
use tokio::time::{Instant, sleep};

use super::headers::{self, Hopped};
use super::known::{KnownSessions, LOOK_EVERY, Patience};
use super::sending::{Outgoing, Sent};
use super::{Routed, engine_unavailable, hopped, own_copy, unavailable};
use crate::cluster::{
    Action, Attempt, Cluster, Finding, FoundRecord, REPLICAS_MAX, ReplicaNumber, ReplicaRef,
    StoredRecord,
};
use crate::front::http::body;
use crate::front::http::handler::{check_host_and_origin, peer};
use crate::front::http::headers::header_text;
use crate::front::intake::RequestFailure;
use crate::id::{Holder, Principal, SessionId};
use crate::sessions::Moves;

/// How long a forwarded request waits for this replica's copy to be confirmed.
const CONFIRM_WITHIN: Duration = Duration::from_secs(1);

/// One request of a session that is not served here.
pub(super) struct Forwarding<'a> {
    pub(super) outgoing: Outgoing<'a>,
    pub(super) known: &'a KnownSessions,
    pub(super) id: SessionId,
}

/// Findings of the search for the owner of a session.
struct Search<'k> {
    record: FoundRecord,
    stored: Option<StoredRecord>,
    attempt: Option<(ReplicaRef, Attempt)>,
    patience: Patience<'k>,
}

impl Search<'_> {
    /// Forgets what can change while the request waits.
    fn forget(&mut self) {
        self.attempt = None;
        self.record = FoundRecord::Unread;
    }
}

/// The consequence of one action.
enum RouteStep {
    Answered(HttpResponse),
    /// The request is served here.
    Serve,
    Again,
    Wait,
}

impl Forwarding<'_> {
    /// Routes the request. If it is served here, its body is put back into the payload.
    pub(super) async fn run(self, payload: &mut web::Payload) -> Routed {
        let Some(moves) = self.outgoing.front.sessions.moves() else {
            return Ok(None);
        };
        // An absolute URI is not forwarded, so its host is checked here.
        check_host_and_origin(self.outgoing.request, self.outgoing.settings)?;
        if let Some(hopped) = hopped(self.outgoing.request) {
            return self.route_hopped(&moves, &hopped).await;
        }
        let holder = Holder::of(
            &Principal::Anonymous,
            peer(self.outgoing.request, self.outgoing.settings),
        );
        let mut taken = self.outgoing.front.bytes.none(holder);
        let body = match *self.outgoing.request.method() {
            Method::POST => {
                let length = header_text(self.outgoing.request, &CONTENT_LENGTH);
                let announced = length.and_then(|length| length.parse().ok());
                body::read(payload, announced, self.outgoing.settings, &mut taken).await?
            }
            _ => Bytes::new(),
        };
        let routed = self.route(&moves, &body).await?;
        if routed.is_none() && !body.is_empty() {
            put_back(self.outgoing.request, payload, body).await;
        }
        Ok(routed)
    }

    /// Serves a request that another replica forwarded, which is not forwarded again.
    async fn route_hopped(&self, moves: &Moves<'_>, hopped: &Hopped) -> Routed {
        // A newer incarnation of this replica can still have the session.
        let me = moves.replicas.cluster().me().number;
        let is_meant = hopped.replica.is_some_and(|meant| meant.number == me);
        if is_meant && self.owns(moves, hopped.may_take).await? {
            return Ok(None);
        }
        Ok(Some(headers::not_owner()))
    }

    /// Returns whether this replica owns the session, after confirming its copy or, if it may take
    /// the session over, claiming it.
    async fn owns(&self, moves: &Moves<'_>, may_take: bool) -> Result<bool, RequestFailure> {
        let deadline = Instant::now() + CONFIRM_WITHIN;
        let (mut record, mut stored) = (FoundRecord::Unread, None);
        loop {
            let finding = self.finding(moves, record, None);
            match finding.action(|_| None) {
                Action::Serve => return Ok(record != FoundRecord::Missing),
                // Another request claims the copy, unless it was taken over.
                Action::Confirm if Instant::now() < deadline => {
                    if self.confirm(moves).await? {
                        return Ok(true);
                    }
                    sleep(LOOK_EVERY).await;
                }
                Action::ReadRecord if may_take => (record, stored) = self.read(moves).await,
                Action::Claim if may_take && record == FoundRecord::Free => {
                    return self.claim(moves, stored.take()).await;
                }
                _ => return Ok(false),
            }
        }
    }

    fn finding(
        &self,
        moves: &Moves<'_>,
        record: FoundRecord,
        attempt: Option<(ReplicaRef, Attempt)>,
    ) -> Finding {
        let cluster = moves.replicas.cluster();
        Finding {
            me: cluster.me(),
            is_leaving: cluster.is_leaving(),
            birthplace: cluster.birthplace(self.id.uuid()),
            copy: own_copy(self.outgoing.front, self.id),
            known_owner: self.known.owner(self.id),
            record,
            attempt,
        }
    }

    async fn route(&self, moves: &Moves<'_>, body: &Bytes) -> Routed {
        let cluster = moves.replicas.cluster();
        let mut search = Search {
            record: match self.known.is_missing(self.id) {
                true => FoundRecord::Missing,
                false => FoundRecord::Unread,
            },
            stored: None,
            attempt: None,
            patience: Patience::new(self.known, cluster),
        };
        loop {
            let finding = self.finding(moves, search.record, search.attempt);
            let action = finding.action(|number| cluster.member(number));
            match self.carry_out(action, moves, &mut search, body).await? {
                RouteStep::Answered(response) => return Ok(Some(response)),
                RouteStep::Serve => return Ok(None),
                RouteStep::Again => {}
                RouteStep::Wait => {
                    search.forget();
                    search.patience.wait().await?;
                }
            }
        }
    }

    async fn carry_out(
        &self,
        action: Action,
        moves: &Moves<'_>,
        search: &mut Search<'_>,
        body: &Bytes,
    ) -> Result<RouteStep, RequestFailure> {
        let cluster = moves.replicas.cluster();
        Ok(match action {
            Action::Serve => RouteStep::Serve,
            Action::Hop(to) => match self.outgoing.attempt(cluster, to, body).await? {
                Ok(response) => {
                    self.known.set_owner(self.id, to);
                    RouteStep::Answered(response)
                }
                Err(attempt) => {
                    if attempt == Attempt::NotOwner {
                        self.known.forget_owner(self.id);
                    }
                    search.attempt = Some((to, attempt));
                    RouteStep::Again
                }
            },
            Action::Probe(to) => {
                let verdict = cluster.is_gone(to).await;
                search.attempt = Some((to, Attempt::Probed(verdict)));
                RouteStep::Again
            }
            Action::ReadRecord => {
                (search.record, search.stored) = self.read(moves).await;
                RouteStep::Again
            }
            Action::Claim => match self.claim(moves, search.stored.take()).await? {
                true => RouteStep::Serve,
                false => RouteStep::Wait,
            },
            Action::Confirm => match self.confirm(moves).await? {
                true => RouteStep::Serve,
                false => RouteStep::Wait,
            },
            Action::HandOn => self.hand_on(moves, search.stored.take(), body).await?,
            Action::Wait => RouteStep::Wait,
            Action::Unavailable => {
                return Err(unavailable(
                    "the engine of the cluster, which knows the session's owner, is unavailable",
                ));
            }
        })
    }

    /// Lets a replica that stays take the session over, because this one leaves.
    async fn hand_on(
        &self,
        moves: &Moves<'_>,
        stored: Option<StoredRecord>,
        body: &Bytes,
    ) -> Result<RouteStep, RequestFailure> {
        if let Some(stored) = stored {
            moves.replicas.release_unheld(self.id, &stored).await;
        }
        let cluster = moves.replicas.cluster();
        let Some(to) = another(cluster) else {
            return Err(unavailable(
                "this replica is leaving, and there is no other",
            ));
        };
        Ok(match self.outgoing.send(cluster, to, body, true).await? {
            Sent::Answered(response) => {
                self.known.set_owner(self.id, to);
                RouteStep::Answered(response)
            }
            Sent::NotOwner | Sent::Unreachable(_) => RouteStep::Wait,
        })
    }

    async fn read(&self, moves: &Moves<'_>) -> (FoundRecord, Option<StoredRecord>) {
        match moves.replicas.read(self.id).await {
            Err(_) => (FoundRecord::EngineAway, None),
            // Its owner writes the record again after the engine lost it.
            Ok(None) if !moves.replicas.cluster().is_engine_settled() => {
                (FoundRecord::Unsettled, None)
            }
            Ok(None) => {
                self.known.set_missing(self.id);
                (FoundRecord::Missing, None)
            }
            Ok(Some(stored)) => {
                let found = stored.owner.map_or(FoundRecord::Free, FoundRecord::Owned);
                (found, Some(stored))
            }
        }
    }

    /// Takes the session over. Returns false if another request or replica was faster.
    async fn claim(
        &self,
        moves: &Moves<'_>,
        stored: Option<StoredRecord>,
    ) -> Result<bool, RequestFailure> {
        let Some(stored) = stored else {
            return Ok(false);
        };
        self.known.forget_owner(self.id);
        let claimed = moves.claim(self.id, &stored).await;
        claimed.map_err(|_| engine_unavailable())
    }

    /// Claims this replica's own copy again. Returns false if the session was taken over.
    async fn confirm(&self, moves: &Moves<'_>) -> Result<bool, RequestFailure> {
        let confirmed = moves.confirm(self.id).await;
        confirmed.map_err(|_| engine_unavailable())
    }
}

/// Returns a replica that stays.
fn another(cluster: &Cluster) -> Option<ReplicaRef> {
    let me = cluster.me().number;
    let numbers = (1..=REPLICAS_MAX).map(ReplicaNumber).filter(|it| *it != me);
    let mut members = numbers.filter_map(|number| cluster.member(number));
    let staying = members.find(|member| member.is_living && !member.is_leaving())?;
    Some(staying.replica())
}

/// Puts a body back that was read before it turned out that the request is served here.
async fn put_back(request: &HttpRequest, payload: &mut web::Payload, body: Bytes) {
    let whole: BoxedPayloadStream = Box::pin(once(ready(Ok(body))));
    let mut read = actix_web::dev::Payload::Stream { payload: whole };
    if let Ok(read) = web::Payload::from_request(request, &mut read).await {
        *payload = read;
    }
}
