//! One POST, sent once more where an idle connection was closed, and why it failed.

use std::io;

use awc::ClientResponse;
use awc::error::{ConnectError, SendRequestError};
use bytes::Bytes;

use crate::protocol::{Envelope, Method};
use crate::telemetry::{Cause, Reason};
use crate::transport::LinkError;

/// Most bytes that are read of an answer that only says no.
pub(in crate::transport) const REFUSAL_MAX: usize = 64 * 1024;

/// Bytes of a refusal that its error text shows.
pub(in crate::transport) const EXCERPT_MAX: usize = 300;

/// Sends a message, and once more if the connection broke in a way that an idle connection does
/// which its server closed as we used it. The first may nevertheless have run: `may_repeat` says
/// whether it may run twice.
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
            log::debug!(error:%; "idle connection was closed, request is sent again");
            send().await
        }
        sent => sent,
    }
}

/// Whether a request changes nothing, so that it may run twice.
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

/// Whether a request asks a server who it is, before anything else.
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

/// Why a connection was not made. A server that speaks no TLS answers with bytes that are none.
fn not_connected(error: &str) -> String {
    const NO_TLS: [&str; 2] = ["InvalidContentType", "corrupt message"];
    if NO_TLS.iter().any(|sign| error.contains(sign)) {
        return format!("the port speaks no TLS, use `http://` instead of `https://` ({error})");
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
