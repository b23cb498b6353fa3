//! Folds names the way that case-insensitive readers do. Go servers read `Name` and `paramſ` as
//! `name` and `params`, and others end a name at its first NUL (CVE-2026-27896).

/// The form shared by all spellings of a name. It is more lenient than any single reader: simple
/// and full case folding, the dotted and the dotless i, and everything after a NUL.
pub fn folded(name: &str) -> String {
    let name = name.split('\0').next().unwrap_or_default();
    if name.is_ascii() {
        return name.to_ascii_uppercase();
    }
    let lower = name.chars().flat_map(char::to_lowercase);
    let upper = lower.flat_map(char::to_uppercase);
    // The lower case of `İ` is an i with a separate dot.
    upper.filter(|c| *c != '\u{307}').collect()
}

/// The name among `known`, all ASCII, that some reader recognises in the differently spelled
/// `name`.
pub(super) fn misspelled<'k>(name: &str, known: &[&'k str]) -> Option<&'k str> {
    let is_plain = name.bytes().all(|byte| byte.is_ascii() && byte != 0);
    let found = if is_plain {
        known.iter().find(|one| one.eq_ignore_ascii_case(name))
    } else {
        let name = folded(name);
        known.iter().find(|one| one.eq_ignore_ascii_case(&name))
    };
    found.copied().filter(|one| *one != name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_known_in_every_spelling() {
        let known = ["params", "uri", "task", "requestState", "progress"];
        let table = [
            ("Params", Some("params")),
            ("PARAMS", Some("params")),
            ("param\u{17f}", Some("params")),
            ("PARAM\u{17f}\0", Some("params")),
            ("tas\u{212a}", Some("task")),
            ("ur\u{131}", Some("uri")),
            ("UR\u{130}", Some("uri")),
            ("uri\0", Some("uri")),
            ("Uri\0\0x", Some("uri")),
            ("requeststate", Some("requestState")),
            ("reque\u{fb06}State", Some("requestState")),
            ("progre\u{df}", Some("progress")),
            ("progre\u{1e9e}", Some("progress")),
            ("params", None),
            ("requestState", None),
            ("param", None),
            ("paramss", None),
            ("\0params", None),
            ("", None),
            ("p\u{e4}rams", None),
        ];
        for (name, expected) in table {
            assert_eq!(misspelled(name, &known), expected, "{name:?}");
        }
    }
}
