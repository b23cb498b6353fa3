//! Decisions about children that depend on each other or belong to a group: a state machine without
//! clock, randomness or actors, beside the machine of a single child.
//!
//! Each sighting of a child's state produces [`DependencyOrder`]s, which the owner of the children carries
//! out with [`super::ChildRef::block`] and [`super::ChildRef::unblock`]. Children still restart
//! themselves; the machine decides which of them may run.

mod plan;
mod types;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use tokio::time::Instant;

use super::backoff;
use super::view::ChildPhase;

pub use plan::{Circle, GroupPolicy, Member, Strategy, start_order};
pub use types::{DependencyOrder, GroupState, Sighting, Wait};

#[derive(Debug)]
struct Dependent {
    name: Arc<str>,
    depends_on: Vec<usize>,
    absent: Vec<Arc<str>>,
    dependants: Vec<usize>,
    group: Option<usize>,
    seen: Sighting,
    blocked: bool,
    /// Has to end before it can start again, because its group restarts.
    stale: bool,
    leaving: Option<Leaving>,
}

/// A member that will leave once its dependants are gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leaving {
    Announced,
    /// The owner was told that it can leave.
    Told,
}

#[derive(Debug)]
struct Group {
    policy: Arc<GroupPolicy>,
    /// Positions of its members, in order.
    members: Vec<usize>,
    state: GroupState,
    /// Times of the recent failures within the window.
    failures: VecDeque<Instant>,
}

/// Decides which children with dependencies or groups may run.
#[derive(Debug, Default)]
pub struct DependencyMachine {
    members: Vec<Dependent>,
    groups: Vec<Group>,
    /// Positions of members, each after those that it waits for.
    order: Vec<usize>,
}

impl DependencyMachine {
    /// A machine for these members, in the order of their groups. Groups and members that `before`
    /// had keep their state.
    ///
    /// # Errors
    ///
    /// Returns the path of a circle, if members wait for each other.
    pub fn try_new(members: Vec<Member>, mut before: Self) -> Result<Self, Circle> {
        let order = start_order(&members)?;
        let places: BTreeMap<Arc<str>, usize> = (0..)
            .zip(&members)
            .map(|(place, member)| (member.name.clone(), place))
            .collect();
        let mut groups: Vec<Group> = Vec::new();
        let mut dependent: Vec<Dependent> = Vec::with_capacity(members.len());
        for (place, member) in members.into_iter().enumerate() {
            let group = member.group.map(|policy| {
                let name = policy.name.clone();
                let is_same = |group: &Group| group.policy.name == name;
                let found = groups.iter().position(&is_same).unwrap_or_else(|| {
                    let old = before.groups.iter_mut().find(|group| is_same(group));
                    let old = old.map(|old| (old.state, std::mem::take(&mut old.failures)));
                    let (state, failures) = old.unwrap_or_default();
                    groups.push(Group {
                        policy,
                        members: Vec::new(),
                        state,
                        failures,
                    });
                    groups.len() - 1
                });
                groups[found].members.push(place);
                found
            });
            let known = |name: &Arc<str>| places.get(name).copied().ok_or_else(|| name.clone());
            let (depends_on, absent) = split(member.depends_on.iter().map(known));
            let old = before.members.iter().find(|old| old.name == member.name);
            dependent.push(Dependent {
                name: member.name,
                depends_on,
                absent,
                dependants: Vec::new(),
                group,
                seen: Sighting::default(),
                blocked: member.blocked,
                stale: old.is_some_and(|old| old.stale),
                leaving: None,
            });
        }
        for place in 0..dependent.len() {
            for dependency in dependent[place].depends_on.clone() {
                dependent[dependency].dependants.push(place);
            }
        }
        Ok(Self {
            members: dependent,
            groups,
            order,
        })
    }

    pub fn names(&self) -> impl Iterator<Item = &Arc<str>> {
        self.members.iter().map(|member| &member.name)
    }

    pub fn place(&self, name: &str) -> Option<usize> {
        self.members.iter().position(|it| *it.name == *name)
    }

    pub fn is_blocked(&self, place: usize) -> bool {
        self.members[place].blocked
    }

    /// The members that depend on this one.
    pub fn dependants(&self, place: usize) -> impl Iterator<Item = &Arc<str>> {
        let places = self.members[place].dependants.iter();
        places.map(|place| &self.members[*place].name)
    }

    /// Groups with the names of their members and their recent failures.
    pub fn groups(
        &self,
    ) -> impl Iterator<Item = (&Arc<GroupPolicy>, GroupState, usize, Vec<Arc<str>>)> {
        self.groups.iter().map(|group| {
            let names = group.members.iter();
            let names = names.map(|place| self.members[*place].name.clone());
            let failures = group.failures.len();
            (&group.policy, group.state, failures, names.collect())
        })
    }

    /// Positions in which the members stop: each before those that it depends on.
    pub fn stop_order(&self) -> impl Iterator<Item = usize> {
        self.order.iter().rev().copied()
    }

    /// When [`DependencyMachine::tick`] is due, if at all.
    pub fn deadline(&self) -> Option<Instant> {
        let attempts = self.groups.iter().filter_map(|group| match group.state {
            GroupState::Broken { next_attempt } => Some(next_attempt),
            GroupState::Working | GroupState::Retrying => None,
        });
        attempts.min()
    }

    /// Records what was seen of a member, and decides. `chance` is a random number from 0 to 1.
    pub fn observe(
        &mut self,
        place: usize,
        sighting: Sighting,
        now: Instant,
        chance: f64,
    ) -> Vec<DependencyOrder> {
        let member = &mut self.members[place];
        let before = std::mem::replace(&mut member.seen, sighting);
        let has_ended = !sighting.is_running || sighting.generation != before.generation;
        if has_ended {
            member.stale = false;
        }
        // One that was still starting did not have to leave.
        let is_settled = has_ended || sighting.is_up() && !before.is_up();
        if is_settled && member.leaving == Some(Leaving::Told) {
            member.leaving = None;
        }
        let failures = sighting.failures.saturating_sub(before.failures);
        let mut orders = Vec::new();
        if let Some(group) = member.group
            && failures > 0
        {
            let is_broken = sighting.phase == ChildPhase::Broken;
            let failed = (place, failures, is_broken);
            orders.extend(self.group_failed(group, failed, now, chance));
        }
        orders.extend(self.settle());
        orders
    }

    /// Sets what is known of a new member without a decision.
    pub fn begin(&mut self, place: usize, sighting: Sighting) {
        self.members[place].seen = sighting;
    }

    /// Announces that a member will leave: its dependants stop, then follows [`DependencyOrder::Leave`].
    pub fn leave(&mut self, place: usize) -> Vec<DependencyOrder> {
        self.members[place].leaving = Some(Leaving::Announced);
        self.settle()
    }

    /// Takes an announcement back: the member stays.
    pub fn stay(&mut self, place: usize) -> Vec<DependencyOrder> {
        self.members[place].leaving = None;
        self.settle()
    }

    /// Tries broken groups again that are due.
    pub fn tick(&mut self, now: Instant) -> Vec<DependencyOrder> {
        for group in &mut self.groups {
            if let GroupState::Broken { next_attempt } = group.state
                && next_attempt <= now
            {
                group.state = GroupState::Retrying;
            }
        }
        self.settle()
    }

    /// The reason why a member is blocked, if it is.
    pub fn waits(&self, place: usize) -> Vec<Wait> {
        let member = &self.members[place];
        if !member.blocked {
            return Vec::new();
        }
        let mut waits: Vec<Wait> = member.absent.iter().cloned().map(Wait::Absent).collect();
        let dependencies = member.depends_on.iter();
        let missing = dependencies.filter(|place| !self.members[**place].seen.is_up());
        waits.extend(missing.map(|place| Wait::Dependency(self.members[*place].name.clone())));
        if let Some(group) = member.group.map(|group| &self.groups[group]) {
            let name = group.policy.name.clone();
            match group.state {
                GroupState::Broken { next_attempt } => waits.push(Wait::Broken(name, next_attempt)),
                _ if member.stale => waits.push(Wait::Restart(name)),
                GroupState::Working | GroupState::Retrying => {}
            }
        }
        let earlier = self.earlier(place).find(|it| self.delays(*it));
        waits.extend(earlier.map(|place| Wait::Earlier(self.members[place].name.clone())));
        waits
    }

    /// Whether a member runs, or can be expected to start soon: nothing that it waits for failed or
    /// was stopped.
    pub fn is_coming(&self, place: usize) -> bool {
        let member = &self.members[place];
        let state = member.group.map(|group| self.groups[group].state);
        let is_broken = matches!(state, Some(GroupState::Broken { .. }));
        if !member.absent.is_empty() || is_broken {
            return false;
        }
        let is_due = matches!(
            member.seen.phase,
            ChildPhase::Idle | ChildPhase::Waiting | ChildPhase::Starting | ChildPhase::Up
        );
        let awaited = member.depends_on.iter().copied();
        let mut awaited = awaited.chain(self.earlier(place).filter(|it| self.delays(*it)));
        is_due && (!member.blocked || awaited.all(|it| self.is_coming(it)))
    }

    /// Members that would restart if this one failed now, besides itself, in order.
    pub fn restarted_with(&self, place: usize) -> Vec<Arc<str>> {
        let mut all: Vec<usize> = Vec::new();
        if let Some(group) = self.members[place].group {
            all.extend(self.affected(group, place).filter(|it| *it != place));
        }
        for dependant in self.order.iter().copied() {
            let stops = |it: &usize| *it == place || all.contains(it);
            let depends = self.members[dependant].depends_on.iter().any(stops);
            if depends && dependant != place && !all.contains(&dependant) {
                all.push(dependant);
            }
        }
        let in_order = self.order.iter().filter(|it| all.contains(it));
        in_order
            .map(|place| self.members[*place].name.clone())
            .collect()
    }

    /// Members of a group that its strategy restarts when this member fails.
    fn affected(&self, group: usize, failed: usize) -> impl Iterator<Item = usize> {
        let group = &self.groups[group];
        let at = group.members.iter().position(|it| *it == failed);
        let from = match group.policy.strategy {
            Strategy::OneForOne => group.members.len(),
            Strategy::RestForOne => at.map_or(0, |at| at + 1),
            Strategy::OneForAll => 0,
        };
        group.members[from..].iter().copied()
    }

    fn group_failed(
        &mut self,
        group: usize,
        (place, failures, is_broken): (usize, u64, bool),
        now: Instant,
        chance: f64,
    ) -> Option<DependencyOrder> {
        let affected: Vec<usize> = self.affected(group, place).collect();
        let Group {
            policy,
            state,
            failures: recent,
            ..
        } = &mut self.groups[group];
        let needed = policy.max_restarts as usize + 1;
        // One sighting can show several failures; more than needed change nothing.
        recent.extend((0..failures.min(needed as u64)).map(|_| now));
        let is_old = |first: &Instant| now.duration_since(*first) > policy.within;
        while recent.len() > needed || recent.front().is_some_and(is_old) {
            recent.pop_front();
        }
        if matches!(state, GroupState::Broken { .. }) {
            return None;
        }
        if is_broken || recent.len() >= needed || *state == GroupState::Retrying {
            let wait = backoff::with_jitter(policy.retry_every, policy.jitter, chance);
            *state = GroupState::Broken {
                next_attempt: now + wait,
            };
            let escalates = policy.escalates;
            return escalates.then(|| DependencyOrder::Escalate(policy.name.clone()));
        }
        for other in affected {
            let other = &mut self.members[other];
            other.stale = other.seen.is_running;
        }
        None
    }

    /// Members of the group that start after this one.
    fn later(&self, place: usize) -> impl Iterator<Item = usize> {
        let members = self.ordered_group(place).iter().copied();
        members.skip_while(move |it| *it != place).skip(1)
    }

    /// Earlier members of the group, if members start one after the other.
    fn earlier(&self, place: usize) -> impl Iterator<Item = usize> {
        let members = self.ordered_group(place).iter().copied();
        members.take_while(move |it| *it != place)
    }

    /// Members of this member's group, if they start one after the other.
    fn ordered_group(&self, place: usize) -> &[usize] {
        let group = self.members[place].group.map(|group| &self.groups[group]);
        let group = group.filter(|group| group.policy.strategy.is_ordered());
        group.map_or(&[], |group| &group.members)
    }

    /// Whether later members of the group wait for this one.
    fn delays(&self, place: usize) -> bool {
        let member = &self.members[place];
        member.stale || !member.seen.is_up() && !member.seen.rests()
    }

    /// Why a member must not run, whatever else happens.
    fn stop_reason(&self, place: usize, going: &[bool]) -> Option<&'static str> {
        let member = &self.members[place];
        let group = member.group.map(|group| self.groups[group].state);
        let is_missing = |it: &usize| going[*it] || !self.members[*it].seen.is_up();
        if !member.absent.is_empty() || member.depends_on.iter().any(is_missing) {
            return Some("dependency");
        }
        let is_broken = matches!(group, Some(GroupState::Broken { .. }));
        (member.stale || is_broken).then_some("group")
    }

    /// Brings every member from its state to the one that it may have.
    pub fn settle(&mut self) -> Vec<DependencyOrder> {
        let mut orders = Vec::new();
        let mut going = vec![false; self.members.len()];
        let mut reasons = vec![None; self.members.len()];
        for place in self.order.clone() {
            reasons[place] = self.stop_reason(place, &going);
            going[place] = reasons[place].is_some() || self.members[place].leaving.is_some();
        }
        for place in self.order.clone().into_iter().rev() {
            orders.extend(self.stop(place, reasons[place], &going));
        }
        for place in self.order.clone() {
            orders.extend(self.start(place, reasons[place]));
        }
        self.end_retries();
        orders
    }

    /// Blocks a member that must not run, or lets it leave, after those that stop before it.
    fn stop(
        &mut self,
        place: usize,
        reason: Option<&'static str>,
        going: &[bool],
    ) -> Option<DependencyOrder> {
        let is_running = |it: &usize| self.members[*it].seen.is_running;
        let has_dependants = self.members[place].dependants.iter().any(is_running);
        let member = &self.members[place];
        if member.leaving == Some(Leaving::Announced) && !has_dependants {
            let leaving = member.seen.is_running.then_some(Leaving::Told);
            self.members[place].leaving = leaving;
            return Some(DependencyOrder::Leave(place));
        }
        let is_early = || self.earlier(place).any(|it| self.delays(it));
        let reason = match reason {
            None if !member.seen.is_running && is_early() => Some("group"),
            reason => reason,
        };
        let reason = reason.filter(|_| !member.blocked)?;
        let has_later = self.later(place).any(|it| going[it] && is_running(&it));
        if member.seen.is_running && (has_dependants || has_later) {
            return None;
        }
        self.members[place].blocked = true;
        Some(DependencyOrder::Block(place, reason))
    }

    /// Unblocks a member that may run, and wakes what it needs if it may not.
    fn start(&mut self, place: usize, reason: Option<&'static str>) -> Vec<DependencyOrder> {
        let member = &self.members[place];
        if !member.blocked {
            return Vec::new();
        }
        if reason.is_some() {
            let is_wanted = member.seen.phase == ChildPhase::Waiting;
            let rests = |it: &&usize| self.members[**it].seen.phase == ChildPhase::Idle;
            let wanted = member.depends_on.iter().filter(|_| is_wanted);
            return wanted
                .filter(rests)
                .map(|it| DependencyOrder::Wake(*it))
                .collect();
        }
        if self.earlier(place).any(|it| self.delays(it)) {
            return Vec::new();
        }
        let group = member.group.map(|group| self.groups[group].state);
        let is_due = matches!(member.seen.phase, ChildPhase::Backoff | ChildPhase::Broken);
        self.members[place].blocked = false;
        let mut orders = vec![DependencyOrder::Unblock(place)];
        if group == Some(GroupState::Retrying) && is_due {
            orders.push(DependencyOrder::Wake(place));
        }
        orders
    }

    /// A group whose members are all up again works.
    fn end_retries(&mut self) {
        for group in &mut self.groups {
            let mut members = group.members.iter().map(|it| &self.members[*it]);
            let is_settled = |it: &Dependent| it.seen.is_up() || !it.blocked && it.seen.rests();
            if group.state == GroupState::Retrying && members.all(is_settled) {
                group.state = GroupState::Working;
            }
        }
    }
}

fn split<T, E>(all: impl Iterator<Item = Result<T, E>>) -> (Vec<T>, Vec<E>) {
    let (mut found, mut missing) = (Vec::new(), Vec::new());
    for each in all {
        match each {
            Ok(it) => found.push(it),
            Err(it) => missing.push(it),
        }
    }
    (found, missing)
}

#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;
