//! Children of both machines under random faults: 200 seeds in simulated time.

use std::time::Duration;

use super::tests::{RETRY, WITHIN, group, member};
use super::*;
use crate::supervision::machine::{Action, ChildEvent, ChildState, RestartMachine};
use crate::supervision::policy::{Settings, Tuning};
use crate::supervision::random::{Random as _, SeededRandom};

/// A child and the machine of its supervisor; what it is asked takes effect later.
struct Child {
    machine: RestartMachine,
    is_running: bool,
    generation: u64,
    /// When a child that was asked to leave is gone.
    leaves_at: Option<Instant>,
    ready_at: Option<Instant>,
}

struct World {
    dependencies: DependencyMachine,
    members: Vec<Member>,
    children: Vec<Child>,
    random: SeededRandom,
    now: Instant,
    /// Times at which members of the group failed while the group worked, or were tried again.
    rounds: Vec<Instant>,
    escalations: u32,
}

fn settings() -> Settings {
    Settings::try_new(Tuning {
        max_restarts: 4,
        jitter: 0.0,
        ..Tuning::default()
    })
    .unwrap()
}

impl World {
    fn new(seed: u64) -> Self {
        let random = SeededRandom::new(seed);
        let strategies = [
            Strategy::OneForOne,
            Strategy::RestForOne,
            Strategy::OneForAll,
        ];
        let group = group(strategies[seed as usize % 3]);
        let members = vec![
            member("tunnel", &[], None),
            member("db", &["tunnel"], Some(&group)),
            member("cache", &[], Some(&group)),
            member("api", &["db", "cache"], Some(&group)),
            member("web", &["api"], None),
        ];
        let start = || Child {
            machine: RestartMachine::new(settings()).blocked(),
            is_running: false,
            generation: 0,
            leaves_at: None,
            ready_at: None,
        };
        let mut world = Self {
            dependencies: DependencyMachine::try_new(members.clone(), DependencyMachine::default())
                .unwrap(),
            children: members.iter().map(|_| start()).collect(),
            members,
            random,
            now: Instant::now(),
            rounds: Vec::new(),
            escalations: 0,
        };
        for place in 0..world.children.len() {
            world.event(place, ChildEvent::Wake);
        }
        let orders = world.dependencies.settle();
        world.carry_out(orders);
        world
    }

    fn phase(&self, place: usize) -> ChildPhase {
        match self.children[place].machine.state() {
            ChildState::Idle => ChildPhase::Idle,
            ChildState::Blocked => ChildPhase::Waiting,
            ChildState::Starting { .. } | ChildState::Ending { .. } => ChildPhase::Starting,
            ChildState::Up { .. } => ChildPhase::Up,
            ChildState::Waiting { broken: true, .. } => ChildPhase::Broken,
            ChildState::Waiting { .. } => ChildPhase::Backoff,
            ChildState::Stopped => ChildPhase::Stopped,
        }
    }

    fn carry_out(&mut self, orders: Vec<DependencyOrder>) {
        for order in orders {
            match order {
                DependencyOrder::Block(place, reason) => {
                    self.event(place, ChildEvent::Block(reason))
                }
                DependencyOrder::Unblock(place) => self.event(place, ChildEvent::Unblock),
                DependencyOrder::Wake(place) => self.event(place, ChildEvent::Wake),
                DependencyOrder::Leave(place) => {
                    self.event(place, ChildEvent::Reconnect("operator"))
                }
                DependencyOrder::Escalate(_) => self.escalations += 1,
            }
        }
    }

    fn event(&mut self, place: usize, event: ChildEvent) {
        let (now, chance) = (self.now, self.random.chance());
        let child = &mut self.children[place];
        let decision = child.machine.decide(event, now, chance);
        match decision.action {
            Action::Launch => {
                assert!(!child.is_running, "two incarnations at once");
                child.is_running = true;
                child.generation += 1;
                let start = Duration::from_millis(10 + (chance * 3000.0) as u64);
                child.ready_at = Some(now + start);
                self.started(place);
            }
            Action::Ask | Action::Kill => {
                child.ready_at = None;
                child.leaves_at = Some(now + Duration::from_millis(200));
            }
            Action::Nothing | Action::Finish => {}
        }
        self.look(place);
    }

    fn look(&mut self, place: usize) {
        let child = &self.children[place];
        let sighting = Sighting {
            phase: self.phase(place),
            is_running: child.is_running,
            generation: child.generation,
            failures: child.machine.failures_total(),
        };
        let chance = self.random.chance();
        let orders = self.dependencies.observe(place, sighting, self.now, chance);
        self.carry_out(orders);
    }

    /// No server starts before what it depends on is ready.
    fn started(&self, place: usize) {
        for name in &self.members[place].depends_on {
            let dependency = self.dependencies.place(name).unwrap();
            assert_eq!(
                self.phase(dependency),
                ChildPhase::Up,
                "`{name}` is not ready"
            );
        }
    }

    fn fails(&mut self, place: usize) {
        let child = &mut self.children[place];
        if !std::mem::take(&mut child.is_running) {
            return;
        }
        (child.ready_at, child.leaves_at) = (None, None);
        let failures = child.machine.failures_total();
        let is_of_group = self.members[place].group.is_some();
        self.event(place, ChildEvent::Exit);
        let has_failed = self.children[place].machine.failures_total() > failures;
        let (_, state, ..) = self.dependencies.groups().next().unwrap();
        let is_working = !matches!(state, GroupState::Broken { .. });
        if is_of_group && has_failed && is_working {
            self.rounds.push(self.now);
        }
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
        if self
            .dependencies
            .deadline()
            .is_some_and(|due| due <= self.now)
        {
            self.rounds.push(self.now);
            let orders = self.dependencies.tick(self.now);
            self.carry_out(orders);
        }
        for place in 0..self.children.len() {
            let child = &mut self.children[place];
            if child.leaves_at.take_if(|at| *at <= self.now).is_some() && child.is_running {
                child.is_running = false;
                self.event(place, ChildEvent::Exit);
            }
            let child = &mut self.children[place];
            if child.ready_at.take_if(|at| *at <= self.now).is_some() {
                self.event(place, ChildEvent::Ready);
            }
            let due = self.children[place].machine.deadline();
            if due.is_some_and(|due| due <= self.now) {
                self.event(place, ChildEvent::Tick);
            }
        }
    }
}

#[test]
fn under_random_faults_the_order_and_the_budget_of_a_group_hold() {
    let mut broken = 0;
    for seed in 0..200 {
        let mut world = World::new(seed);
        for _ in 0..4_000 {
            let chance = world.random.chance();
            let place = (world.random.chance() * 5.0) as usize;
            match chance {
                it if it < 0.01 => world.fails(place),
                it if it < 0.012 => {
                    let orders = world.dependencies.leave(place);
                    world.carry_out(orders);
                }
                _ => {}
            }
            world.pass(Duration::from_millis(100));
        }
        // A restart for each failure that the group allows, and an attempt each `retry_every`.
        let budget = 2 + (WITHIN.as_secs() / RETRY.as_secs()) as usize + 1;
        for (index, first) in world.rounds.iter().enumerate() {
            let later = world.rounds[index..].iter();
            let in_window = later.take_while(|at| **at - *first <= WITHIN).count();
            assert!(in_window <= budget, "seed {seed}: {in_window} rounds");
        }
        broken += world.escalations;
        // Without faults, all come back.
        (0..20_000).for_each(|_| world.pass(Duration::from_millis(100)));
        for place in 0..5 {
            assert_eq!(world.phase(place), ChildPhase::Up, "seed {seed}: {place}");
        }
    }
    assert!(broken > 100, "{broken} groups were broken");
}
