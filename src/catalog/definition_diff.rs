//! Line diffs of two definitions or texts, for people.

use std::iter;

use serde_json::Value;

use super::hidden_text::with_hidden_shown;
use crate::protocol::RawJson;

/// Maximum number of lines compared on each side, after the common start and end.
const COMPARED_MAX: usize = 1000;

/// Context lines shown before and after a change.
const CONTEXT_LINES: usize = 3;

/// Diffs two definitions line by line: `-` marks removed lines, `+` added ones. Hidden characters
/// are spelled out.
pub fn definition_diff(before: &RawJson, after: &RawJson) -> String {
    line_diff(&lines(before), &lines(after))
}

/// Like [`definition_diff`], for two texts in lines.
pub fn line_diff(before: &[String], after: &[String]) -> String {
    let starts = iter::zip(before, after).take_while(|(a, b)| a == b);
    let start = starts.count();
    let (old, new) = (&before[start..], &after[start..]);
    let ends = iter::zip(old.iter().rev(), new.iter().rev()).take_while(|(a, b)| a == b);
    let end = ends.count();
    let (old, new) = (&old[..old.len() - end], &new[..new.len() - end]);
    let mut text = String::new();
    let mut put = |sign: char, line: &str| {
        text.push(sign);
        text.push(' ');
        text.push_str(line);
        text.push('\n');
    };
    before[..start].iter().for_each(|line| put(' ', line));
    compare(old, new, &mut put);
    before[before.len() - end..]
        .iter()
        .for_each(|line| put(' ', line));
    text
}

/// The changes of a diff, each with a few context lines.
pub fn around_changes(diff: &str) -> String {
    let lines: Vec<&str> = diff.lines().collect();
    let is_near = |at: usize| {
        let end = (at + CONTEXT_LINES + 1).min(lines.len());
        let near = lines.get(at.saturating_sub(CONTEXT_LINES)..end);
        let mut near = near.into_iter().flatten();
        near.any(|line| line.starts_with(['-', '+']))
    };
    let mut text = String::new();
    let mut is_left_out = false;
    for (at, line) in lines.iter().enumerate() {
        let is_shown = is_near(at);
        if is_shown {
            text.extend([line, "\n"]);
        } else if !is_left_out {
            text.push_str("  …\n");
        }
        is_left_out = !is_shown;
    }
    text
}

/// The definition in lines; a text with several lines is split.
fn lines(definition: &RawJson) -> Vec<String> {
    let value: Value = definition.parse().unwrap_or_default();
    let pretty = serde_json::to_string_pretty(&value).unwrap_or_default();
    let mut lines = Vec::new();
    for line in pretty.lines() {
        let mut rest = line;
        while let Some(at) = line_break(rest) {
            lines.push(with_hidden_shown(rest.get(..at).unwrap_or_default()));
            rest = rest.get(at..).unwrap_or_default();
        }
        lines.push(with_hidden_shown(rest));
    }
    lines
}

/// Position after the first line break in a JSON string, unless nothing follows.
fn line_break(line: &str) -> Option<usize> {
    let mut is_escaped = false;
    for (at, byte) in line.bytes().enumerate() {
        if is_escaped && byte == b'n' {
            return Some(at + 1).filter(|at| *at < line.len());
        }
        is_escaped = byte == b'\\' && !is_escaped;
    }
    None
}

/// Writes removed and added lines between common ones (longest common subsequence). Beyond
/// [`COMPARED_MAX`], no lines count as common.
fn compare(old: &[String], new: &[String], put: &mut impl FnMut(char, &str)) {
    if old.len().max(new.len()) > COMPARED_MAX {
        old.iter().for_each(|line| put('-', line));
        new.iter().for_each(|line| put('+', line));
        return;
    }
    // `common[i][j]` is the number of common lines after this pair of positions.
    let width = new.len() + 1;
    let mut common = vec![0u16; (old.len() + 1) * width];
    for (i, was) in old.iter().enumerate().rev() {
        for (j, is) in new.iter().enumerate().rev() {
            common[i * width + j] = match was == is {
                true => common[(i + 1) * width + j + 1] + 1,
                false => common[(i + 1) * width + j].max(common[i * width + j + 1]),
            };
        }
    }
    let (mut i, mut j) = (0, 0);
    while let (Some(was), Some(is)) = (old.get(i), new.get(j)) {
        if was == is {
            put(' ', was);
            (i, j) = (i + 1, j + 1);
        } else if common[(i + 1) * width + j] >= common[i * width + j + 1] {
            put('-', was);
            i += 1;
        } else {
            put('+', is);
            j += 1;
        }
    }
    old.iter().skip(i).for_each(|line| put('-', line));
    new.iter().skip(j).for_each(|line| put('+', line));
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn changed_lines_are_shown_between_unchanged_ones() {
        let before = json!({"name": "a", "description": "one\ntwo\nthree", "x": [1, 2]});
        let after = json!({"name": "a", "description": "one\n2\u{200b}\nthree", "x": [1, 2, 3]});
        let (before, after) = (RawJson::from_value(&before), RawJson::from_value(&after));
        let expected = "  {\n    \"name\": \"a\",\n    \"description\": \"one\\n\n- two\\n\n\
                        + 2<U+200B>\\n\n  three\",\n    \"x\": [\n      1,\n-     2\n+     2,\n\
                        +     3\n    ]\n  }\n";
        assert_eq!(definition_diff(&before, &after), expected);
        let same = definition_diff(&before, &before);
        assert!(same.lines().all(|line| line.starts_with("  ")), "{same}");
    }

    #[test]
    fn changes_are_shown_with_context_lines() {
        let lines =
            |numbers: &[u32]| -> Vec<String> { numbers.iter().map(ToString::to_string).collect() };
        let before: Vec<u32> = (0..20).collect();
        let mut after = before.clone();
        after.remove(5);
        after.push(99);
        let diff = line_diff(&lines(&before), &lines(&after));
        let shown = "  …\n  2\n  3\n  4\n- 5\n  6\n  7\n  8\n  …\n  17\n  18\n  19\n+ 99\n";
        assert_eq!(around_changes(&diff), shown);
        let same = line_diff(&lines(&before), &lines(&before));
        assert_eq!(around_changes(&same), "  …\n");
        assert_eq!(around_changes(""), "");
    }

    #[test]
    fn long_definitions_are_compared_within_bounds() {
        let long = |start: usize| {
            let numbers: Vec<usize> = (start..start + 5000).collect();
            RawJson::from_value(&json!({ "numbers": numbers }))
        };
        let diff = definition_diff(&long(0), &long(2500));
        let count = |sign: char| diff.lines().filter(|line| line.starts_with(sign)).count();
        assert_eq!((count('-'), count('+')), (5000, 5000));
    }
}
