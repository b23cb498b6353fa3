//! Forwards a request without a session whose state or task id names another replica. The replica
//! that receives it from a client has authenticated it, and the other one does so again.

use bytes::Bytes;

use super::headers;
use super::known::{KnownSessions, Patience};
use super::sending::{Outgoing, Sent};
use super::{Routed, hopped, unavailable};
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
                Action::Hop(to) => match self.outgoing.send(cluster, to, &body, false).await? {
                    Sent::Answered(response) => return Ok(Some(response)),
                    Sent::NotOwner => attempt = Some((to, Attempt::NotOwner)),
                    Sent::Unreachable(why) => {
                        log::debug!(replica:% = to, why; "could not forward a request");
                        attempt = Some((to, Attempt::Unreachable(cluster.is_gone(to).await)));
                    }
                },
                Action::Probe(to) => {
                    attempt = Some((to, Attempt::Probed(cluster.is_gone(to).await)));
                }
                // It left, or it has joined since the last beat.
                Action::ReadRecord if attempt.is_none() => {
                    if !cluster.beats_now().await {
                        return Err(unavailable("the engine of the cluster is unavailable"));
                    }
                    if cluster.member(self.number).is_none() {
                        return Ok(None);
                    }
                }
                Action::Wait => {
                    attempt = None;
                    patience.wait().await?;
                }
                Action::Unavailable => {
                    return Err(unavailable("the engine of the cluster is unavailable"));
                }
                _ => return Ok(None),
            }
        }
    }

    /// What this replica knows. Only sessions have records, and move.
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
