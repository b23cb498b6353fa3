//! Sends one message as a POST, and handles the response.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use awc::ClientResponse;
use awc::http::header::HeaderMap;
use bytes::Bytes;
use tokio::time::timeout;

use super::link_state::HttpLinkState;
use super::message::HttpMessage;
use super::requests::{SESSION_ID, SessionRequests};
use super::stream;
use crate::credentials::{Credential, NotRenewed};
use crate::telemetry::{Reason, unix_millis};
use crate::transport::http::authorized::is_refusal;
use crate::transport::http::body::{self, BodyKind, BodyReader, body_kind};
use crate::transport::http::link_tasks::NOTE_MAX;
use crate::transport::http::sending::{
    EXCERPT_MAX, REFUSAL_MAX, is_opening, is_repeatable, link_error, send_or_repeat,
};
use crate::transport::http::{redirect, refusals};
use crate::transport::{LinkError, LinkEvent, SendError, SessionRefusal, SignInPlace, messages};

/// Interval at which a server that waits for a sign-in is asked again.
const LOOK_AGAIN: Duration = Duration::from_secs(5 * 60);

/// Sends a request; its outcome is reported as events.
pub(super) fn call(link_state: &Rc<HttpLinkState>, call: u64, message: HttpMessage) {
    // The session is taken now, because the task can start after the session was dropped.
    let (of_task, requests) = (Rc::clone(link_state), link_state.requests());
    let task = async move {
        run_call(&of_task, &requests, call, &message).await;
        of_task.tasks.finish(call);
    };
    link_state.tasks.start_call(call, task);
}

async fn run_call(
    link_state: &Rc<HttpLinkState>,
    requests: &SessionRequests,
    call: u64,
    message: &HttpMessage,
) {
    link_state.tasks.wait_for_initialized().await;
    if link_state.is_stream_opening() {
        Box::pin(link_state.stream_opened()).await;
    }
    if let Some(credential) = link_state.credential() {
        credential.opened().await;
    }
    let lacking = link_state.credential().filter(|it| it.lacks_token());
    if let Some(credential) = lacking
        && !Box::pin(exchanged_token(link_state, credential, message, call)).await
    {
        return;
    }
    let send = || message.post(link_state, requests);
    let sent = send_or_repeat(send, || is_repeatable(&message.frame)).await;
    match sent {
        Ok(response) if is_refusal(&response) => {
            Box::pin(refused_token(link_state, requests, message, call, response)).await;
        }
        Ok(response) => answer(link_state, requests, message, call, response).await,
        Err(error) => link_state.tasks.fail(Some(call), link_error(&error)),
    }
}

/// Exchanges the client's token, without which the request is not sent. Returns whether a token is
/// available. An opening request waits until a client arrives whose token is accepted.
async fn exchanged_token(
    link_state: &HttpLinkState,
    credential: &Arc<Credential>,
    message: &HttpMessage,
    call: u64,
) -> bool {
    loop {
        let Err(why) = credential.exchanged().await else {
            return true;
        };
        if !why.needs_person() || !is_opening(&message.frame) {
            let error = LinkError::NotSent(why.to_string().into());
            link_state.tasks.fail(Some(call), error);
            return false;
        }
        link_state
            .tasks
            .emit(LinkEvent::SignIn(SignInPlace::Client));
        let _ = timeout(LOOK_AGAIN, credential.refusals().signed_in()).await;
    }
}

/// Handles a refused token that cannot be replaced. An opening request waits for a
/// sign-in; a later request ends the link, and the next link waits. For a user's token, the link
/// stays: the caller is asked to sign in, and the next call has the new token.
async fn refused_token(
    link_state: &Rc<HttpLinkState>,
    requests: &SessionRequests,
    message: &HttpMessage,
    call: u64,
    mut response: ClientResponse,
) {
    while is_refusal(&response) {
        let refused = link_state.credential().map(|it| (it, it.refusals().last()));
        let Some((credential, Some(why))) = refused else {
            break;
        };
        let needs_login = why.needs_person();
        if !needs_login || !is_opening(&message.frame) {
            let reason = Reason::from(why.to_string());
            let error = LinkError::NotSent(reason.clone());
            link_state.tasks.fail(Some(call), error);
            if needs_login && credential.principal().is_none() {
                link_state.tasks.emit(LinkEvent::Closed(reason.into()));
            }
            return;
        }
        let place = match why {
            NotRenewed::NotExchanged(_) => SignInPlace::Client,
            _ => SignInPlace::Gateway,
        };
        link_state.tasks.emit(LinkEvent::SignIn(place));
        // The server may no longer require a token.
        let _ = timeout(LOOK_AGAIN, credential.refusals().signed_in()).await;
        match message.post(link_state, requests).await {
            Ok(next) => response = next,
            Err(error) => return link_state.tasks.fail(Some(call), link_error(&error)),
        }
    }
    answer(link_state, requests, message, call, response).await;
}

async fn answer(
    link_state: &Rc<HttpLinkState>,
    requests: &SessionRequests,
    message: &HttpMessage,
    call: u64,
    mut response: ClientResponse,
) {
    // The rarer branches are boxed, because every call would pay for the size of the largest.
    if !response.status().is_success() {
        let refusal = handle_refusal(link_state, requests, message, Some(call), &mut response);
        return Box::pin(refusal).await;
    }
    if !message.is_sessionless()
        && !requests.has_session()
        && let Some(id) = response.headers().get(SESSION_ID)
    {
        link_state.adopt_session(id);
    }
    match body_kind(&response) {
        BodyKind::Json | BodyKind::Missing => whole_answer(link_state, call, &mut response).await,
        BodyKind::Events => {
            let may_resume = !message.is_sessionless();
            Box::pin(stream::answer(link_state, call, response, may_resume)).await;
        }
        BodyKind::Other => {
            let text = "content type is neither application/json nor text/event-stream";
            link_state
                .tasks
                .fail(Some(call), LinkError::Protocol(text.into()));
        }
    }
}

/// Handles an answer in one body.
async fn whole_answer(link_state: &Rc<HttpLinkState>, call: u64, response: &mut ClientResponse) {
    let settings = &link_state.settings;
    let (length_max, idle_max) = (settings.body_max, settings.stream_idle_timeout);
    let mut reader = BodyReader::new(length_max, idle_max, Some(&link_state.answers));
    let received = match reader.read(response).await {
        Ok(body) if body.is_empty() => {
            let status = response.status().as_u16();
            let text = format!("empty body with HTTP status {status}");
            Err(LinkError::Protocol(text.into()))
        }
        Ok(body) => {
            let room = reader.room(&body);
            let received = link_state.receive(Some(call), body.clone(), true, room);
            received.map_err(|error| body::malformed_body(response.headers(), &body, &error))
        }
        Err(error) => Err(error),
    };
    match received {
        Ok(true) => {}
        Ok(false) => {
            let fault = LinkError::Protocol("the body answers another request".into());
            link_state.tasks.fail(Some(call), fault);
        }
        Err(error) => link_state.tasks.fail(Some(call), error),
    }
}

/// Handles an answer with an error status. Some servers send the JSON-RPC answer that way.
async fn handle_refusal(
    link_state: &Rc<HttpLinkState>,
    requests: &SessionRequests,
    message: &HttpMessage,
    call: Option<u64>,
    response: &mut ClientResponse,
) {
    let status = response.status().as_u16();
    let retry_after = refusals::retry_after(response.headers(), unix_millis());
    let idle_max = link_state.settings.stream_idle_timeout;
    let body = body::read(response, REFUSAL_MAX, idle_max).await;
    let body = body.unwrap_or_default();
    let text = redirect::refusal(response);
    let text = text.unwrap_or_else(|| messages::excerpt(&body, EXCERPT_MAX));
    let error = LinkError::Status {
        status,
        text,
        retry_after,
    };
    // A busy server states when to retry, which the JSON-RPC answer does not.
    let is_for_now = matches!(status, 429 | 503) || retry_after.is_some();
    let has_session = message.has_session(requests) && refusals::puts_session_in_doubt(status);
    let is_own_answer = || call.is_some_and(|call| refusals::is_own_answer(status, &body, call));
    if !is_for_now
        && call.is_some()
        && (!has_session || is_own_answer())
        && link_state.receive(call, body.clone(), true, None) == Ok(true)
    {
        return;
    }
    if !has_session {
        return link_state.tasks.fail(call, error);
    }
    let answered = call.filter(|_| status != 404 && !is_for_now);
    let refusal = SessionRefusal {
        error,
        answer: answered.and_then(|call| messages::answer(&body, call)),
        may_have_run: !refusals::refuses_session(status, &body),
        is_stale: link_state.is_stale(requests),
    };
    link_state.session_gone(call, refusal);
}

/// Sends a notification or an answer, which get no response.
///
/// # Errors
///
/// Returns [`SendError`] if too many are in flight, or the link is closing.
pub(super) fn note(link_state: &Rc<HttpLinkState>, message: HttpMessage) -> Result<(), SendError> {
    let frame = message.frame.clone();
    let task = run_note(Rc::clone(link_state), message);
    link_state.tasks.start_note(&frame, task)
}

async fn run_note(link_state: Rc<HttpLinkState>, message: HttpMessage) {
    let requests = link_state.requests();
    let send = || message.post(&link_state, &requests);
    // Repeating a notification or an answer does no harm.
    let sent = send_or_repeat(send, || true).await;
    match sent {
        Ok(mut response) if response.status().is_success() => {
            // The body is read so that the connection can be reused; a stream is not awaited.
            if body_kind(&response) != BodyKind::Events {
                let _ = body::read(&mut response, REFUSAL_MAX, NOTE_MAX).await;
            }
        }
        Ok(mut response) => {
            handle_refusal(&link_state, &requests, &message, None, &mut response).await;
        }
        Err(error) => link_state.tasks.fail(None, link_error(&error)),
    }
}

/// Ends the session (C-HTTP-16); a server may refuse this.
pub(super) async fn delete(link_state: &Rc<HttpLinkState>) {
    let requests = link_state.requests();
    if !requests.has_session() {
        return;
    }
    let request = match requests.delete() {
        Ok(request) => request,
        Err(error) => return log::error!(error:%; "session cannot be ended"),
    };
    let none = HeaderMap::new();
    let deleted = link_state.authorized(&request, &none, Bytes::new()).send();
    match deleted.await {
        Ok((response, _)) => log::debug!(status = response.status().as_u16(); "session ended"),
        Err(error) => log::debug!(error:%; "session was not ended"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The future is allocated for each call; including tokio's part, glibc's malloc is several
    /// times slower above 1,032 bytes.
    #[test]
    fn the_future_of_a_call_stays_small() {
        fn size_of_future<'a, F>(
            _: impl Fn(&'a Rc<HttpLinkState>, &'a SessionRequests, u64, &'a HttpMessage) -> F,
        ) -> usize {
            size_of::<F>()
        }
        let size = size_of_future(run_call);
        assert!(size <= 952, "{size} bytes");
    }
}
