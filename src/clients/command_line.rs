//! Reads a command line, as documentation shows it, into an entry in the format of clients.

use serde_json::{Map, Value, json};

/// Programs whose first argument that is no option names a package.
const PACKAGE_RUNNERS: [&str; 7] = ["npx", "bunx", "pnpx", "uvx", "pipx", "docker", "podman"];

/// Subcommands that precede the name of a package.
const RUN_WORDS: [&str; 3] = ["run", "dlx", "tool"];

/// Names of packages that tell nothing about the server.
const GENERIC: [&str; 3] = ["mcp", "server", "mcp-server"];

/// Options of `npx`, `uvx` and `docker run` that take a value in the next argument.
const OPTIONS_WITH_VALUE: [&str; 14] = [
    "-e",
    "--env",
    "-v",
    "--volume",
    "--mount",
    "--name",
    "--network",
    "-p",
    "--publish",
    "--env-file",
    "--with",
    "--python",
    "--index-url",
    "-u",
];

/// The words of a command line that is one text; `None` if it has no arguments, or if its quotes
/// are not closed.
pub fn split_command(text: &str) -> Option<Vec<String>> {
    let words = shlex::split(text)?;
    (words.len() > 1).then_some(words)
}

/// The entry of a program, and a name derived from it. Assignments before the program, as in
/// `KEY=x npx …`, become its environment.
pub fn command_entry(words: &[String]) -> Option<(String, Value)> {
    let is_assignment = |word: &&String| {
        let name = word.split_once('=').map(|(name, _)| name);
        let is_legal = |c: char| c.is_ascii_alphanumeric() || c == '_';
        name.is_some_and(|name| !name.is_empty() && name.chars().all(is_legal))
    };
    let assigned = words.iter().take_while(is_assignment).count();
    let (assigned, command) = words.split_at_checked(assigned)?;
    let (program, args) = command.split_first()?;
    let mut entry = json!({ "command": program });
    if !args.is_empty() {
        entry["args"] = json!(args);
    }
    if !assigned.is_empty() {
        let env = assigned.iter().filter_map(|word| word.split_once('='));
        let env: Map<_, _> = env.map(|(k, v)| (k.to_owned(), v.into())).collect();
        entry["env"] = env.into();
    }
    Some((short_name(program, args), entry))
}

/// A short name of a server: of its package, or else of its program.
fn short_name(program: &str, args: &[String]) -> String {
    let program = program.rsplit('/').next().unwrap_or(program);
    let package = PACKAGE_RUNNERS.contains(&program).then(|| package(args));
    let name = package.flatten().unwrap_or(program);
    let mut parts = name.trim_start_matches('@').rsplit('/');
    let bare = |part: &'_ str| {
        part.split(['@', ':', '=', '['])
            .next()
            .unwrap_or_default()
            .to_owned()
    };
    let last = parts.next().map(bare).unwrap_or_default();
    // The scope tells more than a package that is called `mcp`.
    let scope = parts.next().filter(|_| GENERIC.contains(&last.as_str()));
    let name = scope.map_or(last, bare);
    let name = ["mcp-server-", "server-", "mcp-"]
        .iter()
        .find_map(|start| name.strip_prefix(start))
        .unwrap_or(&name);
    let name = ["-mcp-server", "-mcp", "-server"]
        .iter()
        .find_map(|end| name.strip_suffix(end))
        .unwrap_or(name);
    name.to_owned()
}

fn package(args: &[String]) -> Option<&str> {
    let mut args = args.iter().map(String::as_str);
    while let Some(arg) = args.next() {
        match arg {
            "--from" | "--package" | "--spec" => return args.next(),
            _ if OPTIONS_WITH_VALUE.contains(&arg) => drop(args.next()),
            _ if arg.starts_with('-') || RUN_WORDS.contains(&arg) => {}
            package => return Some(package),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_line_becomes_an_entry_with_a_short_name() {
        let table = [
            (
                "npx -y @modelcontextprotocol/server-filesystem /tmp",
                "filesystem",
            ),
            ("npx -y @playwright/mcp@latest", "playwright"),
            ("uvx mcp-server-git --repository .", "git"),
            (
                "uvx --from git+https://example.com/x/serena serena start",
                "serena",
            ),
            ("uvx --with foo docs-mcp==1.2", "docs"),
            (
                "docker run -i --rm -e TOKEN ghcr.io/github/github-mcp-server:1",
                "github",
            ),
            ("/usr/local/bin/notes --stdio", "notes"),
        ];
        for (line, expected) in table {
            let words = split_command(line).unwrap();
            let (name, entry) = command_entry(&words).unwrap();
            assert_eq!(name, expected, "{line}");
            assert_eq!(entry["command"], words[0]);
            assert_eq!(entry["args"].as_array().unwrap().len(), words.len() - 1);
        }
    }

    #[test]
    fn quotes_and_assignments_are_read_as_a_shell_does() {
        let words = split_command("KEY='a b' run \"two words\" x=y").unwrap();
        let (name, entry) = command_entry(&words).unwrap();
        let expected =
            json!({"command": "run", "args": ["two words", "x=y"], "env": {"KEY": "a b"}});
        assert_eq!((name.as_str(), entry), ("run", expected));
        assert_eq!(split_command("npx 'unclosed"), None);
        assert_eq!(split_command("npx"), None);
        assert_eq!(command_entry(&["A=b".to_owned()]), None);
    }
}
