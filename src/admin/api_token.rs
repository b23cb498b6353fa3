//! The token of the HTTP API: 256 random bits, created once and stored in `api-token` in the data
//! directory.

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

/// Bytes in a token. The text form has two hexadecimal digits per byte.
const TOKEN_BYTES: usize = 32;

/// Maximum time to write a new token to disk.
const KEEP_MAX: Duration = Duration::from_secs(5);

/// Purpose of the tags that are stored in place of login codes.
const CODE: &str = "login code";

/// The token that authorizes API requests.
pub struct ApiToken {
    path: PathBuf,
    token: RwLock<SecretString>,
    /// Whether the token has been written to its file.
    is_kept: AtomicBool,
    codes: LoginCodes,
    ended: Arc<EndedLogins>,
}

impl ApiToken {
    /// Reads the token of a data directory, or creates one if no usable token exists.
    ///
    /// # Errors
    ///
    /// Returns the system's error when the file can neither be read nor written.
    pub fn open(data_dir: &Path) -> io::Result<Self> {
        let path = data_dir.join("api-token");
        private_dir(data_dir)?;
        if path.symlink_metadata().is_ok() {
            // Makes the file private if it was not, and refuses one that another user owns.
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

    /// Creates a token that lasts only for this process, while the data directory is unusable.
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

    /// Writes the token if its file is missing because the data directory was recreated. A token
    /// that was never written is replaced by the one in the directory.
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

    /// Replaces the token. The old one is refused from then on.
    ///
    /// # Errors
    ///
    /// Returns the system's error when the new token cannot be written; the old one then stays
    /// valid.
    pub async fn rotate(&self) -> io::Result<()> {
        let path = self.path.clone();
        let minting = timeout(KEEP_MAX, spawn_blocking(move || mint_into(&path)));
        let minted = minting.await.map_err(io::Error::other)?;
        let minted = minted.map_err(io::Error::other)??;
        *self.token.write() = minted;
        Ok(())
    }

    /// The token in plain text, for its owner.
    pub fn expose(&self) -> String {
        let token = self.token.read();
        token.expose_secret().to_owned()
    }

    /// Compares a token in constant time.
    pub fn matches(&self, presented: &str) -> bool {
        let token = self.token.read();
        let token = token.expose_secret().as_bytes();
        bool::from(token.ct_eq(presented.as_bytes()))
    }

    /// A tag that only the owner of the token can create, in hexadecimal. A tag is valid for one
    /// purpose only, and becomes invalid with the token.
    pub fn tag(&self, purpose: &str, text: &str) -> String {
        let token = self.token.read();
        let key = hmac::Key::new(hmac::HMAC_SHA256, token.expose_secret().as_bytes());
        let tag = hmac::sign(&key, format!("{purpose}\n{text}").as_bytes());
        let digits = tag.as_ref().iter().map(|byte| format!("{byte:02x}"));
        digits.collect()
    }

    /// Whether a tag was created for this text with the current token.
    pub fn has_tag(&self, purpose: &str, text: &str, tag: &str) -> bool {
        let expected = self.tag(purpose, text);
        bool::from(expected.as_bytes().ct_eq(tag.as_bytes()))
    }

    /// Logins that were signed out.
    pub(super) fn ended(&self) -> &Arc<EndedLogins> {
        &self.ended
    }

    /// Creates a single-use code that replaces the token at login for some minutes.
    ///
    /// # Errors
    ///
    /// Returns the system's error when it has no randomness.
    pub fn mint_code(&self) -> io::Result<String> {
        let code = random_token()?.expose_secret().to_owned();
        self.codes.keep(self.tag(CODE, &code));
        Ok(code)
    }

    /// Redeems a code. Returns whether it was valid; it cannot be used again.
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
        // A truncated token file is ignored.
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
        // Editing the file does not change the token in use.
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
