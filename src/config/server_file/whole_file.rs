//! Plans, replaces and restores the configuration file as a whole.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::json;

use super::marked_file::{marked, unmarked};
use super::shown_file::shown;
use super::{
    FileOutcome, ServerFile, conflict, io_failure, json_file, place, refused, replace, tag,
};
use crate::admin::{ConfigAnswer, FileContent, FileOrder};
use crate::catalog::{around_changes, line_diff};
use crate::config::{Config, ConfigError, KeptContents, Plan};
use crate::protocol::{ErrorKind, Failure};

impl ServerFile<'_> {
    pub(super) fn carry_out_whole(
        &self,
        order: FileOrder,
        if_match: Option<&str>,
    ) -> Result<FileOutcome, Failure> {
        let present = self.text(if_match)?;
        let mut etag = tag(&present);
        let mut is_changed = false;
        let body = match order {
            FileOrder::Kept => json!({ "kept": self.kept_names()? }),
            FileOrder::Edit => {
                let is_toml = !json_file::is_json(&present);
                json!({ "text": is_toml.then(|| marked(&present)) })
            }
            FileOrder::Plan(content) => {
                let (text, _) = self.content(&present, content)?;
                let wanted = self.checked(&text).map_err(|error| refused(&error))?;
                // The current file can be invalid: then there is nothing to compare with.
                let present_config = self.checked(&present).ok();
                let plan = present_config.as_ref();
                let plan = plan.map(|config| Plan::between(config, &wanted).to_json());
                let policies = present_config.map(|config| config.policies);
                let policies = Some(&wanted.policies).filter(|it| policies.as_ref() != Some(it));
                let diff = shown_difference(&present, &text);
                json!({ "plan": plan, "diff": diff, "policies": policies })
            }
            FileOrder::Replace(content) => {
                let (text, kept) = self.content(&present, content)?;
                self.checked(&text).map_err(|error| refused(&error))?;
                if text != present {
                    self.replace_whole(&present, &text)?;
                    (is_changed, etag) = (true, tag(&text));
                }
                if let Some(kept) = kept {
                    // An extra kept content does no harm.
                    let _ = fs::remove_file(kept);
                }
                json!({ "changed": is_changed })
            }
        };
        Ok(FileOutcome {
            answer: ConfigAnswer { body, etag },
            is_changed,
            server: None,
        })
    }

    fn kept_names(&self) -> Result<Vec<String>, Failure> {
        let kept = KeptContents::of(&self.path).list();
        let kept = kept
            .map_err(|error| io_failure("read", &error))?
            .into_iter();
        let names = kept.filter_map(|path| Some(path.file_name()?.to_str()?.to_owned()));
        Ok(names.collect())
    }

    /// The content, and the kept file it comes from.
    fn content(
        &self,
        present: &str,
        content: FileContent,
    ) -> Result<(String, Option<PathBuf>), Failure> {
        let invalid = |why: String| Failure::new(ErrorKind::InvalidConfig, why);
        let name = match content {
            FileContent::Text(text) => {
                return Ok((unmarked(&text, present).map_err(invalid)?, None));
            }
            FileContent::Kept(name) => name,
        };
        let unreadable = |error| io_failure("read", &error);
        let found = KeptContents::of(&self.path).find(&name);
        let path = found.map_err(unreadable)?.ok_or_else(|| {
            let message = "this content is no longer kept; reload the list";
            Failure::new(ErrorKind::NotFound, message)
        })?;
        let text = place::read(&path).map_err(unreadable)?;
        Ok((text, Some(path)))
    }

    fn checked(&self, text: &str) -> Result<Config, ConfigError> {
        let directory = self.path.parent().unwrap_or(Path::new("."));
        let name = self.path.to_string_lossy();
        Config::parse(text, &name, directory, self.environment).map(|loaded| loaded.config)
    }

    fn replace_whole(&self, present: &str, text: &str) -> Result<(), Failure> {
        let kept = KeptContents::of(&self.path).keep(present);
        let kept = kept
            .map_err(|error| conflict(&format!("the current content cannot be kept: {error}")))?;
        replace(&self.path, text).map_err(|error| {
            // It is still the current content.
            let _ = fs::remove_file(kept);
            io_failure("written", &error)
        })
    }
}

/// The changes between two contents, without comments and secrets.
pub fn shown_difference(before: &str, after: &str) -> String {
    let [before, after] = [before, after].map(shown_lines);
    around_changes(&line_diff(&before, &after))
}

fn shown_lines(text: &str) -> Vec<String> {
    shown(text).lines().map(str::to_owned).collect()
}
