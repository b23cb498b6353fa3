//! `mcpvisor completions` and `mcpvisor man`.

use crate::support::Setup;

#[test]
fn bash_completes_commands_options_and_their_values() {
    let setup = Setup::new("");
    let script = r#"
        source <("$0" completions bash) || exit 1
        complete -p mcpvisor
        try() {
            COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=()
            _mcpvisor mcpvisor "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
            echo "$*: ${COMPREPLY[*]}"
        }
        try mcpvisor doc
        try mcpvisor tools ca
        try mcpvisor servers add --reg
        try mcpvisor completions fi
    "#;
    let mut bash = setup.command_of("bash", &["-c", script, Setup::BINARY]);
    let output = bash.output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}");
    for line in [
        "mcpvisor doc: doctor",
        "mcpvisor tools ca: call",
        "mcpvisor servers add --reg: --registry",
        "mcpvisor completions fi: fish",
    ] {
        assert!(text.lines().any(|it| it == line), "{line} in {text}");
    }
    let first = text.lines().next().unwrap();
    assert!(
        first.contains("-F _mcpvisor") && first.ends_with(" mcpvisor"),
        "{first}"
    );
}

#[test]
fn other_shells_have_their_own_script() {
    let setup = Setup::new("");
    for (shell, start) in [
        ("zsh", "#compdef mcpvisor"),
        ("fish", "complete -c mcpvisor"),
    ] {
        let (succeeded, script) = setup.run(&["completions", shell]);
        assert!(succeeded && script.contains(start), "{script}");
        assert!(script.contains("support-bundle"), "{script}");
    }
    assert!(!setup.run(&["completions", "tcsh"]).0);
}

#[test]
fn each_command_has_a_man_page() {
    let setup = Setup::new("");
    let (succeeded, printed) = setup.run(&["man", "made/man1"]);
    assert!(succeeded, "{printed}");
    for (page, word) in [
        ("mcpvisor.1", "MCPVISOR_LISTEN"),
        ("mcpvisor-doctor.1", "\\-\\-json"),
        ("mcpvisor-tools-call.1", "KEY=VALUE"),
    ] {
        let text = std::fs::read_to_string(setup.path("made/man1").join(page)).unwrap();
        assert!(
            text.contains(".SH NAME") && text.contains(word),
            "{page}: {text}"
        );
    }
    let (succeeded, printed) = setup.run(&["man", "/proc/no"]);
    assert!(!succeeded && printed.contains("/proc/no"), "{printed}");
}
