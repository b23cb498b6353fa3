use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use tokio::time::Instant;

use crate::downstream::resilience::breakers::Breakers;
use crate::downstream::resilience::breakers::breaker::{
    Breaker, BreakerRefusal, BreakerSettings, BreakerSnapshot, BreakerTransition, CallVerdict,
    Ticket,
};
use crate::id::ServerName;
use crate::protocol::RawJson;
use crate::telemetry::{Counters, LogRing};

const SETTINGS: BreakerSettings = BreakerSettings {
    failures: 3,
    within: Duration::from_secs(10),
    open_for: Duration::from_secs(5),
    tools: true,
    tool_errors: false,
};

/// A breaker with its own clock and event numbers.
struct Bench {
    breaker: Breaker,
    event_number: u64,
    now: Instant,
}

impl Bench {
    fn new() -> Self {
        Self {
            breaker: Breaker::new(0),
            event_number: 0,
            now: Instant::now(),
        }
    }

    fn ask(&mut self) -> Result<Ticket, BreakerRefusal> {
        let is_trial = self.breaker.ask(self.now, &SETTINGS)?;
        let event_number = self.event_number;
        Ok(Ticket {
            event_number,
            is_trial,
        })
    }

    fn record(&mut self, ticket: Ticket, verdict: CallVerdict) -> Option<BreakerTransition> {
        self.event_number += 1;
        self.breaker
            .record(ticket, verdict, self.event_number, self.now, &SETTINGS)
    }

    fn call(&mut self, verdict: CallVerdict) -> Option<BreakerTransition> {
        let ticket = self.ask().unwrap();
        self.record(ticket, verdict)
    }

    fn pass(&mut self, seconds: u64) {
        self.now += Duration::from_secs(seconds);
    }

    fn open(&mut self) {
        let turns = [CallVerdict::Failure; 3].map(|verdict| self.call(verdict));
        assert_eq!(turns, [None, None, Some(BreakerTransition::Opened)]);
    }
}

#[test]
fn failures_in_a_row_within_the_time_open_it() {
    let mut bench = Bench::new();
    bench.open();
    assert_eq!(
        bench.ask(),
        Err(BreakerRefusal::For(Duration::from_secs(5)))
    );
    bench.pass(2);
    assert_eq!(
        bench.ask(),
        Err(BreakerRefusal::For(Duration::from_secs(3)))
    );
    let next_try = Duration::from_secs(3);
    assert_eq!(
        bench.breaker.seen(bench.now),
        BreakerSnapshot::Open { next_try }
    );
}

#[test]
fn a_success_or_time_between_failures_keeps_it_closed() {
    let mut bench = Bench::new();
    for _ in 0..3 {
        assert_eq!(bench.call(CallVerdict::Failure), None);
        assert_eq!(bench.call(CallVerdict::Failure), None);
        assert_eq!(bench.call(CallVerdict::Success), None);
    }
    for _ in 0..9 {
        bench.pass(6);
        assert_eq!(bench.call(CallVerdict::Failure), None);
    }
    for _ in 0..9 {
        assert_eq!(bench.call(CallVerdict::Nothing), None);
    }
}

#[test]
fn calls_that_are_lost_together_are_one_failure() {
    let mut bench = Bench::new();
    for turn in [None, None, Some(BreakerTransition::Opened)] {
        let together: Vec<Ticket> = (0..10).map(|_| bench.ask().unwrap()).collect();
        let turns: Vec<_> = together
            .into_iter()
            .filter_map(|ticket| bench.record(ticket, CallVerdict::Loss))
            .collect();
        assert_eq!(turns.first().copied(), turn);
        assert!(turns.len() <= 1);
    }
}

#[test]
fn one_call_tries_and_decides() {
    let mut bench = Bench::new();
    let late = bench.ask().unwrap();
    bench.open();
    bench.pass(5);
    let trial = bench.ask().unwrap();
    assert!(trial.is_trial);
    assert!(bench.ask().is_err());
    // A call from before the breaker opened decides nothing.
    assert_eq!(bench.record(late, CallVerdict::Success), None);
    assert!(bench.ask().is_err());
    assert_eq!(
        bench.record(trial, CallVerdict::Failure),
        Some(BreakerTransition::Opened)
    );
    assert_eq!(
        bench.ask(),
        Err(BreakerRefusal::For(Duration::from_secs(5)))
    );
    bench.pass(5);
    // A trial that was cancelled proves nothing, so the next call is the trial.
    let trial = bench.ask().unwrap();
    assert_eq!(bench.record(trial, CallVerdict::Nothing), None);
    assert_eq!(
        bench.call(CallVerdict::Success),
        Some(BreakerTransition::Closed)
    );
    assert!(bench.breaker.is_healthy());
    assert_eq!(bench.record(late, CallVerdict::Failure), None);
    assert!(bench.breaker.is_healthy());
}

#[test]
fn a_slow_trial_does_not_keep_others_from_trying() {
    let mut bench = Bench::new();
    bench.open();
    bench.pass(5);
    let slow = bench.ask().unwrap();
    bench.pass(3);
    assert_eq!(
        bench.ask(),
        Err(BreakerRefusal::For(Duration::from_secs(2)))
    );
    bench.pass(2);
    let next = bench.ask().unwrap();
    assert!(next.is_trial);
    assert!(bench.ask().is_err());
    assert_eq!(
        bench.record(next, CallVerdict::Success),
        Some(BreakerTransition::Closed)
    );
    assert_eq!(bench.record(slow, CallVerdict::Failure), None);
    assert!(bench.breaker.is_healthy());
}

#[test]
fn failures_count_until_a_success_however_far_apart() {
    let mut bench = Bench::new();
    for failed in 1..=9 {
        bench.pass(60);
        assert_eq!(bench.call(CallVerdict::Failure), None);
        assert_eq!(bench.breaker.in_a_row(), failed);
    }
    assert_eq!(bench.call(CallVerdict::Success), None);
    assert_eq!(bench.breaker.in_a_row(), 0);
    bench.open();
    bench.pass(5);
    bench.call(CallVerdict::Failure);
    assert_eq!(bench.breaker.in_a_row(), 4);
    bench.pass(5);
    bench.call(CallVerdict::Success);
    assert_eq!(bench.breaker.in_a_row(), 0);
}

#[test]
fn a_fresh_connection_is_tried_at_once_for_a_tool_too() {
    let server = ServerName::try_new("a").unwrap();
    let (log, counters) = (LogRing::default(), Counters::default());
    let breakers = Arc::new(Breakers::new(server, SETTINGS, log, counters));
    let echo = RawJson::from_value(&"echo");
    for _ in 0..SETTINGS.failures {
        let pass = breakers.ask(Some(&echo)).unwrap();
        breakers.record(&pass, CallVerdict::Nothing, CallVerdict::Failure);
    }
    assert!(breakers.ask(Some(&echo)).is_err());
    breakers.renewed();
    assert!(breakers.ask(Some(&echo)).is_ok());
}

#[test]
fn an_operator_opens_it_until_he_resets_it() {
    let mut bench = Bench::new();
    let before = bench.ask().unwrap();
    bench.breaker.trip();
    bench.pass(3600);
    assert_eq!(bench.ask(), Err(BreakerRefusal::Tripped));
    assert_eq!(bench.record(before, CallVerdict::Success), None);
    bench.breaker.retry_now(bench.now);
    assert_eq!(bench.ask(), Err(BreakerRefusal::Tripped));
    bench.breaker.reset(bench.event_number);
    assert!(!bench.ask().unwrap().is_trial);
}

#[test]
fn a_reason_to_try_opens_the_way_for_one_call() {
    let mut bench = Bench::new();
    bench.open();
    bench.breaker.retry_now(bench.now);
    assert!(bench.ask().unwrap().is_trial);
    assert!(bench.ask().is_err());
}

proptest! {
    /// For any sequence of events, at most one trial runs at a time except for slow ones, and
    /// successes eventually close the breaker.
    #[test]
    fn it_never_lets_two_try_and_never_stays_shut(
        steps in proptest::collection::vec((0..6u8, 0..4u64), 0..200)
    ) {
        let mut bench = Bench::new();
        let mut under_way: Vec<(Ticket, Instant)> = Vec::new();
        for (what, seconds) in steps {
            match what {
                0 | 1 => under_way.extend(bench.ask().ok().map(|ticket| (ticket, bench.now))),
                2 => bench.pass(seconds),
                _ => {
                    let verdicts = [CallVerdict::Success, CallVerdict::Failure, CallVerdict::Loss];
                    let verdict = verdicts[usize::from(what) - 3];
                    if !under_way.is_empty() {
                        let (ticket, _) = under_way.remove(0);
                        bench.record(ticket, verdict);
                    }
                }
            }
            let is_slow = |began: Instant| began + SETTINGS.open_for <= bench.now;
            let trials = under_way.iter().filter(|(ticket, began)| ticket.is_trial && !is_slow(*began));
            prop_assert!(trials.count() <= 1);
        }
        for (ticket, _) in under_way {
            bench.record(ticket, CallVerdict::Nothing);
        }
        bench.pass(5);
        let ticket = bench.ask();
        prop_assert!(ticket.is_ok());
        bench.record(ticket.unwrap(), CallVerdict::Success);
        prop_assert!(bench.breaker.is_closed());
    }
}
