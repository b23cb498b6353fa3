//! `/metrics` for Prometheus, on its own listener. A scrape reads the current status and process
//! usage, and the accumulated measurements.

mod child_usage;
mod exposition;
mod families;
mod family;
mod histograms;
mod mailbox_wait;
mod otlp_exporter;
mod otlp_message;
mod server_metrics;

use std::io;
use std::net::{IpAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use actix_web::dev::ServerHandle;
use actix_web::http::header;
use actix_web::{App, HttpRequest, HttpResponse, HttpServer, web};
use parking_lot::Mutex;
use tokio::time::timeout;

use super::operator::Operator;
use crate::transport::process_usage;
use child_usage::CpuTimes;
use exposition::{TextForm, exposition};
use families::{Scrape, families};
use mailbox_wait::mailbox_waits;
use server_metrics::label_of;

/// Maximum open connections of scrapers; further ones wait to be accepted.
const CONNECTIONS_MAX: usize = 16;

/// Maximum time for a scraper to send the head of a request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(5);

/// Maximum wait for the listener to stop.
const STOP_TIMEOUT: Duration = Duration::from_secs(1);

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The format before OpenMetrics, for scrapers that do not request OpenMetrics.
const PLAIN_TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

pub use otlp_exporter::MetricsExporter;

/// The listener for scrapers.
pub struct MetricsServer(ServerHandle);

impl MetricsServer {
    /// Starts serving on a dedicated thread, so that a scrape does not delay calls.
    ///
    /// # Errors
    ///
    /// Returns the system's error when the listener cannot be used.
    pub fn start(listener: TcpListener, operator: Arc<Operator>) -> io::Result<Self> {
        let address = listener.local_addr()?;
        let scraper = web::Data::new(Scraper::new(operator));
        let app = move || {
            App::new()
                .app_data(scraper.clone())
                .route("/metrics", web::get().to(metrics))
                .route("/metrics", web::head().to(metrics))
                .default_service(web::to(no_such_path))
        };
        let server = HttpServer::new(app)
            .workers(1)
            .max_connections(CONNECTIONS_MAX)
            .client_request_timeout(HEAD_TIMEOUT)
            .disable_signals()
            .listen(listener)?
            .run();
        let handle = server.handle();
        actix_rt::spawn(server);
        log::info!("metrics are at http://{address}/metrics");
        Ok(Self(handle))
    }

    pub async fn stop(&self) {
        // The thread ends with the process at the latest.
        let _ = timeout(STOP_TIMEOUT, self.0.stop(false)).await;
    }
}

struct Scraper {
    operator: Arc<Operator>,
    cpu_times: Mutex<CpuTimes>,
}

impl Scraper {
    fn new(operator: Arc<Operator>) -> Self {
        Self {
            operator,
            cpu_times: Mutex::default(),
        }
    }

    async fn scrape(&self) -> Scrape {
        let processes = process_usage().await;
        let status = self.operator.status();
        let metrics = &self.operator.state.metrics;
        let mut cpu_times = self.cpu_times.lock();
        let servers = status.servers.iter().enumerate();
        let groups = servers.filter_map(|(index, server)| {
            let connection = server.connection.as_ref()?;
            let has_processes = connection.transport == "stdio";
            has_processes.then(|| {
                let groups = connection.process_groups.clone();
                (label_of(index, server).to_owned(), groups)
            })
        });
        let groups: Vec<_> = groups.collect();
        Scrape {
            counters: self.operator.state.counters.clone(),
            mailbox_waits: mailbox_waits(&self.operator.state.arbiters),
            histograms: Arc::new(metrics.histograms()),
            exits: metrics.exits(),
            children: cpu_times.update(&groups, &processes),
            process: processes.into_iter().find(|it| it.pid == status.pid),
            status,
        }
    }
}

async fn metrics(request: HttpRequest, scraper: web::Data<Scraper>) -> HttpResponse {
    let mut hosts = request.headers().get_all(header::HOST);
    let host = hosts.next().and_then(|host| host.to_str().ok());
    if !host.is_some_and(is_loopback) || hosts.next().is_some() {
        let message = "Host not allowed: use localhost or a loopback address\n";
        return HttpResponse::Forbidden().body(message);
    }
    let accept = request.headers().get(header::ACCEPT);
    let accept = accept.and_then(|accept| accept.to_str().ok());
    let knows_open_metrics = accept.is_some_and(|it| it.contains("application/openmetrics-text"));
    let (form, content_type) = match knows_open_metrics {
        true => (TextForm::OpenMetrics, OPEN_METRICS),
        false => (TextForm::Plain, PLAIN_TEXT),
    };
    match exposition(&families(&scraper.scrape().await), form) {
        Ok(text) => HttpResponse::Ok().content_type(content_type).body(text),
        Err(error) => {
            log::error!(error:%; "could not format the metrics");
            HttpResponse::InternalServerError().body("metrics could not be formatted\n")
        }
    }
}

/// Rejects other host names: a web page could resolve its own name to this address (DNS rebinding).
fn is_loopback(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    if name.eq_ignore_ascii_case("localhost") {
        return true;
    }
    let name = name.trim_start_matches('[').trim_end_matches(']');
    let address = name.parse::<IpAddr>();
    address.is_ok_and(|address| address.is_loopback())
}

async fn no_such_path() -> HttpResponse {
    HttpResponse::NotFound().body("only `GET /metrics` is served here\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_this_machine_are_served() {
        let table = [
            ("localhost:12007", true),
            ("LOCALHOST", true),
            ("127.0.0.1:1", true),
            ("127.0.0.2", true),
            ("[::1]:12007", true),
            ("localhost.evil.com:12007", false),
            ("evil.com", false),
            ("10.0.0.1:12007", false),
            ("", false),
        ];
        for (host, allowed) in table {
            assert_eq!(is_loopback(host), allowed, "{host}");
        }
    }
}
