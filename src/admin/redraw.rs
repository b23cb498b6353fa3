//! A text that is drawn over the one before it, on a terminal.

/// Home, then each line with the rest of the old one erased, then what is left below.
pub fn redraw(text: &str) -> String {
    let mut out = String::from("\x1b[H");
    for line in text.lines() {
        out.push_str(line);
        out.push_str("\x1b[K\r\n");
    }
    out.push_str("\x1b[J");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_erases_what_was_there() {
        assert_eq!(redraw("a\nb\n"), "\x1b[Ha\x1b[K\r\nb\x1b[K\r\n\x1b[J");
        assert_eq!(redraw(""), "\x1b[H\x1b[J");
    }
}
