//! Pushes all metrics to a collector at an interval, on a dedicated thread.

use std::io;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::metrics::v1::metrics_service_client::MetricsServiceClient;
use prost::Message as _;
use reqwest::header::{CONTENT_TYPE, HeaderMap};
use secrecy::{ExposeSecret as _, SecretString};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tonic::metadata::MetadataMap;
use tonic::transport::{Channel, ClientTlsConfig, Endpoint};

use super::families::families;
use super::otlp_message::{Period, message};
use super::{Operator, Scraper};
use crate::metrics::OtlpSettings;
use crate::telemetry::{OtlpProtocol, unix_millis};
use crate::traces::{http_client, resource};

/// Maximum time for the thread to become ready.
const START_MAX: Duration = Duration::from_secs(10);

/// Handle to the exporter thread.
pub struct MetricsExporter {
    stop: CancellationToken,
    stopped: CancellationToken,
}

impl MetricsExporter {
    /// # Errors
    ///
    /// Returns why the export cannot start.
    pub fn start(settings: OtlpSettings, operator: Arc<Operator>) -> io::Result<Self> {
        let (stop, stopped) = (CancellationToken::new(), CancellationToken::new());
        let (ready, is_ready) = mpsc::sync_channel(1);
        let (stops, ended) = (stop.clone(), stopped.clone().drop_guard());
        std::thread::Builder::new()
            .name("otlp-metrics".to_owned())
            .spawn(move || {
                let _ended = ended;
                if let Err(error) = run(settings, operator, stops, &ready) {
                    // After a successful start, the receiver is gone.
                    let _ = ready.send(Err(error));
                }
            })?;
        let started = is_ready.recv_timeout(START_MAX);
        started.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))?;
        Ok(Self { stop, stopped })
    }

    /// Sends the final metrics.
    pub async fn stop(&self, within: Duration) {
        self.stop.cancel();
        if timeout(within, self.stopped.cancelled()).await.is_err() {
            log::warn!("the collector did not accept the final metrics in time");
        }
    }
}

fn run(
    settings: OtlpSettings,
    operator: Arc<Operator>,
    stop: CancellationToken,
    ready: &mpsc::SyncSender<io::Result<()>>,
) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async move {
        let exports = Exports {
            sender: Sender::of(&settings)?,
            scraper: Scraper::new(operator),
            resource: resource_texts(),
            began: unix_millis(),
            settings,
            fails: false,
        };
        // The gateway's start waits for this.
        let _ = ready.send(Ok(()));
        exports.run(stop).await;
        Ok(())
    })
}

struct Exports {
    sender: Sender,
    scraper: Scraper,
    resource: Vec<(String, String)>,
    /// Start time in milliseconds since 1970.
    began: u64,
    settings: OtlpSettings,
    /// Whether the last export failed.
    fails: bool,
}

impl Exports {
    async fn run(mut self, stop: CancellationToken) {
        let interval = self.settings.interval;
        while timeout(interval, stop.cancelled()).await.is_err() {
            self.export().await;
        }
        self.export().await;
    }

    /// Sends all metrics. A failed export loses nothing, because values are totals since the start.
    async fn export(&mut self) {
        let period = Period::new(self.began, unix_millis());
        let families = families(&self.scraper.scrape().await);
        let message = message(&families, period, &self.resource);
        let limit = self.settings.timeout;
        let sent = timeout(limit, self.sender.send(message)).await;
        let sent = sent.unwrap_or_else(|_| Err(format!("no answer after {limit:?}")));
        match &sent {
            Ok(()) if self.fails => log::info!("metrics export works again"),
            Err(reason) if !self.fails => log::warn!(reason; "could not export metrics"),
            Ok(()) | Err(_) => {}
        }
        self.fails = sent.is_err();
    }
}

enum Sender {
    Http {
        client: reqwest::Client,
        url: SecretString,
        headers: HeaderMap,
    },
    Grpc {
        client: MetricsServiceClient<Channel>,
        headers: HeaderMap,
    },
}

impl Sender {
    fn of(settings: &OtlpSettings) -> io::Result<Self> {
        let headers = settings.headers.clone();
        match settings.protocol {
            OtlpProtocol::HttpProtobuf => Ok(Self::Http {
                client: http_client(settings.timeout)?,
                url: settings.url.clone(),
                headers,
            }),
            OtlpProtocol::Grpc => {
                let url = settings.url.expose_secret().to_owned();
                let endpoint = Endpoint::from_shared(url).map_err(io::Error::other)?;
                let tls = ClientTlsConfig::new().with_enabled_roots();
                let endpoint = match settings.is_encrypted {
                    true => endpoint.tls_config(tls).map_err(io::Error::other)?,
                    false => endpoint,
                };
                let channel = endpoint.timeout(settings.timeout).connect_lazy();
                let client = MetricsServiceClient::new(channel);
                Ok(Self::Grpc { client, headers })
            }
        }
    }

    /// Sends a message. The error omits the collector's address.
    async fn send(&mut self, message: ExportMetricsServiceRequest) -> Result<(), String> {
        match self {
            Self::Http {
                client,
                url,
                headers,
            } => {
                let request = client
                    .post(url.expose_secret())
                    .headers(headers.clone())
                    .header(CONTENT_TYPE, "application/x-protobuf")
                    .body(message.encode_to_vec());
                let answer = request.send().await.map_err(without_url)?;
                answer.error_for_status().map_err(without_url)?;
            }
            Self::Grpc { client, headers } => {
                let mut request = tonic::Request::new(message);
                *request.metadata_mut() = MetadataMap::from_headers(headers.clone());
                let answer = client.export(request).await;
                answer.map_err(|status| format!("{:?}: {}", status.code(), status.message()))?;
            }
        }
        Ok(())
    }
}

fn without_url(error: reqwest::Error) -> String {
    error.without_url().to_string()
}

/// Resource attributes as text.
fn resource_texts() -> Vec<(String, String)> {
    let resource = resource();
    let pairs = resource.iter();
    let pairs = pairs.map(|(key, value)| (key.to_string(), value.to_string()));
    pairs.collect()
}
