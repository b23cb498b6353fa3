//! Sends one request to another replica, and passes the answer on.

use std::pin::pin;

use actix_web::http::Method;
use actix_web::{HttpRequest, HttpResponse};
use bytes::Bytes;
use futures_util::future::{Either, FutureExt as _, select};

use super::answer::{self, Streaming};
use super::headers::{self, Origin};
use super::interrupted::{self, Message};
use super::known::KnownSessions;
use crate::calls::replica_lost;
use crate::cluster::{Attempt, Cluster, ReplicaRef};
use crate::front::http::client_address::client_address;
use crate::front::http::handler::peer;
use crate::front::http::tcp_server::CertifiedClient;
use crate::front::intake::RequestFailure;
use crate::front::settings::FrontSettings;
use crate::front::state::Front;
use crate::id::Peer;
use crate::transport::{PeerAnswer, PeerClient, PeerError, PeerRequest};

/// A request of a client that another replica can serve.
#[derive(Clone, Copy)]
pub(in crate::front) struct Outgoing<'a> {
    pub(super) request: &'a HttpRequest,
    pub(super) front: &'a Front,
    pub(super) settings: &'a FrontSettings,
}

/// How sending a request to another replica ended.
pub(super) enum Sent {
    Answered(HttpResponse),
    NotOwner,
    Unreachable(String),
}

impl<'a> Outgoing<'a> {
    pub(in crate::front) const fn new(
        request: &'a HttpRequest,
        front: &'a Front,
        settings: &'a FrontSettings,
    ) -> Self {
        Self {
            request,
            front,
            settings,
        }
    }

    /// Caches about the sessions of other replicas; `None` for a single gateway.
    pub(super) fn known(&self) -> Option<&'a KnownSessions> {
        self.front.known_sessions.as_deref()
    }

    /// Tries a replica that can own the session, call or task. Returns its answer, or how the attempt
    /// ended.
    ///
    /// # Errors
    ///
    /// Fails like [`Self::send`].
    pub(super) async fn attempt(
        &self,
        cluster: &Cluster,
        to: ReplicaRef,
        body: &Bytes,
    ) -> Result<Result<HttpResponse, Attempt>, RequestFailure> {
        Ok(match self.send(cluster, to, body, false).await? {
            Sent::Answered(response) => Ok(response),
            Sent::NotOwner => Err(Attempt::NotOwner),
            Sent::Unreachable(why) => {
                log::debug!(replica:% = to, why; "could not forward a request");
                Err(Attempt::Unreachable(cluster.is_gone(to).await))
            }
        })
    }

    /// Sends the request to another replica.
    ///
    /// # Errors
    ///
    /// Fails if the connection broke after the request was sent, and the request could have run.
    pub(super) async fn send(
        &self,
        cluster: &Cluster,
        to: ReplicaRef,
        body: &Bytes,
        may_take: bool,
    ) -> Result<Sent, RequestFailure> {
        let Some(member) = cluster.member(to.number) else {
            return Ok(Sent::Unreachable("it left".to_owned()));
        };
        let origin = origin(self.request, self.settings);
        let headers = headers::of_request(self.request.headers(), &origin, to, may_take);
        let path = self.request.uri().path_and_query();
        let request = PeerRequest {
            method: self.request.method(),
            authority: member.address(),
            path: path.map_or("/", |path| path.as_str()),
            headers: &headers,
            body: body.clone(),
        };
        let client = PeerClient::of_worker(&cluster.hop_client_tls());
        let sending = async {
            match client.send(&request).await {
                Ok(answer) if headers::is_not_owner(&answer.headers) => Ok(Sent::NotOwner),
                Ok(answer) => self.relay(answer, (cluster, to), body).await,
                Err(PeerError::NotSent(why)) => Ok(Sent::Unreachable(why)),
                Err(PeerError::Broken(why)) => broken(body, why),
            }
        };
        // A frozen replica keeps its connections open.
        match select(pin!(sending), pin!(cluster.until_gone(to))).await {
            Either::Left((sent, _)) => sent,
            Either::Right(((), _)) => broken(body, "the replica is gone".to_owned()),
        }
    }

    async fn relay(
        &self,
        answer: PeerAnswer,
        (cluster, from): (&Cluster, ReplicaRef),
        body: &Bytes,
    ) -> Result<Sent, RequestFailure> {
        let is_stream = answer::is_stream(&answer.headers);
        let cluster = cluster.clone();
        let streaming = || Streaming {
            gone: async move { cluster.until_gone(from).await }.boxed_local(),
            last_event: is_stream.then(|| last_event(body)).flatten(),
            closing: (*self.request.method() == Method::GET)
                .then(|| Box::pin(self.front.closing.clone().cancelled_owned())),
            _in_flight: self.front.in_flight.token(),
        };
        match answer::response(answer, streaming).await {
            Ok(response) => Ok(Sent::Answered(response)),
            Err(why) => broken(body, why),
        }
    }
}

/// The event that ends the stream of a call's answer if it breaks off.
fn last_event(body: &Bytes) -> Option<Bytes> {
    match Message::of(body) {
        Message::Call(Some(id)) => Some(interrupted::last_event(&id)),
        Message::Call(None) | Message::Repeatable => None,
    }
}

fn broken(body: &Bytes, why: String) -> Result<Sent, RequestFailure> {
    match Message::of(body) {
        Message::Repeatable => Ok(Sent::Unreachable(why)),
        Message::Call(id) => Err(RequestFailure {
            failure: replica_lost(),
            id,
        }),
    }
}

/// Returns facts about the client that the other replica cannot see.
fn origin(request: &HttpRequest, settings: &FrontSettings) -> Origin {
    let certified = request.conn_data::<CertifiedClient>();
    Origin {
        client: client_address(request),
        is_local: peer(request, settings) == Peer::Local,
        principal: certified.map(|CertifiedClient(principal)| principal.clone()),
    }
}
