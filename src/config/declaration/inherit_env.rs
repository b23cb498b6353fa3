//! The variables that a program inherits, as the value of a key.

use serde_json::{Value as Json, json};

use super::ValueKind;
use super::kinds::{FlagKind, flag};
use super::texts::texts;
use crate::config::checks::{VARIABLES, glob};
use crate::config::section::Section;
use crate::transport::InheritEnv;

/// A flag, or globs over names of variables.
pub(crate) struct InheritEnvKind;

impl ValueKind for InheritEnvKind {
    type Value = InheritEnv;

    fn must_be(&self) -> String {
        format!("`true`, `false` or an array of texts, each {VARIABLES}")
    }

    fn schema(&self) -> Json {
        let [flag, globs] = [flag().schema(), texts(VARIABLES, glob).schema()];
        json!({ "anyOf": [flag, globs] })
    }

    fn toml(&self, value: &InheritEnv) -> Option<String> {
        match value {
            InheritEnv::All => Some("true".to_owned()),
            InheritEnv::Matching(globs) if globs.is_empty() => Some("false".to_owned()),
            InheritEnv::Matching(globs) => texts(VARIABLES, glob).toml(globs),
        }
    }

    fn read(&self, section: &Section<'_>, key: &'static str) -> Option<InheritEnv> {
        if section.is_array(key) {
            let globs = texts(VARIABLES, glob).read(section, key)?;
            return Some(InheritEnv::Matching(globs));
        }
        let all = section.scalar(key, || self.must_be(), FlagKind::parse)?;
        Some(if all {
            InheritEnv::All
        } else {
            InheritEnv::default()
        })
    }
}
