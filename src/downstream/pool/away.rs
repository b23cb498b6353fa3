//! The failures of calls to a server that cannot take them now.

use std::time::Duration;

use crate::downstream::cause::cause_of_exit;
use crate::downstream::pool::dependencies::Awaited;
use crate::downstream::starting::StartStage;
use crate::id::ServerName;
use crate::protocol::{ErrorKind, Failure};
use crate::supervision::{ChildPhase, ChildUnavailable};
use crate::telemetry::millis;

/// The failure of calls that a server cannot take now; `detail` is shown in parentheses.
pub(super) fn failure_while_away(
    name: &ServerName,
    away: &ChildUnavailable,
    detail: Option<String>,
    awaited: Option<Awaited>,
) -> Failure {
    if let Some(awaited) = awaited {
        return waiting(name, awaited);
    }
    let (state, outlook) = match away.phase {
        ChildPhase::Idle | ChildPhase::Waiting | ChildPhase::Starting => {
            ("is starting", "try again in a moment")
        }
        ChildPhase::Up | ChildPhase::Backoff => ("is away", "it is reconnected automatically"),
        ChildPhase::Broken => (
            "is away",
            "it failed too often and is now retried at longer intervals",
        ),
        ChildPhase::Stopping | ChildPhase::Stopped => {
            ("was stopped", "it does not restart automatically")
        }
    };
    let mut message = format!("server `{name}` {state}");
    if let Some(detail) = detail {
        message.push_str(&format!(" ({detail})"));
    }
    match away.retry_after {
        Some(after) => message.push_str(&next_attempt(after)),
        None => message.push_str(&format!("; {outlook}")),
    }
    unavailable(name, message, away.retry_after).cause(away.why.as_ref().and_then(cause_of_exit))
}

/// Why a server cannot take calls: the stage of its start, or how it ended last. A failed server
/// that only queues for its next start keeps naming its failure.
pub(super) fn detail(
    name: &ServerName,
    stage: Option<StartStage>,
    why: Option<String>,
) -> Option<String> {
    let why = why.map(|why| format!("it {why}"));
    match stage {
        Some(StartStage::Queued) if why.is_some() => why,
        Some(stage) => Some(stage.summary(name)),
        None => why,
    }
}

/// The failure of calls to a server that waits for others.
fn waiting(name: &ServerName, Awaited { text, retry_after }: Awaited) -> Failure {
    let next = retry_after.map(next_attempt).unwrap_or_default();
    let message = format!("server `{name}` {text}{next}; it starts when they are ready");
    unavailable(name, message, retry_after)
}

fn next_attempt(after: Duration) -> String {
    format!(", next attempt in {} s", after.as_secs_f64().ceil())
}

fn unavailable(name: &ServerName, message: String, retry_after: Option<Duration>) -> Failure {
    let failure = Failure::new(ErrorKind::ServerUnavailable, message).server(name.as_str());
    match retry_after {
        Some(after) => failure.retry_after_ms(millis(after)),
        None => failure,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_server_names_its_failure_while_it_queues() {
        let name = ServerName::try_new("files").unwrap();
        let why = || Some("cannot be started".to_owned());
        let failed = Some("it cannot be started".to_owned());
        let queued = Some("waiting to start".to_owned());
        let download = || StartStage::Download("npx");
        let downloads = Some("npx may be downloading".to_owned());
        let table = [
            (None, None, None),
            (None, why(), failed.clone()),
            (Some(StartStage::Queued), None, queued),
            (Some(StartStage::Queued), why(), failed),
            (Some(download()), why(), downloads),
        ];
        for (stage, why, expected) in table {
            assert_eq!(detail(&name, stage, why), expected);
        }
    }
}
