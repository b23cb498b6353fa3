//! The API over the socket in the data directory. Only the directory's owner can connect, so
//! requests need no token and all routes are available.

use std::sync::Arc;
use std::time::Duration;

use actix_codec::Framed;
use actix_http::HttpMessage as _;
use actix_http::h1::Codec;
use actix_http::{HttpService, Request};
use actix_service::{
    IntoServiceFactory as _, Service as _, ServiceFactory as _, ServiceFactoryExt as _, fn_service,
    map_config,
};
use actix_web::dev::AppConfig;
use actix_web::http::Method;
use actix_web::{App, HttpRequest, HttpResponse, web};
use futures_util::future::LocalBoxFuture;
use tokio::io::AsyncWriteExt as _;
use tokio::net::UnixStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::api::{conclude, dispatch};
use super::request::{Access, header_of};
use crate::admin::messages::{VERSION, VERSION_HEADER, VIEW_HEADER};
use crate::admin::operator::Operator;
use crate::id::ViewId;
use crate::protocol::{ErrorKind, Failure};

/// Maximum MCP clients over the socket at a time.
const CLIENTS_MAX: usize = 32;

/// Maximum time for a command to send its request head.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);

type Operators = web::Data<Arc<Operator>>;

/// Serves connections on the socket.
pub(in crate::admin) struct OwnerApi(Box<dyn Fn(UnixStream) -> LocalBoxFuture<'static, ()>>);

impl OwnerApi {
    /// `None` if the HTTP services cannot be created.
    pub(in crate::admin) async fn start(operator: Arc<Operator>) -> Option<Self> {
        let clients = Arc::new(Semaphore::new(CLIENTS_MAX));
        let for_clients = Arc::clone(&operator);
        let app = App::new()
            .app_data(Operators::new(operator))
            .default_service(web::route().to(serve));
        let app = app.into_factory();
        let app = app.map_err(|error: actix_web::Error| error.error_response());
        let factory = HttpService::build()
            .client_request_timeout(HEAD_TIMEOUT)
            .upgrade(fn_service(move |(request, framed)| {
                serve_client(request, framed, for_clients.clone(), clients.clone())
            }))
            .h1(map_config(app, |()| AppConfig::default()));
        let service = factory.new_service(()).await.ok()?;
        Some(Self(Box::new(move |stream| {
            let served = service.call((stream, None));
            Box::pin(async move {
                if let Err(error) = served.await {
                    log::debug!(error:%; "a connection to the control socket ended");
                }
            })
        })))
    }

    /// Serves the requests of one connection until it closes.
    pub(in crate::admin) fn serve(&self, stream: UnixStream) -> LocalBoxFuture<'static, ()> {
        (self.0)(stream)
    }
}

async fn serve(
    request: HttpRequest,
    mut payload: web::Payload,
    operator: Operators,
) -> HttpResponse {
    let dispatched = dispatch(&request, &mut payload, &operator, Access::Owner);
    conclude(&request, &operator, Access::Owner, dispatched).await
}

/// Handles `CONNECT`: after the answer, the socket carries newline-delimited messages of an MCP
/// client, as the pipes of `mcpvisor stdio` do.
async fn serve_client(
    request: Request,
    framed: Framed<UnixStream, Codec>,
    operator: Arc<Operator>,
    clients: Arc<Semaphore>,
) -> Result<(), actix_web::Error> {
    let mut stream = framed.into_parts().io;
    let (view, permit) = match admit(&request, &operator, clients) {
        Ok(admitted) => admitted,
        Err(failure) => {
            let head = head(failure.exact_kind().http_status());
            let body = failure.api_object("").to_string();
            let length = body.len();
            let answer = format!("{head}Content-Length: {length}\r\n\r\n{body}");
            return Ok(stream.write_all(answer.as_bytes()).await?);
        }
    };
    stream
        .write_all(format!("{}\r\n", head(200)).as_bytes())
        .await?;
    (operator.serve_client)(view, stream.into_std()?)?.await;
    drop(permit);
    Ok(())
}

/// The requested view, and one of the limited slots for clients.
fn admit(
    request: &Request,
    operator: &Operator,
    clients: Arc<Semaphore>,
) -> Result<(ViewId, OwnedSemaphorePermit), Failure> {
    if request.method() != Method::CONNECT {
        let message = "use `CONNECT` to open an MCP connection on this socket";
        return Err(Failure::new(ErrorKind::HttpMethodNotAllowed, message));
    }
    let view = header_of(request.headers(), &VIEW_HEADER)?;
    let view = operator.view_named(view)?;
    let permit = clients.try_acquire_owned().map_err(|_| {
        let message = format!("{CLIENTS_MAX} commands are already connected to servers");
        Failure::new(ErrorKind::Overloaded, message)
    })?;
    Ok((view, permit))
}

/// The head of an answer written without actix, without its final empty line.
fn head(status: u16) -> String {
    format!("HTTP/1.1 {status} \r\n{VERSION_HEADER}: {VERSION}\r\n")
}
