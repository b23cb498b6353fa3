//! Children that reach the limits that were set for them.
#![cfg(target_os = "linux")]

use std::time::Duration;

use mcpvisor::transport::{ChildLimits, Spawner};

use crate::transport::stdio::{open, settings};
use crate::transport::support::{instance, run};

/// A child must get seconds of CPU time, which takes long on a busy machine.
const BUSY: Duration = Duration::from_secs(120);

const BURN: &str = "while True: pass";
const DEAF_BURN: &str =
    "import signal\nsignal.signal(signal.SIGXCPU, signal.SIG_IGN)\nwhile True: pass";
const FILL: &str = "x = bytearray(256 << 20)";
const FILL_AND_TRACE: &str = "import os, sys\ntry: bytearray(256 << 20)\n\
    except MemoryError:\n print('heap out of memory\\nat frame 1', file=sys.stderr, flush=True)\n \
    os.abort()";
const OOM_SCORE: &str = "exit(open('/proc/self/oom_score_adj').read() == '300\\n')";
const OPEN: &str = "x = [open('/dev/null') for _ in range(100)]";

async fn end_of(script: &str, limits: ChildLimits) -> String {
    let spawner = Spawner::start(instance()).unwrap();
    let mut settings = settings("python3", &["-c", script]);
    settings.limits = limits;
    let mut child = open(&spawner, settings).await;
    child.events.end_within(BUSY).await
}

#[test]
fn a_limit_that_was_reached_is_named() {
    let memory = ChildLimits {
        memory_max: Some(128 << 20),
        ..ChildLimits::default()
    };
    let cpu = ChildLimits {
        cpu_max: Some(Duration::from_secs(1)),
        ..ChildLimits::default()
    };
    let files = ChildLimits {
        open_files_max: Some(32),
        ..ChildLimits::default()
    };
    let cases = [
        (
            FILL,
            memory,
            "code 1 at its limit `memory_max = 128MiB`: MemoryError",
        ),
        (
            FILL_AND_TRACE,
            memory,
            "signal 6 at its limit `memory_max = 128MiB`: heap out of memory",
        ),
        (BURN, cpu, "signal 24 at its limit `cpu_max = 1s`"),
        (OPEN, files, "code 1 at its limit `open_files_max = 32`: "),
        // A process without a limit, or within it, is left alone.
        (FILL, files, "process exited with code 0"),
        (OPEN, memory, "process exited with code 0"),
        (FILL, ChildLimits::default(), "process exited with code 0"),
    ];
    run(async {
        for (script, limits, expected) in cases {
            let end = end_of(script, limits).await;
            assert!(end.contains(expected), "{script} {limits:?}: {end}");
        }
    });
}

#[test]
fn the_kernel_ends_servers_before_the_gateway() {
    run(async {
        let end = end_of(OOM_SCORE, ChildLimits::default()).await;
        assert!(end.contains("code 1"), "{end}");
    });
}

#[test]
fn one_that_ignores_the_signal_is_killed_by_the_system() {
    let limits = ChildLimits {
        cpu_max: Some(Duration::from_secs(1)),
        ..ChildLimits::default()
    };
    run(async {
        let end = end_of(DEAF_BURN, limits).await;
        let expected = "signal 9, perhaps at its limit `cpu_max = 1s`";
        assert!(end.contains(expected), "{end}");
    });
}
