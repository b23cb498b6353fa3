//! The token of the HTTP API: 256 random bits in `api-token` in the data directory, made once.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::RwLock;
use ring::hmac;
use secrecy::{ExposeSecret as _, SecretString};
use subtle::ConstantTimeEq as _;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::ended_logins::EndedLogins;
use super::login_codes::LoginCodes;
use crate::auth::random_token;
use crate::store::{private_dir, private_file, write_private};

/// Bytes of a token; it is written as twice as many hexadecimal digits.
const TOKEN_BYTES: usize = 32;

/// How long the disk may take to keep a new token.
const KEEP_MAX: Duration = Duration::from_secs(5);

/// The purpose of the tags that are kept instead of codes.
const CODE: &str = "login code";

/// The token that requests to the API carry.
pub struct ApiToken {
    path: PathBuf,
    token: RwLock<SecretString>,
    /// Whether a file has held it.
    is_kept: AtomicBool,
    codes: LoginCodes,
    ended: Arc<EndedLogins>,
}

impl ApiToken {
    /// Reads the token of a data directory, which is made if there is none that can be used.
    ///
    /// # Errors
    ///
    /// Returns the system's error when the file can neither be read nor written.
    pub fn open(data_dir: &Path) -> io::Result<Self> {
        let path = data_dir.join("api-token");
        private_dir(data_dir)?;
        if path.symlink_metadata().is_ok() {
            // Closed to others, if it was open, and refused if it is not ours.
            private_file(&path)?;
        }
        let token = match read(&path) {
            Some(kept) => kept,
            None => mint_into(&path)?,
        };
        let token = RwLock::new(token);
        Ok(Self {
            path,
            token,
            is_kept: AtomicBool::new(true),
            codes: LoginCodes::default(),
            ended: Arc::new(EndedLogins::open(data_dir)),
        })
    }

    /// A token that ends with the process, for a data directory that cannot be used now.
    ///
    /// # Errors
    ///
    /// Returns the system's error when it has no randomness.
    pub fn unkept(data_dir: &Path) -> io::Result<Self> {
        Ok(Self {
            path: data_dir.join("api-token"),
            token: RwLock::new(random_token()?),
            is_kept: AtomicBool::new(false),
            codes: LoginCodes::default(),
            ended: Arc::new(EndedLogins::unread(data_dir)),
        })
    }

    /// Writes the token to the data directory if its file is missing there: the directory was made
    /// again. A token that was never kept gives way to the one that the directory holds.
    ///
    /// # Errors
    ///
    /// Returns the system's error when the file cannot be written.
    pub fn write_missing(&self) -> io::Result<()> {
        if self.path.symlink_metadata().is_err() {
            write(&self.path, &SecretString::from(self.expose()))?;
            self.ended.save()?;
        } else if !self.is_kept.load(Ordering::Relaxed)
            && let Some(kept) = read(&self.path)
        {
            self.ended.read();
            *self.token.write() = kept;
        }
        self.is_kept.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Replaces the token: from now on the old one is refused.
    ///
    /// # Errors
    ///
    /// Returns the system's error when the new one cannot be kept; then the old one holds.
    pub async fn rotate(&self) -> io::Result<()> {
        let path = self.path.clone();
        let minting = timeout(KEEP_MAX, spawn_blocking(move || mint_into(&path)));
        let minted = minting.await.map_err(io::Error::other)?;
        let minted = minted.map_err(io::Error::other)??;
        *self.token.write() = minted;
        Ok(())
    }

    /// The whole token, for its owner.
    pub fn expose(&self) -> String {
        let token = self.token.read();
        token.expose_secret().to_owned()
    }

    /// Whether this is the token, in a time that does not tell how much of it is right.
    pub fn matches(&self, presented: &str) -> bool {
        let token = self.token.read();
        let token = token.expose_secret().as_bytes();
        bool::from(token.ct_eq(presented.as_bytes()))
    }

    /// A tag that only the owner of the token can make, as hexadecimal digits. Tags for one purpose
    /// are of no use for another, and none outlives the token.
    pub fn tag(&self, purpose: &str, text: &str) -> String {
        let token = self.token.read();
        let key = hmac::Key::new(hmac::HMAC_SHA256, token.expose_secret().as_bytes());
        let tag = hmac::sign(&key, format!("{purpose}\n{text}").as_bytes());
        let digits = tag.as_ref().iter().map(|byte| format!("{byte:02x}"));
        digits.collect()
    }

    /// Whether a tag was made for this text under the token that holds.
    pub fn has_tag(&self, purpose: &str, text: &str, tag: &str) -> bool {
        let expected = self.tag(purpose, text);
        bool::from(expected.as_bytes().ct_eq(tag.as_bytes()))
    }

    /// The logins that were signed out.
    pub(super) fn ended(&self) -> &Arc<EndedLogins> {
        &self.ended
    }

    /// A code that stands for the token once, for some minutes.
    ///
    /// # Errors
    ///
    /// Returns the system's error when it has no randomness.
    pub fn mint_code(&self) -> io::Result<String> {
        let code = random_token()?.expose_secret().to_owned();
        self.codes.keep(self.tag(CODE, &code));
        Ok(code)
    }

    /// Whether a code was good; from now on it is not.
    pub fn redeem_code(&self, code: &str) -> bool {
        self.codes.take(&self.tag(CODE, code))
    }
}

impl fmt::Debug for ApiToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApiToken").finish_non_exhaustive()
    }
}

fn is_token(text: &str) -> bool {
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    text.len() == 2 * TOKEN_BYTES && text.bytes().all(is_digit)
}

fn read(path: &Path) -> Option<SecretString> {
    let kept = fs::read_to_string(path).ok()?;
    let kept = kept.trim_end();
    is_token(kept).then(|| SecretString::from(kept))
}

fn write(path: &Path, token: &SecretString) -> io::Result<()> {
    write_private(path, format!("{}\n", token.expose_secret()).as_bytes())
}

fn mint_into(path: &Path) -> io::Result<SecretString> {
    let token = random_token()?;
    write(path, &token)?;
    Ok(token)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_token_is_made_once_and_is_for_its_owner_only() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("state");
        let first = ApiToken::open(&path).unwrap();
        let token = first.expose();
        assert!(is_token(&token), "{token}");
        assert_eq!(ApiToken::open(&path).unwrap().expose(), token);
        let file = path.join("api-token");
        let mode = || fs::metadata(&file).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(), 0o600);
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
        ApiToken::open(&path).unwrap();
        assert_eq!(mode(), 0o600);
        // One that was not written whole is no token.
        fs::write(&file, "abc\n").unwrap();
        let anew = ApiToken::open(&path).unwrap().expose();
        assert!(is_token(&anew) && anew != token, "{anew}");
        assert!(!format!("{first:?}").contains(&token));
    }

    #[test]
    fn a_missing_file_gets_the_token_and_one_that_is_there_wins_over_an_unkept_one() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        let first = ApiToken::open(path).unwrap();
        first.ended().end(100, "a", 1);
        fs::remove_file(path.join("api-token")).unwrap();
        first.write_missing().unwrap();
        let again = ApiToken::open(path).unwrap();
        assert_eq!(again.expose(), first.expose());
        assert!(again.ended().has(100, "a"));
        let unkept = ApiToken::unkept(path).unwrap();
        assert_ne!(unkept.expose(), first.expose());
        unkept.write_missing().unwrap();
        assert_eq!(unkept.expose(), first.expose());
        assert!(unkept.ended().has(100, "a"));
        // A token in force does not change because its file was edited.
        fs::write(path.join("api-token"), "0".repeat(64)).unwrap();
        first.write_missing().unwrap();
        assert_eq!(first.expose(), again.expose());
    }

    #[tokio::test]
    async fn only_the_whole_token_matches_and_a_rotated_one_does_not() {
        let directory = tempfile::tempdir().unwrap();
        let token = ApiToken::open(directory.path()).unwrap();
        let old = token.expose();
        assert!(token.matches(&old));
        let upper = old.to_uppercase() + "A";
        for wrong in ["", " ", old.get(1..).unwrap(), &upper, &format!("{old} ")] {
            assert!(!token.matches(wrong), "{wrong}");
        }
        token.rotate().await.unwrap();
        assert!(!token.matches(&old) && token.matches(&token.expose()));
        let kept = ApiToken::open(directory.path()).unwrap();
        assert_eq!(kept.expose(), token.expose());
    }

    #[tokio::test]
    async fn tags_and_codes_end_with_the_token() {
        let directory = tempfile::tempdir().unwrap();
        let token = ApiToken::open(directory.path()).unwrap();
        let tag = token.tag("login", "a");
        assert!(token.has_tag("login", "a", &tag));
        for (purpose, text) in [("login", "b"), ("form", "a"), ("", "a")] {
            assert!(!token.has_tag(purpose, text, &tag), "{purpose} {text}");
        }
        let (used, unused) = (token.mint_code().unwrap(), token.mint_code().unwrap());
        assert!(!token.redeem_code(""));
        assert!(token.redeem_code(&used) && !token.redeem_code(&used));
        token.rotate().await.unwrap();
        assert!(!token.redeem_code(&unused) && !token.has_tag("login", "a", &tag));
    }
}
