//! Re-encrypts all sealed files with a new key while other processes read and write.
//!
//! First the previous key is stored, sealed with the new key; then the new key replaces it. A
//! process that reads the current key can decrypt everything at any time, even if the rotation is
//! killed. A restarted rotation resumes where it stopped.

use std::fs;
use std::io;
use std::path::PathBuf;

use secrecy::SecretString;

use super::key::{VaultKey, cipher_of, new_key};
use super::key_ring::{KeyRing, write_durably};
use super::names_in;

/// The directories of sealed files in one data directory.
#[derive(Clone, Debug)]
pub struct VaultPlace {
    pub data_dir: PathBuf,
    pub directories: Vec<PathBuf>,
}

/// Counts of the re-encrypted files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rotated {
    pub resealed: usize,
    /// Files that neither key decrypts; they stay unchanged.
    pub unreadable: Vec<PathBuf>,
    /// Whether an interrupted rotation was resumed.
    pub went_on: bool,
}

/// Re-encrypts everything with a different key: a new one that replaces the key in a file or, if
/// `old` is given as the previous key, the one that `key` now returns.
///
/// # Errors
///
/// Returns what is wrong with a key, or the system's error. Everything stays readable.
pub fn rotate(
    place: &VaultPlace,
    key: &VaultKey,
    old: Option<&SecretString>,
) -> io::Result<Rotated> {
    rotate_until(place, key, old, &mut || false)
}

/// Stops early, as if killed, when `is_killed` returns true between two steps.
fn rotate_until(
    place: &VaultPlace,
    key: &VaultKey,
    old: Option<&SecretString>,
    is_killed: &mut dyn FnMut() -> bool,
) -> io::Result<Rotated> {
    let mut step = || match is_killed() {
        true => Err(io::Error::other("killed")),
        false => Ok(()),
    };
    let mut rotated = Rotated {
        went_on: begin(place, key, old, &mut step)?,
        ..Rotated::default()
    };
    for directory in &place.directories {
        for name in names_in(directory) {
            step()?;
            let ring = KeyRing::unchecked(&place.data_dir, directory, key)?;
            rotated.take(reseal(&ring, directory.join(&name), &name)?);
        }
    }
    step()?;
    // Entries written in the meantime with the previous key.
    let ring = KeyRing::unchecked(&place.data_dir, &place.data_dir, key)?;
    rotated.unreadable.clear();
    for directory in &place.directories {
        for name in names_in(directory) {
            rotated.take(reseal(&ring, directory.join(&name), &name)?);
        }
    }
    step()?;
    ring.write_check()?;
    step()?;
    ring.forget_previous()?;
    Ok(rotated)
}

/// Stores the previous key and puts the new one in place. Returns whether that had been done
/// already.
fn begin(
    place: &VaultPlace,
    key: &VaultKey,
    old: Option<&SecretString>,
    step: &mut dyn FnMut() -> io::Result<()>,
) -> io::Result<bool> {
    let any = place.directories.first().unwrap_or(&place.data_dir);
    // A command can print a different key by now.
    key.refresh();
    // Read without the lock, for which others wait: a person sometimes has to unlock the keyring
    // first.
    key.read()?;
    let ring = KeyRing::unchecked(&place.data_dir, any, key)?;
    if ring.previous.is_some() {
        return Ok(true);
    }
    let Some(new) = ring.text().cloned() else {
        return Err(io::Error::other(
            "nothing is sealed yet, so there is no key",
        ));
    };
    let Some(old) = old else {
        if !matches!(key, VaultKey::File(_)) {
            return Err(io::Error::other(format!(
                "{key} can only be replaced at its source: replace it there, and name a file with \
                 the old key (`--old-key-file`)"
            )));
        }
        // Under the same lock: another rotation can be waiting for it.
        let mut ring = ring.fitting()?;
        step()?;
        let fresh = new_key()?;
        ring.keep_previous(&new, &fresh)?;
        step()?;
        return ring.replace_key(&fresh).map(|()| false);
    };
    let cipher = cipher_of(old);
    let cipher = cipher.ok_or_else(|| io::Error::other("the old key is not 32 bytes in base64"))?;
    let is_old = place.directories.iter().all(|directory| {
        let names = names_in(directory);
        let opens = |name: &String| {
            let sealed = fs::read(directory.join(name));
            sealed.is_ok_and(|sealed| cipher.open(name, &sealed).is_some())
        };
        names.is_empty() || names.iter().any(opens)
    });
    if !is_old {
        return Err(io::Error::other(
            "the old key does not match the sealed files",
        ));
    }
    step()?;
    ring.keep_previous(old, &new).map(|()| false)
}

/// The outcome for one file.
enum Resealed {
    Yes,
    /// The file was re-encrypted before.
    Already,
    /// Neither key decrypts the file.
    Unreadable(PathBuf),
}

fn reseal(ring: &KeyRing<'_>, path: PathBuf, name: &str) -> io::Result<Resealed> {
    let sealed = match fs::read(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Resealed::Already),
        sealed => sealed?,
    };
    if ring.open_with_current(name, &sealed).is_some() {
        return Ok(Resealed::Already);
    }
    let Some(plain) = ring.open(name, &sealed) else {
        return Ok(Resealed::Unreadable(path));
    };
    // The previous key is deleted afterwards.
    write_durably(&path, &ring.seal(name, &plain)?)?;
    Ok(Resealed::Yes)
}

impl Rotated {
    fn take(&mut self, resealed: Resealed) {
        match resealed {
            Resealed::Yes => self.resealed += 1,
            Resealed::Already => {}
            Resealed::Unreadable(path) => self.unreadable.push(path),
        }
    }
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret as _;

    use super::*;
    use crate::credentials::vault::{KeyCommand, Vault};

    /// A data directory with three sealed files in two directories.
    fn sealed(root: &std::path::Path, key: &VaultKey) -> (VaultPlace, [(Vault, &'static str); 3]) {
        let data_dir = root.join("data");
        let vault = |name: &str| Vault::new(data_dir.join(name), key.clone());
        let (one, other) = (vault("credentials"), vault("sources"));
        let kept = [(one.clone(), "a"), (one, "b"), (other, "a")];
        for (vault, name) in &kept {
            vault.write(name, name.as_bytes()).unwrap();
        }
        let directories = ["credentials", "sources"].map(|name| data_dir.join(name));
        let place = VaultPlace {
            directories: directories.to_vec(),
            data_dir,
        };
        (place, kept)
    }

    fn check_all(kept: &[(Vault, &'static str)]) {
        for (vault, name) in kept {
            assert_eq!(vault.read(name).unwrap().unwrap(), name.as_bytes());
        }
    }

    /// Rotates and is killed after each number of steps, until it completes. In between everything
    /// is read and written, as by a running gateway.
    fn kill_at_each_step(key: &VaultKey, root: &std::path::Path, old: Option<&SecretString>) {
        let (place, kept) = sealed(root, key);
        let mut kills = 0;
        loop {
            let mut steps = 0;
            let rotated = rotate_until(&place, key, old, &mut || {
                steps += 1;
                steps > kills + 1
            });
            check_all(&kept);
            kept[kills % 3]
                .0
                .write(kept[kills % 3].1, kept[kills % 3].1.as_bytes())
                .unwrap();
            check_all(&kept);
            if rotated.is_ok() {
                break;
            }
            kills += 1;
        }
        assert!(kills >= 5, "{kills}");
        assert!(!place.data_dir.join("vault.previous").exists());
    }

    #[test]
    fn a_kill_at_any_moment_leaves_everything_readable() {
        let root = tempfile::tempdir().unwrap();
        kill_at_each_step(&VaultKey::File(root.path().join("key")), root.path(), None);
    }

    #[test]
    fn rotation_completes_after_a_kill_at_any_step() {
        for killed_at in 0..12 {
            let root = tempfile::tempdir().unwrap();
            let file = root.path().join("key");
            let key = VaultKey::File(file.clone());
            let (place, kept) = sealed(root.path(), &key);
            let before = fs::read_to_string(&file).unwrap();
            let mut steps = 0;
            let mut is_killed = || {
                steps += 1;
                steps > killed_at
            };
            let _ = rotate_until(&place, &key, None, &mut is_killed);
            check_all(&kept);
            rotate(&place, &key, None).unwrap();
            check_all(&kept);
            assert_ne!(fs::read_to_string(&file).unwrap(), before);
            let with_old = VaultKey::Variable("KEY", before.into());
            for (vault, name) in &kept {
                let old = Vault::new(vault.directory().to_owned(), with_old.clone());
                let error = old.read(name).unwrap_err().to_string();
                assert!(error.contains("the variable KEY"), "{killed_at}: {error}");
                // A vault does not overwrite a file that it cannot read.
                assert!(old.write(name, b"x").is_err());
            }
            check_all(&kept);
        }
    }

    #[test]
    fn a_key_replaced_at_its_source_takes_over() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("printed");
        let old = new_key().unwrap();
        fs::write(&file, old.expose_secret()).unwrap();
        let words = ["cat", file.to_str().unwrap()];
        let of_command = || VaultKey::Command(KeyCommand::new(words.map(Into::into)));
        // Like a running gateway, which caches what the command printed.
        let key = of_command();
        let (place, kept) = sealed(root.path(), &key);
        let refused = |key: &VaultKey, old: Option<&SecretString>, expected: &str| {
            let error = rotate(&place, key, old).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
            check_all(&kept);
        };
        refused(&of_command(), None, "can only be replaced at its source");
        fs::write(&file, new_key().unwrap().expose_secret()).unwrap();
        refused(&of_command(), Some(&new_key().unwrap()), "does not match");
        refused(&of_command(), Some(&"x".into()), "not 32 bytes");
        let mut steps = 0;
        let killed = rotate_until(&place, &of_command(), Some(&old), &mut || {
            steps += 1;
            steps > 3
        });
        assert!(killed.is_err());
        check_all(&kept);
        let rotated = rotate(&place, &of_command(), Some(&old)).unwrap();
        assert!(
            rotated.went_on && rotated.unreadable.is_empty(),
            "{rotated:?}"
        );
        check_all(&kept);
        kept[0].0.write("a", b"a").unwrap();
        for (vault, name) in &kept {
            let fresh = Vault::new(vault.directory().to_owned(), of_command());
            assert_eq!(fresh.read(name).unwrap().unwrap(), name.as_bytes());
        }
    }

    #[test]
    fn a_rotation_overtaken_by_another_succeeds() {
        let root = tempfile::tempdir().unwrap();
        let key = VaultKey::File(root.path().join("key"));
        let (place, kept) = sealed(root.path(), &key);
        // Between two files, where the rotation does not hold the lock.
        for overtaken_at in 3..=6 {
            let mut steps = 0;
            rotate_until(&place, &key, None, &mut || {
                steps += 1;
                if steps == overtaken_at {
                    rotate(&place, &key, None).unwrap();
                }
                false
            })
            .unwrap();
            check_all(&kept);
        }
        assert!(!place.data_dir.join("vault.previous").exists());
    }

    #[test]
    fn two_rotations_at_once_lose_nothing() {
        let root = tempfile::tempdir().unwrap();
        let key = VaultKey::File(root.path().join("key"));
        let (place, kept) = sealed(root.path(), &key);
        let rotate_often = || {
            for _ in 0..20 {
                rotate(&place, &key, None).unwrap();
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(rotate_often);
            scope.spawn(rotate_often);
        });
        check_all(&kept);
    }

    #[test]
    fn a_lock_that_is_never_given_back_hangs_nobody() {
        let root = tempfile::tempdir().unwrap();
        let key = VaultKey::File(root.path().join("key"));
        let (place, kept) = sealed(root.path(), &key);
        let lock = fs::File::open(place.data_dir.join("vault.lock")).unwrap();
        lock.lock().unwrap();
        let (vault, name) = &kept[0];
        let timed_out = |refused: io::Result<()>| {
            let why = refused.unwrap_err();
            assert_eq!(why.kind(), io::ErrorKind::TimedOut, "{why}");
        };
        std::thread::scope(|scope| {
            scope.spawn(|| timed_out(vault.read(name).map(drop)));
            scope.spawn(|| timed_out(vault.write(name, b"x")));
            scope.spawn(|| timed_out(rotate(&place, &key, None).map(drop)));
        });
        drop(lock);
        check_all(&kept);
    }

    #[test]
    fn files_that_no_key_opens_stay_and_are_listed() {
        let root = tempfile::tempdir().unwrap();
        let key = VaultKey::File(root.path().join("key"));
        let (place, kept) = sealed(root.path(), &key);
        let strange = place.directories[0].join("strange");
        fs::write(&strange, b"strange").unwrap();
        let rotated = rotate(&place, &key, None).unwrap();
        assert_eq!(
            (rotated.resealed, rotated.unreadable),
            (3, vec![strange.clone()])
        );
        assert_eq!(fs::read(strange).unwrap(), b"strange");
        check_all(&kept);
    }
}
