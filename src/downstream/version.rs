//! The version that a command of a server names: of a package for npx or uvx, or of an image.

use secrecy::ExposeSecret as _;

use crate::transport::StdioSettings;

/// Maximum length of a version.
const VERSION_MAX: usize = 128;

/// Options of the launchers whose next argument is their value.
const WITH_VALUE: &[&str] = &[
    "--cache",
    "--call",
    "--default-index",
    "--directory",
    "--extra-index-url",
    "--index",
    "--index-url",
    "--python",
    "--registry",
    "--with",
    "-c",
    "-p",
    "-w",
];

/// Options of `docker run` and `podman run` without a value; all others have one.
const RUN_FLAGS: &[&str] = &[
    "--detach",
    "--init",
    "--interactive",
    "--privileged",
    "--quiet",
    "--read-only",
    "--rm",
    "--tty",
];

/// An argument that names another version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct VersionChange {
    /// Place among the arguments.
    pub(crate) place: usize,
    pub(crate) from: String,
    pub(crate) to: String,
}

/// The kinds of arguments that name a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Named {
    /// `NAME@VERSION`.
    Package,
    /// `NAME==VERSION`, the value of `--from`.
    Requirement,
    /// `NAME:TAG` or `NAME@DIGEST`.
    Image,
}

/// The change of a server's arguments that runs another version; the newest one without `to`.
///
/// # Errors
///
/// Returns why the command names no version.
pub(super) fn change_of(stdio: &StdioSettings, to: Option<&str>) -> Result<VersionChange, String> {
    let args: Vec<&str> = stdio.args.iter().map(|arg| arg.expose_secret()).collect();
    let program = program(stdio);
    let (place, head, from, named) = named_by(program, &args).ok_or_else(|| {
        format!(
            "`{program}` with these arguments names no version; change the server in the \
             configuration (`rollout = \"canary\"` tries it beside the old one)"
        )
    })?;
    if let Some(to) = to {
        check_version(to, named)?;
    }
    let to = head.to_owned() + &with_version(from, named, to);
    let from = args[place].to_owned();
    Ok(VersionChange { place, from, to })
}

/// The package or image of a command that runs its newest version at each start.
pub fn unpinned(stdio: &StdioSettings) -> Option<String> {
    let args: Vec<&str> = stdio.args.iter().map(|arg| arg.expose_secret()).collect();
    let (_, _, text, named) = named_by(program(stdio), &args)?;
    let (name, version) = name_and_version(text, named);
    matches!(version, None | Some("latest")).then(|| name.to_owned())
}

fn program(stdio: &StdioSettings) -> &str {
    stdio.command.rsplit('/').next().unwrap_or_default()
}

/// The argument of a launcher that names a package or an image.
fn named_by<'a>(program: &str, args: &[&'a str]) -> Option<(usize, &'a str, &'a str, Named)> {
    match program {
        "npx" | "bunx" | "pnpx" | "uvx" => package(args),
        "docker" | "podman" => image(args),
        _ => None,
    }
}

/// The argument that names a package: its place, what precedes the name, and the name with version.
fn package<'a>(args: &[&'a str]) -> Option<(usize, &'a str, &'a str, Named)> {
    let mut place = 0;
    while let Some(arg) = args.get(place) {
        for option in ["--from", "--package"] {
            let named = if option == "--from" {
                Named::Requirement
            } else {
                Named::Package
            };
            if *arg == option {
                return Some((place + 1, "", args.get(place + 1)?, named));
            }
            let value = arg
                .strip_prefix(option)
                .and_then(|rest| rest.strip_prefix('='));
            if let Some(value) = value {
                return Some((
                    place,
                    arg.strip_suffix(value).unwrap_or_default(),
                    value,
                    named,
                ));
            }
        }
        match arg {
            arg if WITH_VALUE.contains(arg) => place += 2,
            arg if arg.starts_with('-') => place += 1,
            arg => return Some((place, "", arg, Named::Package)),
        }
    }
    None
}

fn image<'a>(args: &[&'a str]) -> Option<(usize, &'a str, &'a str, Named)> {
    let mut place = args.iter().position(|arg| *arg == "run")? + 1;
    while let Some(arg) = args.get(place) {
        let is_short = |arg: &str| {
            arg.strip_prefix('-')
                .is_some_and(|it| it.chars().all(|c| "itdq".contains(c)))
        };
        match arg {
            arg if !arg.starts_with('-') => return Some((place, "", arg, Named::Image)),
            arg if RUN_FLAGS.contains(arg) || is_short(arg) || arg.contains('=') => place += 1,
            _ => place += 2,
        }
    }
    None
}

fn check_version(version: &str, named: Named) -> Result<(), String> {
    let fits = |c: char| {
        c.is_ascii_alphanumeric() || "._+~^-!".contains(c) || named == Named::Image && c == ':'
    };
    let is_plain = !version.is_empty()
        && version.len() <= VERSION_MAX
        && !version.starts_with('-')
        && version.chars().all(fits);
    is_plain.then_some(()).ok_or_else(|| {
        format!("the version must be 1 to {VERSION_MAX} letters, digits and any of `._+~^-!`, such as 1.2.3")
    })
}

fn name_and_version(text: &str, named: Named) -> (&str, Option<&str>) {
    if named == Named::Image {
        let (text, digest) = match text.split_once('@') {
            Some((text, digest)) => (text, Some(digest)),
            None => (text, None),
        };
        // A colon before a slash belongs to the registry's port.
        let tagged = text.rsplit_once(':').filter(|(_, tag)| !tag.contains('/'));
        let (name, tag) = tagged.map_or((text, None), |(name, tag)| (name, Some(tag)));
        return (name, digest.or(tag));
    }
    // A scope begins with `@`.
    let pinned = || text.rsplit_once('@').filter(|(name, _)| !name.is_empty());
    let pinned = text.split_once("==").or_else(pinned);
    pinned.map_or((text, None), |(name, version)| (name, Some(version)))
}

fn with_version(text: &str, named: Named, to: Option<&str>) -> String {
    let (name, version) = name_and_version(text, named);
    let newest = to.unwrap_or("latest");
    let is_exact = text.contains("==") || named == Named::Requirement && version.is_none();
    match (named, to) {
        (Named::Image, _) if newest.contains(':') => format!("{name}@{newest}"),
        (Named::Image, _) => format!("{name}:{newest}"),
        (Named::Requirement, None) => name.to_owned(),
        (_, None) if is_exact => name.to_owned(),
        (_, Some(to)) if is_exact => format!("{name}=={to}"),
        _ => format!("{name}@{newest}"),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::transport::{ChildLimits, InheritEnv};

    fn command(line: &str) -> StdioSettings {
        let mut words = line.split(' ');
        StdioSettings {
            command: words.next().unwrap().to_owned(),
            args: words.map(|word| word.to_owned().into()).collect(),
            env: Default::default(),
            inherit_env: InheritEnv::default(),
            cwd: None,
            line_max: 0,
            write_queue_max: 0,
            stop_grace: Duration::ZERO,
            limits: ChildLimits::default(),
            sandbox: Default::default(),
        }
    }

    fn change(line: &str, to: Option<&str>) -> Result<String, String> {
        let change = change_of(&command(line), to)?;
        let mut args: Vec<&str> = line.split(' ').skip(1).collect();
        assert_eq!(args[change.place], change.from);
        args[change.place] = &change.to;
        Ok(args.join(" "))
    }

    #[test]
    fn a_command_without_a_version_is_unpinned() {
        let table = [
            ("npx -y @scope/pkg --dir x@1", Some("@scope/pkg")),
            ("npx -y pkg@latest", Some("pkg")),
            ("npx -y @scope/pkg@1.0.0", None),
            ("uvx pkg", Some("pkg")),
            ("uvx --from pkg[cli]==1 cmd", None),
            ("docker run -i ghcr.io:443/a/b", Some("ghcr.io:443/a/b")),
            ("docker run -i a/b:latest", Some("a/b")),
            ("docker run -i a/b:latest@sha256:00", None),
            ("python3 server.py", None),
        ];
        for (line, expected) in table {
            assert_eq!(unpinned(&command(line)).as_deref(), expected, "{line}");
        }
    }

    #[test]
    fn another_version_takes_the_place_of_the_one_in_the_command() {
        let table = [
            (
                "npx -y pkg@1.0.0 --dir @x",
                Some("2.0.0"),
                "-y pkg@2.0.0 --dir @x",
            ),
            ("/usr/bin/npx @scope/pkg", Some("2.0.0"), "@scope/pkg@2.0.0"),
            ("npx -y @scope/pkg@1", None, "-y @scope/pkg@latest"),
            ("npx --package=pkg@1 cmd", Some("2"), "--package=pkg@2 cmd"),
            (
                "uvx --python 3.12 pkg==1.0",
                Some("2.0"),
                "--python 3.12 pkg==2.0",
            ),
            ("uvx pkg@1.0 a", Some("2.0"), "pkg@2.0 a"),
            ("uvx pkg==1.0", None, "pkg"),
            (
                "uvx --from pkg[cli] cmd",
                Some("2.0"),
                "--from pkg[cli]==2.0 cmd",
            ),
            (
                "docker run -i --rm -e KEY ghcr.io:443/a/b:1 x",
                Some("2"),
                "run -i --rm -e KEY ghcr.io:443/a/b:2 x",
            ),
            (
                "podman run -it --name=x a@sha256:00",
                Some("2"),
                "run -it --name=x a:2",
            ),
            ("docker run a:1", Some("sha256:00"), "run a@sha256:00"),
            ("docker run a:1", None, "run a:latest"),
        ];
        for (line, to, expected) in table {
            assert_eq!(change(line, to).as_deref(), Ok(expected), "{line}");
        }
        for (line, to, expected) in [
            ("python3 server.py", None, "names no version"),
            ("npx -y", None, "names no version"),
            ("npx pkg", Some("1 2"), "the version must be"),
            ("npx pkg", Some("--x"), "the version must be"),
        ] {
            let why = change(line, to).unwrap_err();
            assert!(why.contains(expected), "{why}");
        }
    }
}
