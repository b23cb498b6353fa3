//! Tables of what the machine decides, with children whose every order is carried out at once.

use std::time::Duration;

use super::*;
use DependencyOrder::{Block, Escalate, Leave, Unblock, Wake};

pub(super) const WITHIN: Duration = Duration::from_secs(60);
pub(super) const RETRY: Duration = Duration::from_secs(30);

pub(super) fn group(strategy: Strategy) -> Arc<GroupPolicy> {
    Arc::new(GroupPolicy {
        name: "data".into(),
        strategy,
        max_restarts: 2,
        within: WITHIN,
        retry_every: RETRY,
        jitter: 0.0,
        escalates: true,
    })
}

pub(super) fn member(name: &str, depends_on: &[&str], group: Option<&Arc<GroupPolicy>>) -> Member {
    Member {
        name: name.into(),
        depends_on: depends_on.iter().map(|it| (*it).into()).collect(),
        group: group.cloned(),
        blocked: true,
    }
}

struct Children {
    machine: DependencyMachine,
    seen: Vec<Sighting>,
    now: Instant,
}

impl Children {
    /// Children that are all needed, started in order.
    fn up(members: Vec<Member>) -> Self {
        let seen = vec![phase(ChildPhase::Waiting); members.len()];
        let mut machine =
            DependencyMachine::try_new(members, DependencyMachine::default()).unwrap();
        (0..seen.len()).for_each(|place| machine.begin(place, seen[place]));
        let mut children = Self {
            machine,
            seen,
            now: Instant::now(),
        };
        let first = children.machine.settle();
        assert_eq!(children.run(first).0, unblocks(children.seen.len()));
        children
    }

    fn see(&mut self, place: usize, phase: ChildPhase) -> Vec<DependencyOrder> {
        let was = self.seen[place];
        let fails = matches!(phase, ChildPhase::Backoff | ChildPhase::Broken);
        let is_new = phase == ChildPhase::Starting;
        self.seen[place] = Sighting {
            phase,
            is_running: matches!(phase, ChildPhase::Up | ChildPhase::Starting),
            generation: was.generation + u64::from(is_new),
            failures: was.failures + u64::from(fails),
        };
        self.machine.observe(place, self.seen[place], self.now, 0.5)
    }

    /// Carries out orders until there are no more; returns them, and the places that started.
    fn run(&mut self, orders: Vec<DependencyOrder>) -> (Vec<DependencyOrder>, Vec<usize>) {
        let (mut all, mut started) = (Vec::new(), Vec::new());
        let mut waiting: VecDeque<DependencyOrder> = orders.into();
        while let Some(order) = waiting.pop_front() {
            all.push(order.clone());
            let seen = |children: &Self, place: usize| children.seen[place];
            match order {
                Block(place, _) if seen(self, place).is_running => {
                    waiting.extend(self.see(place, ChildPhase::Waiting));
                }
                Unblock(place) if seen(self, place).phase == ChildPhase::Waiting => {
                    waiting.extend(self.start(place));
                    started.push(place);
                }
                Wake(place) if self.machine.is_blocked(place) => {
                    waiting.extend(self.see(place, ChildPhase::Waiting));
                }
                Wake(place) if !seen(self, place).is_running => {
                    waiting.extend(self.start(place));
                    started.push(place);
                }
                Block(..) | Unblock(_) | Wake(_) | Leave(_) | Escalate(_) => {}
            }
        }
        (all, started)
    }

    fn start(&mut self, place: usize) -> Vec<DependencyOrder> {
        let mut orders = self.see(place, ChildPhase::Starting);
        orders.extend(self.see(place, ChildPhase::Up));
        orders
    }

    /// A member fails, and starts again at once.
    fn fail(&mut self, place: usize) -> (Vec<DependencyOrder>, Vec<usize>) {
        let orders = self.see(place, ChildPhase::Backoff);
        let (mut all, mut started) = self.run(orders);
        if self.machine.is_blocked(place) {
            return (all, started);
        }
        if !self.seen[place].is_running {
            let orders = self.start(place);
            let (more, later) = self.run(orders);
            all.extend(more);
            started.push(place);
            started.extend(later);
        }
        (all, started)
    }
}

fn phase(phase: ChildPhase) -> Sighting {
    Sighting {
        phase,
        ..Sighting::default()
    }
}

fn unblocks(count: usize) -> Vec<DependencyOrder> {
    (0..count).map(Unblock).collect()
}

#[test]
fn each_strategy_restarts_exactly_its_members_in_order() {
    let table: [(Strategy, &[usize], &[usize]); 3] = [
        (Strategy::OneForOne, &[], &[1]),
        (Strategy::RestForOne, &[3, 2], &[1, 2, 3]),
        (Strategy::OneForAll, &[3, 2, 0], &[0, 1, 2, 3]),
    ];
    for (strategy, stopped, started) in table {
        let group = group(strategy);
        let members = ["a", "b", "c", "d"].map(|name| member(name, &[], Some(&group)));
        let mut children = Children::up(members.into());
        assert_eq!(
            children.machine.restarted_with(1).len(),
            stopped.len(),
            "{strategy:?}"
        );
        let orders = children.see(1, ChildPhase::Backoff);
        let (mut all, mut starts) = children.run(orders);
        // The wait of the failed child ends, unless it started with its group.
        if children.seen[1].phase == ChildPhase::Backoff {
            assert!(!children.machine.is_blocked(1));
            let orders = children.start(1);
            starts.push(1);
            let (more, later) = children.run(orders);
            all.extend(more);
            starts.extend(later);
        }
        let blocks = all.iter().filter_map(|order| match order {
            Block(place, "group") if *place != 1 => Some(*place),
            _ => None,
        });
        assert_eq!(blocks.collect::<Vec<_>>(), stopped, "{strategy:?}");
        assert_eq!(starts, started, "{strategy:?}");
        assert!(children.seen.iter().all(|it| it.phase == ChildPhase::Up));
    }
}

#[test]
fn a_dependant_starts_after_its_dependency_and_stops_before_it() {
    // The order of the file is not the order of the start.
    let members = vec![
        member("web", &["api"], None),
        member("api", &["tunnel"], None),
        member("tunnel", &[], None),
    ];
    let machine =
        DependencyMachine::try_new(members.clone(), DependencyMachine::default()).unwrap();
    assert_eq!(machine.stop_order().collect::<Vec<_>>(), [0, 1, 2]);
    let seen = vec![phase(ChildPhase::Waiting); 3];
    let mut children = Children {
        machine,
        seen: seen.clone(),
        now: Instant::now(),
    };
    (0..3).for_each(|place| children.machine.begin(place, seen[place]));
    assert_eq!(children.machine.waits(0), [Wait::Dependency("api".into())]);
    let first = children.machine.settle();
    assert_eq!(children.run(first).1, [2, 1, 0]);

    // It fails: its dependants are stopped, and wait.
    let (orders, started) = children.fail(2);
    assert_eq!(
        orders[..2],
        [Block(0, "dependency"), Block(1, "dependency")]
    );
    assert_eq!(started, [2, 1, 0]);

    // It is about to leave: they stop before.
    let orders = children.machine.leave(2);
    assert_eq!(
        children.run(orders).0,
        [Block(0, "dependency"), Block(1, "dependency"), Leave(2)]
    );
    let orders = children.see(2, ChildPhase::Stopped);
    assert_eq!(children.run(orders).0, []);
    let orders = children.start(2);
    assert_eq!(children.run(orders).1, [1, 0]);
    assert_eq!(children.machine.restarted_with(2).len(), 2);
}

#[test]
fn a_needed_dependant_wakes_what_it_depends_on() {
    let members = vec![member("tunnel", &[], None), member("db", &["tunnel"], None)];
    let machine = DependencyMachine::try_new(members, DependencyMachine::default()).unwrap();
    let seen = vec![phase(ChildPhase::Idle); 2];
    let mut children = Children {
        machine,
        seen: seen.clone(),
        now: Instant::now(),
    };
    (0..2).for_each(|place| children.machine.begin(place, seen[place]));
    let first = children.machine.settle();
    // Nobody needs them.
    assert_eq!(children.run(first).0, [Unblock(0)]);
    let orders = children.see(1, ChildPhase::Waiting);
    assert_eq!(orders, [Wake(0)]);
    assert_eq!(children.run(orders).1, [0, 1]);
}

#[test]
fn a_group_beyond_its_budget_is_broken_and_tried_again_as_a_unit() {
    let group = group(Strategy::OneForOne);
    let members = ["a", "b"].map(|name| member(name, &[], Some(&group)));
    let mut children = Children::up(members.into());
    for place in [0, 1] {
        assert_eq!(children.fail(place).1, [place]);
    }
    let orders = children.see(0, ChildPhase::Backoff);
    let (orders, _) = children.run(orders);
    assert_eq!(
        orders,
        [
            Escalate("data".into()),
            Block(1, "group"),
            Block(0, "group")
        ]
    );
    let due = children.machine.deadline().unwrap();
    assert_eq!(due, children.now + RETRY);
    assert_eq!(
        children.machine.waits(1),
        [Wait::Broken("data".into(), due)]
    );
    assert_eq!(children.machine.tick(children.now), []);

    // One failure of the attempt breaks it again.
    children.now = due;
    let orders = children.machine.tick(due);
    assert_eq!(orders, [Unblock(0), Wake(0), Unblock(1)]);
    children.see(0, ChildPhase::Starting);
    children.see(1, ChildPhase::Starting);
    let orders = children.see(1, ChildPhase::Backoff);
    assert!(orders.contains(&Escalate("data".into())));
    children.run(orders);
    children.now = children.machine.deadline().unwrap() + WITHIN;
    let orders = children.machine.tick(children.now);
    children.run(orders);
    assert!(children.seen.iter().all(|it| it.phase == ChildPhase::Up));
    let states = children.machine.groups().map(|(_, state, ..)| state);
    assert_eq!(states.collect::<Vec<_>>(), [GroupState::Working]);
}

#[test]
fn a_broken_member_breaks_its_group() {
    let group = group(Strategy::RestForOne);
    let members = ["a", "b"].map(|name| member(name, &[], Some(&group)));
    let mut children = Children::up(members.into());
    let orders = children.see(1, ChildPhase::Broken);
    assert!(orders.contains(&Escalate("data".into())), "{orders:?}");
    children.run(orders);
    assert!(children.machine.is_blocked(0) && children.machine.is_blocked(1));
}

#[test]
fn a_member_that_rests_does_not_delay_its_group() {
    let group = group(Strategy::OneForAll);
    let members = ["a", "b"].map(|name| member(name, &[], Some(&group)));
    let mut children = Children::up(members.into());
    assert_eq!(children.see(0, ChildPhase::Stopped), []);
    assert_eq!(children.fail(1).1, [1]);
}

#[test]
fn circles_are_refused_with_their_path() {
    let ordered = group(Strategy::RestForOne);
    let table = [
        (vec![member("a", &["a"], None)], "a a"),
        (
            vec![
                member("x", &["a"], None),
                member("a", &["b"], None),
                member("b", &["c"], None),
                member("c", &["a"], None),
            ],
            "a b c a",
        ),
        // The second starts after the first, which depends on it.
        (
            vec![
                member("a", &["b"], Some(&ordered)),
                member("b", &[], Some(&ordered)),
            ],
            "a b a",
        ),
    ];
    for (members, path) in table {
        let circle = start_order(&members).unwrap_err();
        assert_eq!(circle.0.join(" "), path);
    }
}

#[test]
fn a_change_of_the_members_keeps_the_state_of_a_group() {
    let group = group(Strategy::OneForOne);
    let members = ["a", "b"].map(|name| member(name, &[], Some(&group)));
    let mut children = Children::up(members.clone().into());
    let orders = children.see(0, ChildPhase::Broken);
    children.run(orders);
    let due = children.machine.deadline();
    let machine = DependencyMachine::try_new(members[1..].to_vec(), children.machine).unwrap();
    assert_eq!(machine.deadline(), due);
}
