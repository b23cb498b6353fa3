//! Where a configuration is looked for.

use std::fs;
use std::path::Path;

use mcpvisor::config::{Config, ConfigError, Environment, Lookup};
use secrecy::ExposeSecret as _;

use super::{ready, stdio};

/// An environment with a working directory of its own.
struct At<'a>(&'a Path);

/// The same, with the user's configurations below it.
struct OfUser<'a>(&'a Path);

impl Environment for OfUser<'_> {
    fn var(&self, name: &str) -> Option<std::ffi::OsString> {
        (name == "HOME").then(|| self.0.into())
    }

    fn current_dir(&self) -> std::io::Result<std::path::PathBuf> {
        Ok(self.0.join("work"))
    }
}

impl Environment for At<'_> {
    fn var(&self, _: &str) -> Option<std::ffi::OsString> {
        None
    }

    fn current_dir(&self) -> std::io::Result<std::path::PathBuf> {
        Ok(self.0.to_owned())
    }
}

#[test]
fn the_file_is_the_named_one_else_the_one_here_else_the_built_in() {
    let directory = tempfile::tempdir().unwrap();
    let here = At(directory.path());
    let built_in = Config::load(None, Lookup::WorkingDirectory, &here).unwrap();
    assert_eq!(built_in.path, None);
    assert_eq!(built_in.config.data_dir, directory.path().join(".mcpvisor"));
    assert_eq!(built_in.config.servers.len(), 1);

    let in_place = directory.path().join("config.toml");
    fs::write(&in_place, "[sessions]\nmax = 1").unwrap();
    let found = Config::load(None, Lookup::WorkingDirectory, &here).unwrap();
    assert_eq!(
        (found.config.session.sessions_max, found.path),
        (1, Some(in_place))
    );

    let named = |path| Config::load(Some(Path::new(path)), Lookup::WorkingDirectory, &here);
    fs::create_dir(directory.path().join("etc")).unwrap();
    fs::write(directory.path().join("etc/token"), "t\n").unwrap();
    let text = "[servers.a]\ncommand = \"./run\"\nargs = [\"${file:token}\"]\ncwd = \"w\"";
    fs::write(directory.path().join("etc/my.toml"), text).unwrap();
    let mine = named("etc/my.toml").unwrap();
    let etc = directory.path().join("etc");
    let settings = stdio(ready(&mine.config, "a"));
    assert_eq!(mine.path, Some(etc.join("my.toml")));
    assert_eq!(mine.config.data_dir, etc.join(".mcpvisor"));
    assert_eq!(Path::new(&settings.command), etc.join("run"));
    assert_eq!(settings.cwd, Some(etc.join("w")));
    assert_eq!(settings.args[0].expose_secret(), "t");

    for missing in ["no.toml", "etc"] {
        let error = named(missing).unwrap_err();
        assert!(matches!(error, ConfigError::Read { .. }), "{error}");
        assert!(error.to_string().contains(missing), "{error}");
    }
    fs::write(directory.path().join("bytes.toml"), b"a = \"\xff\"").unwrap();
    assert!(named("bytes.toml").is_err());
}

#[test]
fn the_working_directory_says_nothing_where_a_client_chose_it() {
    let home = tempfile::tempdir().unwrap();
    let env = OfUser(home.path());
    let of_user = home.path().join(".config/mcpvisor");
    fs::create_dir_all(&of_user).unwrap();
    fs::create_dir(home.path().join("work")).unwrap();
    let path = |lookup| Config::load(None, lookup, &env).unwrap().path;
    let in_place = home.path().join("work/config.toml");
    fs::write(&in_place, "").unwrap();
    assert_eq!(path(Lookup::WorkingDirectory), Some(in_place.clone()));
    let built_in = Config::load(None, Lookup::User, &env).unwrap();
    assert_eq!(built_in.path, None);
    assert_eq!(built_in.config.data_dir, of_user.join(".mcpvisor"));
    let data_dir = Config::data_dir_of(None, &env);
    assert_eq!(data_dir.unwrap(), in_place.with_file_name(".mcpvisor"));
    let mine = of_user.join("config.toml");
    fs::write(&mine, "").unwrap();
    assert_eq!(path(Lookup::User), Some(mine.clone()));
    assert_eq!(path(Lookup::WorkingDirectory), Some(in_place.clone()));
    fs::remove_file(in_place).unwrap();
    assert_eq!(path(Lookup::WorkingDirectory), Some(mine));
}

/// The state of a gateway that began without a file is that of the file that is written then.
#[test]
fn a_file_that_is_written_later_has_the_state_of_the_built_in_one() {
    let home = tempfile::tempdir().unwrap();
    let env = OfUser(home.path());
    fs::create_dir(home.path().join("work")).unwrap();
    let load = || Config::load(None, Lookup::WorkingDirectory, &env).unwrap();
    let (built_in, file) = (load(), Config::file_to_write(None, &env).unwrap());
    assert_eq!(built_in.path, None);
    let data_dir = Config::data_dir_of(None, &env).unwrap();
    assert_eq!(built_in.config.data_dir, data_dir);
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(&file, mcpvisor::config::default_file()).unwrap();
    let found = load();
    assert_eq!(found.path, Some(file));
    assert_eq!(found.config.data_dir, data_dir);
    assert_eq!(found.fingerprint, built_in.fingerprint);
}

#[test]
fn a_configuration_that_everybody_can_write_to_is_refused() {
    use std::os::unix::fs::PermissionsExt as _;

    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("config.toml");
    fs::write(&file, "").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o646)).unwrap();
    let here = At(directory.path());
    let error = Config::load(None, Lookup::WorkingDirectory, &here).unwrap_err();
    let mending = format!("`chmod o-w '{}'`", file.display());
    assert!(error.to_string().contains(&mending), "{error}");
}

/// Each file that decides which programs run, in a directory that others can write to.
#[test]
fn a_file_in_a_directory_that_others_can_write_to_is_refused() {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    let server = "[servers.a]\ncommand = \"true\"\n";
    let of_file = "[servers.a]\ncommand = \"true\"\nenv = { T = \"${file:DIRECTORY/file}\" }\n";
    let cases = [
        ("open/config.toml", server),
        ("open/below/config.toml", server),
        ("link/config.toml", server),
        ("config.toml", "include = [\"open/below/file\"]\n"),
        ("config.toml", "include = [\"link/file\"]\n"),
        ("config.toml", &of_file.replace("DIRECTORY", "open")),
        ("config.toml", &of_file.replace("DIRECTORY", "open/below")),
        ("config.toml", &of_file.replace("DIRECTORY", "link")),
    ];
    for (place, text) in cases {
        let base = tempfile::tempdir().unwrap();
        let at = |name: &str| base.path().join(name);
        fs::create_dir_all(at("open/below")).unwrap();
        symlink("open/below", at("link")).unwrap();
        for file in ["open/file", "open/below/file"] {
            fs::write(at(file), r#"{"mcpServers": {}}"#).unwrap();
        }
        fs::write(at(place), text).unwrap();
        let load = || Config::load(Some(&at(place)), Lookup::User, &At(base.path()));
        let mode =
            |mode| fs::set_permissions(at("open"), fs::Permissions::from_mode(mode)).unwrap();
        let refusal = || match load() {
            Err(error) => error.to_string(),
            // A server whose secret cannot be read does not start; the others do.
            Ok(loaded) => match &loaded.config.servers[..] {
                [server] => format!("{:?}", server.state),
                _ => String::new(),
            },
        };
        let mending = format!("`chmod o-w '{}'`", at("open").display());
        assert!(!refusal().contains("chmod"), "{place} {text}");
        for open in [0o777, 0o757, 0o772] {
            mode(open);
            assert!(
                refusal().contains(&mending),
                "{place} {text}: {}",
                refusal()
            );
        }
        mode(0o1777);
        assert!(!refusal().contains("chmod"), "{place} {text}");
    }
}
