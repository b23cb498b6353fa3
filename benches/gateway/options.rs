//! The command line.

use std::path::PathBuf;

use crate::instructions::Reference;
use crate::targets::PROGRAM;

pub(crate) const USAGE: &str = "\
usage: cargo bench [-- [--smoke] [--before=PATH] [NAME...]]
       cargo bench -- --instructions[=write] [--program=PATH] [--before=PATH]
  NAME           only the scenarios whose name contains one of these
  --smoke        for a moment
  --before=PATH  another build of mcpvisor, measured in the same rounds
  --instructions counts instructions under callgrind, and fails if benches/instructions.json, or the
                 build before, has 3 % less; `=write` replaces that file
  --program=PATH the build of mcpvisor to count, instead of the one made for this benchmark
  --list         the names of all scenarios";

#[derive(Debug, PartialEq)]
pub(crate) enum Wanted {
    /// Tests the harness itself.
    Check,
    Instructions {
        reference: Reference,
        program: PathBuf,
    },
    List,
    Measures {
        smoke: bool,
        before: Option<PathBuf>,
        names: Vec<String>,
    },
    Usage,
}

/// Selects the `known` scenarios that these words name. An error lists the possible words.
pub(crate) fn parse(words: &[&str], known: &[&str]) -> Result<Wanted, String> {
    if words.contains(&"--list") {
        return Ok(Wanted::List);
    }
    // Cargo passes `--bench` when a benchmark should run. Otherwise the words are test filters and
    // do not apply.
    if !words.contains(&"--bench") || words.contains(&"--test") {
        return Ok(Wanted::Check);
    }
    let (mut smoke, mut before, mut names) = (false, None, Vec::new());
    let mut reference = None;
    let mut program = PathBuf::from(PROGRAM);
    for word in words {
        match *word {
            "--bench" => {}
            "--smoke" => smoke = true,
            "--instructions" => reference = Some(Reference::Baseline),
            "--instructions=write" => reference = Some(Reference::Replace),
            "--help" | "-h" => return Ok(Wanted::Usage),
            option if option.starts_with("--before=") => {
                before = option.strip_prefix("--before=").map(PathBuf::from);
            }
            option if option.starts_with("--program=") => {
                program = option.strip_prefix("--program=").unwrap_or(PROGRAM).into();
            }
            option if option.starts_with('-') => {
                return Err(format!("unknown option {option}\n{USAGE}"));
            }
            name if known.iter().any(|known| known.contains(name)) => names.push(name.to_owned()),
            name => {
                let known = known.join(", ");
                return Err(format!("no scenario is called {name}; there are {known}"));
            }
        }
    }
    Ok(match (reference, before) {
        (Some(Reference::Baseline), Some(before)) => Wanted::Instructions {
            reference: Reference::Build(before),
            program,
        },
        (Some(reference), _) => Wanted::Instructions { reference, program },
        (None, before) => Wanted::Measures {
            smoke,
            before,
            names,
        },
    })
}
