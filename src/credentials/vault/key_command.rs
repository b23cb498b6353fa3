//! A command that prints the vault's key, for example from the system's keyring.

use std::fmt;
use std::io::{self, Read as _};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use secrecy::{ExposeSecret, SecretString};
use tokio::time::Instant;

/// Time limit of the command: a person sometimes has to unlock the keyring first.
const COMMAND_WITHIN: Duration = Duration::from_secs(30);

/// Delay before a failed command is run again: every read of the vault would wait for it.
const FAILED_FOR: Duration = Duration::from_secs(60);

/// Interval at which the command's exit is polled.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Maximum output, in bytes.
const OUTPUT_MAX: u64 = 4096;

/// A program and its arguments, run without a shell. Clones share the result.
#[derive(Clone, Debug)]
pub struct KeyCommand {
    words: Arc<[SecretString]>,
    last: Arc<Mutex<LastRun>>,
}

/// The result of running the command.
#[derive(Debug, Default)]
enum LastRun {
    #[default]
    None,
    Printed(SecretString),
    Failed(String, Instant),
}

impl KeyCommand {
    /// The first word is the program.
    pub fn new(words: impl IntoIterator<Item = SecretString>) -> Self {
        Self {
            words: words.into_iter().collect(),
            last: Arc::default(),
        }
    }

    /// The command's output. Blocks on the first call, and on later calls some time after a
    /// failure.
    ///
    /// # Errors
    ///
    /// Returns the reason for a failure, without any output of the command.
    pub(super) fn text(&self) -> io::Result<SecretString> {
        let mut last = self.last.lock();
        match &*last {
            LastRun::Printed(text) => return Ok(text.clone()),
            LastRun::Failed(why, at) if at.elapsed() < FAILED_FOR => {
                let left = FAILED_FOR.saturating_sub(at.elapsed()).as_secs().max(1);
                let message = format!("{why}; next attempt in {left} s at the earliest");
                return Err(io::Error::other(message));
            }
            LastRun::None | LastRun::Failed(..) => {}
        }
        let ran = self.run();
        let ran = ran.map_err(|why| format!("the command `{self}`, which prints the key, {why}"));
        *last = match &ran {
            Ok(text) => LastRun::Printed(text.clone()),
            Err(why) => LastRun::Failed(why.clone(), Instant::now()),
        };
        ran.map_err(io::Error::other)
    }

    /// Discards the result so that the command runs again. Returns whether there was a successful
    /// one.
    pub(super) fn forget(&self) -> bool {
        let last = std::mem::take(&mut *self.last.lock());
        matches!(last, LastRun::Printed(_))
    }

    fn run(&self) -> Result<SecretString, String> {
        let mut words = self.words.iter().map(ExposeSecret::expose_secret);
        let mut command = Command::new(words.next().unwrap_or_default());
        command.args(words);
        command.stdin(Stdio::null()).stderr(Stdio::null());
        let started = command.stdout(Stdio::piped()).spawn();
        let mut child = started.map_err(|error| format!("cannot be started: {error}"))?;
        let until = Instant::now() + COMMAND_WITHIN;
        let read = read_within(&mut child, until);
        let status = end_of(
            &mut child,
            if read.is_ok() { until } else { Instant::now() },
        );
        let text = read?;
        match status {
            Some(status) if status.success() => {}
            Some(status) => return Err(format!("failed ({status})")),
            None => return Err(late()),
        }
        if text.len() as u64 > OUTPUT_MAX {
            return Err(format!("prints more than {OUTPUT_MAX} bytes"));
        }
        let text = String::from_utf8(text).map_err(|_| "prints invalid UTF-8".to_owned())?;
        Ok(text.into())
    }
}

/// Shows only the program: arguments can be secret.
impl fmt::Display for KeyCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let program = self.words.first().map(ExposeSecret::expose_secret);
        f.write_str(program.unwrap_or_default())
    }
}

/// Reads on a separate thread: a process that inherited the pipe can keep it open.
fn read_within(child: &mut Child, until: Instant) -> Result<Vec<u8>, String> {
    let Some(stdout) = child.stdout.take() else {
        return Err("prints nothing".to_owned());
    };
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let mut text = Vec::new();
        let read = stdout.take(OUTPUT_MAX + 1).read_to_end(&mut text);
        let _ = sender.send(read.map(|_| text));
    });
    match receiver.recv_timeout(until.saturating_duration_since(Instant::now())) {
        Ok(Ok(text)) => Ok(text),
        Ok(Err(error)) => Err(format!("cannot be read: {error}")),
        Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => Err(late()),
    }
}

/// The exit status; `None` if the command had to be killed.
fn end_of(child: &mut Child, until: Instant) -> Option<ExitStatus> {
    loop {
        if let Ok(Some(status)) = child.try_wait() {
            return Some(status);
        }
        if Instant::now() >= until {
            let _ = child.kill();
            let _ = child.wait();
            return None;
        }
        thread::park_timeout(LOOK_EVERY);
    }
}

fn late() -> String {
    let seconds = COMMAND_WITHIN.as_secs();
    format!("did not end within {seconds} seconds")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(words: &[&str]) -> KeyCommand {
        KeyCommand::new(words.iter().map(|word| (*word).into()))
    }

    #[test]
    fn output_is_cached_and_never_shown() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("n");
        let script = format!("echo -n x >> {0}; echo s3cret; cat {0}", file.display());
        let command = of(&["sh", "-c", &script]);
        for _ in 0..2 {
            assert_eq!(command.clone().text().unwrap().expose_secret(), "s3cret\nx");
        }
        assert!(command.forget() && !command.forget());
        assert_eq!(command.text().unwrap().expose_secret(), "s3cret\nxx");
        assert_eq!(command.to_string(), "sh");
        assert!(!format!("{command:?}").contains("s3cret"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_failed_command_is_not_rerun_immediately() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("n");
        let script = format!("echo -n x >> {}; exit 3", file.display());
        let command = of(&["sh", "-c", &script]);
        let runs = || std::fs::read(&file).unwrap().len();
        let failed = || command.clone().text().unwrap_err().to_string();
        let first = failed();
        tokio::time::advance(FAILED_FOR / 4).await;
        let again = format!("{first}; next attempt in 45 s at the earliest");
        assert_eq!((failed(), runs()), (again, 1));
        tokio::time::advance(FAILED_FOR * 3 / 4).await;
        assert_eq!((failed(), runs()), (first, 2));
        // Replacing the key does not wait.
        assert!(!command.forget());
        failed();
        assert_eq!(runs(), 3);
    }

    #[test]
    fn a_command_that_gives_none_says_why() {
        let many = "head -c 5000 /dev/zero";
        let table: [(&[&str], &str); 5] = [
            (&["/no/such/program"], "cannot be started"),
            (
                &["sh", "-c", "echo s3cret; exit 3"],
                "failed (exit status: 3)",
            ),
            (
                &["sh", "-c", "echo s3cret >&2; kill -9 $$"],
                "failed (signal: 9",
            ),
            (&["sh", "-c", many], "prints more than 4096 bytes"),
            (&["printf", "\\377"], "prints invalid UTF-8"),
        ];
        for (words, expected) in table {
            let error = of(words).text().unwrap_err().to_string();
            assert!(error.contains(expected), "{words:?}: {error}");
            assert!(!error.contains("s3cret"), "{error}");
        }
    }
}
