//! Validates the types of an item's members. Clients validate a list as a whole, so one member of a
//! wrong type would make them drop every item; here it hides only its own item.

use serde_json::{Map, Value};

use super::ItemKind;

/// The type that a known member must have if it is present.
#[derive(Clone, Copy)]
enum MemberType {
    Text,
    Number,
    Object,
    Icons,
    Execution,
    ToolAnnotations,
    Annotations,
    Arguments,
}

type MemberTypes = &'static [(&'static str, MemberType)];

const TOOL: MemberTypes = &[
    ("title", MemberType::Text),
    ("description", MemberType::Text),
    ("icons", MemberType::Icons),
    ("annotations", MemberType::ToolAnnotations),
    ("execution", MemberType::Execution),
    ("_meta", MemberType::Object),
];

const PROMPT: MemberTypes = &[
    ("title", MemberType::Text),
    ("description", MemberType::Text),
    ("icons", MemberType::Icons),
    ("arguments", MemberType::Arguments),
    ("_meta", MemberType::Object),
];

const RESOURCE: MemberTypes = &[
    ("title", MemberType::Text),
    ("description", MemberType::Text),
    ("mimeType", MemberType::Text),
    ("size", MemberType::Number),
    ("icons", MemberType::Icons),
    ("annotations", MemberType::Annotations),
    ("_meta", MemberType::Object),
];

/// Members that can be absent; servers that write `null` there mean absent.
pub(super) fn is_optional(kind: ItemKind, member: &str) -> bool {
    member == "outputSchema" || members(kind).iter().any(|(name, _)| *name == member)
}

/// # Errors
///
/// Returns a sentence with the member and its required type.
pub(super) fn check(kind: ItemKind, item: &Map<String, Value>) -> Result<(), String> {
    for (name, shape) in members(kind) {
        if let Some(value) = item.get(*name)
            && !shape.fits(value)
        {
            return Err(format!("`{name}` must be {}", shape.describe()));
        }
    }
    Ok(())
}

const fn members(kind: ItemKind) -> MemberTypes {
    match kind {
        ItemKind::Tools => TOOL,
        ItemKind::Prompts => PROMPT,
        ItemKind::Resources | ItemKind::ResourceTemplates => RESOURCE,
        ItemKind::Skills => &[],
    }
}

impl MemberType {
    fn fits(self, value: &Value) -> bool {
        match self {
            Self::Text => value.is_string(),
            Self::Number => value.is_number(),
            Self::Object => value.is_object(),
            Self::Icons => all(value, |icon| {
                icon.get("src").is_some_and(Value::is_string)
                    && absent_or(icon, "mimeType", Value::is_string)
            }),
            Self::Execution => {
                value.is_object()
                    && absent_or(value, "taskSupport", |support| {
                        matches!(
                            support.as_str(),
                            Some("forbidden" | "optional" | "required")
                        )
                    })
            }
            Self::ToolAnnotations => {
                let hints = [
                    "readOnlyHint",
                    "destructiveHint",
                    "idempotentHint",
                    "openWorldHint",
                ];
                value.is_object()
                    && absent_or(value, "title", Value::is_string)
                    && hints
                        .iter()
                        .all(|hint| absent_or(value, hint, Value::is_boolean))
            }
            Self::Annotations => {
                let role = |role: &Value| matches!(role.as_str(), Some("user" | "assistant"));
                let fraction = |n: &Value| n.as_f64().is_some_and(|n| (0.0..=1.0).contains(&n));
                value.is_object()
                    && absent_or(value, "audience", |audience| all(audience, role))
                    && absent_or(value, "priority", fraction)
                    && absent_or(value, "lastModified", Value::is_string)
            }
            Self::Arguments => all(value, |argument| {
                argument.get("name").is_some_and(Value::is_string)
                    && absent_or(argument, "title", Value::is_string)
                    && absent_or(argument, "description", Value::is_string)
                    && absent_or(argument, "required", Value::is_boolean)
            }),
        }
    }

    const fn describe(self) -> &'static str {
        match self {
            Self::Text => "a string",
            Self::Number => "a number",
            Self::Object => "an object",
            Self::Icons => "an array of objects with a string `src`",
            Self::Execution => "an object whose `taskSupport` is forbidden, optional or required",
            Self::ToolAnnotations => "an object with a string `title` and boolean hints",
            Self::Annotations => {
                "an object with `audience` of user and assistant, `priority` from 0 to 1 and a \
                 string `lastModified`"
            }
            Self::Arguments => {
                "an array of objects with a string `name`, a string `description` and a boolean \
                 `required`"
            }
        }
    }
}

fn all(value: &Value, fits: impl Fn(&Value) -> bool) -> bool {
    value.as_array().is_some_and(|array| array.iter().all(fits))
}

fn absent_or(value: &Value, member: &str, fits: impl Fn(&Value) -> bool) -> bool {
    value.get(member).is_none_or(fits)
}
