//! Which tools of a server are shown.

use globset::{Glob, GlobSet, GlobSetBuilder};

use super::NameSettings;

/// Why [`NameSettings`] cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidNameSettings {
    #[error("a prefix is up to 32 characters of A-Z, a-z, 0-9 and `-`, or empty, not `{0}`")]
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
    /// Returns an [`InvalidNameSettings`] that names the prefix or glob that cannot be used.
    pub fn validate(&self) -> Result<(), InvalidNameSettings> {
        let legal = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        if let Some(prefix) = &self.prefix
            && (prefix.len() > 32 || !prefix.bytes().all(legal))
        {
            return Err(InvalidNameSettings::Prefix(prefix.clone()));
        }
        NameFilter::new(self).map(drop)
    }
}

/// Compiled globs over names.
pub(super) struct NameFilter {
    allow: Option<GlobSet>,
    deny: GlobSet,
}

impl NameFilter {
    pub(super) fn new(names: &NameSettings) -> Result<Self, InvalidNameSettings> {
        Self::of(&names.allow, &names.deny)
    }

    pub(super) fn of(allow: &[String], deny: &[String]) -> Result<Self, InvalidNameSettings> {
        let allowed = compile("allow", allow)?;
        Ok(Self {
            allow: (!allow.is_empty()).then_some(allowed),
            deny: compile("deny", deny)?,
        })
    }

    pub(super) fn shows(&self, name: &str) -> bool {
        let allow = self.allow.as_ref();
        allow.is_none_or(|allow| allow.is_match(name)) && !self.deny.is_match(name)
    }
}

fn compile(list: &'static str, globs: &[String]) -> Result<GlobSet, InvalidNameSettings> {
    let invalid = |glob: &str, error: &globset::Error| InvalidNameSettings::Glob {
        list,
        glob: glob.to_owned(),
        reason: error.kind().to_string(),
    };
    let mut set = GlobSetBuilder::new();
    for glob in globs {
        set.add(Glob::new(glob).map_err(|error| invalid(glob, &error))?);
    }
    set.build()
        .map_err(|error| invalid(error.glob().unwrap_or(""), &error))
}
