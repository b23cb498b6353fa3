//! The alternate screen of a terminal, which leaves the normal screen untouched.

use std::io::{self, Write};

/// Switches to the alternate screen, hides the cursor and turns line wrapping off.
const ENTER: &str = "\x1b[?1049h\x1b[?25l\x1b[?7l";

/// Restores line wrapping, the cursor and the normal screen.
const LEAVE: &str = "\x1b[?7h\x1b[?25h\x1b[?1049l";

/// Frames drawn over each other. Dropping this restores the screen, also during a panic.
pub struct AlternateScreen<W: Write> {
    out: W,
}

impl<W: Write> AlternateScreen<W> {
    /// # Errors
    ///
    /// Returns the terminal's error.
    pub fn enter(mut out: W) -> io::Result<Self> {
        out.write_all(ENTER.as_bytes())?;
        Ok(Self { out })
    }

    /// Draws a frame over the previous one.
    ///
    /// # Errors
    ///
    /// Returns the terminal's error.
    pub fn draw(&mut self, text: &str) -> io::Result<()> {
        self.out.write_all(redrawn(text).as_bytes())?;
        self.out.flush()
    }
}

impl<W: Write> Drop for AlternateScreen<W> {
    fn drop(&mut self) {
        // A terminal that has closed needs no restoring.
        let _ = self.out.write_all(LEAVE.as_bytes());
        let _ = self.out.flush();
    }
}

/// Moves the cursor home, rewrites each line, and clears everything below.
fn redrawn(text: &str) -> String {
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
        assert_eq!(redrawn("a\nb\n"), "\x1b[Ha\x1b[K\r\nb\x1b[K\r\n\x1b[J");
        assert_eq!(redrawn(""), "\x1b[H\x1b[J");
    }

    #[test]
    fn the_screen_is_restored() {
        let mut out = Vec::new();
        let mut screen = AlternateScreen::enter(&mut out).unwrap();
        screen.draw("a\n").unwrap();
        drop(screen);
        let text = String::from_utf8(out).unwrap();
        assert!(
            text.starts_with("\x1b[?1049h") && text.ends_with("\x1b[?1049l"),
            "{text:?}"
        );
        assert_eq!(text.matches("\x1b[?25h").count(), 1);
    }
}
