use super::*;

/// Outputs of programs that ended: a title, the output, and its reason.
const OUTPUTS: &str = include_str!("outputs.txt");

#[test]
fn the_reason_is_found_in_real_outputs() {
    let mut count = 0;
    for output in OUTPUTS.split("## ").skip(1) {
        let (title, rest) = output.split_once('\n').unwrap();
        let (lines, expected) = rest.split_once("\n=>").unwrap();
        let reason = exit_diagnosis(lines.lines()).unwrap_or_default();
        assert_eq!(reason, expected.trim(), "{title}");
        count += 1;
    }
    assert_eq!(count, 32);
}

#[test]
fn any_line_is_handled() {
    let marks =
        "{}[]()|+ at File \"npm error: Traceback (most recent call last): Error\t\x1b[1m\u{1b}ä本";
    for start in marks.char_indices().map(|(at, _)| at) {
        let text = marks.get(start..).unwrap_or_default();
        for lines in [
            vec![text],
            vec![text, ""],
            vec!["  at x", text, "   at y"],
            vec!["  | ", text],
        ] {
            let reason = exit_diagnosis(lines).unwrap_or_default();
            assert!(!reason.contains('\u{1b}'), "{reason:?}");
        }
    }
}
