//! A configuration file for an editor: whole, with marks instead of secrets, which are filled in again
//! when the text comes back. Pure.

use crate::config::mask::secret_spans;

const START: &str = "[REDACTED ";

/// The text with a numbered mark in the place of each secret.
pub(super) fn marked(text: &str) -> String {
    let (mut shown, mut at) = (String::new(), 0);
    for (span, number) in secret_spans(text).into_iter().zip(1_usize..) {
        shown.push_str(text.get(at..span.start).unwrap_or_default());
        shown.push_str(&format!("{START}{number}]"));
        at = span.end;
    }
    shown + text.get(at..).unwrap_or_default()
}

/// A text with the secrets of the current file in the place of its marks.
///
/// # Errors
///
/// Returns the mark that has no secret.
pub(super) fn unmarked(edited: &str, present: &str) -> Result<String, String> {
    if !edited.contains(START) {
        return Ok(edited.to_owned());
    }
    let secrets = secret_spans(present);
    let (mut text, mut rest) = (String::new(), edited);
    while let Some((before, after)) = rest.split_once(START) {
        let number = after.split(']').next().unwrap_or_default();
        let index = number
            .parse::<usize>()
            .ok()
            .and_then(|it| it.checked_sub(1));
        let secret = index
            .and_then(|it| secrets.get(it))
            .and_then(|it| present.get(it.clone()));
        let secret = secret.ok_or_else(|| {
            let number: String = number.chars().take(20).collect();
            format!(
                "`{START}{number}]` marks no secret of the current file: write the value itself"
            )
        })?;
        text.push_str(before);
        text.push_str(secret);
        rest = after.get(number.len() + 1..).unwrap_or_default();
    }
    Ok(text + rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r#"# The one of the team: token = "S1" until the end of May
[servers.a] # API_KEY=S2
command = "uvx"
args = ["@scope/package@1.2.3", "--token", "S3", "/srv/data", "${HOME}"]
env = { A = "S4", B = "${B}", C = "it's # no comment" }
[servers.b]
url = "https://a.example/mcp?key=S5"
"#;

    #[test]
    fn secrets_are_marked_and_come_back_wherever_they_are_moved() {
        let shown = marked(FILE);
        for number in 1..=5 {
            assert!(!shown.contains(&format!("S{number}")), "S{number}: {shown}");
        }
        for plain in [
            "The one of the team",
            "until the end of May",
            "@scope/package@1.2.3",
            "/srv/data",
            "${HOME}",
            "${B}",
        ] {
            assert!(shown.contains(plain), "{plain}: {shown}");
        }
        assert_eq!(unmarked(&shown, FILE).as_deref(), Ok(FILE));
        let moved = unmarked("# [REDACTED 3]", FILE);
        assert_eq!(moved.as_deref(), Ok("# S3"));
        for odd in ["[REDACTED 0]", "[REDACTED 99]", "[REDACTED x", "[REDACTED "] {
            assert!(unmarked(odd, FILE).is_err(), "{odd}");
        }
    }
}
