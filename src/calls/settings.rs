//! Limits of client sessions.

use std::time::Duration;

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
    /// Bytes of the subscriptions of one session.
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
    /// Clients without a session that listen (`subscriptions/listen`).
    pub listeners_max: usize,
    /// Bytes of what one server says outside of calls that wait to be brought to sessions.
    pub server_events_max: usize,
    /// How long the first list waits for servers that were never listed.
    pub first_list_wait: Duration,
    /// How long it waits at most for those of a kind that took longer before.
    pub first_list_wait_max: Duration,
}

impl SessionSettings {
    /// Events that may wait in the queue of a stream, and their bytes.
    pub(crate) fn stream_queue(&self) -> (usize, usize) {
        (self.stream_queue_max, self.stream_queue_bytes_max)
    }
}

impl Default for SessionSettings {
    fn default() -> Self {
        Self {
            idle_timeout: Duration::from_secs(30 * 60),
            sessions_max: 100_000,
            calls_max: 64,
            events_per_stream: 256,
            events_bytes_max: 1 << 20,
            events_bytes_all_max: 64 << 20,
            subscriptions_bytes_max: 256 << 10,
            stream_queue_max: 256,
            stream_queue_bytes_max: 1 << 20,
            finished_kept: Duration::from_secs(60),
            answer_timeout: Duration::from_secs(10 * 60),
            parked_max: 1000,
            listeners_max: 1000,
            server_events_max: 16 << 20,
            first_list_wait: Duration::from_secs(2),
            first_list_wait_max: Duration::from_secs(25),
        }
    }
}
