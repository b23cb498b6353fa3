//! The dependencies between children, and the order of their starts.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// The consequence of a failure for the other members of a group, in OTP's terms.
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Strategy {
    /// Only the failed member restarts.
    #[default]
    OneForOne,
    /// Members after it in the group's order stop, and start after it.
    RestForOne,
    /// All members stop, and start in order.
    OneForAll,
}

impl Strategy {
    /// The word in configurations and views.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::OneForOne => "one_for_one",
            Self::RestForOne => "rest_for_one",
            Self::OneForAll => "one_for_all",
        }
    }

    /// Whether members start one after the other.
    pub(super) fn is_ordered(self) -> bool {
        self != Self::OneForOne
    }
}

/// The settings of a group.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupPolicy {
    pub name: Arc<str>,
    pub strategy: Strategy,
    /// Failures of members allowed within `within`; one more makes the group broken.
    pub max_restarts: u32,
    pub within: Duration,
    /// Interval between attempts to start a broken group, shortened by up to the share `jitter`.
    pub retry_every: Duration,
    pub jitter: f64,
    /// Whether a broken group is reported to the owner of all groups.
    pub escalates: bool,
}

/// A child that depends on others, belongs to a group, or is depended on.
#[derive(Clone, Debug)]
pub struct Member {
    pub name: Arc<str>,
    pub depends_on: Vec<Arc<str>>,
    pub group: Option<Arc<GroupPolicy>>,
    /// Whether the child was started blocked.
    pub blocked: bool,
}

/// Children that wait for each other: the path from one of them back to itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Circle(pub Vec<Arc<str>>);

/// The positions of members in an order in which each comes after those that it waits for: its
/// dependencies, and the earlier members of its group if the group's strategy has an order.
///
/// # Errors
///
/// Returns the path of a circle, if there is one.
pub fn start_order(members: &[Member]) -> Result<Vec<usize>, Circle> {
    let awaited = awaited(members);
    let mut order = Vec::with_capacity(members.len());
    let mut state = vec![Visit::New; members.len()];
    for root in 0..members.len() {
        // The members from the root to the visited one, each with its next awaited member.
        let mut path = vec![(root, 0)];
        while let Some((member, next)) = path.last_mut() {
            let member = *member;
            if state[member] == Visit::Done {
                path.pop();
                continue;
            }
            state[member] = Visit::OnPath;
            let Some(other) = awaited[member].get(*next).copied() else {
                state[member] = Visit::Done;
                order.push(member);
                path.pop();
                continue;
            };
            *next += 1;
            if state[other] == Visit::OnPath {
                let places = path.iter().map(|(place, _)| *place);
                let circle = places.skip_while(|place| *place != other).chain([other]);
                let names = circle.map(|place| members[place].name.clone());
                return Err(Circle(names.collect()));
            }
            path.push((other, 0));
        }
    }
    Ok(order)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Visit {
    New,
    OnPath,
    Done,
}

/// The members that each member waits for; only the nearest one of its group.
fn awaited(members: &[Member]) -> Vec<Vec<usize>> {
    let places: BTreeMap<&str, usize> = (0..).zip(members).map(|(i, it)| (&*it.name, i)).collect();
    let mut last_of_group: BTreeMap<&str, usize> = BTreeMap::new();
    let mut all = Vec::with_capacity(members.len());
    for (place, member) in members.iter().enumerate() {
        let named = member.depends_on.iter();
        let mut awaited: Vec<usize> = named
            .filter_map(|name| places.get(&**name).copied())
            .collect();
        let group = member.group.iter().filter(|it| it.strategy.is_ordered());
        for group in group {
            awaited.extend(last_of_group.insert(&group.name, place));
        }
        all.push(awaited);
    }
    all
}
