//! Reads `[policies.NAME]` into policy rules.

use super::declaration::Keys as _;
use super::keys::{PolicyKeys, PolicyTable};
use super::problem::Problem;
use super::section::Section;
use crate::auth::{Condition, PolicyRule};

/// Maximum number of policies in a configuration.
const POLICIES_MAX: usize = 100;

/// Maximum length of a policy name, in bytes.
const NAME_MAX: usize = 64;

/// Reads all policies, in file order. An invalid policy is a problem of the file.
pub(crate) fn policies(section: &Section<'_>) -> Vec<PolicyRule> {
    let tables = section.named_tables();
    if tables.len() > POLICIES_MAX {
        let message = format!("`policies` holds more than {POLICIES_MAX} policies");
        section.reader.problem(Problem::new("policies", message));
        return Vec::new();
    }
    let mut rules = Vec::with_capacity(tables.len());
    for (name, span, section) in tables {
        let legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        if name.is_empty() || name.len() > NAME_MAX || !name.bytes().all(legal) {
            let shown: String = name.chars().take(NAME_MAX).collect();
            let path = format!("policies.{shown}");
            let message = format!(
                "`{path}`: the name of a policy is 1 to {NAME_MAX} characters of A-Z, a-z, 0-9, `-` \
                 and `_`"
            );
            section
                .reader
                .problem(Problem::new(&path, message).at(Some(span)));
            continue;
        }
        let mut keys = PolicyKeys::default();
        PolicyTable::read(&section, &mut keys);
        let Some(when) = keys.when else {
            if !section.has("when") {
                section.refuse_table(format!("`{}` is missing", section.path("when")), None);
            }
            continue;
        };
        match Condition::try_new(&when) {
            Ok(when) => rules.push(PolicyRule {
                name: name.into(),
                when,
                effect: keys.effect,
            }),
            Err(why) => {
                let help = "docs/policy.md lists what a condition can use";
                let message = format!("`{}` {why}", section.path("when"));
                section.refuse(&["when"], message, help.to_owned());
            }
        }
    }
    rules
}
