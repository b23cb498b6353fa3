//! Why a child's link ended, told from what can be known: its exit, its last words, its limits.

use super::stderr::Words;
use crate::transport::process::Exit;
use crate::transport::{ChildLimits, Ending};

/// Why reading ended.
#[derive(Clone, Copy, Debug)]
pub(super) enum End {
    Exit(Exit),
    OutputClosed,
    InputClosed,
}

/// The signal that a process gets whose CPU time is used up.
const SIGXCPU: i32 = if cfg!(any(
    target_os = "linux",
    target_os = "macos",
    target_os = "freebsd"
)) {
    24
} else {
    i32::MAX
};
const SIGKILL: i32 = 9;

/// How shells tell that a command of theirs was ended by a signal.
const SHELL_SIGNAL: i32 = 128;

/// What programs write when they are refused memory, in lower case.
const NO_MEMORY: [&str; 7] = [
    "memoryerror",
    "out of memory",
    "cannot allocate memory",
    "bad_alloc",
    "memory allocation of",
    "outofmemory",
    "enomem",
];

/// What they write whose runtime hears of its CPU time.
const NO_TIME: [&str; 1] = ["sigxcpu"];

/// What they write when they are refused a file.
const NO_FILES: [&str; 2] = ["too many open files", "emfile"];

/// Whether a line tells that some limit was reached.
pub(super) fn tells_of_limit(line: &str) -> bool {
    let line = line.to_lowercase();
    let mut phrases = NO_MEMORY.iter().chain(&NO_FILES).chain(&NO_TIME);
    phrases.any(|phrase| line.contains(phrase))
}

pub(super) fn ending(end: End, words: &Words, limits: ChildLimits) -> Ending {
    let (mut what, exit) = match end {
        End::Exit(exit) => (format!("process {exit}"), Some(exit)),
        End::OutputClosed => ("server closed its standard output".to_owned(), None),
        End::InputClosed => ("server closed its standard input".to_owned(), None),
    };
    let of_limit = words.of_limit.as_deref();
    let judged = exit.map(|exit| judge(exit, of_limit.unwrap_or_default(), limits));
    let mut limit = None;
    let mut last_words = words.last.as_deref();
    match judged {
        Some(Verdict::Reached(key)) => {
            what = format!("{what} at its limit `{}`", shown(key, limits));
            limit = Some(key);
            last_words = of_limit.or(last_words);
        }
        Some(Verdict::Perhaps(key)) => {
            what = format!("{what}, perhaps at its limit `{}`", shown(key, limits));
        }
        Some(Verdict::Other) | None => {}
    }
    let reason = match last_words {
        Some(words) => format!("{what}: {words}"),
        None => what,
    };
    Ending {
        reason,
        exit,
        limit,
    }
}

/// Whether a limit ended a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// The signal or the program's own words say so.
    Reached(&'static str),
    /// It looks so, but other causes look alike: a refused allocation ends a program in its own
    /// way, and the kernel's last means against one that ignores `SIGXCPU` is `SIGKILL`.
    Perhaps(&'static str),
    Other,
}

fn judge(exit: Exit, words: &str, limits: ChildLimits) -> Verdict {
    let words = words.to_lowercase();
    let says = |phrases: &[&str]| phrases.iter().any(|phrase| words.contains(phrase));
    let failed = exit != Exit::Code(0);
    let by_cpu = exit == Exit::Signal(SIGXCPU)
        || exit == Exit::Code(SHELL_SIGNAL + SIGXCPU.min(SHELL_SIGNAL))
        || says(&NO_TIME);
    let has_cpu = limits.cpu_max.is_some();
    let has_memory = limits.memory_max.is_some();
    let killed = [Exit::Signal(SIGKILL), Exit::Code(SHELL_SIGNAL + SIGKILL)].contains(&exit);
    if has_cpu && by_cpu {
        Verdict::Reached("cpu_max")
    } else if has_memory && failed && says(&NO_MEMORY) {
        Verdict::Reached("memory_max")
    } else if limits.open_files_max.is_some() && failed && says(&NO_FILES) {
        Verdict::Reached("open_files_max")
    } else if has_cpu && killed {
        Verdict::Perhaps("cpu_max")
    } else if has_memory && is_crash(exit) {
        Verdict::Perhaps("memory_max")
    } else {
        Verdict::Other
    }
}

/// Ended as by `abort` or a bad address: what programs do that do not expect to be refused memory.
fn is_crash(exit: Exit) -> bool {
    /// `SIGTRAP`, `SIGABRT`, `SIGBUS`, `SIGSEGV`, as numbered on Linux.
    const CRASHES: [i32; 4] = [5, 6, 7, 11];
    match exit {
        Exit::Signal(signal) => CRASHES.contains(&signal),
        Exit::Code(code) => CRASHES.contains(&(code - SHELL_SIGNAL)),
        Exit::Unknown => false,
    }
}

/// A limit as it stands in the configuration.
fn shown(key: &str, limits: ChildLimits) -> String {
    const MIB: u64 = 1 << 20;
    let value = match key {
        "memory_max" => limits.memory_max.map(|bytes| match bytes % MIB {
            0 => format!("{}MiB", bytes / MIB),
            _ => bytes.to_string(),
        }),
        "cpu_max" => limits
            .cpu_max
            .map(|time| humantime::format_duration(time).to_string()),
        _ => limits.open_files_max.map(|count| count.to_string()),
    };
    format!("{key} = {}", value.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_limit_is_named_when_it_is_known_or_likely() {
        use Exit::{Code, Signal, Unknown};
        let all = ChildLimits {
            memory_max: Some(64 << 20),
            cpu_max: Some(Duration::from_secs(600)),
            open_files_max: Some(64),
        };
        let none = ChildLimits::default();
        let (reached, perhaps) = (Verdict::Reached, Verdict::Perhaps);
        let table = [
            (Signal(SIGXCPU), "", reached("cpu_max")),
            (Code(152), "", reached("cpu_max")),
            (Code(2), "SIGXCPU: cpu limit exceeded", reached("cpu_max")),
            (Signal(9), "", perhaps("cpu_max")),
            (Signal(11), "", perhaps("memory_max")),
            (Code(134), "Aborted", perhaps("memory_max")),
            (Code(1), "MemoryError", reached("memory_max")),
            (
                Signal(6),
                "FATAL ERROR: JavaScript heap out of memory",
                reached("memory_max"),
            ),
            (
                Code(1),
                "OSError: [Errno 24] Too many open files: 'x'",
                reached("open_files_max"),
            ),
            (Code(1), "boom", Verdict::Other),
            (Code(0), "MemoryError was handled", Verdict::Other),
            (Signal(15), "", Verdict::Other),
            (Unknown, "", Verdict::Other),
        ];
        for (exit, words, expected) in table {
            assert_eq!(judge(exit, words, all), expected, "{exit:?} {words}");
            assert_eq!(judge(exit, words, none), Verdict::Other, "{exit:?} {words}");
        }
        let words = |last: &str, of_limit: Option<&str>| Words {
            last: Some(last.to_owned()),
            of_limit: of_limit.map(str::to_owned),
            since: 0,
        };
        let told = ending(
            End::Exit(Signal(6)),
            &words("13: 0x1", Some("out of memory")),
            all,
        );
        assert_eq!(
            told.reason,
            "process ended by signal 6 at its limit `memory_max = 64MiB`: out of memory"
        );
        // What was refused earlier and is not why it ended is not told.
        let told = ending(
            End::Exit(Code(0)),
            &words("bye", Some("out of memory")),
            all,
        );
        assert_eq!(told.reason, "process exited with code 0: bye");
        let told = ending(End::Exit(Signal(SIGXCPU)), &words("x", None), all);
        assert_eq!(
            told.reason,
            "process ended by signal 24 at its limit `cpu_max = 10m`: x"
        );
        assert_eq!((told.limit, told.exit), (Some("cpu_max"), Some(Signal(24))));
    }
}
