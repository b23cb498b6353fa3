//! Filters the tools of a server by name.

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};

use super::NameSettings;
use crate::id::ServerName;

/// Why [`NameSettings`] are invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidNameSettings {
    #[error("a prefix is empty or formed like the name of a server, not `{0}`")]
    Prefix(String),
    #[error("`{glob}` in `{list}` is not a glob: {reason}")]
    Glob {
        /// `allow` or `deny`.
        list: &'static str,
        glob: String,
        reason: String,
    },
}

impl NameSettings {
    /// # Errors
    ///
    /// Returns an [`InvalidNameSettings`] that names the invalid prefix or glob.
    pub fn validate(&self) -> Result<(), InvalidNameSettings> {
        if let Some(prefix) = self.prefix.as_ref().filter(|prefix| !prefix.is_empty())
            && ServerName::try_new(prefix).is_err()
        {
            return Err(InvalidNameSettings::Prefix(prefix.clone()));
        }
        NameFilter::new(self).map(drop)
    }

    /// Whether clients see a tool of this native name.
    pub fn shows(&self, tool: &str) -> bool {
        NameFilter::new(self).is_ok_and(|filter| filter.shows(tool))
    }
}

/// Compiled globs over names.
#[derive(Debug)]
pub(super) struct NameFilter {
    allow: Option<GlobSet>,
    deny: GlobSet,
    /// The globs of `deny`, matched case-insensitively.
    deny_any_case: GlobSet,
}

impl NameFilter {
    pub(super) fn new(names: &NameSettings) -> Result<Self, InvalidNameSettings> {
        Self::of(&names.allow, &names.deny)
    }

    pub(super) fn of(allow: &[String], deny: &[String]) -> Result<Self, InvalidNameSettings> {
        let allowed = compile("allow", allow, false)?;
        Ok(Self {
            allow: (!allow.is_empty()).then_some(allowed),
            deny: compile("deny", deny, false)?,
            deny_any_case: compile("deny", deny, true)?,
        })
    }

    pub(super) fn shows(&self, name: &str) -> bool {
        let allow = self.allow.as_ref();
        allow.is_none_or(|allow| allow.is_match(name)) && !self.deny.is_match(name)
    }

    /// Whether an unlisted name is shown. `deny` ignores case here, because servers can treat upper
    /// and lower case alike.
    pub(super) fn shows_unlisted(&self, name: &str) -> bool {
        self.shows(name) && !self.deny_any_case.is_match(name)
    }
}

fn compile(
    list: &'static str,
    globs: &[String],
    any_case: bool,
) -> Result<GlobSet, InvalidNameSettings> {
    let invalid = |glob: &str, error: &globset::Error| InvalidNameSettings::Glob {
        list,
        glob: glob.to_owned(),
        reason: error.kind().to_string(),
    };
    let mut set = GlobSetBuilder::new();
    for glob in globs {
        let glob_of_name = GlobBuilder::new(glob).case_insensitive(any_case).build();
        set.add(glob_of_name.map_err(|error| invalid(glob, &error))?);
    }
    set.build()
        .map_err(|error| invalid(error.glob().unwrap_or(""), &error))
}
