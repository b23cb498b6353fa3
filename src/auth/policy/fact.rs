//! The values in conditions, and their operators. Values of different types are never compared: a
//! server can accept `["x"]` or `1` for `"x"`, so `false` would be a guess.

use std::cmp::Ordering;
use std::collections::HashMap;

use crate::protocol::folded;

/// Why a condition cannot be evaluated; a message for people.
pub(super) type Unclear = &'static str;

pub(super) const OTHER_TYPE: Unclear = "it compares values of different types";
pub(super) const ABSENT: Unclear = "it reads something that is absent";
pub(super) const AMBIGUOUS_MEMBER: Unclear =
    "members of the arguments differ from a name in it, or from each other, only in case";

/// One value; numbers of every kind are one type.
#[derive(Clone, Debug)]
pub(super) enum Fact {
    Null,
    Bool(bool),
    Int(i128),
    Float(f64),
    Text(Box<str>),
    List(Vec<Fact>),
    Map(Members),
    /// Ambiguous; reading it makes the condition undecidable.
    Unclear(Unclear),
}

/// The members of an object by their folded names, since a server may ignore case.
#[derive(Clone, Debug, Default)]
pub(super) struct Members(HashMap<Box<str>, FactMember>);

#[derive(Clone, Debug)]
struct FactMember {
    name: Box<str>,
    value: Fact,
    /// Whether another member folds to the same name.
    is_ambiguous: bool,
}

impl From<&str> for Fact {
    fn from(text: &str) -> Self {
        Self::Text(text.into())
    }
}

impl Members {
    /// Adds a member. Returns false if the map already has one with exactly this name.
    pub(super) fn add(&mut self, name: &str, value: Fact) -> bool {
        let member = FactMember {
            name: name.into(),
            value,
            is_ambiguous: false,
        };
        match self.0.get_mut(&*folded(name)) {
            Some(there) if *there.name == *name => return false,
            Some(there) => there.is_ambiguous = true,
            None => drop(self.0.insert(folded(name).into(), member)),
        }
        true
    }

    /// The member of this name; `None` if no reader would find one.
    pub(super) fn get(&self, name: &str) -> Result<Option<&Fact>, Unclear> {
        match self.0.get(&*folded(name)) {
            None => Ok(None),
            Some(member) if member.is_ambiguous || *member.name != *name => Err(AMBIGUOUS_MEMBER),
            Some(member) => Ok(Some(&member.value)),
        }
    }

    /// The value of a member, for modification.
    pub(super) fn value_mut(&mut self, name: &str) -> Option<&mut Fact> {
        let member = self.0.get_mut(&*folded(name))?;
        (*member.name == *name).then_some(&mut member.value)
    }

    fn equals(&self, other: &Self) -> Result<bool, Unclear> {
        let mut members = self.0.values().chain(other.0.values());
        if members.any(|member| member.is_ambiguous) {
            return Err(AMBIGUOUS_MEMBER);
        }
        if self.0.len() != other.0.len() {
            return Ok(false);
        }
        all(self
            .0
            .values()
            .map(|member| match other.get(&member.name)? {
                Some(value) => member.value.equals(value),
                None => Ok(false),
            }))
    }
}

impl Fact {
    /// The value, unless it is unclear.
    pub(super) fn clear(&self) -> Result<&Self, Unclear> {
        match self {
            Self::Unclear(why) => Err(why),
            clear => Ok(clear),
        }
    }

    pub(super) fn text(&self) -> Result<&str, Unclear> {
        match self.clear()? {
            Self::Text(text) => Ok(text),
            _ => Err(OTHER_TYPE),
        }
    }

    pub(super) fn truth(&self) -> Result<bool, Unclear> {
        match self.clear()? {
            Self::Bool(truth) => Ok(*truth),
            _ => Err(OTHER_TYPE),
        }
    }

    pub(super) fn equals(&self, other: &Self) -> Result<bool, Unclear> {
        match (self.clear()?, other.clear()?) {
            (Self::Null, Self::Null) => Ok(true),
            (Self::List(one), Self::List(other)) if one.len() != other.len() => Ok(false),
            (Self::List(one), Self::List(other)) => {
                all(one.iter().zip(other).map(|(one, other)| one.equals(other)))
            }
            (Self::Map(one), Self::Map(other)) => one.equals(other),
            (one, other) => Ok(one.order(other)? == Ordering::Equal),
        }
    }

    /// # Errors
    ///
    /// Fails for values without an order, and for values of different types.
    pub(super) fn order(&self, other: &Self) -> Result<Ordering, Unclear> {
        match (self.clear()?, other.clear()?) {
            (Self::Bool(one), Self::Bool(other)) => Ok(one.cmp(other)),
            (Self::Text(one), Self::Text(other)) => Ok(one.cmp(other)),
            (Self::Int(one), Self::Int(other)) => Ok(one.cmp(other)),
            (one, other) => {
                let numbers = one.number().zip(other.number());
                let order = numbers.and_then(|(one, other)| one.partial_cmp(&other));
                order.ok_or(OTHER_TYPE)
            }
        }
    }

    fn number(&self) -> Option<f64> {
        match self {
            Self::Int(number) => Some(*number as f64),
            Self::Float(number) => Some(*number),
            _ => None,
        }
    }

    /// Whether it is an element of a list, or the name of a member of a map.
    pub(super) fn is_in(&self, holder: &Self) -> Result<bool, Unclear> {
        match holder.clear()? {
            Self::List(elements) => {
                self.clear()?;
                any(elements.iter().map(|element| self.equals(element)))
            }
            Self::Map(members) => Ok(members.get(self.text()?)?.is_some()),
            _ => Err(OTHER_TYPE),
        }
    }

    pub(super) fn size(&self) -> Result<i128, Unclear> {
        Ok(match self.clear()? {
            Self::Text(text) => text.chars().count(),
            Self::List(elements) => elements.len(),
            Self::Map(members) => members.0.len(),
            _ => return Err(OTHER_TYPE),
        } as i128)
    }

    /// The element of a list, or the member of a map.
    pub(super) fn at(&self, index: &Self) -> Result<&Self, Unclear> {
        let found = match (self.clear()?, index.clear()?) {
            (Self::List(elements), Self::Int(index)) => {
                usize::try_from(*index).ok().and_then(|it| elements.get(it))
            }
            (Self::Map(members), Self::Text(name)) => members.get(name)?,
            _ => return Err(OTHER_TYPE),
        };
        found.ok_or(ABSENT)?.clear()
    }
}

/// Whether all are true; an undecidable one makes the result undecidable.
fn all(mut each: impl Iterator<Item = Result<bool, Unclear>>) -> Result<bool, Unclear> {
    each.try_fold(true, |all, one| Ok(all & one?))
}

/// Whether any is true, in which case undecidable ones do not matter.
fn any(each: impl Iterator<Item = Result<bool, Unclear>>) -> Result<bool, Unclear> {
    let mut unclear = None;
    for one in each {
        match one {
            Ok(true) => return Ok(true),
            Ok(false) => {}
            Err(why) => unclear = Some(why),
        }
    }
    unclear.map_or(Ok(false), Err)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_different_types_are_never_compared() {
        let list = |of: Fact| Fact::List(vec![of]);
        let map = |name: &str| {
            let mut members = Members::default();
            members.add(name, Fact::Int(1));
            Fact::Map(members)
        };
        let types = [
            Fact::Null,
            Fact::Bool(true),
            Fact::Int(1),
            Fact::from("1"),
            list(Fact::Int(1)),
            map("a"),
        ];
        for (place, one) in types.iter().enumerate() {
            for (other_place, other) in types.iter().enumerate() {
                let is_same = place == other_place;
                let equal = one.equals(other);
                assert_eq!(equal.ok(), is_same.then_some(true), "{one:?} {other:?}");
                let is_in = one.is_in(&list(other.clone())).ok();
                assert_eq!(is_in, is_same.then_some(true), "{one:?} {other:?}");
            }
            assert!(one.equals(&Fact::Unclear("odd")).is_err());
            assert!(Fact::Unclear("odd").is_in(&Fact::List(Vec::new())).is_err());
        }
        assert_eq!(Fact::Int(1).equals(&Fact::Float(1.0)), Ok(true));
        assert_eq!(
            Fact::Float(11.5).order(&Fact::Int(11)),
            Ok(Ordering::Greater)
        );
        let large = [
            Fact::Int(i128::from(u64::MAX)),
            Fact::Int(i128::from(i64::MAX)),
        ];
        assert_eq!(large[0].order(&large[1]), Ok(Ordering::Greater));
        assert!(list(Fact::Int(1)).equals(&list(Fact::from("1"))).is_err());
        assert!(Fact::Bool(true).is_in(&map("a")).is_err());
        assert!(Fact::from("A").is_in(&map("a")).is_err());
        assert_eq!(Fact::from("b").is_in(&map("a")), Ok(false));
    }
}
