//! Tables of the gates, and rollouts under random faults.

use super::*;
use crate::supervision::random::{Random as _, SeededRandom};
use RolloutAction::{Promote, RollBack, Watch};

const WINDOW: Duration = Duration::from_secs(10);

fn policy() -> RolloutPolicy {
    RolloutPolicy {
        window: WINDOW,
        ..RolloutPolicy::default()
    }
}

fn sample(took: u64, is_error: bool) -> Sample {
    Sample {
        took: Duration::from_millis(took),
        is_error,
    }
}

fn compared(old: Sample, candidate: Sample) -> RolloutEvent {
    RolloutEvent::Compared {
        old,
        candidate,
        difference: None,
    }
}

/// A rollout that watches its candidate, and its time.
fn watching(policy: RolloutPolicy) -> (RolloutMachine, Instant) {
    let now = Instant::now();
    let mut machine = RolloutMachine::new(policy, now + WINDOW);
    assert_eq!(machine.on(RolloutEvent::Ready, now), Some(Watch));
    (machine, now)
}

/// The outcome of these events, and of the end of the window.
fn outcome(policy: RolloutPolicy, events: Vec<RolloutEvent>) -> (Option<RolloutAction>, String) {
    let (mut machine, now) = watching(policy);
    let mut actions = events.into_iter().map(|event| machine.on(event, now));
    let early = actions.find_map(|action| action);
    let end = now + WINDOW;
    let last = early.or_else(|| machine.on(RolloutEvent::Tick { waiting: 0 }, end));
    (last, machine.view(end).why.unwrap_or_default())
}

#[test]
fn each_gate_rolls_back_for_its_reason() {
    let ok = sample(10, false);
    let many = |count: usize, candidate| vec![compared(ok, candidate); count];
    let differs = RolloutEvent::Compared {
        old: ok,
        candidate: ok,
        difference: Some("`t` answered otherwise".to_owned()),
    };
    let memory = |old: u64, candidate: u64| RolloutEvent::Measured {
        old: old << 20,
        candidate: candidate << 20,
    };
    let failed = RolloutEvent::Failed("it ended".to_owned());
    let table = [
        (vec![], Promote, ""),
        (many(50, ok), Promote, ""),
        (vec![differs], RollBack, "`t` answered otherwise"),
        (vec![failed], RollBack, "it ended"),
        (
            many(1, sample(10, true)),
            RollBack,
            "more of its answers are errors",
        ),
        (many(30, sample(69, false)), Promote, ""),
        (many(30, sample(71, false)), RollBack, "it is slower"),
        (many(4, sample(900, false)), Promote, ""),
        (vec![memory(100, 50), memory(100, 260)], Promote, ""),
        (
            vec![memory(100, 50), memory(100, 270)],
            RollBack,
            "its memory grows",
        ),
        (
            vec![memory(0, 50), memory(0, 170)],
            RollBack,
            "its memory grows",
        ),
        (vec![memory(0, 0)], Promote, ""),
    ];
    for (events, action, why) in table {
        let shown = format!("{:?}", events.first());
        let expected = (Some(action), why.to_owned());
        assert_eq!(outcome(policy(), events), expected, "{shown}");
    }
    // Calls that fail at both say nothing about the candidate.
    let both = vec![compared(sample(1, true), sample(1, true)); 30];
    assert_eq!(outcome(policy(), both).0, Some(Promote));
}

#[test]
fn a_rollout_lasts_until_its_start_its_window_and_its_calls_are_over() {
    let now = Instant::now();
    let tick = |waiting| RolloutEvent::Tick { waiting };
    let mut late = RolloutMachine::new(policy(), now + WINDOW);
    assert_eq!(late.on(tick(0), now), None);
    assert_eq!(late.on(tick(0), now + WINDOW), Some(RollBack));
    assert_eq!(late.on(RolloutEvent::Ready, now + WINDOW), None);

    let (mut machine, now) = watching(RolloutPolicy {
        calls: 1,
        ..policy()
    });
    let end = now + WINDOW;
    assert!(machine.wants_calls(end));
    assert_eq!(machine.on(tick(0), end), None, "it wants one comparison");
    let same = compared(sample(1, false), sample(1, false));
    assert_eq!(machine.on(same, end), None);
    assert!(!machine.wants_calls(end));
    assert_eq!(machine.on(tick(1), end), None, "a call is not compared yet");
    assert_eq!(machine.on(tick(0), end), Some(Promote));
    assert_eq!(machine.on(RolloutEvent::Failed(String::new()), end), None);
}

#[test]
fn figures_of_both_sides_are_in_one_sentence() {
    let (mut machine, now) = watching(policy());
    let same = compared(sample(2, false), sample(300, true));
    assert_eq!(machine.on(same, now), None);
    machine.on(
        RolloutEvent::Measured {
            old: 9 << 20,
            candidate: 11 << 20,
        },
        now,
    );
    machine.on(RolloutEvent::Failed("it ended".to_owned()), now);
    let sentence = "the new version was rolled back: it ended; 1 compared call, errors 0 -> 1, \
                    p99 2 ms -> 300 ms, memory 9 MiB -> 11 MiB";
    assert_eq!(machine.view(now).to_string(), sentence);
}

/// Result of a random world for one rollout.
#[derive(Default)]
struct Story {
    is_ready: bool,
    has_failed: bool,
    has_difference: bool,
    errors: (u64, u64),
    ended: Option<RolloutAction>,
}

#[test]
fn under_random_faults_only_a_sound_candidate_is_promoted() {
    for seed in 0..200 {
        let random = SeededRandom::new(seed);
        let start = Instant::now();
        let mut machine = RolloutMachine::new(policy(), start + WINDOW);
        let mut story = Story::default();
        let faults = if seed % 2 == 0 { 0.0 } else { 0.02 };
        // A rollout without a minimum of calls ends with its start and its window.
        for step in 0..=20 * 4 {
            let now = start + WINDOW * step / 40;
            let is_fault = random.chance() < faults;
            let is_error = (random.chance() < 0.1, is_fault);
            let event = match (random.chance() * 8.0) as u8 {
                0 if is_fault => RolloutEvent::Failed("fault".to_owned()),
                1 | 2 => RolloutEvent::Ready,
                3..=5 => RolloutEvent::Compared {
                    old: sample(10, is_error.0),
                    candidate: sample(10, is_error.1),
                    difference: (is_fault && random.chance() < 0.5).then(|| "fault".to_owned()),
                },
                6 => RolloutEvent::Measured {
                    old: 1 << 20,
                    candidate: 1 << 20,
                },
                _ => RolloutEvent::Tick { waiting: 0 },
            };
            let was = machine.state();
            if story.ended.is_none() {
                story.is_ready |= event == RolloutEvent::Ready;
                story.has_failed |= matches!(event, RolloutEvent::Failed(_));
                if let (RolloutState::Watching, RolloutEvent::Compared { difference, .. }) =
                    (was, &event)
                {
                    story.has_difference |= difference.is_some();
                    story.errors.0 += u64::from(is_error.0);
                    story.errors.1 += u64::from(is_error.1);
                }
            }
            match machine.on(event, now) {
                Some(Watch) => assert_eq!(was, RolloutState::Starting, "{seed}"),
                Some(end) => assert_eq!(story.ended.replace(end), None, "{seed}: two ends"),
                None => {}
            }
            assert!(!machine.wants_calls(now) || story.ended.is_none(), "{seed}");
        }
        let end = start + WINDOW * 2;
        let last = machine.on(RolloutEvent::Tick { waiting: 0 }, end);
        let ended = story.ended.or(last).expect("every rollout ends");
        if ended == Promote {
            let is_sound = story.is_ready && !story.has_failed && !story.has_difference;
            assert!(is_sound, "{seed}");
        } else {
            let has_fault =
                story.has_failed || story.has_difference || story.errors.1 > story.errors.0;
            assert!(
                has_fault || !story.is_ready,
                "{seed}: {:?}",
                machine.view(end)
            );
        }
        if faults == 0.0 {
            assert_eq!(
                ended,
                if story.is_ready { Promote } else { RollBack },
                "{seed}"
            );
        }
    }
}
