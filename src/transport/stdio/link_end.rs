//! Explains why a child's link ended, from the child's exit status, last lines and limits.

use std::collections::VecDeque;

use crate::sandbox::{Confinement, refusal};
use crate::telemetry::{Cause, Reason, exit_diagnosis};
use crate::transport::process::{ChildEnd, ProcessExit};
use crate::transport::{ChildLimits, LinkEnd, messages};

/// Why reading ended.
#[derive(Clone, Copy, Debug)]
pub(super) enum ReadStop {
    ChildEnd(ChildEnd),
    OutputClosed,
    InputClosed,
}

/// The signal for a process that used up its CPU time.
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

/// Offset with which shells report that a signal ended their command.
const SHELL_SIGNAL: i32 = 128;

/// Phrases, in lower case, of programs that were refused memory.
const NO_MEMORY: [&str; 7] = [
    "memoryerror",
    "out of memory",
    "cannot allocate memory",
    "bad_alloc",
    "memory allocation of",
    "outofmemory",
    "enomem",
];

/// Phrases of runtimes that ran out of CPU time.
const NO_TIME: [&str; 1] = ["sigxcpu"];

/// Phrases of programs that were refused a file.
const NO_FILES: [&str; 2] = ["too many open files", "emfile"];

/// Maximum lines of a stack trace; a refusal followed by more lines did not end the child.
const TRACE_MAX: usize = 100;

/// Maximum lines that are searched for a reason.
const LINES_MAX: usize = 60;

/// Maximum bytes kept of such a line.
const KEPT_MAX: usize = 1000;

/// Maximum bytes of a reason.
const REASON_MAX: usize = 400;

/// The last lines of a child's stderr, which often explain its end, and the last line that mentions
/// a limit.
#[derive(Debug, Default)]
pub(super) struct TailLines {
    lines: VecDeque<String>,
    limit_line: Option<String>,
    /// Lines since the one that mentions a limit.
    since: usize,
}

impl TailLines {
    pub(super) fn add(&mut self, text: &str) {
        if self.lines.len() == LINES_MAX {
            self.lines.pop_front();
        }
        let kept = beginning(text);
        self.lines.push_back(kept.to_owned());
        if text.trim().is_empty() {
            return;
        }
        if mentions_limit(kept) {
            self.limit_line = Some(messages::excerpt(kept.trim().as_bytes(), REASON_MAX));
            self.since = 0;
        } else if self.since < TRACE_MAX {
            self.since += 1;
        } else {
            self.limit_line = None;
        }
    }

    /// The line that best explains the end of the child.
    fn exit_diagnosis(&self) -> Option<String> {
        let found = exit_diagnosis(self.lines.iter().map(String::as_str))?;
        Some(messages::excerpt(found.as_bytes(), REASON_MAX))
    }
}

/// The beginning of a line, which is kept and searched for reasons.
pub(super) fn beginning(text: &str) -> &str {
    let end = text.floor_char_boundary(KEPT_MAX);
    text.get(..end).unwrap_or_default()
}

/// Whether a line mentions that a limit was reached.
fn mentions_limit(line: &str) -> bool {
    let line = line.to_lowercase();
    let mut phrases = NO_MEMORY.iter().chain(&NO_FILES).chain(&NO_TIME);
    phrases.any(|phrase| line.contains(phrase))
}

pub(super) fn link_end(
    end: ReadStop,
    words: &TailLines,
    limits: ChildLimits,
    confinement: Option<&Confinement>,
) -> LinkEnd {
    let (mut what, ended) = match end {
        ReadStop::ChildEnd(ended) => (format!("process {}", ended.exit), Some(ended)),
        ReadStop::OutputClosed => ("server closed its standard output".to_owned(), None),
        ReadStop::InputClosed => ("server closed its standard input".to_owned(), None),
    };
    let exit = ended.map(|ended| ended.exit);
    let limit_line = words.limit_line.as_deref();
    let judged = ended.map(|ended| judge(ended, limit_line.unwrap_or_default(), limits));
    let mut limit = None;
    let mut said = match exit {
        Some(exit) if is_from_outside(exit) && judged != Some(LimitVerdict::Reached("cpu_max")) => {
            None
        }
        _ => words.exit_diagnosis(),
    };
    match judged {
        Some(LimitVerdict::Reached(key)) => {
            what = format!("{what} at its limit `{}`", shown(key, limits));
            limit = Some(key);
            said = limit_line.map(str::to_owned).or(said);
        }
        Some(LimitVerdict::Perhaps(key)) => {
            what = format!("{what}, perhaps at its limit `{}`", shown(key, limits));
        }
        Some(LimitVerdict::Other) | None => {}
    }
    let lines = words.lines.iter().map(String::as_str);
    let refused = confinement.and_then(|confinement| refusal(lines, confinement));
    // Both contain the program's words.
    let said: Vec<String> = said.into_iter().chain(refused).collect();
    let reason = Reason::quoting(what, &said.join(" / "));
    let reason = reason.because(Cause::Crashed);
    LinkEnd {
        reason,
        exit,
        limit,
    }
}

/// Whether a limit ended a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LimitVerdict {
    /// The signal or the program's own text proves it.
    Reached(&'static str),
    /// The limit is a likely cause, but not the only one: programs react differently to a refused
    /// allocation, and the kernel sends `SIGKILL` to a process that ignores `SIGXCPU`.
    Perhaps(&'static str),
    Other,
}

fn judge(ended: ChildEnd, words: &str, limits: ChildLimits) -> LimitVerdict {
    let exit = ended.exit;
    let words = words.to_lowercase();
    let says = |phrases: &[&str]| phrases.iter().any(|phrase| words.contains(phrase));
    let failed = exit != ProcessExit::Code(0);
    let by_cpu = exit == ProcessExit::Signal(SIGXCPU)
        || exit == ProcessExit::Code(SHELL_SIGNAL + SIGXCPU.min(SHELL_SIGNAL))
        || says(&NO_TIME);
    let has_cpu = limits.cpu_max.is_some();
    let has_memory = limits.memory_max.is_some();
    let killed = [
        ProcessExit::Signal(SIGKILL),
        ProcessExit::Code(SHELL_SIGNAL + SIGKILL),
    ]
    .contains(&exit);
    if ended.out_of_memory && limits.tree.memory.is_some() {
        LimitVerdict::Reached("memory")
    } else if has_cpu && by_cpu {
        LimitVerdict::Reached("cpu_max")
    } else if has_memory && failed && says(&NO_MEMORY) {
        LimitVerdict::Reached("memory_max")
    } else if limits.open_files_max.is_some() && failed && says(&NO_FILES) {
        LimitVerdict::Reached("open_files_max")
    } else if has_cpu && killed {
        LimitVerdict::Perhaps("cpu_max")
    } else if has_memory && is_crash(exit) {
        LimitVerdict::Perhaps("memory_max")
    } else {
        LimitVerdict::Other
    }
}

/// Whether a process crashed as by `abort` or a bad address, like programs that do not handle a
/// refused allocation.
fn is_crash(exit: ProcessExit) -> bool {
    /// `SIGTRAP`, `SIGABRT`, `SIGBUS`, `SIGSEGV`, as numbered on Linux.
    const CRASHES: [i32; 4] = [5, 6, 7, 11];
    match exit {
        ProcessExit::Signal(signal) => CRASHES.contains(&signal),
        ProcessExit::Code(code) => CRASHES.contains(&(code - SHELL_SIGNAL)),
        ProcessExit::Unknown => false,
    }
}

/// Whether a signal from another process ended it, which nothing that the program wrote explains. A
/// program sends itself the signals of `abort` and traps, and explains them first.
fn is_from_outside(exit: ProcessExit) -> bool {
    /// `SIGTRAP` and `SIGABRT`, as numbered on Linux.
    const OWN: [i32; 2] = [5, 6];
    match exit {
        ProcessExit::Signal(signal) => !OWN.contains(&signal),
        ProcessExit::Code(code) => {
            let signal = code - SHELL_SIGNAL;
            (1..=31).contains(&signal) && !OWN.contains(&signal)
        }
        ProcessExit::Unknown => false,
    }
}

/// A limit as written in the configuration.
fn shown(key: &str, limits: ChildLimits) -> String {
    const MIB: u64 = 1 << 20;
    let size = |bytes: u64| match bytes % MIB {
        0 => format!("{}MiB", bytes / MIB),
        _ => bytes.to_string(),
    };
    let value = match key {
        "memory" => limits.tree.memory.map(size),
        "memory_max" => limits.memory_max.map(size),
        "cpu_max" => limits
            .cpu_max
            .map(|time| humantime::format_duration(time).to_string()),
        _ => limits.open_files_max.map(|count| count.to_string()),
    };
    format!("{key} = {}", value.unwrap_or_default())
}

#[cfg(test)]
impl TailLines {
    fn of(lines: &[&str], limit_line: Option<&str>) -> Self {
        Self {
            lines: lines.iter().map(|line| (*line).to_owned()).collect(),
            limit_line: limit_line.map(str::to_owned),
            since: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::transport::TreeLimits;

    #[test]
    fn a_limit_is_named_when_it_is_known_or_likely() {
        use ProcessExit::{Code, Signal, Unknown};
        let all = ChildLimits {
            memory_max: Some(64 << 20),
            cpu_max: Some(Duration::from_secs(600)),
            open_files_max: Some(64),
            tree: TreeLimits::default(),
        };
        let none = ChildLimits::default();
        let (reached, perhaps) = (LimitVerdict::Reached, LimitVerdict::Perhaps);
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
            (Code(1), "boom", LimitVerdict::Other),
            (Code(0), "MemoryError was handled", LimitVerdict::Other),
            (Signal(15), "", LimitVerdict::Other),
            (Unknown, "", LimitVerdict::Other),
        ];
        for (exit, words, expected) in table {
            assert_eq!(judge(exit.into(), words, all), expected, "{exit:?} {words}");
            assert_eq!(
                judge(exit.into(), words, none),
                LimitVerdict::Other,
                "{exit:?} {words}"
            );
        }
        let words = |last: &str, limit_line: Option<&str>| TailLines::of(&[last], limit_line);
        let end = link_end(
            ReadStop::ChildEnd(Signal(6).into()),
            &words("13: 0x1", Some("out of memory")),
            all,
            None,
        );
        assert_eq!(
            format!("{end:#}"),
            "process ended by signal 6 at its limit `memory_max = 64MiB`: out of memory"
        );
        // An earlier refusal that did not end the process is omitted.
        let end = link_end(
            ReadStop::ChildEnd(Code(0).into()),
            &words("bye", Some("out of memory")),
            all,
            None,
        );
        assert_eq!(format!("{end:#}"), "process exited with code 0: bye");
        let end = link_end(
            ReadStop::ChildEnd(Signal(SIGXCPU).into()),
            &words("x", None),
            all,
            None,
        );
        assert_eq!(
            format!("{end:#}"),
            "process ended by signal 24 at its limit `cpu_max = 10m`: x"
        );
        assert_eq!((end.limit, end.exit), (Some("cpu_max"), Some(Signal(24))));
    }

    #[test]
    fn a_tree_that_ran_out_of_memory_names_its_limit() {
        let limited = |memory| ChildLimits {
            tree: TreeLimits {
                memory,
                ..TreeLimits::default()
            },
            ..ChildLimits::default()
        };
        let killed = ChildEnd {
            exit: ProcessExit::Signal(SIGKILL),
            out_of_memory: true,
        };
        let end = |limits| {
            link_end(
                ReadStop::ChildEnd(killed),
                &TailLines::default(),
                limits,
                None,
            )
        };
        assert_eq!(
            format!("{:#}", end(limited(Some(1 << 30)))),
            "process ended by signal 9 at its limit `memory = 1024MiB`"
        );
        assert_eq!(
            format!("{:#}", end(limited(None))),
            "process ended by signal 9"
        );
    }

    #[test]
    fn a_log_line_about_a_limit_of_long_ago_is_forgotten() {
        let mut words = TailLines::default();
        words.add("  out of memory ");
        for line in 0..TRACE_MAX {
            words.add(&format!("at frame {line}"));
            assert_eq!(words.limit_line.as_deref(), Some("out of memory"));
        }
        words.add("");
        assert!(words.limit_line.is_some());
        words.add("all is well");
        assert_eq!(words.limit_line, None);
        assert_eq!(words.exit_diagnosis().as_deref(), Some("all is well"));
    }

    #[test]
    fn words_explain_an_end_that_nobody_else_caused() {
        use ProcessExit::{Code, Signal, Unknown};
        let words = TailLines::of(
            &["TypeError: x", "    at f (a.js:1)", "Node.js v20.20.2"],
            None,
        );
        let table = [
            (Code(1), "process exited with code 1: TypeError: x"),
            (Signal(6), "process ended by signal 6: TypeError: x"),
            (Signal(9), "process ended by signal 9"),
            (Signal(15), "process ended by signal 15"),
            (
                Code(143),
                "process exited with code 143 (ended by signal 15)",
            ),
            (
                Code(134),
                "process exited with code 134 (aborted by itself, signal 6): TypeError: x",
            ),
            (Code(254), "process exited with code 254: TypeError: x"),
            (Unknown, "process ended: TypeError: x"),
        ];
        for (exit, expected) in table {
            let end = link_end(
                ReadStop::ChildEnd(exit.into()),
                &words,
                ChildLimits::default(),
                None,
            );
            assert_eq!(format!("{end:#}"), expected);
        }
        let closed = link_end(ReadStop::OutputClosed, &words, ChildLimits::default(), None);
        assert_eq!(
            format!("{closed:#}"),
            "server closed its standard output: TypeError: x"
        );
    }
}
