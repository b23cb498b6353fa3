//! Explains the next steps of a child in sentences. Nothing is described twice: the sentences come
//! from copies of the child's machine that get the event in question.

use std::time::Duration;

use tokio::time::Instant;

use super::machine::{AfterExit, ChildEvent, ChildState, RestartMachine};

/// Describes the state of a child, and what follows each event that can come next.
pub(super) fn explain(machine: &RestartMachine, now: Instant) -> Vec<String> {
    let mut sentences = vec![state(machine, now)];
    match machine.state() {
        ChildState::Up { since } => {
            sentences.push(after_failure(machine, now, "If it fails now"));
            sentences.extend(until_broken(machine, now));
            let stable_after = machine.settings().stable_after;
            let is_stable = now.duration_since(*since) >= stable_after;
            if let Some(streak) = machine.streak().filter(|_| !is_stable) {
                let left = *since + stable_after - now;
                sentences.push(format!(
                    "Its earlier failures ({}) are forgotten after {} more without one.",
                    streak.failures,
                    shown(left)
                ));
            }
        }
        ChildState::Starting { .. } => {
            sentences.push(after_failure(machine, now, "If the start fails"));
            sentences.extend(until_broken(machine, now));
        }
        ChildState::Waiting { next_attempt, .. } => {
            let mut next = machine.clone();
            next.decide(ChildEvent::Tick, *next_attempt, 0.0);
            if matches!(next.state(), ChildState::Starting { .. }) {
                let then = after_failure(&next, *next_attempt, "If that attempt fails");
                sentences.push(then);
                sentences.extend(until_broken(&next, *next_attempt));
            }
        }
        ChildState::Idle
        | ChildState::Blocked
        | ChildState::Ending { .. }
        | ChildState::Stopped => {}
    }
    sentences
}

fn state(machine: &RestartMachine, now: Instant) -> String {
    let left = |at: Instant| shown(at.saturating_duration_since(now));
    match machine.state() {
        ChildState::Idle if machine.is_held() => {
            "It was stopped by an operator, and starts when an operator starts it.".to_owned()
        }
        ChildState::Idle if machine.gave_up() => "Its last failure was final: it starts when its \
                                                  settings change or an operator starts it."
            .to_owned(),
        ChildState::Idle => "It is idle, and starts when it is needed.".to_owned(),
        ChildState::Blocked => "It is needed, and starts when nothing keeps it.".to_owned(),
        ChildState::Starting { deadline } => {
            format!(
                "It is starting, and is killed in {} unless it is ready.",
                left(*deadline)
            )
        }
        ChildState::Up { since } => format!("It has been up for {}.", shown(now - *since)),
        ChildState::Waiting {
            next_attempt,
            broken,
        } => {
            let failures = machine.streak().map_or(0, |streak| streak.failures);
            let word = if *broken { "broken" } else { "down" };
            let next = left(*next_attempt);
            format!("It is {word} after {failures} failures in a row; next attempt in {next}.")
        }
        ChildState::Ending { deadline, then, .. } => {
            let then = match then {
                AfterExit::Relaunch | AfterExit::Fail(_) => "then it restarts",
                AfterExit::Idle => "then it stays stopped until it is needed or released",
                AfterExit::Stop => "then it is gone",
            };
            format!("It is ending, for {} at most; {then}.", left(*deadline))
        }
        ChildState::Stopped => "It is gone.".to_owned(),
    }
}

/// The machine after a failure of a running child.
fn failed(machine: &RestartMachine, now: Instant, chance: f64) -> RestartMachine {
    let mut machine = machine.clone();
    machine.decide(ChildEvent::Exit, now, chance);
    machine
}

/// The wait after a failure, between the shortest and the longest that chance can make it.
fn after_failure(machine: &RestartMachine, now: Instant, what: &str) -> String {
    let waits = [0.0, 1.0].map(|chance| match failed(machine, now, chance).state() {
        ChildState::Waiting {
            next_attempt,
            broken,
        } => (next_attempt.saturating_duration_since(now), *broken),
        _ => (Duration::ZERO, false),
    });
    let (least, most) = (waits[0].0.min(waits[1].0), waits[0].0.max(waits[1].0));
    let wait = match least == most {
        true => shown(most),
        false => format!("{} to {}", shown(least), shown(most)),
    };
    let kind = match waits[0].1 {
        true => "it is broken, and the next attempt follows after",
        false => "it restarts after",
    };
    format!("{what}, {kind} {wait}.")
}

/// How many failures in a row make a running child broken.
fn until_broken(machine: &RestartMachine, now: Instant) -> Option<String> {
    /// Maximum number of failures that are tried.
    const TRIED: u32 = 1000;
    let settings = machine.settings().clone();
    let (mut machine, mut now) = (machine.clone(), now);
    for failures in 1..=TRIED {
        if machine.is_broken() {
            return None;
        }
        machine = failed(&machine, now, 0.5);
        if machine.is_broken() {
            let times = match failures {
                1 => "the next failure makes".to_owned(),
                _ => format!("{failures} failures at its restarts make"),
            };
            return Some(format!(
                "More than {} failures in {} are too many: {times} it broken, with an attempt \
                 every {}.",
                settings.max_restarts,
                shown(settings.within),
                shown(settings.reconnect_every)
            ));
        }
        now = machine.deadline()?;
        machine.decide(ChildEvent::Tick, now, 0.5);
    }
    None
}

/// A duration in seconds, with a fraction below ten.
fn shown(duration: Duration) -> String {
    let seconds = duration.as_secs_f64();
    let shown = match seconds < 10.0 {
        true => format!("{seconds:.1}"),
        false => format!("{seconds:.0}"),
    };
    format!("{} s", shown.trim_end_matches(".0"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::supervision::policy::{Settings, Tuning};
    use ChildEvent::{Block, Exit, GiveUp, Hold, Ready, Tick, Wake};

    #[test]
    fn every_state_says_what_follows() {
        let settings = Settings::try_new(Tuning {
            max_restarts: 2,
            ..Tuning::default()
        });
        let settings = settings.unwrap();
        let broken = "More than 2 failures in 60 s are too many: 3 failures at its restarts make \
                      it broken, with an attempt every 30 s.";
        let up = [
            "It has been up for 0 s.",
            "If it fails now, it restarts after 0.2 s to 0.5 s.",
            broken,
        ];
        let down = [
            "It is down after 1 failures in a row; next attempt in 0.5 s.",
            "If that attempt fails, it restarts after 0.5 s to 1 s.",
        ];
        type Case<'c> = (Vec<ChildEvent>, &'c [&'c str]);
        let cases: [Case<'_>; 7] = [
            (vec![], &["It is idle, and starts when it is needed."]),
            (vec![Wake, Ready], &up),
            (vec![Wake, Exit], &down),
            (
                vec![Wake, GiveUp],
                &[
                    "Its last failure was final: it starts when its settings change or an operator \
                   starts it.",
                ],
            ),
            (
                vec![Hold],
                &["It was stopped by an operator, and starts when an operator starts it."],
            ),
            (
                vec![Block("dependency"), Wake],
                &["It is needed, and starts when nothing keeps it."],
            ),
            (
                vec![Wake, Exit, Tick, Exit, Tick, Exit],
                &[
                    "It is broken after 3 failures in a row; next attempt in 30 s.",
                    "If that attempt fails, it is broken, and the next attempt follows after 15 s \
                     to 30 s.",
                ],
            ),
        ];
        for (events, expected) in cases {
            let mut machine = RestartMachine::new(settings.clone());
            let mut now = Instant::now();
            for event in events {
                if matches!(event, Tick) {
                    now = machine.deadline().unwrap();
                }
                machine.decide(event, now, 0.0);
            }
            let sentences = explain(&machine, now);
            assert!(sentences.len() >= expected.len(), "{sentences:?}");
            assert_eq!(sentences[..expected.len()], *expected);
        }
    }
}
