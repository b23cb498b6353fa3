use std::time::Duration;

use super::*;
use crate::supervision::policy::Tuning;

/// Settings with round numbers: backoff 1 s, 2 s, 4 s, 8 s; broken at the fourth failure within 100
/// s, then one attempt every 50 s.
pub(super) fn settings() -> Settings {
    Settings::try_new(Tuning {
        backoff_initial: Duration::from_secs(1),
        backoff_factor: 2.0,
        backoff_max: Duration::from_secs(8),
        jitter: 0.0,
        max_restarts: 3,
        within: Duration::from_secs(100),
        reconnect_every: Duration::from_secs(50),
        stable_after: Duration::from_secs(20),
        connect_timeout: Duration::from_secs(10),
        shutdown_timeout: Duration::from_secs(5),
    })
    .unwrap()
}

pub(super) fn configure(renew: bool) -> ChildEvent {
    ChildEvent::Configure {
        settings: settings(),
        renew,
    }
}

/// Describes a state briefly: its name, and its deadline in seconds.
fn picture(machine: &RestartMachine, start: Instant) -> String {
    let name = match machine.state() {
        ChildState::Idle => "idle",
        ChildState::Blocked => "blocked",
        ChildState::Starting { .. } => "starting",
        ChildState::Up { .. } => "up",
        ChildState::Waiting { broken: false, .. } => "backoff",
        ChildState::Waiting { broken: true, .. } => "broken",
        ChildState::Ending { killed: false, .. } => "asked",
        ChildState::Ending { killed: true, .. } => "killed",
        ChildState::Stopped => "stopped",
    };
    match machine.deadline() {
        Some(deadline) => format!("{name} {}", deadline.duration_since(start).as_secs()),
        None => String::from(name),
    }
}

/// Feeds events, each at a given second, and compares the action and state after each.
fn check(script: Vec<(u64, ChildEvent, Action, &str)>) -> RestartMachine {
    let start = Instant::now();
    let mut machine = RestartMachine::new(settings());
    for (second, event, action, state) in script {
        let told = format!("{event:?} at {second} s");
        let step = machine.decide(event, start + Duration::from_secs(second), 0.5);
        let seen = (step.action, picture(&machine, start));
        assert_eq!(seen, (action, String::from(state)), "{told}");
    }
    machine
}

use Action::{Ask, Finish, Kill, Launch, Nothing};
use ChildEvent::{Hold, Idle, Ready, Reconnect, Release, Stop, Tick, Wake};

#[test]
fn failures_back_off_then_break_then_are_tried_periodically() {
    check(vec![
        (0, Wake, Launch, "starting 10"),
        (0, ChildEvent::Exit, Nothing, "backoff 1"),
        (0, Tick, Nothing, "backoff 1"),
        (1, Tick, Launch, "starting 11"),
        (1, ChildEvent::Exit, Nothing, "backoff 3"),
        (3, Tick, Launch, "starting 13"),
        (3, ChildEvent::Exit, Nothing, "backoff 7"),
        (7, Tick, Launch, "starting 17"),
        (7, ChildEvent::Exit, Nothing, "broken 57"),
        (57, Tick, Launch, "starting 67"),
        // A child that is up is not stable yet.
        (58, Ready, Nothing, "up"),
        (60, ChildEvent::Exit, Nothing, "broken 110"),
        // The window is empty by now, but only stable uptime forgets failures.
        (300, Tick, Launch, "starting 310"),
        (301, ChildEvent::Exit, Nothing, "broken 351"),
    ]);
}

#[test]
fn rare_failures_do_not_break_but_keep_their_backoff() {
    check(vec![
        (0, Wake, Launch, "starting 10"),
        (0, ChildEvent::Exit, Nothing, "backoff 1"),
        (1, Tick, Launch, "starting 11"),
        (40, ChildEvent::Exit, Nothing, "backoff 42"),
        (42, Tick, Launch, "starting 52"),
        (90, ChildEvent::Exit, Nothing, "backoff 94"),
        (94, Tick, Launch, "starting 104"),
        (150, ChildEvent::Exit, Nothing, "backoff 158"),
        (158, Tick, Launch, "starting 168"),
        (220, ChildEvent::Exit, Nothing, "backoff 228"),
    ]);
}

#[test]
fn stable_uptime_forgets_failures() {
    check(vec![
        (0, Wake, Launch, "starting 10"),
        (0, ChildEvent::Exit, Nothing, "backoff 1"),
        (1, Tick, Launch, "starting 11"),
        (1, ChildEvent::Exit, Nothing, "backoff 3"),
        (3, Tick, Launch, "starting 13"),
        (3, ChildEvent::Exit, Nothing, "backoff 7"),
        (7, Tick, Launch, "starting 17"),
        (7, ChildEvent::Exit, Nothing, "broken 57"),
        (57, Tick, Launch, "starting 67"),
        (60, Ready, Nothing, "up"),
        (80, ChildEvent::Exit, Nothing, "backoff 81"),
    ]);
}

#[test]
fn somebody_can_skip_the_wait() {
    for skip in [
        || Wake,
        || Reconnect("operator"),
        || configure(false),
        || configure(true),
    ] {
        check(vec![
            (0, Wake, Launch, "starting 10"),
            (0, ChildEvent::Exit, Nothing, "backoff 1"),
            (0, skip(), Launch, "starting 10"),
        ]);
    }
}

#[test]
fn a_new_configuration_forgets_failures() {
    check(vec![
        (0, Wake, Launch, "starting 10"),
        (0, ChildEvent::Exit, Nothing, "backoff 1"),
        (1, Tick, Launch, "starting 11"),
        (1, ChildEvent::Exit, Nothing, "backoff 3"),
        (2, configure(true), Launch, "starting 12"),
        (2, ChildEvent::Exit, Nothing, "backoff 3"),
    ]);
}

#[test]
fn a_child_that_is_up_is_renewed_only_when_asked_for() {
    let up = || vec![(0, Wake, Launch, "starting 10"), (1, Ready, Nothing, "up")];
    for leave in [|| Wake, || configure(false), || Tick, || Ready] {
        let mut script = up();
        script.push((2, leave(), Nothing, "up"));
        check(script);
    }
    for renew in [|| Reconnect("operator"), || configure(true)] {
        let mut script = up();
        script.push((2, renew(), Ask, "asked 7"));
        script.push((3, ChildEvent::Exit, Launch, "starting 13"));
        check(script);
    }
    let mut deaf = up();
    deaf.push((2, Reconnect("operator"), Ask, "asked 7"));
    deaf.push((7, Tick, Kill, "killed 12"));
    deaf.push((8, ChildEvent::Exit, Launch, "starting 18"));
    check(deaf);
}

#[test]
fn a_child_not_ready_in_time_is_killed_and_retried_once_gone() {
    check(vec![
        (0, Wake, Launch, "starting 10"),
        (9, Tick, Nothing, "starting 10"),
        (10, Tick, Kill, "killed 15"),
        // Too late.
        (11, Ready, Nothing, "killed 15"),
        (12, ChildEvent::Exit, Nothing, "backoff 13"),
    ]);
}

#[test]
fn a_killed_child_that_does_not_exit_is_abandoned() {
    let start = Instant::now();
    let at = |second| start + Duration::from_secs(second);
    let mut machine = RestartMachine::new(settings());
    machine.decide(Wake, at(0), 0.0);
    assert_eq!(machine.decide(Tick, at(10), 0.0), Decision::just(Kill));
    let step = machine.decide(Tick, at(15), 0.0);
    assert_eq!(
        step,
        Decision {
            stuck: true,
            ..Decision::NOTHING
        }
    );
    assert_eq!(picture(&machine, start), "backoff 16");
    // Late events of an abandoned incarnation change nothing.
    machine.decide(ChildEvent::Exit, at(15), 0.0);
    assert_eq!(picture(&machine, start), "backoff 16");
}

#[test]
fn stop_is_final_and_bounded_from_every_state() {
    let up = || vec![(0, Wake, Launch, "starting 10"), (1, Ready, Nothing, "up")];
    let finals = || {
        vec![
            (9, Wake, Nothing, "stopped"),
            (9, Reconnect("operator"), Nothing, "stopped"),
            (9, configure(true), Nothing, "stopped"),
            (9, ChildEvent::Exit, Nothing, "stopped"),
            (9, Tick, Nothing, "stopped"),
        ]
    };
    let cases = [
        vec![(0, Stop, Finish, "stopped")],
        vec![
            (0, Wake, Launch, "starting 10"),
            (1, Stop, Ask, "asked 6"),
            (2, ChildEvent::Exit, Finish, "stopped"),
        ],
        vec![
            (0, Wake, Launch, "starting 10"),
            (0, ChildEvent::Exit, Nothing, "backoff 1"),
            (0, Stop, Finish, "stopped"),
        ],
        [
            up(),
            vec![
                (1, Stop, Ask, "asked 6"),
                (2, ChildEvent::Exit, Finish, "stopped"),
            ],
        ]
        .into_iter()
        .flatten()
        .collect(),
        [
            up(),
            vec![
                (1, Reconnect("operator"), Ask, "asked 6"),
                (2, Stop, Nothing, "asked 6"),
                (6, Tick, Kill, "killed 11"),
                (11, Tick, Finish, "stopped"),
            ],
        ]
        .into_iter()
        .flatten()
        .collect(),
    ];
    for mut case in cases {
        // Later than every event of the case.
        case.extend(
            finals()
                .into_iter()
                .map(|(second, event, action, state)| (second + 10, event, action, state)),
        );
        check(case);
    }
}

#[test]
fn a_child_at_rest_is_idle_until_woken() {
    check(vec![
        (0, Idle, Nothing, "idle"),
        (0, Wake, Launch, "starting 10"),
        (1, Idle, Nothing, "starting 10"),
        (1, Ready, Nothing, "up"),
        (2, Idle, Ask, "asked 7"),
        (3, ChildEvent::Exit, Nothing, "idle"),
        (4, Wake, Launch, "starting 14"),
        (5, Ready, Nothing, "up"),
        // Woken while it leaves: a fresh incarnation follows.
        (6, Idle, Ask, "asked 11"),
        (7, Wake, Nothing, "asked 11"),
        (8, ChildEvent::Exit, Launch, "starting 18"),
        (9, Ready, Nothing, "up"),
        // A child that ignores the request is killed, and that is not a failure.
        (10, Idle, Ask, "asked 15"),
        (15, Tick, Kill, "killed 20"),
        (16, ChildEvent::Exit, Nothing, "idle"),
        (17, Reconnect("operator"), Launch, "starting 27"),
    ]);
}

#[test]
fn a_child_that_gave_up_comes_back_only_when_something_changes() {
    let start = Instant::now();
    let changes: [fn() -> ChildEvent; 4] = [
        || Release,
        || Reconnect("operator"),
        || configure(false),
        || configure(true),
    ];
    for change in changes {
        let mut machine = RestartMachine::new(settings());
        machine.decide(Wake, start, 0.0);
        assert_eq!(
            machine.decide(ChildEvent::GiveUp, start, 0.0).action,
            Nothing
        );
        assert!(machine.gave_up() && machine.deadline().is_none());
        for event in [Wake, Tick, ChildEvent::Idle] {
            let later = start + Duration::from_secs(3600);
            assert_eq!(machine.decide(event, later, 0.0).action, Nothing);
        }
        assert_eq!(machine.decide(change(), start, 0.0).action, Launch);
        assert!(!machine.gave_up());
    }
}

#[test]
fn a_child_that_was_asked_to_leave_does_what_was_planned_however_it_exits() {
    let start = Instant::now();
    let mut machine = RestartMachine::new(settings());
    machine.decide(Wake, start, 0.0);
    machine.decide(Ready, start, 0.0);
    assert_eq!(
        machine.decide(Reconnect("operator"), start, 0.0).action,
        Ask
    );
    assert_eq!(
        machine.decide(ChildEvent::GiveUp, start, 0.0).action,
        Launch
    );
    assert!(!machine.gave_up());
}

#[test]
fn a_held_child_comes_back_only_when_it_is_released() {
    let deaf = |second, state| {
        [
            Wake,
            Reconnect("operator"),
            configure(false),
            configure(true),
            Idle,
            Hold,
        ]
        .map(|event| (second, event, Nothing, state))
    };
    let mut script = vec![
        (0, Wake, Launch, "starting 10"),
        (1, Ready, Nothing, "up"),
        (2, Hold, Ask, "asked 7"),
    ];
    script.extend(deaf(3, "asked 7"));
    script.push((4, ChildEvent::Exit, Nothing, "idle"));
    script.extend(deaf(5, "idle"));
    script.extend([
        (6, Release, Launch, "starting 16"),
        (6, Release, Nothing, "starting 16"),
        (7, Hold, Ask, "asked 12"),
        (8, Release, Nothing, "asked 12"),
        (9, ChildEvent::Exit, Launch, "starting 19"),
        (9, ChildEvent::Exit, Nothing, "backoff 10"),
        (9, Hold, Nothing, "idle"),
        (10, Tick, Nothing, "idle"),
        (11, Release, Launch, "starting 21"),
        (12, Ready, Nothing, "up"),
        // Held while it is being restarted.
        (13, Reconnect("operator"), Ask, "asked 18"),
        (13, Hold, Nothing, "asked 18"),
        (14, ChildEvent::Exit, Nothing, "idle"),
        (15, Stop, Finish, "stopped"),
        (16, Release, Nothing, "stopped"),
        (16, Hold, Nothing, "stopped"),
    ]);
    check(script);
}

#[test]
fn an_attempt_waits_until_the_time_that_a_failure_names() {
    let start = Instant::now();
    let at = |second| start + Duration::from_secs(second);
    let mut machine = RestartMachine::new(settings());
    machine.decide(Wake, start, 0.5);
    machine.wait_until(at(30));
    machine.decide(ChildEvent::Exit, start, 0.5);
    assert_eq!(picture(&machine, start), "backoff 30");
    machine.decide(Tick, at(30), 0.5);
    // The next failure states no earliest time, and an earliest time before the backoff's end
    // changes nothing.
    machine.decide(ChildEvent::Exit, at(30), 0.5);
    assert_eq!(picture(&machine, start), "backoff 32");
    machine.decide(Tick, at(32), 0.5);
    machine.wait_until(at(33));
    machine.decide(ChildEvent::Exit, at(32), 0.5);
    assert_eq!(picture(&machine, start), "backoff 36");
}

#[test]
fn a_streak_of_failures_lasts_until_the_child_was_stable() {
    let now = Instant::now();
    let at = |seconds| now + Duration::from_secs(seconds);
    let mut machine = RestartMachine::new(settings());
    machine.decide(ChildEvent::Wake, at(0), 0.0);
    machine.decide(ChildEvent::Exit, at(1), 0.0);
    machine.decide(ChildEvent::Wake, at(2), 0.0);
    // A moment of being up does not end it.
    machine.decide(ChildEvent::Ready, at(3), 0.0);
    machine.decide(ChildEvent::Exit, at(4), 0.0);
    let streak = FailureStreak {
        since: at(1),
        failures: 2,
    };
    assert_eq!(machine.streak(), Some(streak));
    machine.decide(ChildEvent::Wake, at(5), 0.0);
    machine.decide(ChildEvent::Ready, at(5), 0.0);
    let stable = at(5) + settings().stable_after;
    machine.decide(ChildEvent::Reconnect("test"), stable, 0.0);
    assert_eq!(machine.streak(), None);
}

#[test]
fn a_planned_exit_is_no_failure_unless_it_follows_the_start() {
    let now = Instant::now();
    for (uptime, expected) in [(9, "backoff"), (10, "starting")] {
        let mut machine = RestartMachine::new(settings());
        machine.decide(ChildEvent::Wake, now, 0.0);
        machine.decide(ChildEvent::Ready, now, 0.0);
        let ended = now + Duration::from_secs(uptime);
        machine.decide(ChildEvent::PlannedExit, ended, 0.0);
        let is_starting = matches!(machine.state(), ChildState::Starting { .. });
        assert_eq!(is_starting, expected == "starting", "{uptime}");
        assert_eq!(machine.failures_total(), u64::from(!is_starting));
    }
}

#[test]
fn a_blocked_child_that_is_needed_waits_and_counts_no_failure() {
    let now = Instant::now();
    let mut machine = RestartMachine::new(settings()).blocked();
    let action = |machine: &mut RestartMachine, event| machine.decide(event, now, 0.0).action;
    assert_eq!(action(&mut machine, ChildEvent::Wake), Action::Nothing);
    assert!(matches!(machine.state(), ChildState::Blocked));
    assert_eq!(action(&mut machine, ChildEvent::Unblock), Action::Launch);
    machine.decide(ChildEvent::Ready, now, 0.0);
    assert_eq!(
        action(&mut machine, ChildEvent::Block("group")),
        Action::Ask
    );
    assert_eq!(action(&mut machine, ChildEvent::Exit), Action::Nothing);
    assert!(matches!(machine.state(), ChildState::Blocked));
    assert_eq!(machine.failures_total(), 0);
    assert_eq!(action(&mut machine, ChildEvent::Stop), Action::Finish);
}
