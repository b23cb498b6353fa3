//! The dashboard at `/ui`: server-rendered pages over the same functions as the API and the command
//! line. They work without JavaScript, which only adds live updates.

mod assets;
pub(super) mod entrance;
pub(super) mod fields;
pub(super) mod frame;
mod live;
mod login;
mod page;
mod pages;
mod paging;
mod parts;
mod pieces;
mod playground;
mod plots;
mod recent;
pub(super) mod response;
pub(super) mod text;
mod traffic;
mod ui_request;
pub(super) mod visitor;

use std::sync::{Arc, OnceLock, Weak};

use actix_web::{HttpRequest, web};
use tokio::sync::{Semaphore, SetOnce};
use tokio::time::sleep;

use super::operator::Operator;
use crate::protocol::Failure;
use crate::transport::process_usage;
use playground::Playground;
use recent::Known;
use traffic::{LOOK_EVERY, Traffic};

/// Maximum live pages at a time; further ones show a snapshot only.
const LIVE_PAGES_MAX: usize = 32;

/// Maximum failed logins whose answers are delayed at a time; further ones get a 429 at once.
const FAILED_LOGINS_MAX: usize = 8;

/// Rejects requests with a disallowed Host.
type HostCheck = dyn Fn(&HttpRequest) -> Result<(), Failure> + Send + Sync;

/// The dashboard of a gateway that is still starting: requests wait until [`Dashboard::open`].
/// Clones share the same state.
#[derive(Clone, Default)]
pub(super) struct Dashboard(Arc<Inner>);

struct Inner {
    operator: SetOnce<Arc<Operator>>,
    live_pages: Arc<Semaphore>,
    failed_logins: Semaphore,
    /// The path that MCP is served at.
    endpoint: OnceLock<String>,
    traffic: Traffic,
    known: Known,
    playground: Playground,
}

impl Default for Inner {
    fn default() -> Self {
        Self {
            operator: SetOnce::new(),
            live_pages: Arc::new(Semaphore::new(LIVE_PAGES_MAX)),
            failed_logins: Semaphore::new(FAILED_LOGINS_MAX),
            endpoint: OnceLock::new(),
            traffic: Traffic::default(),
            known: Known::default(),
            playground: Playground::default(),
        }
    }
}

impl Dashboard {
    /// Starts answering requests. Must be called within an actix system.
    pub(super) fn open(&self, operator: Arc<Operator>) {
        actix_rt::spawn(watch_traffic(Arc::downgrade(&self.0)));
        // Only the first call has an effect.
        let _ = self.0.operator.set(operator);
    }

    /// Adds the paths to an HTTP server that serves MCP at `endpoint`.
    pub(super) fn routes(&self, app: &mut web::ServiceConfig, endpoint: &str) {
        // Every worker passes the same endpoint.
        self.0.endpoint.get_or_init(|| endpoint.to_owned());
        app.app_data(web::Data::new(self.clone()));
        let all = || web::route().to(entrance::serve);
        app.service(web::resource("/ui").route(all()));
        app.service(web::scope("/ui").default_service(all()));
    }

    fn endpoint(&self) -> &str {
        self.0.endpoint.get().map_or("/mcp", String::as_str)
    }

    async fn operator(&self) -> &Arc<Operator> {
        self.0.operator.wait().await
    }
}

/// Samples the counters while the gateway runs.
async fn watch_traffic(inner: Weak<Inner>) {
    while let Some(inner) = inner.upgrade() {
        if let Some(operator) = inner.operator.get() {
            let processes = process_usage().await;
            inner.traffic.look(operator.as_ref(), &processes);
        }
        drop(inner);
        sleep(LOOK_EVERY).await;
    }
}
