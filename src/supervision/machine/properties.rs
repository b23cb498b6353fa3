//! Properties of the machine that hold for any order of events.

use std::time::Duration;

use proptest::prelude::*;

use super::tests::{configure, settings};
use super::*;

use Action::Launch;
use ChildEvent::{
    Block, GiveUp, Hold, Idle, PlannedExit, Ready, Reconnect, Release, Stop, Tick, Unblock, Wake,
};

fn any_event() -> impl Strategy<Value = u8> {
    0_u8..12
}

fn event(number: u8) -> ChildEvent {
    match number {
        12 | 13 => Idle,
        14 | 15 => Hold,
        16 | 17 => Release,
        18 => GiveUp,
        19 | 20 => Block("dependency"),
        21 | 22 => Unblock,
        23 => PlannedExit,
        0 => Wake,
        1 => Reconnect("operator"),
        2 => Ready,
        3..=5 => ChildEvent::Exit,
        6 => configure(false),
        7 => configure(true),
        8 => ChildEvent::StillStarting(Duration::from_secs(5)),
        _ => Tick,
    }
}

proptest! {
    /// For any order of events, a permanent child is never lost, never runs twice, and never waits
    /// longer than it should.
    #[test]
    fn no_order_of_events_loses_or_doubles_a_child(
        events in proptest::collection::vec((any_event(), 0_u64..30_000, 0.0_f64..1.0), 1..200),
    ) {
        let start = Instant::now();
        let mut now = start;
        let mut machine = RestartMachine::new(settings());
        prop_assert_eq!(machine.decide(Wake, now, 0.0).action, Launch);
        let mut alive = true;
        for (number, pause, chance) in events {
            now += Duration::from_millis(pause);
            let event = event(number);
            if matches!(event, ChildEvent::Exit) {
                if !alive {
                    continue;
                }
                alive = false;
            }
            let step = machine.decide(event, now, chance);
            alive &= !step.stuck;
            if step.action == Launch {
                prop_assert!(!alive, "two incarnations at once");
                alive = true;
            }
            let up = matches!(machine.state(), ChildState::Up { .. });
            prop_assert!(up || machine.deadline().is_some(), "lost: {:?}", machine);
            if let ChildState::Waiting { next_attempt, .. } = machine.state() {
                prop_assert!(*next_attempt <= now + settings().reconnect_every);
            }
        }
        machine.decide(Stop, now, 0.0);
        for _ in 0..2 {
            if let Some(deadline) = machine.deadline() {
                prop_assert!(deadline <= now + settings().shutdown_timeout * 2);
                machine.decide(Tick, deadline, 0.0);
            }
        }
        prop_assert!(matches!(machine.state(), ChildState::Stopped));
    }

    /// For any order of events, a held or blocked child is gone in time, a released child is being
    /// started or waits, and no child runs twice.
    #[test]
    fn a_held_child_is_gone_and_a_released_one_is_not_lost(
        events in proptest::collection::vec((0_u8..24, 0_u64..30_000), 1..200),
    ) {
        let start = Instant::now();
        let mut now = start;
        let mut machine = RestartMachine::new(settings());
        let mut alive = false;
        for (number, pause) in events {
            now += Duration::from_millis(pause);
            let event = event(number);
            if matches!(event, ChildEvent::Exit | PlannedExit | GiveUp) {
                if !alive {
                    continue;
                }
                alive = false;
            }
            let is_out = machine.is_held() || machine.gave_up();
            let is_release = matches!(event, Release) && is_out;
            let step = machine.decide(event, now, 0.5);
            alive &= !step.stuck;
            if step.action == Launch {
                prop_assert!(!alive, "two incarnations at once");
                prop_assert!(!machine.is_held() && !machine.gave_up(), "it was out of service");
                prop_assert!(!machine.blocked, "it was blocked");
                alive = true;
            }
            if alive && (machine.is_held() || machine.blocked) {
                let gone_by = now + settings().shutdown_timeout * 2;
                prop_assert!(machine.deadline().is_some_and(|at| at <= gone_by));
            }
            let waits = matches!(machine.state(), ChildState::Blocked);
            if is_release {
                prop_assert!(alive || waits, "lost: {:?}", machine);
            }
            prop_assert!(!waits || machine.blocked, "lost: {:?}", machine);
            let rests = (waits || matches!(machine.state(), ChildState::Idle)) && !alive;
            let up = matches!(machine.state(), ChildState::Up { .. });
            prop_assert!(rests || up || machine.deadline().is_some(), "lost: {:?}", machine);
        }
    }
}
