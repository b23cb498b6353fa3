//! Conditions in CEL (the Common Expression Language), over what is known of a request alike in
//! lists and in calls.
//!
//! They may use short names and flags, and every operation on them takes time in
//! proportion to their own length: no loops over values, no regular expressions.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, LazyLock};

use cel::common::ast::{Expr, IdedExpr, SelectExpr};
use cel::objects::{Key, Value};
use cel::{Context, Env, Program};

use super::{AccessRequest, Annotations, arguments};
use crate::id::{Principal, ServerName, ViewId};
use crate::protocol::Method;
use crate::supervision::catch_panic;

/// Longest condition, in bytes.
const LENGTH_MAX: usize = 2048;

/// Brackets within one another, and parts.
const DEPTH_MAX: usize = 32;

/// Parts of a condition.
const PARTS_MAX: usize = 500;

/// The variables of a condition.
const NAMES: [&str; 12] = [
    "principal.issuer",
    "principal.name",
    "principal.scopes",
    "view",
    "server",
    "method",
    "item",
    "tool.name",
    "tool.annotations.readOnlyHint",
    "tool.annotations.destructiveHint",
    "tool.annotations.idempotentHint",
    ARGUMENTS,
];

/// Those of a call of a tool, with any names below it.
const ARGUMENTS: &str = "arguments";

/// A member of a map or a list.
const INDEX: &str = "_[_]";

/// The functions and operators of a condition.
const FUNCTIONS: [&str; 18] = [
    "_?_:_",
    "_&&_",
    "_||_",
    "!_",
    "_==_",
    "_!=_",
    "_<_",
    "_<=_",
    "_>_",
    "_>=_",
    "_+_",
    "@in",
    INDEX,
    "size",
    "contains",
    "startsWith",
    "endsWith",
    "string",
];

static ENVIRONMENT: LazyLock<Arc<Env>> = LazyLock::new(|| Arc::new(Env::stdlib()));

/// A condition that was checked. Two are equal when their texts are.
#[derive(Clone)]
pub struct Condition {
    text: Arc<str>,
    program: Arc<Program>,
    asks_arguments: bool,
}

/// Why a text is no condition.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidCondition(String);

/// The facts that conditions are judged by.
pub(super) type Facts = Context<'static, 'static>;

impl Condition {
    /// # Errors
    ///
    /// Says what is wrong with the text, and what there is.
    pub fn try_new(text: &str) -> Result<Self, InvalidCondition> {
        if text.len() > LENGTH_MAX {
            return Err(invalid(format!("is longer than {LENGTH_MAX} bytes")));
        }
        if depth(text) > DEPTH_MAX {
            return Err(invalid(format!(
                "has more than {DEPTH_MAX} brackets within one another"
            )));
        }
        // It is generated code, which may panic over what nobody thought of.
        let parsed = catch_panic(|| ENVIRONMENT.compile(text));
        let program = match parsed {
            Ok(Ok(program)) => program,
            Ok(Err(errors)) => return Err(invalid(syntax_error(&errors))),
            Err(_) => return Err(invalid("cannot be read")),
        };
        let mut seen = Seen::default();
        check(program.expression(), &mut seen)?;
        let condition = Self {
            text: text.into(),
            program: Arc::new(program),
            asks_arguments: seen.arguments,
        };
        match catch_panic(|| condition.try_once()) {
            Ok(Some(_)) => Ok(condition),
            // It is tried without any.
            Ok(None) if condition.asks_arguments => Ok(condition),
            Ok(None) | Err(_) => Err(invalid("is not true or false")),
        }
    }

    /// Tried with a tool of nobody, so that most mistakes are found before the first request.
    fn try_once(&self) -> Option<bool> {
        let server = ServerName::try_new("server").ok()?;
        let asked = AccessRequest {
            principal: &Principal::Anonymous,
            scopes: &None,
            view: &ViewId::Default,
            server: &server,
            method: &Method::ToolsCall,
            item: "tool",
            annotations: Annotations::default(),
            arguments: None,
        };
        self.holds(&facts(&asked, false))
    }

    /// Whether the arguments of a call matter to it.
    pub(super) fn asks_arguments(&self) -> bool {
        self.asks_arguments
    }

    /// Whether it holds; `None` if it cannot be judged.
    pub(super) fn holds(&self, facts: &Facts) -> Option<bool> {
        match self.program.execute(facts) {
            Ok(Value::Bool(holds)) => Some(holds),
            Ok(_) | Err(_) => None,
        }
    }
}

impl PartialEq for Condition {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Condition {}

impl fmt::Debug for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.text, f)
    }
}

fn invalid(why: impl Into<String>) -> InvalidCondition {
    InvalidCondition(why.into())
}

/// The first error, in one line.
fn syntax_error(errors: &cel::ParseErrors) -> String {
    let first = errors.errors.first();
    first.map_or_else(
        || "is no expression".to_owned(),
        |error| {
            let (line, column) = error.pos;
            let words: String = error.msg.chars().take(200).collect();
            let words = words.replace(['\n', '\r'], " ");
            format!("is no expression: {words} (line {line}, column {column})")
        },
    )
}

/// The deepest brackets of a text, those in quotes too.
fn depth(text: &str) -> usize {
    let (mut depth, mut deepest) = (0usize, 0);
    for byte in text.bytes() {
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        deepest = deepest.max(depth);
    }
    deepest
}

/// The parts of a condition so far.
#[derive(Default)]
struct Seen {
    parts: usize,
    /// Of the one that is looked at.
    depth: usize,
    /// Whether one of them is about arguments.
    arguments: bool,
}

/// Refuses what is unknown, and what could take long.
fn check(expression: &IdedExpr, seen: &mut Seen) -> Result<(), InvalidCondition> {
    seen.parts += 1;
    if seen.parts > PARTS_MAX {
        return Err(invalid(format!("has more than {PARTS_MAX} parts")));
    }
    // The interpreter goes down as deep, on a stack that ends.
    if seen.depth >= DEPTH_MAX {
        let why = format!("has more than {DEPTH_MAX} parts within one another");
        return Err(invalid(why));
    }
    seen.depth += 1;
    let checked = check_part(expression, seen);
    seen.depth -= 1;
    checked
}

fn check_part(expression: &IdedExpr, seen: &mut Seen) -> Result<(), InvalidCondition> {
    match &expression.expr {
        Expr::Literal(_) => Ok(()),
        Expr::Ident(name) => check_name(name, seen),
        // Below an argument there may be any names.
        Expr::Select(select) if is_of_arguments(expression) => check(&select.operand, seen),
        Expr::Select(select) => check_name(&path(select).unwrap_or_default(), seen),
        Expr::List(list) => list.elements.iter().try_for_each(|it| check(it, seen)),
        Expr::Map(map) => {
            for entry in &map.entries {
                if let cel::common::ast::EntryExpr::MapEntry(entry) = &entry.expr {
                    check(&entry.key, seen)?;
                    check(&entry.value, seen)?;
                }
            }
            Ok(())
        }
        Expr::Call(call) => {
            let name = &call.func_name;
            if !FUNCTIONS.contains(&name.as_str()) {
                let shown: String = name.chars().take(64).collect();
                return Err(invalid(format!("uses `{shown}`, which there is not")));
            }
            let target = call.target.as_deref();
            let mut inner = target.into_iter().chain(&call.args);
            inner.try_for_each(|it| check(it, seen))
        }
        Expr::Comprehension(_) => Err(invalid("uses `all`, `exists`, `map` or `filter`")),
        Expr::Struct(_) | Expr::Unspecified => Err(invalid("is no expression of names")),
    }
}

/// The whole name that selections spell; `None` if it begins with something else.
fn path(select: &SelectExpr) -> Option<String> {
    let before = match &select.operand.expr {
        Expr::Ident(name) => name.clone(),
        Expr::Select(inner) => path(inner)?,
        _ => return None,
    };
    Some(format!("{before}.{}", select.field))
}

/// Whether it is the arguments, or a part of them.
fn is_of_arguments(mut expression: &IdedExpr) -> bool {
    loop {
        expression = match &expression.expr {
            Expr::Ident(name) => return name == ARGUMENTS,
            Expr::Select(select) => &select.operand,
            Expr::Call(call) if call.func_name == INDEX => match call.args.first() {
                Some(of) => of,
                None => return false,
            },
            _ => return false,
        }
    }
}

fn check_name(name: &str, seen: &mut Seen) -> Result<(), InvalidCondition> {
    seen.arguments |= name == ARGUMENTS;
    if NAMES.contains(&name) {
        return Ok(());
    }
    let shown: String = name.chars().take(64).collect();
    let known = NAMES.join("`, `");
    Err(invalid(format!(
        "uses `{shown}`, which is unknown; there are `{known}`"
    )))
}

/// Those of a request; with its arguments, as far as they are known and can be read.
pub(super) fn facts(asked: &AccessRequest<'_>, with_arguments: bool) -> Facts {
    let mut facts = Context::with_env(ENVIRONMENT.clone());
    let (issuer, name) = asked.principal.parts();
    let scopes = asked.scopes.iter().flat_map(|scopes| scopes.iter());
    let scopes: Vec<Value> = scopes.map(Value::from).collect();
    let principal = [
        ("issuer", issuer.into()),
        ("name", name.into()),
        ("scopes", scopes.into()),
    ];
    let view = Option::<String>::from(asked.view.clone()).unwrap_or_default();
    let is_tool = *asked.method == Method::ToolsCall;
    let annotations = asked.annotations;
    let annotations = [
        ("readOnlyHint", annotations.read_only),
        ("destructiveHint", annotations.destructive),
        ("idempotentHint", annotations.idempotent),
    ];
    let annotations = annotations.map(|(key, flag)| (key, (is_tool && flag).into()));
    let tool = [
        ("name", if is_tool { asked.item } else { "" }.into()),
        ("annotations", map(annotations)),
    ];
    facts.add_variable_from_value("principal", map(principal));
    facts.add_variable_from_value("view", view);
    facts.add_variable_from_value("server", asked.server.as_str());
    facts.add_variable_from_value("method", asked.method.as_str());
    facts.add_variable_from_value("item", asked.item);
    facts.add_variable_from_value("tool", map(tool));
    let arguments = asked.arguments.filter(|_| with_arguments);
    if let Some(arguments) = arguments.and_then(arguments::read) {
        facts.add_variable_from_value(ARGUMENTS, arguments);
    }
    facts
}

fn map<const N: usize>(entries: [(&str, Value); N]) -> Value {
    let entries: HashMap<Key, Value> = entries
        .into_iter()
        .map(|(key, value)| (Key::from(key), value))
        .collect();
    entries.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_is_checked_before_the_first_request() {
        let table = [
            ("true", ""),
            (r#"server in ["a", "b"] && !(method == "tools/call")"#, ""),
            (r#"tool.name.startsWith("read_") || view == "open""#, ""),
            (r#"principal.issuer == "key" ? item.size() < 9 : false"#, ""),
            ("", "no expression"),
            ("server ==", "line 1"),
            ("server", "true or false"),
            ("1 + 1", "true or false"),
            (r#"server < 1"#, "true or false"),
            ("user.name == 'x'", "`user.name`, which is unknown"),
            ("principal.scopes == []", ""),
            (r#""admin" in principal.scopes"#, ""),
            ("principal == {}", "`principal`, which is unknown"),
            ("tool == {}", "`tool`, which is unknown"),
            ("argument.path == 'x'", "`principal.issuer`"),
            ("arguments.path == 'x'", ""),
            (r#"arguments["dry-run"].all[0] == 'x'"#, ""),
            ("has(arguments.path) && 'x' in arguments", ""),
            ("arguments[server[0]].x.matches('a')", "`matches`"),
            ("arguments.x[user] == 1", "`user`"),
            ("arguments.all(x, x == 1)", "`all`"),
            (r#"tool.name.matches("(a*)*b")"#, "`matches`"),
            ("[1, 2].exists(x, x == 1)", "`exists`"),
            ("size('a').foo == 1", "unknown"),
            ("timestamp('2026-01-01T00:00:00Z') == 1", "`timestamp`"),
        ];
        for (text, word) in table {
            match Condition::try_new(text) {
                Ok(_) => assert_eq!(word, "", "{text}"),
                Err(error) => {
                    let error = error.to_string();
                    assert!(!word.is_empty() && error.contains(word), "{text}: {error}");
                }
            }
        }
    }

    #[test]
    fn hostile_conditions_are_refused_or_cheap() {
        let long = |part: &str| part.repeat(LENGTH_MAX / part.len());
        for text in [
            long("("),
            long("["),
            long("!"),
            long("-"),
            long("true?"),
            long("true?true:") + "true",
            long("server+"),
            long("a."),
            "arguments".to_owned() + &long(".a"),
            "arguments".to_owned() + &".a".repeat(DEPTH_MAX) + " == 1",
            "arguments".to_owned() + &".a".repeat(PARTS_MAX - 1),
            "server".to_owned() + &"[0]".repeat(PARTS_MAX / 2 - 1) + "== 1",
            "server".to_owned() + &"+server".repeat(PARTS_MAX / 2 - 2) + "== server",
            "arguments".to_owned() + &"[0]".repeat(PARTS_MAX / 2 - 1),
            long("arguments["),
            long("has(arguments."),
            long("true&&") + "true",
            long("'a'+") + "'a' == ''",
            "x".repeat(LENGTH_MAX + 1),
            long("\u{0}"),
            long("\""),
            long("{1:"),
        ] {
            let text = text.chars().take(LENGTH_MAX + 1).collect::<String>();
            let read = std::thread::Builder::new().stack_size(2 << 20);
            let read = read.spawn(move || Condition::try_new(&text).is_ok());
            // It comes back, whatever it says.
            read.unwrap().join().unwrap();
        }
    }
}
