//! Recognizes in the last words of a server that the sandbox refused it a path. Pure.

use std::path::Path;

use super::Confinement;

/// Phrases, in lower case, of a program that was refused a write, or in strict a read.
const REFUSED: [&str; 6] = [
    "permission denied",
    "operation not permitted",
    "read-only file system",
    "eacces",
    "eperm",
    "erofs",
];

/// Phrases of a program that did not find a path.
const ABSENT: [&str; 2] = ["no such file or directory", "enoent"];

/// Phrases of a program that could create no Unix socket, among others.
const NO_SOCKETS: [&str; 2] = ["eafnosupport", "address family not supported"];

/// Advice to a server that needs a Unix socket of its own, as programs have in `/tmp`.
const ALLOW_SOCKETS: &str =
    "sandbox: refused a Unix socket; allow with sandbox = { unix_sockets = [\"/tmp\"] }";

/// Names a path that the sandbox refused, and the setting that allows it, from the last lines of a
/// program, oldest first.
pub(crate) fn refusal<'l>(
    lines: impl DoubleEndedIterator<Item = &'l str>,
    confinement: &Confinement,
) -> Option<String> {
    lines.rev().find_map(|line| {
        let lower = line.to_lowercase();
        let says = |phrases: &[&str]| phrases.iter().any(|phrase| lower.contains(phrase));
        if confinement.refuses_unix && !confinement.refuses_internet && says(&NO_SOCKETS) {
            return Some(ALLOW_SOCKETS.to_owned());
        }
        let (refused, absent) = (says(&REFUSED), says(&ABSENT));
        let mut paths = paths(line).filter(|_| refused || absent);
        paths.find_map(|path| advice(path, refused, confinement))
    })
}

fn advice(path: &str, refused: bool, confinement: &Confinement) -> Option<String> {
    let is_below = |places: &[std::path::PathBuf]| {
        let mut places = places.iter();
        places.any(|place| Path::new(path).starts_with(place))
    };
    let is_hidden = is_below(&confinement.hidden) && !is_below(&confinement.visible);
    let is_unlisted = |readable| !is_below(readable);
    let (what, key) = if is_hidden || confinement.readable.as_deref().is_some_and(is_unlisted) {
        ("read of", "read")
    } else if refused && !is_below(&confinement.writable) {
        ("write to", "write")
    } else {
        return None;
    };
    let shown = toml::Value::from(path);
    Some(format!(
        "sandbox: refused {what} {path}; allow with sandbox = {{ {key} = [{shown}] }}"
    ))
}

/// The absolute paths in a line, in quotes or between spaces.
fn paths(line: &str) -> impl Iterator<Item = &str> {
    let quoted = line.split(['\'', '"', '`', '‘', '’']).skip(1).step_by(2);
    let words = line.split_whitespace();
    let all = quoted.chain(words);
    all.map(|word| word.trim_end_matches([':', ',', ';', '.', ')']))
        .map(|word| word.trim_start_matches('('))
        .filter(|word| word.starts_with('/') && word.len() > 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_path_is_named_with_the_line_that_allows_it() {
        let paths = |list: &[&str]| list.iter().map(Into::into).collect();
        let standard = Confinement {
            writable: paths(&["/work", "/home/me/.mcpvisor/servers/a"]),
            hidden: paths(&["/home/me/.ssh", "/home/me/.mcpvisor"]),
            visible: paths(&["/work", "/home/me/.mcpvisor/servers/a"]),
            ..Confinement::default()
        };
        let strict = Confinement {
            readable: Some(paths(&["/usr", "/work"])),
            ..standard.clone()
        };
        let table = [
            (
                "PermissionError: [Errno 13] Permission denied: '/home/me/x y'",
                Some("write to /home/me/x y"),
                Some("read of /home/me/x y"),
            ),
            (
                "Error: EACCES: permission denied, open '/home/me/a.json'",
                Some("write to /home/me/a.json"),
                Some("read of /home/me/a.json"),
            ),
            (
                "sh: 1: cannot create /var/tmp/x: Permission denied",
                Some("write to /var/tmp/x"),
                Some("read of /var/tmp/x"),
            ),
            (
                "touch: cannot touch '/usr/x': Read-only file system",
                Some("write to /usr/x"),
                Some("write to /usr/x"),
            ),
            (
                "open /home/me/.ssh/id: no such file or directory",
                Some("read of /home/me/.ssh/id"),
                Some("read of /home/me/.ssh/id"),
            ),
            (
                "ENOENT: no such file or directory, open '/work/x'",
                None,
                None,
            ),
            ("EACCES: permission denied, open '/work/x'", None, None),
            ("Permission denied", None, None),
            ("listening at /home/me/.ssh", None, None),
        ];
        for (line, in_standard, in_strict) in table {
            for (confinement, expected) in [(&standard, in_standard), (&strict, in_strict)] {
                let found = refusal(["first", line, "last"].into_iter(), confinement);
                let found = found.as_deref();
                let has = |expected| found.is_some_and(|found| found.contains(expected));
                assert_eq!(found.is_some(), expected.is_some(), "{line}: {found:?}");
                assert!(expected.is_none_or(has), "{line}: {found:?}");
            }
        }
        let line = "Error: listen EAFNOSUPPORT: address family not supported /tmp/tsx-0/67.pipe";
        let closed = Confinement {
            refuses_unix: true,
            ..standard.clone()
        };
        assert_eq!(refusal([line].into_iter(), &standard), None);
        let found = refusal([line].into_iter(), &closed).unwrap();
        assert!(found.contains("unix_sockets"), "{found}");
        let line = "EROFS: read-only file system, open '/a\"b'";
        let found = refusal([line].into_iter(), &standard).unwrap();
        assert!(found.contains("write"), "{found}");
    }
}
