//! Limits of client sessions.

use std::time::Duration;

use crate::auth::{ClientLimits, LimitsByClient, RateLimitSettings};
use crate::calls::quota::QuotaLimit;
use crate::id::Holder;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionSettings {
    /// How long a session may have no request and no open stream before it is ended.
    pub idle_timeout: Duration,
    /// Maximum number of sessions.
    pub sessions_max: usize,
    /// Maximum number of calls in flight of one session.
    pub calls_max: usize,
    /// Maximum number of events per stream that are kept for `Last-Event-ID`.
    pub events_per_stream: usize,
    /// Maximum size of the events kept per session over all its streams, in bytes.
    pub events_bytes_max: usize,
    /// Maximum size of the events kept over all sessions, in bytes.
    pub events_bytes_all_max: usize,
    /// Maximum number of subscriptions of one session, or of one stream without a session.
    pub subscriptions_max: usize,
    /// Maximum size of these subscriptions, in bytes.
    pub subscriptions_bytes_max: usize,
    /// Maximum number of events that wait for a client to read them. A slower client is
    /// disconnected and can resume.
    pub stream_queue_max: usize,
    /// Maximum size of these events, in bytes.
    pub stream_queue_bytes_max: usize,
    /// How long the events of an ended stream are kept.
    pub finished_kept: Duration,
    /// How long a client may take to answer a question of a server (sampling, elicitation, roots).
    pub answer_timeout: Duration,
    /// Maximum number of sessionless calls that wait for their client to return with answers.
    pub parked_max: usize,
    /// Maximum number of unexpired states that clients have returned.
    pub used_states_max: usize,
    /// Rotation interval of the key that seals states.
    pub state_key_every: Duration,
    /// Maximum number of listening clients without a session (`subscriptions/listen`).
    pub listeners_max: usize,
    /// Each client's share of sessions, parked calls and listeners, in percent; the last places are
    /// reserved for clients below their share.
    pub peer_share: usize,
    /// Maximum number of sessions per client; 0: unlimited.
    pub sessions_per_client: usize,
    /// Maximum number of listeners per client; 0: unlimited.
    pub listeners_per_client: usize,
    /// Maximum size of one server's events that wait to be delivered to sessions, in bytes.
    pub server_events_max: usize,
    /// How long a first list request waits for servers that were never listed.
    pub first_list_wait: Duration,
    /// Maximum wait for servers of a kind that took longer before.
    pub first_list_wait_max: Duration,
    /// Whether any server uses per-user credentials.
    pub has_user_credentials: bool,
    /// Maximum number of calls in flight per client; 0: unlimited except by its sessions.
    pub calls_per_client: usize,
    /// Call rate limits per client.
    pub rate_limits: RateLimitSettings,
    /// Clients with their own limits.
    pub by_client: LimitsByClient,
}

impl SessionSettings {
    /// Returns the maximum number of events in a stream's queue, and their maximum size in bytes.
    pub(crate) fn stream_queue(&self) -> (usize, usize) {
        (self.stream_queue_max, self.stream_queue_bytes_max)
    }

    pub(crate) fn sessions(&self, holder: &Holder) -> QuotaLimit {
        let all = (self.sessions_per_client, "sessions.max_per_client");
        let one = (
            |it: &ClientLimits| it.sessions,
            "auth.keys.NAME.limits.sessions",
        );
        let own = self.own(holder, all, one);
        self.places("sessions", ("sessions.max", self.sessions_max), own)
    }

    pub(crate) fn listeners(&self, holder: &Holder) -> QuotaLimit {
        let of = "streams of clients that listen";
        let all = (self.listeners_per_client, "sessions.listeners_per_client");
        let one = (
            |it: &ClientLimits| it.listeners,
            "auth.keys.NAME.limits.listeners",
        );
        let own = self.own(holder, all, one);
        self.places(of, ("sessions.listeners", self.listeners_max), own)
    }

    pub(crate) fn parked_calls(&self) -> QuotaLimit {
        let of = "calls that wait for their clients";
        self.places(of, ("sessions.parked_calls", self.parked_max), None)
    }

    /// Returns a client's limit on calls in flight. The total is limited by each server instead.
    pub(crate) fn calls_in_flight(&self, holder: &Holder) -> QuotaLimit {
        let all = (self.calls_per_client, "limits.calls_per_client");
        let one = (
            |it: &ClientLimits| it.calls_in_flight,
            "auth.keys.NAME.limits.calls_in_flight",
        );
        let own = self.own(holder, all, one);
        self.places("calls in flight", ("limits", usize::MAX), own)
    }

    /// Returns the limit for one client: its own limit if configured, or else the default; `None`
    /// for 0.
    fn own(
        &self,
        holder: &Holder,
        all: (usize, &'static str),
        (one, key): (impl Fn(&ClientLimits) -> Option<usize>, &'static str),
    ) -> Option<(usize, &'static str)> {
        let own = self.by_client.find(holder).and_then(one);
        let limit = own.map_or(all, |own| (own, key));
        Some(limit).filter(|(max, _)| *max > 0)
    }

    fn places(
        &self,
        of: &'static str,
        (key, max): (&'static str, usize),
        per_client: Option<(usize, &'static str)>,
    ) -> QuotaLimit {
        let peer_share = self.peer_share;
        QuotaLimit {
            of,
            key,
            max,
            peer_share,
            per_client,
        }
    }
}

impl Default for SessionSettings {
    fn default() -> Self {
        Self {
            idle_timeout: Duration::from_secs(30 * 60),
            sessions_max: 100_000,
            calls_max: 64,
            events_per_stream: 256,
            events_bytes_max: 256 << 10,
            events_bytes_all_max: 64 << 20,
            subscriptions_max: 1000,
            subscriptions_bytes_max: 256 << 10,
            stream_queue_max: 256,
            stream_queue_bytes_max: 1 << 20,
            finished_kept: Duration::from_secs(60),
            answer_timeout: Duration::from_secs(10 * 60),
            parked_max: 1000,
            used_states_max: 100_000,
            state_key_every: Duration::from_secs(24 * 60 * 60),
            listeners_max: 1000,
            peer_share: 10,
            sessions_per_client: 0,
            listeners_per_client: 0,
            server_events_max: 16 << 20,
            first_list_wait: Duration::from_secs(2),
            first_list_wait_max: Duration::from_secs(25),
            has_user_credentials: false,
            calls_per_client: 0,
            rate_limits: RateLimitSettings::default(),
            by_client: LimitsByClient::default(),
        }
    }
}
