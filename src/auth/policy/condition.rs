//! Conditions in CEL (the Common Expression Language), over facts that are known for both lists and
//! calls.
//!
//! They can use strings and flags, and every operation takes time linear in the length of its
//! operands: no loops over values, no regular expressions. The `cel` crate only parses them,
//! because in its operators values of different types are merely unequal.

use std::fmt;
use std::sync::{Arc, LazyLock};

use cel::common::ast::{CallExpr, EntryExpr, Expr, IdedExpr, LiteralValue, SelectExpr};
use cel::{Env, Program};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::evaluation::{Facts, Function, Node};
use super::fact::{Fact, Members, Unclear};
use super::{AccessRequest, Annotations, AskedItem, arguments, uri_form};
use crate::id::{Principal, ServerName, ViewId};
use crate::protocol::{Method, json};
use crate::supervision::catch_panic;

/// Maximum length of a condition, in bytes.
const LENGTH_MAX: usize = 2048;

/// Maximum nesting of brackets and of expressions.
const DEPTH_MAX: usize = 32;

/// Maximum number of expressions in a condition.
const PARTS_MAX: usize = 500;

/// The variables of a condition.
const NAMES: [&str; 12] = [
    "principal.issuer",
    "principal.name",
    "principal.scopes",
    "view",
    "server",
    "method",
    ITEM,
    "tool.name",
    "tool.annotations.readOnlyHint",
    "tool.annotations.destructiveHint",
    "tool.annotations.idempotentHint",
    ARGUMENTS,
];

const ITEM: &str = "item";

/// The variable with a tool call's arguments, which can have members of any name.
const ARGUMENTS: &str = "arguments";

const UNKNOWN_ARGUMENTS: Unclear = "it reads arguments, which only a call has";

const TWO_ITEMS: Unclear = "the request names two items";

/// The functions and operators of a condition, and the number of values each takes.
const FUNCTIONS: [(&str, Function, usize); 18] = [
    ("_?_:_", Function::Choice, 3),
    ("_&&_", Function::And, 2),
    ("_||_", Function::Or, 2),
    ("!_", Function::Not, 1),
    ("_==_", Function::Equal, 2),
    ("_!=_", Function::Unequal, 2),
    ("_<_", Function::Less, 2),
    ("_<=_", Function::LessOrEqual, 2),
    ("_>_", Function::Greater, 2),
    ("_>=_", Function::GreaterOrEqual, 2),
    ("_+_", Function::Add, 2),
    ("@in", Function::In, 2),
    ("_[_]", Function::Index, 2),
    ("size", Function::Size, 1),
    ("contains", Function::Contains, 2),
    ("startsWith", Function::StartsWith, 2),
    ("endsWith", Function::EndsWith, 2),
    ("string", Function::Text, 1),
];

static ENVIRONMENT: LazyLock<Env> = LazyLock::new(Env::stdlib);

/// A validated condition. Two conditions are equal if their texts are.
#[derive(Clone, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Condition {
    pub(super) text: Arc<str>,
    root: Arc<Node>,
    asks_arguments: bool,
}

/// Why a text is not a condition.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidCondition(String);

impl Condition {
    /// # Errors
    ///
    /// Returns what is wrong with the text, and what is available instead.
    pub fn try_new(text: &str) -> Result<Self, InvalidCondition> {
        if text.len() > LENGTH_MAX {
            return Err(invalid(format!("is longer than {LENGTH_MAX} bytes")));
        }
        if depth(text) > DEPTH_MAX {
            return Err(invalid(format!(
                "has brackets nested more than {DEPTH_MAX} deep"
            )));
        }
        // The parser is generated code, which can panic on unexpected input.
        let parsed: Result<Result<Program, _>, _> = catch_panic(|| ENVIRONMENT.compile(text));
        let program = match parsed {
            Ok(Ok(program)) => program,
            Ok(Err(errors)) => return Err(invalid(syntax_error(&errors))),
            Err(_) => return Err(invalid("cannot be read")),
        };
        let mut reader = Compiler::default();
        let condition = Self {
            text: text.into(),
            root: Arc::new(reader.node(program.expression())?),
            asks_arguments: reader.asks_arguments,
        };
        match condition.try_once() {
            Ok(_) => Ok(condition),
            // The trial run has no arguments.
            Err(_) if condition.asks_arguments => Ok(condition),
            Err(_) => Err(invalid("is not true or false")),
        }
    }

    /// Evaluates the condition for an imaginary tool, so that most mistakes are found before the
    /// first request.
    fn try_once(&self) -> Result<bool, Unclear> {
        let server = ServerName::try_new("server").map_err(|_| "")?;
        let asked = AccessRequest {
            principal: &Principal::Anonymous,
            scopes: &None,
            view: &ViewId::Default,
            server: &server,
            method: &Method::ToolsCall,
            item: AskedItem::Name("tool"),
            annotations: Annotations::default(),
            arguments: None,
            tool: None,
        };
        self.holds(&facts(&asked, true))
    }

    /// Whether it depends on the arguments of a call.
    pub(super) fn asks_arguments(&self) -> bool {
        self.asks_arguments
    }

    /// # Errors
    ///
    /// Returns why it cannot be evaluated.
    pub(super) fn holds(&self, facts: &Facts) -> Result<bool, Unclear> {
        self.root.value(facts)?.truth()
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
        || "is not a valid expression".to_owned(),
        |error| {
            let (line, column) = error.pos;
            let words: String = error.msg.chars().take(200).collect();
            let words = words.replace(['\n', '\r'], " ");
            format!("is not a valid expression: {words} (line {line}, column {column})")
        },
    )
}

/// The deepest nesting of brackets in a text, including those in quotes.
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

/// Compiles the parsed expression. Refuses unknown names, and anything that could take long.
#[derive(Default)]
struct Compiler {
    parts: usize,
    /// Nesting depth of the current expression.
    depth: usize,
    /// Whether an expression concerns arguments.
    asks_arguments: bool,
}

impl Compiler {
    fn node(&mut self, expression: &IdedExpr) -> Result<Node, InvalidCondition> {
        self.parts += 1;
        if self.parts > PARTS_MAX {
            return Err(invalid(format!("has more than {PARTS_MAX} parts")));
        }
        // Evaluation recurses as deeply, on a limited stack.
        if self.depth >= DEPTH_MAX {
            let why = format!("has expressions nested more than {DEPTH_MAX} deep");
            return Err(invalid(why));
        }
        self.depth += 1;
        let node = self.part(expression);
        self.depth -= 1;
        node
    }

    fn part(&mut self, expression: &IdedExpr) -> Result<Node, InvalidCondition> {
        match &expression.expr {
            Expr::Literal(literal) => constant(literal),
            Expr::Ident(name) => self.variable(name),
            // Arguments can have members of any name.
            Expr::Select(select) if is_of_arguments(expression) => {
                let of = Box::new(self.node(&select.operand)?);
                let name = select.field.as_str().into();
                Ok(if select.test {
                    Node::Has(of, name)
                } else {
                    Node::Member(of, name)
                })
            }
            Expr::Select(select) => {
                let variable = self.variable(&path(select).unwrap_or_default())?;
                Ok(if select.test {
                    Node::Constant(Fact::Bool(true))
                } else {
                    variable
                })
            }
            Expr::List(list) => {
                let elements = list.elements.iter().map(|it| self.node(it));
                Ok(Node::List(elements.collect::<Result<_, _>>()?))
            }
            Expr::Map(map) => {
                let entries = map.entries.iter().map(|entry| match &entry.expr {
                    EntryExpr::MapEntry(entry) => {
                        Ok((self.node(&entry.key)?, self.node(&entry.value)?))
                    }
                    EntryExpr::StructField(_) => Err(invalid("constructs an object")),
                });
                Ok(Node::Map(entries.collect::<Result<_, _>>()?))
            }
            Expr::Call(call) => self.call(call),
            Expr::Comprehension(_) => Err(invalid("uses `all`, `exists`, `map` or `filter`")),
            Expr::Struct(_) | Expr::Unspecified => Err(invalid("constructs an object")),
        }
    }

    fn call(&mut self, call: &CallExpr) -> Result<Node, InvalidCondition> {
        let name = call.func_name.as_str();
        let found = FUNCTIONS.iter().find(|(known, ..)| *known == name);
        let Some((_, function, taken)) = found else {
            let shown: String = name.chars().take(64).collect();
            return Err(invalid(format!("uses `{shown}`, which is not available")));
        };
        let values = call.target.as_deref().into_iter().chain(&call.args);
        let values: Vec<Node> = values.map(|it| self.node(it)).collect::<Result<_, _>>()?;
        if values.len() != *taken {
            return Err(invalid(format!(
                "uses `{name}` with {} values",
                values.len()
            )));
        }
        let names_item = |node: &Node| matches!(node, Node::Variable(it) if NAMES[*it] == ITEM);
        if values.iter().any(names_item) {
            let is_prefix = *function == Function::StartsWith;
            values
                .iter()
                .try_for_each(|node| check_uri(node, is_prefix))?;
        }
        Ok(Node::Call(*function, values))
    }

    fn variable(&mut self, name: &str) -> Result<Node, InvalidCondition> {
        self.asks_arguments |= name == ARGUMENTS;
        if let Some(place) = NAMES.iter().position(|known| *known == name) {
            return Ok(Node::Variable(place));
        }
        let shown: String = name.chars().take(64).collect();
        let known = NAMES.join("`, `");
        Err(invalid(format!(
            "uses `{shown}`, which is unknown; available are `{known}`"
        )))
    }
}

fn constant(literal: &LiteralValue) -> Result<Node, InvalidCondition> {
    Ok(Node::Constant(match literal {
        LiteralValue::Boolean(truth) => Fact::Bool(*truth.inner()),
        LiteralValue::Double(number) => Fact::Float(*number.inner()),
        LiteralValue::Int(number) => Fact::Int((*number.inner()).into()),
        LiteralValue::UInt(number) => Fact::Int((*number.inner()).into()),
        LiteralValue::String(text) => text.inner().into(),
        LiteralValue::Null => Fact::Null,
        LiteralValue::Bytes(_) => return Err(invalid("has bytes, which no variable contains")),
    }))
}

/// Refuses a URI that is not in normal form: `item` would never equal it.
fn check_uri(node: &Node, is_prefix: bool) -> Result<(), InvalidCondition> {
    match node {
        Node::Constant(Fact::Text(uri)) if uri.contains(":/") => {
            // The last segment of a prefix is incomplete.
            let rest = if is_prefix { "x" } else { "" };
            let whole = format!("{uri}{rest}");
            match uri_form::normal(&whole) {
                Ok(normal) if *normal != *whole => {
                    let normal = normal.strip_suffix(rest).unwrap_or(&normal);
                    let shown: String = normal.chars().take(200).collect();
                    Err(invalid(format!(
                        "has a URI that is not in normal form and can never equal `item`; write `{shown}`"
                    )))
                }
                _ => Ok(()),
            }
        }
        Node::List(elements) => elements.iter().try_for_each(|it| check_uri(it, is_prefix)),
        _ => Ok(()),
    }
}

/// The full dotted name of nested selections; `None` if they start with something else.
fn path(select: &SelectExpr) -> Option<String> {
    let before = match &select.operand.expr {
        Expr::Ident(name) => name.clone(),
        Expr::Select(inner) => path(inner)?,
        _ => return None,
    };
    Some(format!("{before}.{}", select.field))
}

/// Whether the expression is the arguments, or a part of them.
fn is_of_arguments(mut expression: &IdedExpr) -> bool {
    loop {
        expression = match &expression.expr {
            Expr::Ident(name) => return name == ARGUMENTS,
            Expr::Select(select) => &select.operand,
            Expr::Call(call) if call.func_name == "_[_]" => match call.args.first() {
                Some(of) => of,
                None => return false,
            },
            _ => return false,
        }
    }
}

/// The facts of a request in the order of [`NAMES`], with its arguments if they are known.
pub(super) fn facts(asked: &AccessRequest<'_>, with_arguments: bool) -> Facts {
    let (issuer, name) = asked.principal.parts();
    let scopes = asked.scopes.iter().flat_map(|scopes| scopes.iter());
    let view = Option::<String>::from(asked.view.clone()).unwrap_or_default();
    let is_tool = *asked.method == Method::ToolsCall;
    let tool = if is_tool { asked.item.as_str() } else { "" };
    let item = match asked.item {
        AskedItem::Name(name) => Ok(Fact::from(name)),
        AskedItem::Uri(uri) => uri_form::normal(uri).map(|normal| Fact::from(&*normal)),
        AskedItem::Ambiguous(_) => Err(TWO_ITEMS),
    };
    let arguments = match asked.arguments {
        _ if !with_arguments => Fact::Map(Members::default()),
        None => Fact::Unclear(UNKNOWN_ARGUMENTS),
        Some(arguments) => {
            let schema = asked
                .tool
                .and_then(|tool| json::member(tool, "inputSchema"));
            let schema: Option<Value> = schema.and_then(|it| serde_json::from_str(it).ok());
            arguments::read(arguments, schema.as_ref())
        }
    };
    let Annotations {
        read_only,
        destructive,
        idempotent,
    } = asked.annotations;
    vec![
        issuer.into(),
        name.into(),
        Fact::List(scopes.map(Fact::from).collect()),
        view.as_str().into(),
        asked.server.as_str().into(),
        asked.method.as_str().into(),
        item.unwrap_or_else(Fact::Unclear),
        tool.into(),
        Fact::Bool(is_tool && read_only),
        Fact::Bool(is_tool && destructive),
        Fact::Bool(is_tool && idempotent),
        arguments,
    ]
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
            ("", "not a valid expression"),
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
            // The test only checks that this returns.
            read.unwrap().join().unwrap();
        }
    }
}
