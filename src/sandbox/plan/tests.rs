use std::collections::BTreeMap;

use super::*;

const HOME: &str = "/home/me";
const DATA: &str = "/home/me/.mcpvisor";

/// A server, and the user that it runs for.
#[derive(Default)]
struct Case<'a> {
    command: &'a str,
    args: &'a [&'a str],
    env: &'a [(&'a str, &'a str)],
    passed: &'a [&'a str],
    settings: SandboxSettings,
    cwd: Option<&'a Path>,
    inherited: &'a [(&'a str, &'a str)],
    support: Option<KernelSupport>,
    npmrc: &'a str,
}

impl Case<'_> {
    fn plan(&self) -> Plan {
        let inherited: BTreeMap<_, _> = self.inherited.iter().copied().collect();
        let full = KernelSupport {
            namespaces: true,
            processes: true,
            landlock: 7,
            seccomp: true,
            ..KernelSupport::default()
        };
        let settings = SandboxSettings {
            level: self.settings.level.or(Some(Level::Standard)),
            ..self.settings.clone()
        };
        plan(&PlanInput {
            settings: &settings,
            support: self.support.as_ref().unwrap_or(&full),
            server: "files",
            command: self.command,
            args: self.args,
            env: self.env,
            passed: self.passed,
            inherited: &|name| inherited.get(name).map(|value| (*value).to_owned()),
            roots: &[],
            cwd: self.cwd,
            gateway_cwd: Path::new("/srv"),
            home: Some(Path::new(HOME)),
            npmrc: self.npmrc,
            data_dir: Path::new(DATA),
            gateway_files: &[PathBuf::from("/home/me/mcpvisor.toml")],
        })
    }
}

fn has(paths: &[PathBuf], path: &str) -> bool {
    paths.iter().any(|it| it == Path::new(path))
}

#[test]
fn a_server_writes_to_its_own_places_and_to_what_is_named() {
    let plan = Case {
        command: "npx",
        args: &[
            "-y",
            "pkg",
            "/home/me/project",
            "--db=/var/lib/x.db",
            "./here",
            "https://example.com/a",
            "/",
            "/a:/b",
        ],
        env: &[("MEMORY_FILE_PATH", "~/notes.json"), ("MODE", "fast")],
        cwd: Some(Path::new("/work")),
        ..Case::default()
    }
    .plan();
    let writable = &plan.confinement.writable;
    for path in [
        "/home/me/.mcpvisor/servers/files",
        "/home/me/project",
        "/var/lib/x.db",
        "/work/here",
        "/home/me/notes.json",
        "/work",
        "/home/me/.npm",
        "/home/me/.cache/uv",
    ] {
        assert!(has(writable, path), "{path}: {writable:?}");
    }
    for path in ["/", "/home/me", "/srv", "/a", "/home/me/.nvm"] {
        assert!(!has(writable, path), "{path}");
    }
    assert!(has(&plan.confinement.create, "/home/me/.npm"));
    assert!(!has(&plan.confinement.create, "/home/me/.cache/uv"));
}

#[test]
fn secrets_are_hidden_unless_they_are_named() {
    let ssh = "/home/me/.ssh";
    let read = |path: &str| SandboxSettings {
        read: vec![path.to_owned()],
        ..SandboxSettings::default()
    };
    let table: [(Case<'_>, bool); 8] = [
        (Case::default(), true),
        (
            Case {
                args: &["/home/me"],
                ..Case::default()
            },
            true,
        ),
        (
            Case {
                args: &["/home/me/.ssh/config"],
                ..Case::default()
            },
            true,
        ),
        (
            Case {
                args: &[ssh],
                ..Case::default()
            },
            false,
        ),
        (
            Case {
                args: &["--keys=~/.ssh"],
                ..Case::default()
            },
            false,
        ),
        (
            Case {
                env: &[("KEYS", ssh)],
                ..Case::default()
            },
            false,
        ),
        (
            Case {
                settings: read("~/.ssh"),
                ..Case::default()
            },
            false,
        ),
        (
            Case {
                settings: read("~/.ssh/known_hosts"),
                ..Case::default()
            },
            true,
        ),
    ];
    for (index, (case, expected)) in table.iter().enumerate() {
        let confinement = case.plan().confinement;
        assert_eq!(has(&confinement.hidden, ssh), *expected, "{index}");
    }
    let plan = table[7].0.plan();
    assert!(has(&plan.confinement.visible, "/home/me/.ssh/known_hosts"));
    let link = PathBuf::from("/home/me/.mcpvisor/servers/files/.ssh/known_hosts");
    assert_eq!(plan.confinement.links[0].0, link);
}

#[test]
fn what_belongs_to_the_gateway_stays_hidden() {
    let confinement = Case {
        args: &[
            DATA,
            "/home/me/.mcpvisor/servers/other",
            "/home/me/mcpvisor.toml",
        ],
        cwd: Some(Path::new(DATA)),
        ..Case::default()
    }
    .plan()
    .confinement;
    for path in [DATA, "/home/me/mcpvisor.toml"] {
        assert!(has(&confinement.hidden, path));
    }
    for paths in [&confinement.writable, &confinement.visible] {
        assert!(!has(paths, DATA));
        assert!(!has(paths, "/home/me/.mcpvisor/servers/other"));
    }
}

#[test]
fn sockets_are_hidden_unless_they_are_passed_on_by_name() {
    let inherited: &[_] = &[
        ("SSH_AUTH_SOCK", "/tmp/ssh-x/agent.1"),
        ("XDG_RUNTIME_DIR", "/run/user/7"),
        (
            "DBUS_SESSION_BUS_ADDRESS",
            "unix:path=/run/user/7/bus,guid=1",
        ),
        ("DOCKER_HOST", "unix:///run/user/7/docker.sock"),
    ];
    let case = |command, passed| {
        let case = Case {
            command,
            passed,
            inherited,
            ..Case::default()
        };
        case.plan().confinement
    };
    let plain = case("npx", &[]);
    for path in ["/tmp/ssh-x/agent.1", "/run/user/7", "/run/docker.sock"] {
        assert!(has(&plain.hidden, path), "{path}");
    }
    let agent = case("npx", &["SSH_AUTH_SOCK"]);
    assert!(!has(&agent.hidden, "/tmp/ssh-x/agent.1"));
    assert!(has(&agent.visible, "/tmp/ssh-x/agent.1"));
    let docker = case("/usr/bin/docker", &[]);
    assert!(!has(&docker.hidden, "/run/docker.sock"));
    assert!(has(&docker.visible, "/run/user/7/docker.sock"));
}

#[test]
fn programs_find_the_users_caches_from_their_own_home() {
    let plan = Case {
        env: &[("UV_CACHE_DIR", "/big/uv"), ("XDG_CONFIG_HOME", "/c")],
        inherited: &[("XDG_CACHE_HOME", "/caches"), ("NVM_DIR", "/nvm")],
        ..Case::default()
    }
    .plan();
    let value = |name: &str| {
        let mut found = plan.variables.iter().filter(|(known, _)| *known == name);
        found.next().map(|(_, value)| value.to_str().unwrap())
    };
    let table = [
        ("HOME", Some("/home/me/.mcpvisor/servers/files")),
        ("npm_config_cache", Some("/home/me/.npm")),
        ("PIP_CACHE_DIR", Some("/caches/pip")),
        ("UV_CACHE_DIR", None),
        ("NVM_DIR", None),
        ("PYENV_ROOT", Some("/home/me/.pyenv")),
    ];
    for (name, expected) in table {
        assert_eq!(value(name), expected, "{name}");
    }
    assert!(has(&plan.confinement.writable, "/big/uv"));
    assert!(plan.removed.contains(&"XDG_CACHE_HOME"));
    assert!(!plan.removed.contains(&"XDG_CONFIG_HOME"));
}

#[test]
fn a_strict_server_reads_listed_paths_only() {
    let strict = SandboxSettings {
        level: Some(Level::Strict),
        read: vec!["/data".to_owned()],
        network: Network::None,
        ..SandboxSettings::default()
    };
    let case = Case {
        command: "/home/me/app/bin/server",
        inherited: &[("PATH", "/usr/bin:/home/me/bin:/home/me/.local/bin:rel")],
        settings: strict.clone(),
        ..Case::default()
    };
    let confinement = case.plan().confinement;
    let readable = confinement.readable.unwrap();
    for path in [
        "/usr",
        "/data",
        "/home/me/app",
        "/home/me/bin",
        "/home/me/.local",
    ] {
        assert!(has(&readable, path), "{path}: {readable:?}");
    }
    for path in ["/", "/home", "/home/me", "/home/me/.ssh"] {
        assert!(!has(&readable, path), "{path}");
    }
    assert!(confinement.refuses_unix && confinement.filters_calls);
    assert!(confinement.namespaces.no_network);
    assert!(!confinement.refuses_internet);
    let bare = Case {
        settings: strict,
        support: Some(KernelSupport::default()),
        ..Case::default()
    };
    let confinement = bare.plan().confinement;
    assert!(confinement.refuses_internet);
    assert!(!confinement.namespaces.no_network);
    // A filter that the kernel forbids would keep the server from starting.
    assert!(!confinement.filters_calls);
}

#[test]
fn the_registry_is_passed_on_and_its_tokens_are_not() {
    let of = |npmrc| {
        let plan = Case {
            npmrc,
            ..Case::default()
        }
        .plan();
        let mut variables = plan.variables.into_iter();
        let found = variables.find(|(name, _)| *name == REGISTRY);
        found.map(|(_, value)| value.display().to_string())
    };
    let mirror = "//npm.example.com/:_authToken=secret\nregistry = https://npm.example.com/\n";
    assert_eq!(of(mirror).as_deref(), Some("https://npm.example.com/"));
    for npmrc in [
        "",
        "@scope:registry=https://npm.example.com/",
        "registry=https://me:secret@npm.example.com/",
        "registry=${REGISTRY}",
    ] {
        assert_eq!(of(npmrc), None, "{npmrc}");
    }
}
