//! Logins to the dashboard that were signed out before they expired. A file keeps them, so that a copied
//! cookie stays useless after a restart.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;

use crate::store::write_private;

/// Maximum remembered logins. One more ends every login that expires no later than the oldest of
/// them, so that a signed-out cookie never works again.
const ENDED_MAX: usize = 1000;

pub(super) struct EndedLogins {
    path: PathBuf,
    ended: Mutex<Ended>,
    /// Serializes writes, so that the newest content is written last.
    writing: Mutex<()>,
}

#[derive(Default)]
struct Ended {
    /// Expiry time in Unix seconds, and nonce of each login.
    logins: BTreeSet<(u64, String)>,
    /// Every login that expires at or before this time has ended.
    floor: u64,
}

impl EndedLogins {
    /// Reads the file in a data directory and skips malformed lines.
    pub(super) fn open(data_dir: &Path) -> Self {
        let kept = Self::unread(data_dir);
        kept.read();
        kept
    }

    /// Adds the logins stored in the file.
    pub(super) fn read(&self) {
        let text = fs::read_to_string(&self.path).unwrap_or_default();
        let mut ended = self.ended.lock();
        for line in text.lines() {
            if let Some((expires, nonce)) = line.split_once(' ')
                && let Ok(expires) = expires.parse()
            {
                ended.add(expires, nonce);
            }
        }
    }

    /// Starts without reading the file, for a new token under which no earlier login is valid.
    pub(super) fn unread(data_dir: &Path) -> Self {
        Self {
            path: data_dir.join("ended-logins"),
            ended: Mutex::default(),
            writing: Mutex::default(),
        }
    }

    /// Ends a login in this process; [`EndedLogins::save`] persists it.
    pub(super) fn end(&self, expires: u64, nonce: &str, now: u64) {
        let mut ended = self.ended.lock();
        ended.logins.retain(|(expires, _)| *expires > now);
        ended.add(expires, nonce);
    }

    pub(super) fn has(&self, expires: u64, nonce: &str) -> bool {
        let ended = self.ended.lock();
        expires <= ended.floor || ended.logins.contains(&(expires, nonce.to_owned()))
    }

    /// Writes the file.
    ///
    /// # Errors
    ///
    /// Returns the system's error.
    pub(super) fn save(&self) -> io::Result<()> {
        let _writing = self.writing.lock();
        let text = self.ended.lock().text();
        write_private(&self.path, text.as_bytes())
    }
}

impl Ended {
    fn add(&mut self, expires: u64, nonce: &str) {
        match nonce {
            FLOOR => self.floor = self.floor.max(expires),
            nonce => drop(self.logins.insert((expires, nonce.to_owned()))),
        }
        if self.logins.len() > ENDED_MAX
            && let Some((expires, _)) = self.logins.pop_first()
        {
            self.floor = self.floor.max(expires);
        }
    }

    fn text(&self) -> String {
        let floor = format!("{} {FLOOR}\n", self.floor);
        let logins = self.logins.iter();
        let logins = logins.map(|(expires, nonce)| format!("{expires} {nonce}\n"));
        std::iter::once(floor).chain(logins).collect()
    }
}

/// Replaces the nonce in the line that stores the floor.
const FLOOR: &str = "*";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ended_login_stays_ended_in_the_next_process() {
        let directory = tempfile::tempdir().unwrap();
        let ended = EndedLogins::open(directory.path());
        assert!(!ended.has(100, "a"));
        ended.end(100, "a", 1);
        ended.save().unwrap();
        for ended in [ended, EndedLogins::open(directory.path())] {
            assert!(ended.has(100, "a"));
            assert!(!ended.has(100, "b") && !ended.has(101, "a"));
        }
    }

    #[test]
    fn logins_are_forgotten_when_they_have_expired_and_never_before() {
        let directory = tempfile::tempdir().unwrap();
        let ended = EndedLogins::open(directory.path());
        ended.end(100, "a", 1);
        ended.end(300, "b", 200);
        assert_eq!(ended.ended.lock().logins.len(), 1);
        for number in 0..2 * ENDED_MAX as u64 {
            ended.end(1000 + number, "c", 200);
        }
        assert_eq!(ended.ended.lock().logins.len(), ENDED_MAX);
        ended.save().unwrap();
        for ended in [ended, EndedLogins::open(directory.path())] {
            assert!(ended.has(300, "b"));
            assert!((0..2 * ENDED_MAX as u64).all(|number| ended.has(1000 + number, "c")));
            assert!(!ended.has(9000, "c"));
        }
    }
}
