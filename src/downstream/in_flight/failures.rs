//! What callers read when the transport fails.

use crate::downstream::call_request::lost;
use crate::id::ServerName;
use crate::protocol::{ErrorKind, Failure};
use crate::transport::{LinkError, SendError};

pub(super) fn not_sent(server: &ServerName, error: SendError) -> Failure {
    let kind = match error {
        SendError::Full => ErrorKind::Overloaded,
        SendError::Closed => ErrorKind::ServerUnavailable,
    };
    let message = format!("server `{server}` did not take the call: {error}");
    Failure::new(kind, message)
        .server(server.as_str())
        .retry_after_ms(100)
}

pub(super) fn link_failure(server: &ServerName, error: &LinkError) -> Failure {
    match error {
        LinkError::NotSent(_) => {
            let message = format!("server `{server}` cannot be reached: {error}");
            Failure::new(ErrorKind::ServerUnavailable, message).server(server.as_str())
        }
        LinkError::Lost(why) => lost(server, why),
        LinkError::Status { .. } | LinkError::TooLarge { .. } | LinkError::Protocol(_) => {
            let message = format!("server `{server}`: {error}");
            Failure::new(ErrorKind::ServerProtocol, message).server(server.as_str())
        }
    }
}
