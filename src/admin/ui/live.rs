//! `/ui/live`: sends changed parts of an open page as server-sent events.
//!
//! A page is rendered repeatedly at a steady pace that takes only a small part of its thread's
//! time. It does not use the gateway's event feed, so an open page never slows down calls.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use actix_web::HttpResponse;
use bytes::Bytes;
use futures_util::stream::{self, unfold};
use serde_json::json;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, sleep};

use super::assets::ASSETS;
use super::fields::{Fields, field, query_fields};
use super::page::{OVERVIEW, View};
use super::pieces::Shown;
use super::ui_request::UiRequest;
use super::visitor::Visitor;
use super::{Dashboard, pages, response};
use crate::admin::base_url::base_url;
use crate::admin::operator::Operator;
use crate::protocol::ErrorKind;
use crate::telemetry::unix_millis;

/// Minimum interval between two renderings.
const PACE: Duration = Duration::from_millis(250);

/// Pause after a rendering, as a multiple of the time it took.
const REST: u32 = 20;

/// Interval after which an idle stream sends a comment.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Delay before a page reconnects, in milliseconds.
const RETRY_MS: u32 = 1000;

/// An open page that receives updates.
struct LivePage {
    operator: Arc<Operator>,
    visitor: Visitor,
    path: String,
    query: Fields,
    base: String,
    dashboard: Dashboard,
    shown: Shown,
    said: Instant,
    rest: Duration,
    is_new: bool,
    _permit: OwnedSemaphorePermit,
}

/// The update stream for the page in the query.
pub(super) fn answer(asked: &UiRequest<'_>, visitor: Visitor, query: &Fields) -> HttpResponse {
    let permit = asked.dashboard.0.live_pages.clone().try_acquire_owned();
    let Ok(permit) = permit else {
        return ended("full");
    };
    let page = field(query, "page").unwrap_or("/ui");
    let (path, query) = page.split_once('?').unwrap_or((page, ""));
    let page = LivePage {
        operator: asked.operator.clone(),
        visitor,
        path: path.to_owned(),
        query: query_fields(query),
        base: base_url(asked.request),
        dashboard: asked.dashboard.clone(),
        shown: Shown::default(),
        said: Instant::now(),
        rest: Duration::ZERO,
        is_new: true,
        _permit: permit,
    };
    response::events(unfold(page, |mut page| async move {
        let event = page.next().await?;
        Some((Ok::<_, Infallible>(event), page))
    }))
}

/// The complete stream for a page whose login has ended.
pub(super) fn signed_out() -> HttpResponse {
    ended("signed-out")
}

fn ended(event: &str) -> HttpResponse {
    let event = Bytes::from(format!("event: {event}\ndata: {{}}\n\n"));
    response::events(stream::iter([Ok::<_, Infallible>(event)]))
}

impl LivePage {
    /// The next change; `None` when the gateway stops or the login ends.
    async fn next(&mut self) -> Option<Bytes> {
        if std::mem::take(&mut self.is_new) {
            let release = json!({ "release": ASSETS.release });
            let first = format!("retry: {RETRY_MS}\nevent: hello\ndata: {release}\n\n");
            return Some(Bytes::from(first));
        }
        loop {
            sleep(self.rest).await;
            let token = self.operator.token.as_deref()?;
            if !self.visitor.holds(token, unix_millis() / 1000)
                || self.operator.state.log.events().is_closed()
            {
                return None;
            }
            let begun = Instant::now();
            let changes = self.changes().await;
            self.rest = PACE.max(begun.elapsed() * REST);
            if changes.is_empty() && self.said.elapsed() < KEEP_ALIVE {
                continue;
            }
            self.said = Instant::now();
            return Some(match changes.is_empty() {
                true => Bytes::from_static(b":\n\n"),
                false => Bytes::from(changes),
            });
        }
    }

    /// Changed fragments, as SSE events.
    async fn changes(&mut self) -> String {
        let token = self.operator.token.as_deref();
        let view = View {
            operator: self.operator.as_ref(),
            path: &self.path,
            query: self.query.clone(),
            form_token: token.map_or_else(String::new, |token| self.visitor.form_token(token)),
            from: OVERVIEW.to_owned(),
            base: self.base.clone(),
            endpoint: self.dashboard.endpoint(),
            traffic: &self.dashboard.0.traffic,
            known: &self.dashboard.0.known,
            playground: &self.dashboard.0.playground,
            is_update: true,
        };
        let pieces = match pages::show(&view).await {
            Ok(page) => page.live.into_iter(),
            // The overload may pass within a moment.
            Err(failure) if failure.kind == ErrorKind::Overloaded => return String::new(),
            // The subject is gone; a reload of the page explains it.
            Err(_) => return "event: gone\ndata: {}\n\n".to_owned(),
        };
        let changed = pieces.filter_map(|(id, piece)| self.shown.change(&id, piece));
        changed.collect()
    }
}
