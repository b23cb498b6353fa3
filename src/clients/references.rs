//! Translates clients' references to environment variables into `${…}`.

/// Translates `$VAR`, which Gemini CLI supports in addition to `${VAR}`.
pub(super) fn bare_dollars(text: &str) -> String {
    let mut translated = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('$') {
        translated.push_str(before);
        let is_of_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let end = after.find(|c| !is_of_name(c)).unwrap_or(after.len());
        let (name, tail) = after.split_at(end);
        match name.starts_with(|first: char| !first.is_ascii_digit()) {
            true => translated.push_str(&format!("${{{name}}}")),
            false => translated.push_str(&format!("${name}")),
        }
        rest = tail;
    }
    translated + rest
}

/// Translates `{env:VAR}` and `{file:path}` of OpenCode.
pub(super) fn braces(text: &str) -> String {
    text.replace("{env:", "${env:")
        .replace("{file:", "${file:")
        .replace("$${", "${")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn client_references_are_translated() {
        let cases = [
            ("$TOKEN", "${TOKEN}"),
            ("Bearer $A-$B_2.", "Bearer ${A}-${B_2}."),
            ("${TOKEN}", "${TOKEN}"),
            ("$5 $ $", "$5 $ $"),
        ];
        for (written, expected) in cases {
            assert_eq!(bare_dollars(written), expected);
        }
        assert_eq!(
            braces("{env:A} ${env:B} {file:~/c} {d}"),
            "${env:A} ${env:B} ${file:~/c} {d}"
        );
    }
}
