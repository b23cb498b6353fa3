//! Faults of the disk, the clock and programs, which a library preloaded into the gateway injects.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use tempfile::TempDir;

use super::Setup;

const SOURCE: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/tests/it/support/broken_machine.c"
);

/// The faults of one machine. Each lasts from its beginning to its end.
pub(crate) struct BrokenMachine {
    directory: TempDir,
}

impl BrokenMachine {
    /// A machine without a fault so far; `None` without a C compiler, except in CI, where that is a
    /// failure.
    pub(crate) fn new() -> Option<Self> {
        let is_built = library().is_some();
        if !is_built {
            let reason = "this test needs a C compiler, as `cc`";
            assert!(std::env::var_os("CI").is_none(), "{reason}");
            eprintln!("\nNOT TESTED: {reason}\n");
        }
        let directory = tempfile::tempdir().unwrap();
        is_built.then_some(Self { directory })
    }

    /// Runs a gateway on this machine.
    pub(crate) fn run(&self, setup: Setup) -> Setup {
        let library = library().unwrap().to_str().unwrap();
        let setup = setup.variable("LD_PRELOAD", library);
        setup.variable("BROKEN_MACHINE", self.directory.path().to_str().unwrap())
    }

    pub(crate) fn begin(&self, fault: &str, detail: &str) {
        // Read whole or not at all.
        let unfinished = self.directory.path().join("unfinished");
        fs::write(&unfinished, detail).unwrap();
        fs::rename(unfinished, self.directory.path().join(fault)).unwrap();
    }

    pub(crate) fn end(&self, fault: &str) {
        fs::remove_file(self.directory.path().join(fault)).unwrap();
    }
}

/// The library, which is compiled once for each test program.
fn library() -> Option<&'static Path> {
    static LIBRARY: OnceLock<Option<PathBuf>> = OnceLock::new();
    let compile = || {
        let name = format!("broken-machine-{}.so", std::process::id());
        let library = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let mut compiler = Command::new("cc");
        compiler.args(["-shared", "-fPIC", "-O1", "-w", "-o"]);
        let compiled = compiler.arg(&library).args([SOURCE, "-ldl"]).status();
        compiled.is_ok_and(|it| it.success()).then_some(library)
    };
    LIBRARY.get_or_init(compile).as_deref()
}
