//! The owner of the configuration: reads the file when it changes, when a source's servers change,
//! on SIGHUP and for operators, carries out their changes, and applies each result.

use std::io::{self, IsTerminal as _};

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;

use super::applied_config::AppliedConfig;
use super::config_file::{ConfigFile, Reading};
use super::config_reader::ConfigReader;
use super::configured::has_sandboxes;
use super::server_times;
use super::service::{self, ServiceState};
use crate::admin::{ConfigAnswer, ConfigRequest};
use crate::config::FileOutcome;
use crate::protocol::{ErrorKind, Failure};
use crate::telemetry::unix_millis;

/// SIGHUP, received from the creation of this value. A closing terminal sends it as well, and ends
/// the gateway like any other program.
pub(super) struct Hangup {
    signal: Signal,
    had_terminal: bool,
}

impl Hangup {
    pub(super) fn listen() -> io::Result<Self> {
        Ok(Self {
            signal: signal(SignalKind::hangup())?,
            had_terminal: io::stdin().is_terminal(),
        })
    }

    fn has_lost_terminal(&self) -> bool {
        self.had_terminal && !io::stdin().is_terminal()
    }
}

/// Handles one event at a time, so that changes are applied in the order of their reads.
pub(super) struct ConfigTask {
    reader: ConfigReader,
    hangup: Hangup,
    requests: mpsc::Receiver<ConfigRequest>,
    applied: AppliedConfig,
}

impl ConfigTask {
    pub(super) fn new(
        (reader, hangup): (ConfigReader, Hangup),
        requests: mpsc::Receiver<ConfigRequest>,
        applied: AppliedConfig,
    ) -> Self {
        Self {
            reader,
            hangup,
            requests,
            applied,
        }
    }

    /// Runs until the terminal is closed.
    pub(super) async fn run(mut self) {
        service::notify(ServiceState::Ready(self.applied.summary()));
        loop {
            tokio::select! {
                () = self.reader.changed() => {
                    let reading = self.reader.read_settled().await;
                    match &reading {
                        // A change through the API has already been applied.
                        Ok(loaded) if self.applied.has(loaded) => self.reader.watch(loaded),
                        _ => self.apply(reading).await,
                    }
                }
                Some(request) = self.requests.recv() => Box::pin(self.carry_out(request)).await,
                Some(()) = self.hangup.signal.recv() => {
                    if self.hangup.has_lost_terminal() {
                        return;
                    }
                    log::info!("SIGHUP received; reloading the configuration");
                    let reading = self.reader.read_settled().await;
                    self.apply(reading).await;
                }
            }
        }
    }

    async fn carry_out(&mut self, request: ConfigRequest) {
        // The operator may have disconnected before the answer.
        match request {
            ConfigRequest::Reload { reply } => {
                let reading = self.reader.on_thread(ConfigFile::read).await;
                let reading = reading.unwrap_or_else(|| self.reader.late_reading());
                self.apply(reading).await;
                let _ = reply.send(self.applied.view());
            }
            ConfigRequest::Key {
                name,
                change,
                reply,
            } => {
                let change = move |file: &ConfigFile| file.change_key(&name, change);
                let change = self.reader.on_thread(change).await;
                let (outcome, reading) = change.unwrap_or_else(late_change);
                if let Some(reading) = reading {
                    self.apply(reading).await;
                }
                let _ = reply.send(outcome);
            }
            ConfigRequest::SettingsAfter { order, reply } => {
                let settings = self
                    .reader
                    .on_thread(|file| file.settings_after(order))
                    .await;
                let _ = reply.send(settings.unwrap_or_else(|| Err(late_reading())));
            }
            ConfigRequest::Order {
                order,
                if_match,
                reply,
            } => {
                let change = self
                    .reader
                    .on_thread(|file| file.carry_out(order, if_match));
                let (outcome, reading) = change.await.unwrap_or_else(late_change);
                if let Some(reading) = reading {
                    self.apply(reading).await;
                }
                let _ = reply.send(match outcome {
                    Ok(outcome) => Ok(self.with_times(outcome).await),
                    Err(refused) => Err(refused),
                });
            }
        }
    }

    /// Applies a reading, and reports the reload to the service manager.
    async fn apply(&mut self, reading: Reading) {
        service::notify(ServiceState::Reloading);
        if reading
            .as_ref()
            .is_ok_and(|loaded| has_sandboxes(&loaded.config))
        {
            self.applied.sandbox().detect().await;
        }
        reading.iter().for_each(|loaded| self.reader.watch(loaded));
        self.applied.reload(reading);
        service::notify(ServiceState::Ready(self.applied.summary()));
    }

    /// Records the time of a server change, and adds it to the answer.
    async fn with_times(&self, outcome: FileOutcome) -> ConfigAnswer {
        let store = self.applied.store();
        let mut answer = outcome.answer;
        if let Some(id) = outcome.server {
            let is_removed = answer.body.is_null();
            let noted = server_times::note(store, &id, is_removed, unix_millis()).await;
            if let Err(error) = noted {
                log::warn!(error:%; "could not persist the server's modification time");
            }
        }
        server_times::add(store, &mut answer.body).await;
        answer
    }
}

fn late_reading() -> Failure {
    let message = "the file system of the configuration does not answer";
    Failure::new(ErrorKind::Internal, message)
}

fn late_change<T>() -> (Result<T, Failure>, Option<Reading>) {
    let message =
        "the file system of the configuration does not answer; the change may still be made";
    (Err(Failure::new(ErrorKind::Internal, message)), None)
}
