//! Limits of client sessions.

use std::time::Duration;

use crate::auth::{ClientLimits, LimitsByClient, RateLimitSettings};
use crate::calls::quota::QuotaLimit;
use crate::id::Holder;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionSettings {
    /// A session without request or open stream for this long is ended.
    pub idle_timeout: Duration,
    /// Sessions in all.
    pub sessions_max: usize,
    /// Calls of one session in flight.
    pub calls_max: usize,
    /// Events of one stream that are kept for `Last-Event-ID`.
    pub events_per_stream: usize,
    /// Bytes of events kept per session, over all its streams.
    pub events_bytes_max: usize,
    /// Bytes of events kept over all sessions.
    pub events_bytes_all_max: usize,
    /// Subscriptions of one session, and of one stream of a client without one.
    pub subscriptions_max: usize,
    /// Bytes of these.
    pub subscriptions_bytes_max: usize,
    /// Events that wait for a client to read them; a slower client loses the stream and resumes.
    pub stream_queue_max: usize,
    /// Bytes of these.
    pub stream_queue_bytes_max: usize,
    /// How long the events of a stream are kept after its end.
    pub finished_kept: Duration,
    /// How long a client may take to answer a question of a server (sampling, elicitation, roots).
    pub answer_timeout: Duration,
    /// Calls of clients without a session that wait for their client to come back with answers.
    pub parked_max: usize,
    /// States that clients without a session came back with and that have not expired.
    pub used_states_max: usize,
    /// How often the key changes with which states are sealed.
    pub state_key_every: Duration,
    /// Clients without a session that listen (`subscriptions/listen`).
    pub listeners_max: usize,
    /// The share of sessions, parked calls and listeners, in percent, that each client has of the
    /// last places.
    pub peer_share: usize,
    /// Sessions of one client; 0: no limit of its own.
    pub sessions_per_client: usize,
    /// The same of those that listen.
    pub listeners_per_client: usize,
    /// Bytes of what one server says outside of calls that wait to be brought to sessions.
    pub server_events_max: usize,
    /// How long the first list waits for servers that were never listed.
    pub first_list_wait: Duration,
    /// How long it waits at most for those of a kind that took longer before.
    pub first_list_wait_max: Duration,
    /// Whether any server is called with the sign-in of each user.
    pub has_user_credentials: bool,
    /// Calls in flight of one client; 0: as many as its sessions may have.
    pub calls_per_client: usize,
    /// How often each client may call.
    pub rate_limits: RateLimitSettings,
    /// The clients for which some of these are other limits.
    pub by_client: LimitsByClient,
}

impl SessionSettings {
    /// Events that may wait in the queue of a stream, and their bytes.
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

    /// Without a limit for all together: each server has one.
    pub(crate) fn calls_in_flight(&self, holder: &Holder) -> QuotaLimit {
        let all = (self.calls_per_client, "limits.calls_per_client");
        let one = (
            |it: &ClientLimits| it.calls_in_flight,
            "auth.keys.NAME.limits.calls_in_flight",
        );
        let own = self.own(holder, all, one);
        self.places("calls in flight", ("limits", usize::MAX), own)
    }

    /// The most that one client gets: its own number, or that of all. 0 is no limit.
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
