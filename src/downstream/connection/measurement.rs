//! Metrics of a connection: the duration of its own requests, its lifetime, and how the server's
//! process ended.

use tokio::time::Instant;

use super::spec::ConnectionSpec;
use super::state::ConnectionState;
use crate::downstream::cause::error_kind;
use crate::metrics::{ErrorType, Measure, MethodLabel, Network, Series};
use crate::protocol::{ErrorKind, Outcome, Response, Revision};
use crate::telemetry::Cause;
use crate::transport::{LinkEnd, ProcessExit};

/// Records the durations of one incarnation for the metrics.
#[derive(Default)]
pub(super) struct Measurement {
    /// When the connection became ready.
    up_since: Option<Instant>,
}

impl Measurement {
    /// Records the duration of one of our own requests.
    pub(super) fn own_request_ended(
        &self,
        spec: &ConnectionSpec,
        revision: Option<Revision>,
        method: MethodLabel,
        error: impl FnOnce() -> Option<ErrorType>,
        sent: Instant,
    ) {
        if let Some(shard) = spec.of_all.metrics.shard(spec.home) {
            let series = Series {
                method: Some(method),
                error: error(),
                ..series(spec, revision, Measure::ClientOperation)
            };
            shard.add(series, sent.elapsed());
        }
    }

    /// Marks the connection as ready; a new handshake on the same link changes nothing.
    pub(super) fn set_up(&mut self) {
        self.up_since.get_or_insert_with(Instant::now);
    }

    /// Counts the end of the connection, whose state is still known. `ending` is `None` if the
    /// gateway closed it.
    pub(super) fn count_end(
        &mut self,
        spec: &ConnectionSpec,
        state: &ConnectionState,
        ending: Option<&LinkEnd>,
    ) {
        let metrics = &spec.of_all.metrics;
        let has_process = spec.of_server.connector.transport() == "stdio";
        if has_process && state.link().is_some() {
            let server = spec.server().as_str();
            metrics.count_exit(server, ending.map_or("stopped", exit_cause));
        }
        let up_since = self.up_since.take();
        if let (Some(up_since), Some(shard)) = (up_since, metrics.shard(spec.home)) {
            let cause = |ending: &LinkEnd| ending.reason.cause().and_then(error_kind);
            let kind = |ending| cause(ending).unwrap_or(ErrorKind::ServerLost);
            let series = Series {
                error: ending.map(|ending| ErrorType::Failure(kind(ending), false)),
                ..series(spec, state.revision(), Measure::ClientSession)
            };
            shard.add(series, up_since.elapsed());
        }
    }
}

fn series(
    spec: &ConnectionSpec,
    revision: Option<Revision>,
    measure: Measure,
) -> Series<Option<&str>> {
    Series {
        server: Some(spec.server().as_str()),
        revision,
        network: Network::of(spec.of_server.connector.transport()),
        ..Series::of(measure)
    }
}

/// Error of a response to one of our own requests.
pub(super) fn error_of_response(response: &Response) -> Option<ErrorType> {
    match &response.outcome {
        Outcome::Result(_) => None,
        Outcome::Error(error) => Some(ErrorType::of_error(error)),
    }
}

/// Label for why a process ended that the gateway did not ask to end.
fn exit_cause(ending: &LinkEnd) -> &'static str {
    match ending {
        LinkEnd { limit: Some(_), .. } => "limit",
        LinkEnd {
            exit: Some(exit), ..
        } => match exit {
            ProcessExit::Code(0) => "exited",
            ProcessExit::Code(_) => "failed",
            ProcessExit::Signal(_) => "signal",
            ProcessExit::Unknown => "unknown",
        },
        // The process closed its pipes.
        LinkEnd { reason, .. } if reason.cause() == Some(Cause::Crashed) => "closed",
        LinkEnd { .. } => "given_up",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::Reason;

    #[test]
    fn an_end_has_a_cause() {
        let crashed = || LinkEnd::from(Reason::from("ended").because(Cause::Crashed));
        let exit = |exit| LinkEnd {
            exit: Some(exit),
            ..crashed()
        };
        let limit = LinkEnd {
            limit: Some("memory_max"),
            ..exit(ProcessExit::Signal(9))
        };
        let table = [
            (exit(ProcessExit::Code(0)), "exited"),
            (exit(ProcessExit::Code(3)), "failed"),
            (exit(ProcessExit::Signal(9)), "signal"),
            (exit(ProcessExit::Unknown), "unknown"),
            (limit, "limit"),
            (crashed(), "closed"),
            ("`ping` was not answered in time".into(), "given_up"),
        ];
        for (ending, cause) in table {
            assert_eq!(exit_cause(&ending), cause, "{ending}");
        }
    }
}
