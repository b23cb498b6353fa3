//! Reads single key presses from a terminal.

use std::io::{IsTerminal as _, Read as _, Stdin};

use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use tokio::sync::mpsc;

/// Maximum unread key presses.
const KEYS_MAX: usize = 16;

/// A key for scrolling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    Up,
    Down,
    PageUp,
    PageDown,
    First,
    Last,
    Quit,
}

impl Key {
    /// The first line to show after this key, with `page` lines per screen; `None` to quit.
    pub(super) const fn scrolled(self, first: usize, page: usize) -> Option<usize> {
        Some(match self {
            Self::Up => first.saturating_sub(1),
            Self::Down => first.saturating_add(1),
            Self::PageUp => first.saturating_sub(page),
            Self::PageDown => first.saturating_add(page),
            Self::First => 0,
            Self::Last => usize::MAX,
            Self::Quit => return None,
        })
    }
}

/// Reads keys without waiting for the end of a line. Dropping it restores the terminal.
pub(super) struct KeyReader {
    stdin: Stdin,
    before: Termios,
    keys: mpsc::Receiver<Key>,
}

impl KeyReader {
    /// `None` if stdin is not a terminal.
    pub(super) fn start() -> Option<Self> {
        let stdin = std::io::stdin();
        if !stdin.is_terminal() {
            return None;
        }
        let before = tcgetattr(&stdin).ok()?;
        let mut single = before.clone();
        // Ctrl-C still sends a signal.
        single
            .local_modes
            .remove(LocalModes::ICANON | LocalModes::ECHO);
        tcsetattr(&stdin, OptionalActions::Now, &single).ok()?;
        let (pressed, keys) = mpsc::channel(KEYS_MAX);
        // The thread ends with the process.
        std::thread::spawn(move || {
            let mut bytes = [0; 64];
            while let Ok(read @ 1..) = std::io::stdin().read(&mut bytes) {
                for key in keys_in(bytes.get(..read).unwrap_or_default()) {
                    if pressed.blocking_send(key).is_err() {
                        return;
                    }
                }
            }
        });
        Some(Self {
            stdin,
            before,
            keys,
        })
    }

    /// The next key. Pends forever when the terminal is gone.
    pub(super) async fn next(&mut self) -> Key {
        match self.keys.recv().await {
            Some(key) => key,
            None => std::future::pending().await,
        }
    }
}

impl Drop for KeyReader {
    fn drop(&mut self) {
        // A closed terminal needs no restoring.
        let _ = tcsetattr(&self.stdin, OptionalActions::Now, &self.before);
    }
}

/// The keys in one chunk of terminal input; unknown ones are skipped.
fn keys_in(bytes: &[u8]) -> Vec<Key> {
    const NAMED: [(&[u8], Key); 21] = [
        (b"\x1b[A", Key::Up),
        (b"\x1bOA", Key::Up),
        (b"k", Key::Up),
        (b"\x1b[B", Key::Down),
        (b"\x1bOB", Key::Down),
        (b"j", Key::Down),
        (b"\r", Key::Down),
        (b"\n", Key::Down),
        (b"\x1b[5~", Key::PageUp),
        (b"b", Key::PageUp),
        (b"\x1b[6~", Key::PageDown),
        (b" ", Key::PageDown),
        (b"\x1b[H", Key::First),
        (b"\x1b[1~", Key::First),
        (b"\x1bOH", Key::First),
        (b"g", Key::First),
        (b"\x1b[F", Key::Last),
        (b"\x1b[4~", Key::Last),
        (b"\x1bOF", Key::Last),
        (b"G", Key::Last),
        (b"q", Key::Quit),
    ];
    if bytes == b"\x1b" {
        return vec![Key::Quit];
    }
    let mut rest = bytes;
    let mut keys = Vec::new();
    while !rest.is_empty() {
        let found = NAMED.iter().find(|(name, _)| rest.starts_with(name));
        keys.extend(found.map(|(_, key)| *key));
        let length = found.map_or(1, |(name, _)| name.len());
        rest = rest.get(length..).unwrap_or_default();
    }
    keys
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_told_apart() {
        let table: [(&[u8], &[Key]); 6] = [
            (b"q", &[Key::Quit]),
            (b"\x1b", &[Key::Quit]),
            (b"\x1b[A\x1b[6~", &[Key::Up, Key::PageDown]),
            (b"jxk", &[Key::Down, Key::Up]),
            (b"\x1b[1;5C", &[]),
            (b"", &[]),
        ];
        for (bytes, expected) in table {
            assert_eq!(keys_in(bytes), expected, "{bytes:?}");
        }
    }
}
