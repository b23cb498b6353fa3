//! The bare pass-through: an actix-web handler that forwards each request with awc. It shows what
//! an additional hop costs with the gateway's libraries alone.

use std::io;
use std::time::Duration;

use actix_web::http::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName};
use actix_web::web::{Bytes, BytesMut, Data, PayloadConfig, to};
use actix_web::{App, HttpRequest, HttpResponse, HttpServer, error};
use futures_util::StreamExt;

/// The gateway's number of workers, so that only the gateway's own work differs.
const WORKERS: usize = 2;
const BODY_MAX: usize = 16 * 1024 * 1024;
const TIMEOUT: Duration = Duration::from_secs(60);
const KEEP_ALIVE: Duration = Duration::from_secs(75);
const CONNECTIONS_MAX: usize = 2048;

static FORWARDED: [HeaderName; 4] = [
    CONTENT_TYPE,
    ACCEPT,
    HeaderName::from_static("mcp-session-id"),
    HeaderName::from_static("mcp-protocol-version"),
];

/// Serves on `port` and passes everything on to `target`.
pub(crate) fn run(port: u16, target: &str) -> io::Result<()> {
    let target = target.to_owned();
    actix_rt::System::new().block_on(async move {
        HttpServer::new(move || {
            let connector = awc::Connector::new().limit(CONNECTIONS_MAX);
            let client = awc::Client::builder()
                .connector(connector)
                .timeout(TIMEOUT)
                .disable_redirects();
            App::new()
                .app_data(Data::new(client.finish()))
                .app_data(Data::new(target.clone()))
                .app_data(PayloadConfig::new(BODY_MAX))
                .default_service(to(pass))
        })
        .workers(WORKERS)
        .h1_allow_half_closed(false)
        .tcp_nodelay(true)
        .keep_alive(KEEP_ALIVE)
        .bind(("127.0.0.1", port))?
        .run()
        .await
    })
}

async fn pass(
    request: HttpRequest,
    body: Bytes,
    client: Data<awc::Client>,
    target: Data<String>,
) -> actix_web::Result<HttpResponse> {
    let mut onward = client.request(request.method().clone(), target.as_str());
    copy(request.headers(), onward.headers_mut());
    let mut answer = onward
        .send_body(body)
        .await
        .map_err(error::ErrorBadGateway)?;
    let mut response = HttpResponse::build(answer.status());
    for name in &FORWARDED {
        if let Some(value) = answer.headers().get(name) {
            response.insert_header((name, value.clone()));
        }
    }
    let content_type = answer.headers().get(CONTENT_TYPE);
    if content_type.is_some_and(|value| value.as_bytes().starts_with(b"text/event-stream")) {
        return Ok(response.streaming(answer));
    }
    let whole = tokio::time::timeout(TIMEOUT, collect(&mut answer));
    let body = whole.await.map_err(error::ErrorGatewayTimeout)??;
    Ok(response.body(body))
}

fn copy(from: &HeaderMap, to: &mut HeaderMap) {
    for name in &FORWARDED {
        if let Some(value) = from.get(name) {
            to.insert(name.clone(), value.clone());
        }
    }
}

/// Reads the body up to the limit; a body that arrived in one piece is not copied.
async fn collect<S>(answer: &mut awc::ClientResponse<S>) -> actix_web::Result<Bytes>
where
    S: futures_util::Stream<Item = Result<Bytes, error::PayloadError>> + Unpin,
{
    let Some(first) = answer.next().await else {
        return Ok(Bytes::new());
    };
    let first = first.map_err(error::ErrorBadGateway)?;
    let Some(second) = answer.next().await else {
        return Ok(first);
    };
    let mut whole = BytesMut::from(first.as_ref());
    whole.extend_from_slice(&second.map_err(error::ErrorBadGateway)?);
    while let Some(more) = answer.next().await {
        whole.extend_from_slice(&more.map_err(error::ErrorBadGateway)?);
        if whole.len() > BODY_MAX {
            return Err(error::ErrorBadGateway("the answer is over the limit"));
        }
    }
    Ok(whole.freeze())
}
