//! The entry point of the dashboard: checks the login and the origin, then finds the page.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use actix_web::http::header::{self, HeaderName, HeaderValue};
use actix_web::http::{Method, StatusCode};
use actix_web::{HttpRequest, HttpResponse, web};
use bytes::BytesMut;
use futures_util::{FutureExt as _, StreamExt as _};
use tokio::time::timeout;
use url::{Position, Url, form_urlencoded};

use super::fields::{FORM_TOKEN, Fields, field, query_fields};
use super::page::{FormOutcome, OVERVIEW, View};
use super::ui_request::UiRequest;
use super::visitor::{Visitor, cookie, message_cookie, set_cookie};
use super::{Dashboard, HostCheck, assets, frame, live, login, pages, plots, response};
use crate::admin::base_url::base_url;
use crate::protocol::{ErrorKind, Failure, sole_header};
use crate::telemetry::unix_millis;

/// Maximum size of a form, in bytes.
const FORM_MAX: usize = 1 << 20;

/// Maximum size of a form before login, in bytes.
const LOGIN_FORM_MAX: usize = 4 << 10;

/// Maximum time for a form to arrive.
const FORM_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum length of a message for the next page, in characters.
const MESSAGE_MAX: usize = 500;

/// Handles every request below `/ui`, including one whose handler panics.
pub(super) async fn serve(
    request: HttpRequest,
    payload: web::Payload,
    dashboard: web::Data<Dashboard>,
    check: web::Data<HostCheck>,
) -> HttpResponse {
    let operator = dashboard.operator().await;
    let answered = async {
        check(&request)?;
        check_origin(&request)?;
        if let Some(file) = assets::file(request.path()) {
            return Ok(file);
        }
        let token = operator.token.as_deref().ok_or_else(nothing_here)?;
        let visitor = Visitor::of(&request, token, unix_millis() / 1000);
        let most = match visitor {
            Some(_) => FORM_MAX,
            None => LOGIN_FORM_MAX,
        };
        let form = match *request.method() {
            Method::GET => None,
            Method::POST => Some(read_form(&request, payload, most).await?),
            _ => return Err(only_get_and_post()),
        };
        let asked = UiRequest {
            request: &request,
            dashboard: &dashboard,
            operator,
            token,
            form,
        };
        answer(asked, visitor).await
    };
    let failure = match AssertUnwindSafe(answered).catch_unwind().await {
        Ok(Ok(response)) => return response,
        Ok(Err(failure)) => failure,
        Err(_) => {
            log::error!(path = request.path(); "handling a request panicked");
            let message = "internal error; the gateway's log has the details";
            Failure::new(ErrorKind::Internal, message)
        }
    };
    response::page(status(&failure), frame::failure_page(&failure))
}

async fn answer(
    mut asked: UiRequest<'_>,
    visitor: Option<Visitor>,
) -> Result<HttpResponse, Failure> {
    let path = asked.request.path();
    if path == "/ui/login" {
        return login::answer(asked, visitor).await;
    }
    let Some(visitor) = visitor else {
        return Ok(match (path, asked.form) {
            ("/ui/live", _) => live::signed_out(),
            (_, None) => login::redirect(asked.request),
            (_, Some(_)) => {
                let failure = Failure::new(ErrorKind::SessionInvalid, "you are signed out");
                response::page(StatusCode::UNAUTHORIZED, frame::failure_page(&failure))
            }
        });
    };
    let presented = asked.form.as_ref().and_then(|it| field(it, FORM_TOKEN));
    let is_own = visitor.owns_form(asked.token, presented.unwrap_or_default());
    if path == "/ui/logout" && asked.form.is_some() && is_own {
        return Ok(login::sign_out(asked.request, &visitor, asked.token).await);
    }
    let query = query_fields(asked.request.query_string());
    if path == "/ui/live" {
        return Ok(live::answer(&asked, visitor, &query));
    }
    let view = View {
        operator: asked.operator.as_ref(),
        path,
        query,
        form_token: visitor.form_token(asked.token),
        from: way_back(asked.request).unwrap_or_else(|| OVERVIEW.to_owned()),
        base: base_url(asked.request),
        endpoint: asked.dashboard.endpoint(),
        traffic: &asked.dashboard.0.traffic,
        known: &asked.dashboard.0.known,
        playground: &asked.dashboard.0.playground,
        is_update: false,
    };
    match asked.form.take() {
        None if path == "/ui/plots" => Ok(plots::answer(&view).await),
        None => show(&view, asked.request).await,
        Some(_) if !is_own => {
            let message =
                "this form belonged to an earlier login, and nothing was changed: submit it again";
            let failure = Failure::new(ErrorKind::Forbidden, message);
            Ok(refused(&view, &failure).await)
        }
        Some(form) => act(&view, &form, asked.request).await,
    }
}

async fn show(view: &View<'_>, request: &HttpRequest) -> Result<HttpResponse, Failure> {
    let name = message_cookie(request);
    let message = cookie(request, &name).and_then(|message| decoded(&message));
    let (status, page) = match pages::show(view).await {
        Ok(page) => (StatusCode::OK, page),
        Err(failure) => (status(&failure), pages::failed(&failure)),
    };
    let page = frame::whole(view, page, message.as_deref().map(Ok));
    let shown = response::page(status, page);
    Ok(match message {
        None => shown,
        Some(_) => response::with_cookie(shown, &set_cookie(request, &name, "", 0)),
    })
}

async fn act(
    view: &View<'_>,
    form: &Fields,
    request: &HttpRequest,
) -> Result<HttpResponse, Failure> {
    match pages::act(view, form).await {
        Ok(FormOutcome::Done { to, message }) => {
            let message: String = message.chars().take(MESSAGE_MAX).collect();
            let message: String = form_urlencoded::byte_serialize(message.as_bytes()).collect();
            let cookie = set_cookie(request, &message_cookie(request), &message, 60);
            Ok(response::with_cookie(response::see_other(&to), &cookie))
        }
        Ok(FormOutcome::Page(status, page)) => {
            Ok(response::page(status, frame::whole(view, page, None)))
        }
        Err(failure) => Ok(refused(view, &failure).await),
    }
}

/// The page that the form was on, with the reason why nothing was done.
async fn refused(view: &View<'_>, failure: &Failure) -> HttpResponse {
    let mut place = view.from.as_str();
    loop {
        let before = view.at(place);
        if let Ok(page) = pages::show(&before).await {
            let message = Err(failure.message.as_str());
            return response::page(status(failure), frame::whole(&before, page, Some(message)));
        }
        // The form was on the answer to another one, or what it was about is gone.
        place = before
            .path
            .rsplit_once('/')
            .map_or(OVERVIEW, |(above, _)| above);
    }
}

/// Rejects requests from pages of other origins, even of origins that are allowed for MCP.
pub(in crate::admin) fn check_origin(request: &HttpRequest) -> Result<(), Failure> {
    let text = |name: &HeaderName| {
        let values = request.headers().get_all(name);
        sole_header(name.as_str(), values.map(HeaderValue::as_bytes))
    };
    let Some(origin) = text(&header::ORIGIN)? else {
        return Ok(());
    };
    let authority = origin.split_once("://").map(|(_, authority)| authority);
    let host = text(&header::HOST)?;
    let is_own = authority.is_some_and(|it| host.is_some_and(|host| it.eq_ignore_ascii_case(host)));
    match is_own {
        true => Ok(()),
        false => {
            let message = "the dashboard accepts requests only from its own pages";
            Err(Failure::new(ErrorKind::Forbidden, message))
        }
    }
}

/// The dashboard page that a request comes from, without its origin; `None` for any other page.
fn way_back(request: &HttpRequest) -> Option<String> {
    let text = |name: HeaderName| request.headers().get(name)?.to_str().ok();
    let from = Url::parse(text(header::REFERER)?).ok()?;
    let is_own = text(header::HOST)?
        .eq_ignore_ascii_case(&from[Position::BeforeHost..Position::AfterPort])
        && (from.path() == OVERVIEW || from.path().starts_with("/ui/"));
    is_own.then(|| from[Position::BeforePath..Position::AfterQuery].to_owned())
}

pub(in crate::admin) async fn read_form(
    request: &HttpRequest,
    mut payload: web::Payload,
    most: usize,
) -> Result<Fields, Failure> {
    let content_type = request.headers().get(header::CONTENT_TYPE);
    let content_type = content_type.and_then(|value| value.to_str().ok());
    let media = content_type.and_then(|value| value.split(';').next());
    if media.map(str::trim) != Some("application/x-www-form-urlencoded") {
        let message = "`Content-Type` must be application/x-www-form-urlencoded";
        return Err(Failure::new(ErrorKind::UnsupportedMediaType, message));
    }
    let mut body = BytesMut::new();
    let reading = async {
        while let Some(chunk) = payload.next().await {
            let chunk = chunk.map_err(|error| {
                let message = format!("form: not readable: {error}");
                Failure::new(ErrorKind::InvalidRequest, message)
            })?;
            if body.len() + chunk.len() > most {
                let message = format!("form: larger than {most} bytes");
                return Err(Failure::new(ErrorKind::TooLarge, message));
            }
            body.extend_from_slice(&chunk);
        }
        Ok(())
    };
    timeout(FORM_TIMEOUT, reading).await.map_err(|_| {
        let within = humantime::format_duration(FORM_TIMEOUT);
        let message = format!("form: did not arrive within {within}");
        Failure::new(ErrorKind::BodyTimeout, message)
    })??;
    Ok(form_urlencoded::parse(&body).into_owned().collect())
}

fn decoded(text: &str) -> Option<String> {
    form_urlencoded::parse(format!("m={text}").as_bytes())
        .next()
        .map(|(_, value)| value.into_owned())
        .filter(|value| !value.is_empty())
}

pub(in crate::admin) fn status(failure: &Failure) -> StatusCode {
    let status = StatusCode::from_u16(failure.exact_kind().http_status());
    status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}

fn only_get_and_post() -> Failure {
    let message = "the dashboard supports only GET and POST";
    Failure::new(ErrorKind::HttpMethodNotAllowed, message)
}

fn nothing_here() -> Failure {
    Failure::new(ErrorKind::NotFound, "this gateway has no dashboard")
}

#[cfg(test)]
mod tests {
    use actix_web::test::TestRequest;

    use super::*;

    #[test]
    fn only_pages_of_the_dashboard_are_gone_back_to() {
        let table = [
            ("http://gateway:1/ui", Some("/ui")),
            ("http://gateway:1/ui/servers/a", Some("/ui/servers/a")),
            (
                "https://GATEWAY:1/ui/calls?server=a&x=<b>#c",
                Some("/ui/calls?server=a&x=%3Cb%3E"),
            ),
            (
                "http://gateway:1/ui//evil.example",
                Some("/ui//evil.example"),
            ),
            ("http://gateway:1/ui/../api/token", None),
            ("http://gateway:1/ui\\..\\..\\evil", None),
            ("http://gateway:1/uix", None),
            ("http://gateway:1/", None),
            ("http://gateway:2/ui", None),
            ("http://gateway:1@evil.example/ui", None),
            ("http://evil.example/ui?http://gateway:1/ui", None),
            ("javascript://gateway:1/ui", Some("/ui")),
            ("javascript:alert(1)", None),
            ("//gateway:1/ui", None),
            ("/ui", None),
            ("", None),
        ];
        for (referer, expected) in table {
            let request = TestRequest::default()
                .insert_header(("Host", "gateway:1"))
                .insert_header(("Referer", referer))
                .to_http_request();
            assert_eq!(way_back(&request).as_deref(), expected, "{referer}");
        }
        let without = TestRequest::default().insert_header(("Host", "gateway:1"));
        assert_eq!(way_back(&without.to_http_request()), None);
    }
}
