//! The instructions of all servers as one text.

use std::fmt::Write as _;

/// Ends a section that did not fit.
const TRUNCATION_MARK: &str = " […]";

/// Puts the sections (heading, text) under one another in at most `bytes_max` bytes. When they do
/// not fit, the long ones are cut, each to the same length, so that a talkative server takes no
/// room from a short one; sections that not even their heading fits for are left out.
pub(super) fn merge(sections: &[(String, &str)], bytes_max: usize) -> Option<String> {
    let overhead = |heading: &str| "## \n\n\n\n".len() + heading.len() + TRUNCATION_MARK.len();
    let mut room = bytes_max;
    let mut shown: Vec<(&str, &str)> = Vec::new();
    for (heading, text) in sections {
        let text = text.trim();
        if text.is_empty() {
            continue;
        }
        let Some(left) = room.checked_sub(overhead(heading)) else {
            break;
        };
        room = left;
        shown.push((heading, text));
    }
    let share = fair_share(shown.iter().map(|(_, text)| text.len()).collect(), room);
    let mut merged = String::new();
    for (heading, text) in shown {
        let kept = text.get(..text.floor_char_boundary(share)).unwrap_or(text);
        let mark = if kept.len() < text.len() {
            TRUNCATION_MARK
        } else {
            ""
        };
        let gap = if merged.is_empty() { "" } else { "\n\n" };
        let _ = write!(merged, "{gap}## {heading}\n\n{kept}{mark}");
    }
    (!merged.is_empty()).then_some(merged)
}

/// The length to which texts must be cut so that they fit into `room` together.
fn fair_share(mut lengths: Vec<usize>, mut room: usize) -> usize {
    lengths.sort_unstable();
    let mut left = lengths.len();
    for length in lengths {
        if length.saturating_mul(left) > room {
            return room / left;
        }
        room -= length;
        left -= 1;
    }
    usize::MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(sections: &[(&str, &str)], bytes_max: usize, expected: Option<&str>) {
        let sections: Vec<_> = sections
            .iter()
            .map(|(h, t)| ((*h).to_owned(), *t))
            .collect();
        let merged = merge(&sections, bytes_max);
        assert_eq!(merged.as_deref(), expected);
        assert!(merged.is_none_or(|merged| merged.len() <= bytes_max));
    }

    #[test]
    fn every_server_has_its_heading_and_long_ones_are_cut() {
        check(&[], 100, None);
        check(&[("a", "  \n")], 100, None);
        check(
            &[("a", "one"), ("b", " two ")],
            100,
            Some("## a\n\none\n\n## b\n\ntwo"),
        );
        check(
            &[("a", "0123456789".repeat(9).as_str()), ("b", "two")],
            50,
            Some("## a\n\n0123456789012345678 […]\n\n## b\n\ntwo"),
        );
        check(&[("a", "ääääääääää")], 21, Some("## a\n\näää […]"));
        check(&[("a", "text"), ("b", "text")], 3, None);
    }
}
