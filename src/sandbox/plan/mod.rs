//! Decides what one server may reach. Pure: whether paths exist is the launcher's concern.

use std::path::{Path, PathBuf};

use super::places::{
    CACHES, DOCKER_SOCKETS, REMOVED, SECRETS, SOCKET_VARIABLES, SOCKETS, SYSTEM, SYSTEM_SECRETS,
    TOOLS, UserPlace,
};
use super::promises::refuses_unix;
use super::settings::{Level, Network, SandboxSettings};
use super::{Confinement, KernelSupport, Namespaces};

/// Directory below the data directory with the homes of servers.
const HOMES: &str = "servers";

/// Variable with the address of npm's registry.
const REGISTRY: &str = "npm_config_registry";

/// Everything that the decision depends on.
pub(crate) struct PlanInput<'a> {
    pub(crate) settings: &'a SandboxSettings,
    pub(crate) support: &'a KernelSupport,
    pub(crate) server: &'a str,
    pub(crate) command: &'a str,
    pub(crate) args: &'a [&'a str],
    /// The configured variables.
    pub(crate) env: &'a [(&'a str, &'a str)],
    /// Names of variables that the configuration passes on from the gateway.
    pub(crate) passed: &'a [&'a str],
    /// A variable of the gateway.
    pub(crate) inherited: &'a dyn Fn(&str) -> Option<String>,
    /// `file://` URIs.
    pub(crate) roots: &'a [String],
    /// The configured working directory.
    pub(crate) cwd: Option<&'a Path>,
    /// The working directory of the gateway.
    pub(crate) gateway_cwd: &'a Path,
    /// The user's home.
    pub(crate) home: Option<&'a Path>,
    /// The content of `~/.npmrc`.
    pub(crate) npmrc: &'a str,
    pub(crate) data_dir: &'a Path,
    /// Other files of the gateway: its configuration.
    pub(crate) gateway_files: &'a [PathBuf],
}

/// The order for the launcher, and the changes of the environment that go with it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) confinement: Confinement,
    pub(crate) variables: Vec<(&'static str, PathBuf)>,
    pub(crate) removed: Vec<&'static str>,
}

/// The home of a server.
pub(crate) fn home_of(data_dir: &Path, server: &str) -> PathBuf {
    data_dir.join(HOMES).join(server)
}

/// Decides for a server whose level is not `off`.
pub(crate) fn plan(input: &PlanInput<'_>) -> Plan {
    let settings = input.settings;
    let home = home_of(input.data_dir, input.server);
    let mut plan = Plan::default();
    plan.confinement.create.push(home.clone());
    let caches = user_places(input, CACHES, &mut plan);
    let tools = user_places(input, TOOLS, &mut plan);
    set_environment(input, &home, &mut plan);

    let named = named_paths(input);
    let table = |paths: &[String]| -> Vec<PathBuf> {
        paths.iter().map(|path| expanded(input, path)).collect()
    };
    let (read, write) = (table(&settings.read), table(&settings.write));
    let sockets = [table(&settings.unix_sockets), passed_sockets(input)].concat();
    let links = read.iter().chain(&write);
    let links = links.filter_map(|path| Some((home.join(below_home(input, path)?), path.clone())));
    let links = links.collect();

    let mut writable = vec![home];
    writable.extend(plan.confinement.create.iter().cloned());
    writable.extend(input.cwd.map(Path::to_owned));
    writable.extend(named.iter().chain(&write).cloned());
    writable.extend(caches.iter().cloned());
    writable.extend(table(&settings.devices));
    let others = [read, sockets, table(&settings.devices)].concat();
    let mut visible = [writable.clone(), others].concat();
    let is_gateways = |path: &PathBuf| is_of_gateway(input, path);
    writable.retain(|path| !is_gateways(path));
    visible.retain(|path| !is_gateways(path));
    visible.extend(tools);
    visible.extend(program_places(input));
    let readable = (settings.level() == Level::Strict).then(|| {
        let system = SYSTEM.iter().map(PathBuf::from);
        system.chain(visible.iter().cloned()).collect()
    });
    let no_network = settings.network == Network::None;
    plan.confinement = Confinement {
        namespaces: Namespaces {
            mounts: input.support.namespaces,
            processes: input.support.processes,
            no_network: input.support.namespaces && no_network,
        },
        hidden: hidden(input, &visible),
        readable,
        links,
        filters_calls: input.support.seccomp,
        refuses_unix: refuses_unix(settings, input.support),
        refuses_internet: no_network && !input.support.namespaces,
        create: plan.confinement.create,
        writable: distinct(writable),
        visible: distinct(visible),
    };
    plan
}

/// The value of a variable that the server gets.
fn variable(input: &PlanInput<'_>, name: &str) -> Option<String> {
    configured(input, name)
        .map(str::to_owned)
        .or_else(|| (input.inherited)(name))
}

fn configured<'a>(input: &PlanInput<'a>, name: &str) -> Option<&'a str> {
    let mut found = input.env.iter().filter(|(known, _)| *known == name);
    found.next().map(|(_, value)| *value)
}

/// The user's own places, and the variables by which the server finds them from another home.
fn user_places(input: &PlanInput<'_>, places: &[UserPlace], plan: &mut Plan) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for place in places {
        let own = variable(input, place.variable).map(PathBuf::from);
        let Some(path) = own.clone().or_else(|| default_place(input, place.path)) else {
            continue;
        };
        if own.is_none() {
            plan.variables.push((place.variable, path.clone()));
        }
        if place.writers.contains(&program_name(input)) {
            plan.confinement.create.push(path.clone());
        }
        found.push(path);
    }
    found
}

/// A place below the user's home, or below the directory that replaces this part of it.
fn default_place(input: &PlanInput<'_>, path: &str) -> Option<PathBuf> {
    let moved = [
        (".cache/", "XDG_CACHE_HOME"),
        (".local/share/", "XDG_DATA_HOME"),
    ];
    let moved = moved.iter().find_map(|(prefix, name)| {
        let rest = path.strip_prefix(prefix)?;
        Some(PathBuf::from((input.inherited)(name)?).join(rest))
    });
    moved.or_else(|| Some(input.home?.join(path)))
}

fn set_environment(input: &PlanInput<'_>, home: &Path, plan: &mut Plan) {
    let is_free = |name: &&str| configured(input, name).is_none();
    plan.removed = REMOVED.iter().copied().filter(is_free).collect();
    if is_free(&"HOME") {
        plan.variables.push(("HOME", home.to_owned()));
    }
    if is_free(&"TMPDIR") {
        match input.support.namespaces {
            // It has a `/tmp` of its own.
            true => plan.removed.push("TMPDIR"),
            false => {
                plan.confinement.create.push(home.join("tmp"));
                plan.variables.push(("TMPDIR", home.join("tmp")));
            }
        }
    }
    let registry = registry(input.npmrc).filter(|_| is_free(&REGISTRY));
    let registry = registry.filter(|_| !input.passed.contains(&REGISTRY));
    plan.variables
        .extend(registry.map(|it| (REGISTRY, it.into())));
    if is_docker(input)
        && variable(input, "DOCKER_CONFIG").is_none()
        && let Some(user) = input.home
    {
        plan.variables.push(("DOCKER_CONFIG", user.join(".docker")));
    }
}

/// The registry that `~/.npmrc` names. The file itself is hidden, because it can contain tokens; an
/// address with a password is not passed on for the same reason.
fn registry(npmrc: &str) -> Option<&str> {
    let values = npmrc.lines().filter_map(|line| line.split_once('='));
    let mut named = values.filter(|(key, _)| key.trim() == "registry");
    let (_, address) = named.next_back()?;
    Some(address.trim()).filter(|it| it.starts_with("http") && !it.contains(['@', '$']))
}

/// The paths among the arguments, the configured variables and the roots.
fn named_paths(input: &PlanInput<'_>) -> Vec<PathBuf> {
    let arguments = input.args.iter().copied();
    let values = input.env.iter().map(|(_, value)| *value);
    let roots = input.roots.iter().map(String::as_str);
    let all = arguments.chain(values).chain(roots);
    let mut found: Vec<PathBuf> = all.filter_map(|text| named_path(input, text)).collect();
    if is_docker(input) {
        found.extend(DOCKER_SOCKETS.iter().map(PathBuf::from));
        found.extend(input.home.map(|home| home.join(".docker")));
        let host = variable(input, "DOCKER_HOST");
        let socket = host.as_deref().and_then(|it| it.strip_prefix("unix://"));
        found.extend(socket.map(PathBuf::from));
    }
    found
}

/// The path that a text is, such as `/a`, `./a`, `~/a`, `--directory=/a` or `file:///a`.
fn named_path(input: &PlanInput<'_>, text: &str) -> Option<PathBuf> {
    let value = match text.split_once('=') {
        Some((flag, value)) if flag.starts_with('-') => value,
        _ => text,
    };
    let value = value.strip_prefix("file://").unwrap_or(value);
    let is_relative =
        matches!(value, "." | "..") || value.starts_with("./") || value.starts_with("../");
    let is_path = value.starts_with('/') || value.starts_with("~/") || is_relative;
    // A regular expression or a list of paths is not a path.
    let is_plain = !value.contains(['\n', '\0', ':', '*', '?']);
    (is_path && is_plain && value != "/").then(|| expanded(input, value))
}

/// A path with `~/` filled in, and relative to the server's working directory.
fn expanded(input: &PlanInput<'_>, path: &str) -> PathBuf {
    match (path.strip_prefix("~/"), input.home) {
        (Some(rest), Some(home)) => home.join(rest),
        _ => {
            let from = input.cwd.unwrap_or(input.gateway_cwd);
            let all = from.join(path);
            // `.` would keep equal paths from being equal.
            all.components().collect()
        }
    }
}

fn below_home(input: &PlanInput<'_>, path: &Path) -> Option<PathBuf> {
    let below = path.strip_prefix(input.home?).ok()?;
    (below != Path::new("")).then(|| below.to_owned())
}

/// Sockets whose variables the configuration passes on by name.
fn passed_sockets(input: &PlanInput<'_>) -> Vec<PathBuf> {
    let names = SOCKET_VARIABLES.iter();
    let passed = names.filter(|name| input.passed.contains(name));
    passed.filter_map(|name| socket(input, name)).collect()
}

/// The socket that a variable of the gateway names.
fn socket(input: &PlanInput<'_>, name: &str) -> Option<PathBuf> {
    let value = (input.inherited)(name)?;
    let value = value.strip_prefix("unix:path=").unwrap_or(&value);
    let path = PathBuf::from(value.split(',').next()?);
    path.is_absolute().then_some(path)
}

/// Where the program is, with the installation around it.
fn program_places(input: &PlanInput<'_>) -> Vec<PathBuf> {
    let path = variable(input, "PATH").unwrap_or_default();
    let program = Path::new(input.command).parent().map(Path::to_owned);
    let program = program.filter(|directory| directory.is_absolute());
    let directories = path.split(':').map(PathBuf::from).chain(program);
    let around = |directory: PathBuf| {
        let is_bin = directory.file_name().is_some_and(|name| name == "bin");
        let outer = directory.parent().filter(|outer| {
            let is_home = input.home.is_some_and(|home| home.starts_with(outer));
            is_bin && !is_home
        });
        outer.map(Path::to_owned).unwrap_or(directory)
    };
    let all = directories.filter(|it| it.is_absolute()).map(around);
    all.filter(|directory| {
        let is_home = input.home.is_some_and(|home| home.starts_with(directory));
        directory != Path::new("/") && !is_home
    })
    .collect()
}

/// Paths that are hidden unless the configuration names them. Paths of the gateway are always hidden.
fn hidden(input: &PlanInput<'_>, visible: &[PathBuf]) -> Vec<PathBuf> {
    let home = input.home.into_iter();
    let secrets = home.flat_map(|home| SECRETS.iter().map(|path| home.join(path)));
    let system = SYSTEM_SECRETS.iter().chain(SOCKETS).map(PathBuf::from);
    let sockets = SOCKET_VARIABLES.iter();
    let sockets = sockets.filter_map(|name| socket(input, name));
    let runtime = (input.inherited)("XDG_RUNTIME_DIR").map(PathBuf::from);
    let docker = (input.inherited)("DOCKER_HOST");
    let docker = docker.and_then(|it| it.strip_prefix("unix://").map(PathBuf::from));
    let unnamed = secrets
        .chain(system)
        .chain(sockets)
        .chain(runtime)
        .chain(docker);
    let unnamed = unnamed.filter(|path| !visible.contains(path));
    let gateway = input.gateway_files.iter().cloned();
    let gateway = gateway.chain([input.data_dir.to_owned()]);
    distinct(unnamed.chain(gateway).collect())
}

/// Whether a path belongs to the gateway or another server.
fn is_of_gateway(input: &PlanInput<'_>, path: &Path) -> bool {
    let own = home_of(input.data_dir, input.server);
    let is_gateways = path.starts_with(input.data_dir) && !path.starts_with(own);
    is_gateways || input.gateway_files.iter().any(|file| path == file)
}

fn program_name<'a>(input: &PlanInput<'a>) -> &'a str {
    let name = Path::new(input.command).file_name();
    name.and_then(|name| name.to_str()).unwrap_or_default()
}

fn is_docker(input: &PlanInput<'_>) -> bool {
    program_name(input) == "docker"
}

fn distinct(mut paths: Vec<PathBuf>) -> Vec<PathBuf> {
    paths.sort();
    paths.dedup();
    paths
}

#[cfg(test)]
mod tests;
