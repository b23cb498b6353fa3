//! Access policies for principals, with conditions in CEL; the first rule that holds decides.

mod arguments;
mod cases;
mod condition;
mod evaluation;
mod fact;
mod uri_form;

use std::sync::Arc;

use serde::{Deserialize, Serialize};

pub use cases::{PolicyCase, TriedCase, read_cases};
pub use condition::{Condition, InvalidCondition};

use super::identity::GrantedScopes;
use crate::id::{Principal, ServerName, ViewId};
use crate::protocol::{ErrorKind, Failure, Method};

/// The effect of a rule on a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Effect {
    #[default]
    Allow,
    Deny,
}

/// One rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyRule {
    pub name: Arc<str>,
    pub when: Condition,
    pub effect: Effect,
}

/// Decides which requests are allowed.
pub trait Policy: Send + Sync {
    /// # Errors
    ///
    /// Returns why the request is denied.
    fn judge(&self, asked: &AccessRequest<'_>) -> Result<(), Denied>;
}

/// The rules of a gateway, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Policies {
    pub rules: Vec<PolicyRule>,
    /// Effect if no rule holds.
    pub default: Effect,
}

/// The hints that a tool gives about its effects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Annotations {
    pub read_only: bool,
    pub destructive: bool,
    pub idempotent: bool,
}

/// The tool, prompt or resource that a request concerns, as its server knows it.
#[derive(Clone, Copy, Debug)]
pub enum AskedItem<'a> {
    Name(&'a str),
    /// All spellings of a URI are equivalent.
    Uri(&'a str),
    /// The request also names another item, so that a server could choose either.
    Ambiguous(&'a str),
}

impl<'a> AskedItem<'a> {
    pub fn as_str(self) -> &'a str {
        match self {
            Self::Name(text) | Self::Uri(text) | Self::Ambiguous(text) => text,
        }
    }
}

/// A request to be decided, or an item that a request could name.
#[derive(Clone, Copy, Debug)]
pub struct AccessRequest<'a> {
    pub principal: &'a Principal,
    pub scopes: &'a GrantedScopes,
    pub view: &'a ViewId,
    pub server: &'a ServerName,
    pub method: &'a Method,
    pub item: AskedItem<'a>,
    /// Annotations of the tool, if the item is one.
    pub annotations: Annotations,
    /// Arguments of a tool call, in JSON, `{}` if it has none; `None` while a tool is only listed.
    pub arguments: Option<&'a [u8]>,
    /// Definition of the called tool, in JSON: its `inputSchema` has the types of the arguments.
    pub tool: Option<&'a str>,
}

/// Why a request is denied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Denied {
    /// This rule denies it.
    By(Arc<str>),
    /// The condition of this rule cannot be evaluated, for this reason.
    Unclear(Arc<str>, &'static str),
    /// No rule allows it.
    ByDefault,
}

impl TryFrom<String> for Condition {
    type Error = InvalidCondition;

    fn try_from(text: String) -> Result<Self, InvalidCondition> {
        Self::try_new(&text)
    }
}

impl From<Condition> for String {
    fn from(condition: Condition) -> Self {
        condition.text.to_string()
    }
}

impl Policies {
    /// Whether no request is ever denied.
    pub fn allow_all(&self) -> bool {
        self.rules.is_empty() && self.default == Effect::Allow
    }

    /// Decides by the first rule whose condition holds, and returns its name; a condition that
    /// cannot be evaluated denies.
    ///
    /// # Errors
    ///
    /// Fails like [`Policy::judge`].
    pub fn decide(&self, asked: &AccessRequest<'_>) -> Result<Option<Arc<str>>, Denied> {
        if self.rules.is_empty() {
            return self.by_default();
        }
        let asks_arguments = self.rules.iter().any(|rule| rule.when.asks_arguments());
        let facts = condition::facts(asked, asks_arguments);
        for rule in &self.rules {
            let is_open = asked.arguments.is_none() && rule.when.asks_arguments();
            match (rule.when.holds(&facts), rule.effect) {
                // The condition holds for some arguments only: a tool with any allowed call is
                // listed.
                (Err(_), Effect::Allow) if is_open => return Ok(Some(rule.name.clone())),
                (Err(_), Effect::Deny) if is_open => {}
                (Ok(false), _) => {}
                (Ok(true), Effect::Allow) => return Ok(Some(rule.name.clone())),
                (Ok(true), Effect::Deny) => return Err(Denied::By(rule.name.clone())),
                (Err(why), _) => return Err(Denied::Unclear(rule.name.clone(), why)),
            }
        }
        self.by_default()
    }

    fn by_default(&self) -> Result<Option<Arc<str>>, Denied> {
        match self.default {
            Effect::Allow => Ok(None),
            Effect::Deny => Err(Denied::ByDefault),
        }
    }
}

impl Policy for Policies {
    fn judge(&self, asked: &AccessRequest<'_>) -> Result<(), Denied> {
        self.decide(asked).map(drop)
    }
}

impl Denied {
    /// The failure to send to the client.
    pub fn failure(&self, asked: &AccessRequest<'_>) -> Failure {
        let why = match self {
            Self::By(rule) => format!("the policy `{rule}` denies it"),
            Self::Unclear(rule, why) => {
                format!("the condition of the policy `{rule}` cannot be evaluated: {why}")
            }
            Self::ByDefault => "no policy allows it".to_owned(),
        };
        let item: String = asked.item.as_str().chars().take(200).collect();
        let message = format!(
            "`{}` of `{item}` is not allowed: {why}; the gateway's operator can change that",
            asked.method
        );
        let failure = Failure::new(ErrorKind::PolicyDenied, message);
        failure.server(asked.server.as_str())
    }
}

/// Whether policies apply to requests of this method. Requests that follow up on a call were
/// decided with it.
pub fn is_judged(method: &Method) -> bool {
    matches!(
        method,
        Method::ToolsCall
            | Method::PromptsGet
            | Method::ResourcesRead
            | Method::ResourcesSubscribe
            | Method::CompletionComplete
            | Method::Other(_)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::credentials::Scopes;

    fn rules(rules: &[(&str, &str, Effect)], default: Effect) -> Policies {
        let rule = |(name, when, effect): &(&str, &str, Effect)| PolicyRule {
            name: (*name).into(),
            when: Condition::try_new(when).unwrap(),
            effect: *effect,
        };
        Policies {
            rules: rules.iter().map(rule).collect(),
            default,
        }
    }

    fn judged(policies: &Policies, principal: &Principal, item: &str) -> Result<(), Denied> {
        judged_with(policies, principal, &None, item)
    }

    fn judged_with(
        policies: &Policies,
        principal: &Principal,
        scopes: &GrantedScopes,
        item: &str,
    ) -> Result<(), Denied> {
        policies.judge(&AccessRequest {
            principal,
            scopes,
            view: &ViewId::Default,
            server: &ServerName::try_new("files").unwrap(),
            method: &Method::ToolsCall,
            item: AskedItem::Name(item),
            tool: None,
            annotations: Annotations {
                destructive: item.starts_with("rm"),
                ..Annotations::default()
            },
            arguments: Some(b"{}"),
        })
    }

    #[test]
    fn the_first_matching_rule_decides() {
        use Effect::{Allow, Deny};
        let policies = rules(
            &[
                (
                    "admins",
                    r#"principal.issuer == "key" && principal.name == "root""#,
                    Allow,
                ),
                ("careful", "tool.annotations.destructiveHint", Deny),
                ("reading", r#"tool.name.startsWith("read_")"#, Allow),
            ],
            Deny,
        );
        let [root, ann] = ["root", "ann"].map(|name| Principal::of("key", name));
        let by = |rule: &str| Err(Denied::By(rule.into()));
        let table = [
            (&root, "rm_all", Ok(())),
            (&ann, "rm_all", by("careful")),
            (&ann, "read_file", Ok(())),
            (&ann, "write_file", Err(Denied::ByDefault)),
            (&Principal::Anonymous, "read_file", Ok(())),
            (&Principal::of("idp", "root"), "rm_all", by("careful")),
        ];
        for (principal, item, expected) in table {
            assert_eq!(judged(&policies, principal, item), expected, "{item}");
        }
    }

    #[test]
    fn scopes_match_exactly_and_are_empty_without_scoped_credentials() {
        use Effect::{Allow, Deny};
        let policies = rules(
            &[
                ("admin", r#""admin" in principal.scopes"#, Allow),
                ("two", "size(principal.scopes) == 2", Allow),
            ],
            Deny,
        );
        let ann = Principal::of("key", "ann");
        let table = [
            ("admin", true),
            ("read admin write", true),
            ("a b", true),
            ("", false),
            ("adm", false),
            ("admin:all", false),
            ("Admin", false),
        ];
        for (scopes, expected) in table {
            let granted = Some(Arc::new(Scopes::parse(scopes).unwrap().into()));
            let judged = judged_with(&policies, &ann, &granted, "a");
            assert_eq!(judged.is_ok(), expected, "{scopes}");
        }
        assert_eq!(judged(&policies, &ann, "a"), Err(Denied::ByDefault));
    }

    fn judged_arguments(policies: &Policies, arguments: Option<&str>) -> bool {
        let judged = policies.judge(&AccessRequest {
            principal: &Principal::Anonymous,
            scopes: &None,
            view: &ViewId::Default,
            server: &ServerName::try_new("files").unwrap(),
            method: &Method::ToolsCall,
            item: AskedItem::Name("read"),
            tool: None,
            annotations: Annotations::default(),
            arguments: arguments.map(str::as_bytes),
        });
        judged.is_ok()
    }

    #[test]
    fn arguments_decide_calls_and_a_list_shows_what_some_would_allow() {
        use Effect::{Allow, Deny};
        let etc = r#"arguments.path.startsWith("/etc/")"#;
        let other = format!(r#"{etc} && server == "other""#);
        let optional = r#"has(arguments.path) && arguments.path != "/tmp""#;
        let small = r#"arguments["max-size"] <= 10"#;
        let (in_etc, none) = (Some(r#"{"path":"/etc/passwd"}"#), Some("{}"));
        let (in_tmp, twice) = (
            Some(r#"{"path":"/tmp"}"#),
            Some(r#"{"path":"/tmp","path":"/etc/passwd"}"#),
        );
        let table = [
            (etc, Deny, in_etc, false),
            (etc, Deny, in_tmp, true),
            (etc, Deny, none, false),
            (etc, Deny, twice, false),
            (etc, Deny, Some("[]"), false),
            (etc, Deny, Some(r#"{"path":["/etc/"]}"#), false),
            (etc, Deny, None, true),
            (etc, Allow, in_etc, true),
            (etc, Allow, in_tmp, false),
            (etc, Allow, none, false),
            (etc, Allow, twice, false),
            (etc, Allow, None, true),
            (&other, Deny, none, true),
            (&other, Allow, None, false),
            (optional, Deny, none, true),
            (optional, Deny, in_tmp, true),
            (optional, Deny, in_etc, false),
            (optional, Deny, twice, false),
            (small, Allow, Some(r#"{"max-size":10}"#), true),
            (small, Allow, Some(r#"{"max-size":10.5}"#), false),
            (
                small,
                Allow,
                Some(r#"{"max-size":18446744073709551615}"#),
                false,
            ),
            (small, Allow, Some(r#"{"max-size":"1"}"#), false),
        ];
        for (when, effect, arguments, expected) in table {
            let otherwise = if effect == Deny { Allow } else { Deny };
            let policies = rules(&[("it", when, effect)], otherwise);
            let judged = judged_arguments(&policies, arguments);
            assert_eq!(judged, expected, "{when} {effect:?} {arguments:?}");
        }
        // A later rule still hides what this one leaves open.
        let policies = rules(&[("etc", etc, Deny), ("all", "true", Deny)], Allow);
        assert!(!judged_arguments(&policies, None));
    }

    #[test]
    fn without_rules_the_default_decides_and_what_cannot_be_judged_is_denied() {
        let anybody = Principal::Anonymous;
        assert!(rules(&[], Effect::Allow).allow_all());
        assert_eq!(judged(&rules(&[], Effect::Allow), &anybody, "a"), Ok(()));
        let denied = judged(&rules(&[], Effect::Deny), &anybody, "a");
        assert_eq!(denied, Err(Denied::ByDefault));
        // Valid for the tool that conditions are tried with, but not for this one.
        let odd = r#"tool.name == "x" ? tool.name + 1 == "1" : true"#;
        let policies = rules(&[("odd", odd, Effect::Allow)], Effect::Allow);
        assert_eq!(judged(&policies, &anybody, "a"), Ok(()));
        let denied = judged(&policies, &anybody, "x");
        assert_eq!(denied, Err(Denied::Unclear("odd".into(), fact::OTHER_TYPE)));
    }
}
