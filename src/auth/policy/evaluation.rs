//! Evaluates checked conditions.

use std::borrow::Cow;
use std::cmp::Ordering;

use super::fact::{Fact, Members, OTHER_TYPE, Unclear};

/// Maximum length of a string or list that `+` produces, in bytes or elements.
const SUM_MAX: usize = 1 << 20;

/// One expression.
#[derive(Debug)]
pub(super) enum Node {
    Constant(Fact),
    /// A variable, by its index.
    Variable(usize),
    Member(Box<Node>, Box<str>),
    /// Whether the value has this member.
    Has(Box<Node>, Box<str>),
    List(Vec<Node>),
    Map(Vec<(Node, Node)>),
    Call(Function, Vec<Node>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Function {
    Choice,
    And,
    Or,
    Not,
    Equal,
    Unequal,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    Add,
    In,
    Index,
    Size,
    Contains,
    StartsWith,
    EndsWith,
    Text,
}

/// The values of a request, by variable index.
pub(super) type Facts = Vec<Fact>;

type Value<'a> = Result<Cow<'a, Fact>, Unclear>;

impl Node {
    /// # Errors
    ///
    /// Returns why it has no value.
    pub(super) fn value<'a>(&'a self, facts: &'a Facts) -> Value<'a> {
        match self {
            Self::Constant(fact) => Ok(Cow::Borrowed(fact)),
            Self::Variable(place) => {
                let fact = facts.get(*place).ok_or(super::fact::ABSENT)?;
                fact.clear().map(Cow::Borrowed)
            }
            Self::Member(of, name) => at(of.value(facts)?, &Fact::Text(name.clone())),
            Self::Has(of, name) => match &*of.value(facts)? {
                Fact::Map(members) => {
                    let found = members.get(name)?;
                    found.map(Fact::clear).transpose()?;
                    truth(found.is_some())
                }
                _ => Err(OTHER_TYPE),
            },
            Self::List(elements) => {
                let values = elements
                    .iter()
                    .map(|it| it.value(facts).map(Cow::into_owned));
                Ok(Cow::Owned(Fact::List(
                    values.collect::<Result<_, Unclear>>()?,
                )))
            }
            Self::Map(entries) => {
                let mut members = Members::default();
                for (key, value) in entries {
                    let key = key.value(facts)?;
                    members.add(key.text()?, value.value(facts)?.into_owned());
                }
                Ok(Cow::Owned(Fact::Map(members)))
            }
            Self::Call(function, arguments) => match arguments.as_slice() {
                [only] => unary(*function, &*only.value(facts)?),
                [one, other] => binary(*function, (one, other), facts),
                [condition, yes, no] => match condition.value(facts)?.truth()? {
                    true => yes.value(facts),
                    false => no.value(facts),
                },
                _ => Err(OTHER_TYPE),
            },
        }
    }
}

fn truth<'a>(truth: bool) -> Value<'a> {
    Ok(Cow::Owned(Fact::Bool(truth)))
}

fn at<'a>(of: Cow<'a, Fact>, index: &Fact) -> Value<'a> {
    match of {
        Cow::Borrowed(of) => of.at(index).map(Cow::Borrowed),
        Cow::Owned(of) => of.at(index).cloned().map(Cow::Owned),
    }
}

fn unary<'a>(function: Function, of: &Fact) -> Value<'a> {
    match function {
        Function::Not => truth(!of.truth()?),
        Function::Size => Ok(Cow::Owned(Fact::Int(of.size()?))),
        Function::Text => Ok(Cow::Owned(Fact::Text(match of.clear()? {
            Fact::Text(text) => text.clone(),
            Fact::Bool(truth) => truth.to_string().into(),
            Fact::Int(number) => number.to_string().into(),
            Fact::Float(number) => number.to_string().into(),
            _ => return Err(OTHER_TYPE),
        }))),
        _ => Err(OTHER_TYPE),
    }
}

fn binary<'a>(
    function: Function,
    (one, other): (&'a Node, &'a Node),
    facts: &'a Facts,
) -> Value<'a> {
    let one = one.value(facts);
    // One deciding operand is enough, even if the other cannot be evaluated.
    if let Function::And | Function::Or = function {
        let decides = function == Function::Or;
        let is_decided = |value: &Value<'_>| {
            let truth = value.as_ref().map(|value| value.truth());
            matches!(truth, Ok(Ok(truth)) if truth == decides)
        };
        if is_decided(&one) {
            return truth(decides);
        }
        let other = other.value(facts);
        if is_decided(&other) {
            return truth(decides);
        }
        one?.truth()?;
        other?.truth()?;
        return truth(!decides);
    }
    let (one, other) = (one?, other.value(facts)?);
    let ordered = |holds: fn(Ordering) -> bool| truth(holds(one.order(&other)?));
    match function {
        Function::Equal => truth(one.equals(&other)?),
        Function::Unequal => truth(!one.equals(&other)?),
        Function::Less => ordered(Ordering::is_lt),
        Function::LessOrEqual => ordered(Ordering::is_le),
        Function::Greater => ordered(Ordering::is_gt),
        Function::GreaterOrEqual => ordered(Ordering::is_ge),
        Function::In => truth(one.is_in(&other)?),
        Function::Contains => truth(one.text()?.contains(other.text()?)),
        Function::StartsWith => truth(one.text()?.starts_with(other.text()?)),
        Function::EndsWith => truth(one.text()?.ends_with(other.text()?)),
        Function::Index => at(one, &other),
        Function::Add => Ok(Cow::Owned(sum(&one, &other)?)),
        _ => Err(OTHER_TYPE),
    }
}

fn sum(one: &Fact, other: &Fact) -> Result<Fact, Unclear> {
    const TOO_LARGE: Unclear = "it makes a value that is too large";
    match (one.clear()?, other.clear()?) {
        (Fact::Int(one), Fact::Int(other)) => {
            one.checked_add(*other).map(Fact::Int).ok_or(TOO_LARGE)
        }
        (Fact::Float(one), Fact::Float(other)) => Ok(Fact::Float(one + other)),
        (Fact::Int(int), Fact::Float(float)) | (Fact::Float(float), Fact::Int(int)) => {
            Ok(Fact::Float(*int as f64 + float))
        }
        (Fact::Text(one), Fact::Text(other)) if one.len() + other.len() <= SUM_MAX => {
            Ok(Fact::Text([&**one, &**other].concat().into()))
        }
        (Fact::List(one), Fact::List(other)) if one.len() + other.len() <= SUM_MAX => {
            Ok(Fact::List([&one[..], &other[..]].concat()))
        }
        (Fact::Text(_), Fact::Text(_)) | (Fact::List(_), Fact::List(_)) => Err(TOO_LARGE),
        _ => Err(OTHER_TYPE),
    }
}
