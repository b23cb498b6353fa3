//! Reading the arguments of a tool or prompt, with errors that a person can act on.

use std::ops::RangeInclusive;

use serde_json::{Map, Value};

/// The arguments of one call. Each reader returns a sentence when the value does not fit.
pub(super) struct Args<'a> {
    given: Option<&'a Map<String, Value>>,
}

impl<'a> Args<'a> {
    /// Refuses what is not an object and names that are not in `known`.
    pub(super) fn new(value: &'a Value, known: &[&str]) -> Result<Self, String> {
        let given = match value {
            Value::Null => None,
            Value::Object(map) => Some(map),
            _ => return Err("`arguments` is not an object".to_owned()),
        };
        match given
            .into_iter()
            .flatten()
            .find(|(name, _)| !known.contains(&name.as_str()))
        {
            Some((name, _)) if known.is_empty() => {
                Err(format!("unknown argument `{name}`: there are none here"))
            }
            Some((name, _)) => Err(format!(
                "unknown argument `{name}`: known are {}",
                known.join(", ")
            )),
            None => Ok(Self { given }),
        }
    }

    fn get(&self, name: &str) -> Option<&'a Value> {
        self.given?.get(name).filter(|value| !value.is_null())
    }

    pub(super) fn text(&self, name: &str) -> Result<&'a str, String> {
        self.text_or(name)?
            .ok_or_else(|| format!("argument `{name}` is missing"))
    }

    pub(super) fn text_or(&self, name: &str) -> Result<Option<&'a str>, String> {
        match self.get(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(format!(
                "argument `{name}` must be a string, not {}",
                short(other)
            )),
        }
    }

    pub(super) fn number(&self, name: &str) -> Result<f64, String> {
        let Some(value) = self.get(name) else {
            return Err(format!("argument `{name}` is missing"));
        };
        value
            .as_f64()
            .ok_or_else(|| format!("argument `{name}` must be a number, not {}", short(value)))
    }

    pub(super) fn integer(
        &self,
        name: &str,
        default: u64,
        range: RangeInclusive<u64>,
    ) -> Result<u64, String> {
        let Some(value) = self.get(name) else {
            return Ok(default);
        };
        value
            .as_u64()
            .filter(|number| range.contains(number))
            .ok_or_else(|| {
                let (low, high) = range.into_inner();
                format!(
                    "argument `{name}` must be an integer from {low} to {high}, not {value:.40}"
                )
            })
    }

    pub(super) fn choice(
        &self,
        name: &str,
        choices: &[&'static str],
    ) -> Result<&'static str, String> {
        let given = self.text_or(name)?;
        let Some(given) = given else {
            return Ok(choices[0]);
        };
        let known = choices.iter().find(|choice| **choice == given);
        known.copied().ok_or_else(|| {
            format!(
                "argument `{name}` must be one of {}, not `{given:.40}`",
                choices.join(", ")
            )
        })
    }
}

/// A value for an error message, cut at 40 characters.
fn short(value: &Value) -> String {
    value.to_string().chars().take(40).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn arguments_are_checked() {
        let given = json!({"text": "x", "number": 4, "big": 1e300, "negative": -1, "none": null});
        let known = ["text", "number", "big", "negative", "none"];
        let args = Args::new(&given, &known).unwrap();
        assert_eq!(args.text("text"), Ok("x"));
        assert_eq!(args.text_or("none"), Ok(None));
        assert_eq!(args.integer("number", 1, 1..=4), Ok(4));
        assert_eq!(args.integer("none", 1, 1..=4), Ok(1));
        assert_eq!(args.number("big"), Ok(1e300));
        assert_eq!(args.choice("none", &["a", "b"]), Ok("a"));
        assert!(
            args.text("number")
                .unwrap_err()
                .contains("must be a string, not 4")
        );
        assert!(args.text("none").unwrap_err().contains("missing"));
        assert!(
            args.number("text")
                .unwrap_err()
                .contains("must be a number")
        );
        assert!(
            args.choice("text", &["a", "b"])
                .unwrap_err()
                .contains("one of a, b")
        );
        for name in ["big", "negative", "text"] {
            assert!(
                args.integer(name, 1, 0..=4)
                    .unwrap_err()
                    .contains("from 0 to 4"),
                "{name}"
            );
        }
        assert!(Args::new(&given, &["text"]).is_err());
        assert!(Args::new(&given, &[]).is_err());
        assert!(Args::new(&json!([1]), &known).is_err());
    }
}
