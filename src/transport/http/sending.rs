//! Sends one POST, again if an idle connection had been closed, and explains failures.

use std::io;

use awc::ClientResponse;
use awc::error::{ConnectError, SendRequestError};
use bytes::Bytes;

use crate::protocol::{Envelope, Method};
use crate::telemetry::{Cause, Reason};
use crate::transport::LinkError;

/// Maximum bytes read of the body of a refusal.
pub(in crate::transport) const REFUSAL_MAX: usize = 64 * 1024;

/// Maximum bytes of a refusal that an error message shows.
pub(in crate::transport) const EXCERPT_MAX: usize = 300;

/// Sends a message, and sends it again if the connection broke in the way of an idle connection
/// that its server closed at that moment. The first message can have run nevertheless: `may_repeat`
/// returns whether it may run twice.
///
/// # Errors
///
/// Returns the last error of the HTTP client.
pub(in crate::transport) async fn send_or_repeat<S>(
    send: impl Fn() -> S,
    may_repeat: impl FnOnce() -> bool,
) -> Result<ClientResponse, SendRequestError>
where
    S: Future<Output = Result<ClientResponse, SendRequestError>>,
{
    match send().await {
        Err(error) if matches!(link_error(&error), LinkError::Lost(_)) && may_repeat() => {
            log::debug!(error:%; "idle connection was closed; resending the request");
            send().await
        }
        sent => sent,
    }
}

/// Whether a request changes nothing, so that it can run twice.
pub(in crate::transport) fn is_repeatable(frame: &Bytes) -> bool {
    let Ok(Envelope::Request(request)) = Envelope::parse(frame.clone()) else {
        return false;
    };
    matches!(
        request.method,
        Method::Initialize
            | Method::Discover
            | Method::Ping
            | Method::ToolsList
            | Method::PromptsList
            | Method::ResourcesList
            | Method::ResourceTemplatesList
    )
}

/// Whether a request starts a conversation with a server.
pub(in crate::transport) fn is_opening(frame: &Bytes) -> bool {
    let Ok(Envelope::Request(request)) = Envelope::parse(frame.clone()) else {
        return false;
    };
    matches!(request.method, Method::Initialize | Method::Discover)
}

pub(in crate::transport) fn link_error(error: &SendRequestError) -> LinkError {
    match error {
        SendRequestError::Connect(ConnectError::Disconnected) => {
            LinkError::Lost("the server closed the connection without an answer".to_owned())
        }
        SendRequestError::Connect(error) => {
            let reason = Reason::from(not_connected(&error.to_string()));
            LinkError::NotSent(reason.because(cause(error)))
        }
        SendRequestError::Url(error) => LinkError::NotSent(error.to_string().into()),
        SendRequestError::Http(error) => LinkError::NotSent(error.to_string().into()),
        error => LinkError::Lost(error.to_string()),
    }
}

fn cause(error: &ConnectError) -> Option<Cause> {
    match error {
        ConnectError::Timeout => Some(Cause::TimedOut),
        ConnectError::Io(error) => match error.kind() {
            io::ErrorKind::TimedOut => Some(Cause::TimedOut),
            io::ErrorKind::ConnectionRefused => Some(Cause::Refused),
            _ => None,
        },
        _ => None,
    }
}

/// Explains why connecting failed. A server without TLS answers with bytes that are not TLS.
fn not_connected(error: &str) -> String {
    const NO_TLS: [&str; 2] = ["InvalidContentType", "corrupt message"];
    if NO_TLS.iter().any(|sign| error.contains(sign)) {
        return format!(
            "the port does not speak TLS; use `http://` instead of `https://` ({error})"
        );
    }
    error.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_without_tls_is_named() {
        let refused = "Connection refused (os error 111)";
        assert_eq!(not_connected(refused), refused);
        let message = not_connected("received corrupt message of type InvalidContentType");
        assert!(message.contains("use `http://`"), "{message}");
    }
}
