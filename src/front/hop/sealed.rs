//! Forwards a request without a session whose state or task id names another replica. The replica
//! that receives it from a client has authenticated it, and the other one does so again.

use bytes::Bytes;

use super::headers;
use super::known::{KnownSessions, Patience};
use super::sending::Outgoing;
use super::{Routed, engine_unavailable, hopped};
use crate::cluster::{
    Action, Attempt, Birthplace, Cluster, Finding, FoundRecord, OwnCopy, ReplicaNumber, ReplicaRef,
};

/// One request for the call or task of another replica.
pub(super) struct SealedForwarding<'a> {
    pub(super) outgoing: Outgoing<'a>,
    pub(super) known: &'a KnownSessions,
    pub(super) number: ReplicaNumber,
}

impl SealedForwarding<'_> {
    /// Sends the request to the replica that it names; `None` if that replica is gone.
    pub(super) async fn run(self, body: Bytes) -> Routed {
        let Some(moves) = self.outgoing.front.sessions.moves() else {
            return Ok(None);
        };
        if hopped(self.outgoing.request).is_some() {
            return Ok(Some(headers::not_owner()));
        }
        let cluster = moves.replicas.cluster();
        let mut attempt = None;
        let mut patience = Patience::new(self.known, cluster);
        loop {
            let finding = self.finding(cluster, attempt);
            match finding.action(|number| cluster.member(number)) {
                Action::Hop(to) => match self.outgoing.attempt(cluster, to, &body).await? {
                    Ok(response) => return Ok(Some(response)),
                    Err(failed) => attempt = Some((to, failed)),
                },
                Action::Probe(to) => {
                    attempt = Some((to, Attempt::Probed(cluster.is_gone(to).await)));
                }
                // It left, or it has joined since the last beat.
                Action::ReadRecord if attempt.is_none() => {
                    if !cluster.beats_now().await {
                        return Err(engine_unavailable());
                    }
                    if cluster.member(self.number).is_none() {
                        return Ok(None);
                    }
                }
                Action::Wait => {
                    attempt = None;
                    patience.wait().await?;
                }
                Action::Unavailable => return Err(engine_unavailable()),
                _ => return Ok(None),
            }
        }
    }

    /// Describes the owner of a call or task, which has no record and never moves.
    fn finding(&self, cluster: &Cluster, attempt: Option<(ReplicaRef, Attempt)>) -> Finding {
        Finding {
            me: cluster.me(),
            is_leaving: false,
            birthplace: Birthplace::Replica(self.number),
            copy: OwnCopy::None,
            known_owner: None,
            record: FoundRecord::Unread,
            attempt,
        }
    }
}
