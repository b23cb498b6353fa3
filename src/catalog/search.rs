//! Finds tools for a request in everyday words: BM25F over names, titles, descriptions and
//! arguments (Robertson and Zaragoza, "The Probabilistic Relevance Framework", 2009).

use std::collections::HashMap;

use serde_json::Value;

use super::ItemOwner;

/// Maximum number of words used from a request.
const QUERY_WORDS_MAX: usize = 64;

/// Maximum number of bytes used from a request.
const QUERY_BYTES_MAX: usize = 4096;

/// Maximum number of words used from one field of a tool.
const FIELD_WORDS_MAX: usize = 400;

/// Term saturation: lower values make further occurrences of a word count less.
const SATURATION: f32 = 1.2;

/// Weight of a synonym relative to the word itself.
const SYNONYM_WEIGHT: f32 = 0.5;

/// The fields of a tool.
#[derive(Clone, Copy)]
enum Field {
    Name,
    Title,
    Description,
    Arguments,
}

const FIELDS: [Field; 4] = [
    Field::Name,
    Field::Title,
    Field::Description,
    Field::Arguments,
];

impl Field {
    /// Weight of a word in this field.
    const fn weight(self) -> f32 {
        match self {
            Self::Name => 3.0,
            Self::Title => 2.0,
            Self::Description => 1.0,
            Self::Arguments => 0.4,
        }
    }

    /// Degree of length normalization of this field, from 0 to 1.
    const fn length_share(self) -> f32 {
        match self {
            Self::Name | Self::Title => 0.3,
            Self::Description | Self::Arguments => 0.75,
        }
    }
}

/// The tools that contain a word, with its weight in each.
#[derive(Debug, Default)]
pub(super) struct SearchIndex {
    tools: usize,
    words: HashMap<String, Vec<(u32, f32)>>,
}

impl SearchIndex {
    /// Indexes tools in list order, each with its public name. Tools that no model is offered have
    /// a place, but no words.
    pub(super) fn new<'t>(tools: impl Iterator<Item = (&'t str, &'t ItemOwner)>) -> Self {
        let texts = tools.map(|(name, owner)| match owner.is_for_apps {
            true => Default::default(),
            false => fields(name, owner),
        });
        let texts: Vec<[Vec<String>; 4]> = texts.collect();
        let count = texts.len().max(1) as f32;
        let mean = FIELDS.map(|field| {
            let total: usize = texts
                .iter()
                .map(|fields| fields[field as usize].len())
                .sum();
            (total as f32 / count).max(1.0)
        });
        let mut index = Self {
            tools: texts.len(),
            words: HashMap::new(),
        };
        for (tool, fields) in texts.into_iter().enumerate() {
            let mut counts: HashMap<String, f32> = HashMap::new();
            for field in FIELDS {
                let words = &fields[field as usize];
                let share = field.length_share();
                let length = 1.0 - share + share * words.len() as f32 / mean[field as usize];
                for word in words {
                    *counts.entry(word.clone()).or_default() += field.weight() / length;
                }
            }
            for (word, count) in counts {
                let tools = index.words.entry(word).or_default();
                tools.push((u32::try_from(tool).unwrap_or(u32::MAX), count));
            }
        }
        index
    }

    /// Indices of the best matches, at most `most`, the best first.
    pub(super) fn find(&self, query: &str, most: usize) -> Vec<usize> {
        let mut scores: HashMap<u32, f32> = HashMap::new();
        let end = query.floor_char_boundary(QUERY_BYTES_MAX);
        let wanted = words(query.get(..end).unwrap_or_default());
        for word in wanted.iter().take(QUERY_WORDS_MAX) {
            self.add(word, 1.0, &mut scores);
            for other in synonyms(word) {
                self.add(other, SYNONYM_WEIGHT, &mut scores);
            }
        }
        let mut found: Vec<(u32, f32)> = scores.into_iter().collect();
        found.sort_by(|one, other| other.1.total_cmp(&one.1).then(one.0.cmp(&other.0)));
        found.truncate(most);
        found.into_iter().map(|(tool, _)| tool as usize).collect()
    }

    fn add(&self, word: &str, weight: f32, scores: &mut HashMap<u32, f32>) {
        let Some(tools) = self.words.get(word) else {
            return;
        };
        let (all, with) = (self.tools as f32, tools.len() as f32);
        let rarity = (1.0 + (all - with + 0.5) / (with + 0.5)).ln();
        for (tool, count) in tools {
            *scores.entry(*tool).or_default() += weight * rarity * count / (SATURATION + count);
        }
    }
}

/// The words of a tool, field by field.
fn fields(public: &str, owner: &ItemOwner) -> [Vec<String>; 4] {
    let tool: Value = owner.item.parse().unwrap_or_default();
    let text = |value: &Value| value.as_str().map(words).unwrap_or_default();
    let title = match tool["title"].is_string() {
        true => text(&tool["title"]),
        false => text(&tool["annotations"]["title"]),
    };
    let mut arguments = Vec::new();
    let properties = tool["inputSchema"]["properties"].as_object();
    for (name, schema) in properties.into_iter().flatten() {
        arguments.extend(words(name));
        arguments.extend(text(&schema["description"]));
    }
    let mut fields = [words(public), title, text(&tool["description"]), arguments];
    for field in &mut fields {
        field.truncate(FIELD_WORDS_MAX);
    }
    fields
}

/// The stems of a text's significant words. A name such as `getGitHubIssue` yields its parts and
/// their combinations.
fn words(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for run in text.split(|c: char| !c.is_alphanumeric()) {
        let parts = parts(run);
        if parts.len() > 1 {
            found.push(run.to_lowercase());
        }
        found.extend(parts);
    }
    found.retain(|word| !word.is_empty() && !SILENT.contains(&word.as_str()));
    found.iter().map(|word| stem(word)).collect()
}

/// Splits `getGitHubIssue` into its parts, in lower case.
fn parts(run: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut before: Option<char> = None;
    for letter in run.chars() {
        let begins = letter.is_uppercase() && before.is_some_and(|it| it.is_lowercase());
        if begins {
            parts.push(String::new());
        }
        if let Some(part) = parts.last_mut() {
            part.extend(letter.to_lowercase());
        }
        before = Some(letter);
    }
    parts
}

/// Removes common English endings; the stem need not be a word.
fn stem(word: &str) -> String {
    let cut = |end: &str, least: usize| {
        let rest = word.strip_suffix(end)?;
        (rest.len() >= least).then(|| rest.to_owned())
    };
    let word = word
        .strip_suffix("s")
        .filter(|it| it.ends_with("ion"))
        .unwrap_or(word);
    let plain = cut("ies", 2)
        .or_else(|| cut("ied", 2))
        .map(|rest| rest + "y");
    let plain = plain.or_else(|| cut("sses", 2).map(|rest| rest + "ss"));
    let plain = plain.or_else(|| cut("ing", 3)).or_else(|| cut("ed", 3));
    let plain = plain.or_else(|| cut("ation", 4)).or_else(|| cut("ion", 4));
    let plain = plain.or_else(|| {
        let is_plural = !word.ends_with("ss") && !word.ends_with("us") && !word.ends_with("is");
        cut("s", 3).filter(|_| is_plural)
    });
    let plain = plain.unwrap_or_else(|| word.to_owned());
    let undoubled = match plain.as_bytes() {
        [.., a, b] if a == b && plain.len() > 3 && !b"aeiouls".contains(b) => {
            plain.get(..plain.len() - 1).unwrap_or(&plain).to_owned()
        }
        _ => plain,
    };
    match undoubled.strip_suffix('e') {
        Some(rest) if rest.len() >= 3 => rest.to_owned(),
        _ => undoubled,
    }
}

/// Words that occur in nearly every request and description.
const SILENT: [&str; 39] = [
    "a", "an", "and", "are", "as", "at", "be", "by", "can", "for", "from", "have", "how", "i",
    "if", "in", "into", "is", "it", "its", "me", "my", "of", "on", "or", "please", "so", "that",
    "the", "their", "there", "this", "to", "use", "want", "what", "will", "with", "you",
];

/// Synonyms, by their stems.
const SAME: [&[&str]; 24] = [
    &["delet", "remov", "eras", "drop", "trash", "forget"],
    &[
        "creat", "mak", "add", "new", "insert", "start", "open", "report",
    ],
    &["list", "show", "see", "display", "view", "which"],
    &["find", "search", "look", "query", "locat"],
    &[
        "get", "fetch", "read", "retriev", "load", "download", "open", "show",
    ],
    &["updat", "chang", "edit", "modify", "set", "renam"],
    &["writ", "sav", "stor", "put"],
    &["send", "post", "submit", "publish"],
    &["mail", "email", "messag", "inbox"],
    &["repeat", "echo", "say"],
    &["folder", "directory", "dir"],
    &["fil", "document", "disk"],
    &["pictur", "imag", "photo", "screenshot", "media"],
    &["run", "execut", "invok", "call"],
    &["websit", "web", "pag", "url", "site", "link"],
    &["remember", "memory", "not", "observ", "recall", "knowledg"],
    &["person", "peopl", "entity", "somebody"],
    &[
        "tim", "clock", "hour", "date", "dat", "timezon", "zon", "when",
    ],
    &["cod", "repo", "repository", "sourc"],
    &["mov", "renam", "transfer"],
    &["all", "everyth", "entir", "whol", "complet", "every"],
    &["two", "several", "multipl", "many", "both"],
    &["big", "siz", "larg"],
    &["press", "click", "push"],
];

fn synonyms(word: &str) -> impl Iterator<Item = &'static str> {
    let groups = SAME.iter().filter(move |group| group.contains(&word));
    let all = groups.flat_map(|group| group.iter().copied());
    all.filter(move |other| *other != word)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bridge::headers::ParamHeaders;
    use crate::catalog::ToolHints;
    use crate::id::ServerName;
    use crate::protocol::RawJson;

    fn owner(tool: &Value) -> ItemOwner {
        ItemOwner {
            server: ServerName::try_new("a").unwrap(),
            native: RawJson::from_value(&tool["name"]),
            hints: ToolHints::default(),
            headers: ParamHeaders::default(),
            wraps_output: false,
            is_for_apps: false,
            item: RawJson::from_value(tool),
        }
    }

    #[test]
    fn word_forms_share_a_stem() {
        let table = [
            ("files", "file"),
            ("creating", "create"),
            ("deleted", "delete"),
            ("repositories", "repository"),
            ("getting", "get"),
            ("searches", "search e"),
        ];
        for (one, other) in table {
            assert_eq!(words(one).first(), words(other).first(), "{one}");
        }
        assert_eq!(
            words("getGitHubIssue"),
            ["getgithubissu", "get", "git", "hub", "issu"]
        );
        assert_eq!(words("The folder of my_files!"), ["folder", "fil"]);
        assert!(words("\u{1f600} --- ").is_empty());
    }

    #[test]
    fn everyday_requests_find_the_right_tool() {
        let tools = [
            (
                "files__read_file",
                "Read the complete contents of a file",
                "path",
            ),
            (
                "files__write_file",
                "Create a new file or overwrite one",
                "path content",
            ),
            ("files__create_directory", "Create a new directory", "path"),
            (
                "git__commit",
                "Records changes to the repository",
                "message",
            ),
            ("git__log", "Shows the commit logs", "max_count"),
            (
                "mail__send_message",
                "Sends an e-mail to a recipient",
                "to subject body",
            ),
            ("web__fetch", "Fetches a URL from the internet", "url"),
            (
                "time__convert",
                "Converts a time between timezones",
                "source target",
            ),
        ];
        let owners: Vec<(&str, ItemOwner)> = tools
            .iter()
            .map(|(name, about, arguments)| {
                let properties = arguments
                    .split(' ')
                    .map(|name| (name.to_owned(), serde_json::json!({})));
                let properties: serde_json::Map<String, Value> = properties.collect();
                let tool = serde_json::json!({
                    "name": name, "description": about, "inputSchema": { "properties": properties },
                });
                (*name, owner(&tool))
            })
            .collect();
        let index = SearchIndex::new(owners.iter().map(|(name, owner)| (*name, owner)));
        let first = |query: &str| index.find(query, 1).first().map(|place| tools[*place].0);
        let table = [
            ("read a file", Some("files__read_file")),
            ("save text into a file", Some("files__write_file")),
            ("make a folder", Some("files__create_directory")),
            ("what was committed lately", Some("git__commit")),
            ("history of commits, the log", Some("git__log")),
            ("email this to Bob", Some("mail__send_message")),
            ("download a website", Some("web__fetch")),
            ("what time is it in Tokyo", Some("time__convert")),
            ("", None),
            ("\u{0}\u{202e}", None),
            ("xyzzy", None),
        ];
        for (query, expected) in table {
            assert_eq!(first(query), expected, "{query}");
        }
        let long = "file ".repeat(100_000);
        assert_eq!(index.find(&long, 3).len(), 3);
    }
}
