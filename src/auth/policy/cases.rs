//! Test cases for policies: a request, and the expected decision.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Map, Value};

use super::{AccessRequest, Annotations, AskedItem, Denied, Effect, Policies, is_judged};
use crate::credentials::Scopes;
use crate::id::{Principal, ServerName, ViewId};
use crate::protocol::Method;

/// Maximum number of cases in one file.
const CASES_MAX: usize = 10_000;

/// A request, and the decision that the policies should make.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PolicyCase {
    name: Option<String>,
    #[serde(default)]
    principal: CasePrincipal,
    #[serde(default)]
    scopes: Vec<String>,
    view: Option<String>,
    server: ServerName,
    /// The called tool; replaces method and item.
    tool: Option<String>,
    method: Option<String>,
    item: Option<String>,
    #[serde(default)]
    annotations: CaseAnnotations,
    #[serde(default)]
    arguments: Map<String, Value>,
    /// The schema of the tool, if the types of its arguments matter.
    input_schema: Option<Map<String, Value>>,
    /// Whether the case asks if the tool is listed, regardless of arguments.
    #[serde(default)]
    listed: bool,
    effect: Effect,
    /// The policy that should decide, if it matters.
    policy: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct CasePrincipal {
    issuer: String,
    name: String,
}

/// Tool annotations; unset hints have MCP's defaults.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
struct CaseAnnotations {
    read_only_hint: bool,
    destructive_hint: Option<bool>,
    idempotent_hint: bool,
}

/// The result of a case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TriedCase {
    /// The title in the file, or a description of the request.
    pub title: String,
    /// The decision, and the policy that made it.
    pub decision: String,
    /// The expected decision, if it differs.
    pub expected: Option<String>,
}

/// Reads a file of cases: TOML with a `[[case]]` table for each.
///
/// # Errors
///
/// Returns what is wrong, and where.
pub fn read_cases(text: &str) -> Result<Vec<PolicyCase>, String> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct CaseFile {
        case: Vec<PolicyCase>,
    }
    let CaseFile { case: cases } = toml::from_str(text).map_err(|error| error.to_string())?;
    if cases.is_empty() || cases.len() > CASES_MAX {
        return Err(format!("there must be 1 to {CASES_MAX} cases"));
    }
    Ok(cases)
}

impl PolicyCase {
    /// # Errors
    ///
    /// Returns what is wrong with the case.
    pub fn try_with(&self, policies: &Policies) -> Result<TriedCase, String> {
        let (method, item) = self.asked()?;
        let title = self.name.clone();
        let title = title.unwrap_or_else(|| format!("`{method}` of `{item}` of {}", self.server));
        let scopes = Scopes::of(self.scopes.iter().map(String::as_str));
        let scopes = scopes.map_err(|error| error.to_string())?;
        let view = self.view.clone().filter(|view| !view.is_empty());
        let view = ViewId::try_from(view).map_err(|error| error.to_string())?;
        let principal = match &self.principal {
            CasePrincipal { issuer, name } if issuer.is_empty() && name.is_empty() => {
                Principal::Anonymous
            }
            CasePrincipal { issuer, name } => Principal::of(issuer, name),
        };
        let arguments = serde_json::to_vec(&self.arguments);
        let arguments = arguments.map_err(|error| error.to_string())?;
        let tool = (self.input_schema.as_ref())
            .map(|schema| serde_json::json!({ "inputSchema": schema }).to_string());
        let is_open = self.listed && method == Method::ToolsCall;
        let decided = policies.decide(&AccessRequest {
            principal: &principal,
            scopes: &Some(Arc::new(scopes.into())),
            view: &view,
            server: &self.server,
            method: &method,
            item: named(&method, item),
            tool: tool.as_deref(),
            annotations: Annotations {
                read_only: self.annotations.read_only_hint,
                destructive: self.annotations.destructive_hint.unwrap_or(true),
                idempotent: self.annotations.idempotent_hint,
            },
            arguments: (!is_open).then_some(&arguments),
        });
        Ok(TriedCase {
            title,
            decision: words(&decided),
            expected: self.mismatch(&decided),
        })
    }

    /// The method, and the item that it requests.
    fn asked(&self) -> Result<(Method, &str), String> {
        match (&self.tool, &self.method, &self.item) {
            (Some(tool), None, None) => Ok((Method::ToolsCall, tool)),
            (None, Some(method), Some(item)) => match Method::parse(method) {
                method if is_judged(&method) => Ok((method, item)),
                method => Err(format!("`{method}` is always allowed")),
            },
            _ => Err("a case needs `tool`, or `method` and `item`".to_owned()),
        }
    }

    /// The expected decision, if it differs from `decided`.
    fn mismatch(&self, decided: &Result<Option<Arc<str>>, Denied>) -> Option<String> {
        let (effect, by) = match decided {
            Ok(by) => (Effect::Allow, by.as_ref()),
            Err(Denied::By(rule) | Denied::Unclear(rule, _)) => (Effect::Deny, Some(rule)),
            Err(Denied::ByDefault) => (Effect::Deny, None),
        };
        let wanted = self.policy.as_deref();
        let is_by = wanted.is_none_or(|wanted| by.is_some_and(|by| **by == *wanted));
        let effect_words = match self.effect {
            Effect::Allow => "allowed",
            Effect::Deny => "denied",
        };
        let expected = || match wanted {
            Some(policy) => format!("{effect_words} by `{policy}`"),
            None => effect_words.to_owned(),
        };
        (effect != self.effect || !is_by).then(expected)
    }
}

/// The item of a request. Completions and extensions concern names and URIs alike.
fn named<'i>(method: &Method, item: &'i str) -> AskedItem<'i> {
    match method {
        Method::ResourcesRead | Method::ResourcesSubscribe => AskedItem::Uri(item),
        Method::CompletionComplete | Method::Other(_) if item.contains(":/") => {
            AskedItem::Uri(item)
        }
        _ => AskedItem::Name(item),
    }
}

fn words(decided: &Result<Option<Arc<str>>, Denied>) -> String {
    match decided {
        Ok(Some(rule)) => format!("allowed by `{rule}`"),
        Ok(None) => "allowed by default".to_owned(),
        Err(Denied::By(rule)) => format!("denied by `{rule}`"),
        Err(Denied::Unclear(rule, why)) => {
            format!("denied: the condition of `{rule}` cannot be evaluated: {why}")
        }
        Err(Denied::ByDefault) => "denied by default".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::{Condition, PolicyRule};

    fn policies() -> Policies {
        let rule = |name: &str, when: &str, effect| PolicyRule {
            name: name.into(),
            when: Condition::try_new(when).unwrap(),
            effect,
        };
        Policies {
            rules: vec![
                rule("admins", r#""admin" in principal.scopes"#, Effect::Allow),
                rule(
                    "etc",
                    r#"tool.name == "read" && arguments.path == "/etc""#,
                    Effect::Deny,
                ),
                rule("careful", "tool.annotations.destructiveHint", Effect::Deny),
                rule("open", r#"view == "open""#, Effect::Allow),
            ],
            default: Effect::Deny,
        }
    }

    #[test]
    fn each_case_reports_the_deciding_rule_and_mismatches() {
        let read = "server = \"files\"\ntool = \"read\"\n";
        let plain = "annotations = { destructiveHint = false }\n";
        let etc = "arguments = { path = \"/etc\" }\n";
        let tmp = "arguments = { path = \"/tmp\" }\n";
        let resource = "server = \"files\"\nmethod = \"resources/read\"\nitem = \"x://a\"\n";
        let table = [
            (format!("{read}scopes = [\"admin\"]"), "allowed by `admins`"),
            (format!("{read}{etc}"), "denied by `etc`"),
            (format!("{read}{tmp}"), "denied by `careful`"),
            (format!("{read}{tmp}{plain}"), "denied by default"),
            (
                format!("{read}{tmp}{plain}view = \"open\""),
                "allowed by `open`",
            ),
            (
                format!("{read}{etc}{plain}view = \"open\"\nlisted = true"),
                "allowed by `open`",
            ),
            (
                read.to_owned(),
                "denied: the condition of `etc` cannot be evaluated: it reads something that is absent",
            ),
            (
                format!("{read}arguments = {{ path = [\"/etc\"] }}"),
                "denied: the condition of `etc` cannot be evaluated: it compares values of different types",
            ),
            (
                format!(
                    "{read}{tmp}input_schema = {{ properties = {{ path = {{ type = \"array\" }} }} }}"
                ),
                "denied: the condition of `etc` cannot be evaluated: it reads an argument whose \
                 type differs from `inputSchema`",
            ),
            (resource.to_owned(), "denied by default"),
            (format!("{resource}view = \"open\""), "allowed by `open`"),
        ];
        for (case, expected) in table {
            for (effect, word) in [("allow", "allowed"), ("deny", "denied")] {
                let file = format!("[[case]]\n{case}\neffect = \"{effect}\"\n");
                let cases = read_cases(&file).unwrap();
                let tried = cases[0].try_with(&policies()).unwrap();
                assert_eq!(tried.decision, expected, "{file}");
                let is_expected = expected.starts_with(word);
                assert_eq!(tried.expected.is_none(), is_expected, "{file}");
                let cases = read_cases(&format!("{file}policy = \"other\"\n")).unwrap();
                let tried = cases[0].try_with(&policies()).unwrap();
                assert_eq!(tried.expected, Some(format!("{word} by `other`")), "{file}");
            }
        }
    }

    #[test]
    fn malformed_case_files_are_refused() {
        let case = "[[case]]\nserver = \"a\"\neffect = \"deny\"\n";
        let table = [
            ("", "case"),
            ("case = []", "1 to"),
            ("[[case]]\ntool = \"x\"\neffect = \"deny\"", "server"),
            (
                "[[case]]\nserver = \"a\"\ntool = \"x\"\neffect = \"no\"",
                "no",
            ),
            (&format!("{case}colour = 1"), "colour"),
            (case, "`tool`"),
            (&format!("{case}tool = \"x\"\nitem = \"y\""), "`tool`"),
            (
                &format!("{case}method = \"tools/list\"\nitem = \"\""),
                "always allowed",
            ),
            (&format!("{case}tool = \"x\"\nscopes = [\"a b\"]"), "scope"),
            (
                &format!("{case}tool = \"x\"\nview = \"server/a__b\""),
                "server name",
            ),
        ];
        for (file, word) in table {
            let tried = read_cases(file).and_then(|cases| cases[0].try_with(&policies()));
            let error = tried.unwrap_err();
            assert!(error.contains(word), "{file}: {error}");
        }
    }
}
