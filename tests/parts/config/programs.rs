//! Commands that cannot start, and what is said of them.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use mcpvisor::config::{Config, unable_servers};
use secrecy::ExposeSecret as _;

use super::{env, load_with, ready, stdio};

#[test]
fn a_program_that_is_not_there_is_named_with_the_path_that_was_searched() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    for (name, mode) in [("runs", 0o755), ("text", 0o644)] {
        fs::write(at(name), "").unwrap();
        fs::set_permissions(at(name), fs::Permissions::from_mode(mode)).unwrap();
    }
    let path = directory.path().display();
    let environment = env(&[("PATH", &path.to_string())]);
    let cases = [
        ("command = \"runs\"", None),
        ("command = \"./runs\"", None),
        ("url = \"http://x\"", None),
        ("command = \"nowhere\"\nenabled = false", None),
        (
            "command = \"nowhere\"",
            Some(format!(
                "cannot start: `nowhere` was not found in PATH ({path}); install it"
            )),
        ),
        (
            "command = \"text\"",
            Some("`text` was not found".to_owned()),
        ),
        ("command = \"./text\"", Some("is not executable".to_owned())),
        ("command = \"./nowhere\"", Some("does not exist".to_owned())),
        (
            "command = \"runs\"\ncwd = \"nowhere\"",
            Some("is not a directory".to_owned()),
        ),
        (
            "command = \"runs\"\nenv = { PATH = \"/hunter2\" }",
            Some("in the PATH in its `env`".to_owned()),
        ),
        (
            "command = \"runs\"\nenv = { A = \"${NOT_SET}\" }",
            Some("is misconfigured: `servers.a.env.A`".to_owned()),
        ),
    ];
    for (keys, expected) in cases {
        let text = format!("[servers.a]\n{keys}");
        let loaded = Config::parse(&text, "config.toml", directory.path(), &environment).unwrap();
        let unable = unable_servers(&loaded.config, &environment);
        match expected {
            None => assert!(unable.is_empty(), "{keys}: {unable:?}"),
            Some(expected) => {
                let [why] = unable.as_slice() else {
                    panic!("{keys}: {unable:?}")
                };
                assert!(
                    why.starts_with("server `a` ") && why.contains(&expected),
                    "{why}"
                );
                assert!(!why.contains("hunter2"), "{why}");
            }
        }
    }
}

/// What documentation shows as one text is split where nothing else can be meant.
#[test]
fn a_command_with_arguments_is_split_if_its_program_is_in_path() {
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("npx");
    fs::write(&program, "").unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let environment = env(&[
        ("PATH", &directory.path().to_string_lossy()),
        ("ARGS", "-y pkg"),
    ]);
    let read = |keys: &str| {
        let text = format!("[servers.a]\n{keys}");
        Config::parse(&text, "config.toml", Path::new("/"), &environment)
    };
    let loaded = read("command = \"npx -y 'a b' --token=hunter2\"\nargs = [\"last\"]").unwrap();
    let a = stdio(ready(&loaded.config, "a"));
    let args: Vec<&str> = a.args.iter().map(|arg| arg.expose_secret()).collect();
    assert_eq!(
        (a.command.as_str(), args),
        ("npx", vec!["-y", "a b", "--token=hunter2", "last"])
    );
    let said = loaded.warnings.join("\n");
    assert!(
        said.contains("is read as a program and its arguments"),
        "{said}"
    );
    assert!(!said.contains("hunter2"), "{said}");
    for refused in [
        "npx a | b",
        "npx ~/a",
        "npx $HOME",
        "nowhere -y pkg",
        "npx 'a",
    ] {
        assert!(
            read(&format!("command = \"{refused}\"")).is_err(),
            "{refused}"
        );
    }
    // A variable's content is one word.
    let loaded = read("command = \"npx ${ARGS}\"");
    assert!(loaded.is_err() || !unable_servers(&loaded.unwrap().config, &environment).is_empty());
}

#[test]
fn a_program_with_a_space_in_its_path_is_accepted() {
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("my server");
    fs::write(&program, "").unwrap();
    let text = format!("[servers.a]\ncommand = \"{}\"", program.display());
    let config = load_with(&text, &env(&[])).unwrap();
    assert_eq!(Path::new(&stdio(ready(&config, "a")).command), program);
}

#[test]
fn arguments_from_a_variable_make_only_their_server_unusable() {
    let environment = env(&[("RUN", "npx hunter2")]);
    let config = load_with("[servers.a]\ncommand = \"${RUN}\"", &environment).unwrap();
    let [why] = &unable_servers(&config, &environment)[..] else {
        panic!("one is unable")
    };
    assert!(why.contains("`servers.a.command` contains arguments") && !why.contains("hunter2"));
}

#[test]
fn an_argument_that_begins_at_home_is_warned_of() {
    let text = "[servers.a]\ncommand = \"x\"\nargs = [\"-y\", \"~/notes\"]";
    let loaded = Config::parse(text, "config.toml", Path::new("/"), &env(&[])).unwrap();
    let [warning] = loaded.warnings.as_slice() else {
        panic!("{:?}", loaded.warnings)
    };
    assert!(warning.contains("`servers.a.args[1]`") && warning.contains("${HOME}"));
}
