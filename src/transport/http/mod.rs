//! Parts of both HTTP transports: requests, bodies, event streams, and the tasks of a link.

pub(super) mod authorized;
pub(super) mod body;
pub(super) mod cookies;
mod decoding;
mod dialer;
mod idle_socket;
pub(super) mod link_tasks;
mod no_date_timer;
pub(super) mod peer_client;
pub(super) mod redirect;
pub(super) mod refusals;
pub(super) mod request_factory;
mod response_head;
pub(super) mod sending;
mod socket;
pub(super) mod sse;
pub(super) mod web_client;
mod wire_stream;
mod worker_clients;
