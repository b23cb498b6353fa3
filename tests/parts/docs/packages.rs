//! Packages, manifests and containers fit each other: one version, one name for each archive, and
//! configurations that the gateway reads.

use std::path::Path;

use toml_edit::DocumentMut;

use crate::docs::snippets::judge;
use crate::docs::{files_below, read};

const VERSION: &str = env!("CARGO_PKG_VERSION");

#[test]
fn every_image_has_the_version_of_the_program() {
    let mut files = files_below("contrib", &["Dockerfile", ".yaml", ".toml"]);
    files.extend(files_below("docs", &[".md"]));
    let mut found = 0;
    for file in files {
        for part in read(&file).split("mcpvisor:").skip(1) {
            let is_of_version = |letter: &char| letter.is_ascii_digit() || *letter == '.';
            let version: String = part.chars().take_while(is_of_version).collect();
            if version.contains('.') {
                found += 1;
                assert_eq!(version, VERSION, "{file}");
            }
        }
    }
    assert!(found > 3, "{found}");
}

#[test]
fn every_configuration_of_a_container_is_read() {
    let files = files_below("contrib", &[".toml"]);
    assert!(files.len() > 2, "{files:?}");
    for file in files {
        // `judge` reads it with a key; whoever has none says so.
        judge(&read(&file)).unwrap_or_else(|why| panic!("{file}: {why}"));
    }
}

#[test]
fn what_the_dockerfile_copies_is_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let smithery = read("smithery.yaml");
    let dockerfile = "contrib/docker/Dockerfile";
    assert!(
        smithery.contains(&format!("dockerfile: {dockerfile}\n")),
        "{smithery}"
    );
    let text = read(dockerfile);
    let copied = text.lines().filter_map(|line| line.strip_prefix("COPY "));
    let copied = copied.filter(|rest| !rest.starts_with("--from"));
    let sources: Vec<&str> = copied.filter_map(|rest| rest.split(' ').next()).collect();
    assert!(sources.len() > 1, "{sources:?}");
    for source in sources {
        assert!(root.join(source).exists(), "{source}");
    }
}

/// The archives that `contrib/package.sh` makes are those that cargo-binstall looks for.
#[test]
fn archives_are_named_as_binstall_wants_them() {
    let manifest: DocumentMut = read("Cargo.toml").parse().unwrap();
    let binstall = &manifest["package"]["metadata"]["binstall"];
    let filled = |item: &toml_edit::Item, target: &str| {
        let text = item.as_str().unwrap().replace("{ name }", "mcpvisor");
        let text = text
            .replace("{ version }", VERSION)
            .replace("{ target }", target);
        text.replace("{ bin }{ binary-ext }", "mcpvisor")
    };
    let script = read("contrib/package.sh");
    assert!(
        script.contains("local name=mcpvisor-$version-$1 directory"),
        "{script}"
    );
    assert!(script.contains("\"$directory/$name/mcpvisor\""), "{script}");
    assert!(
        script.contains("archive \"$target\" \"$binary\""),
        "{script}"
    );
    assert!(
        script.contains("archive \"${target%-gnu}-static\" \"$static\""),
        "{script}"
    );
    let target = "x86_64-unknown-linux-gnu";
    let url = filled(&binstall["pkg-url"], target);
    assert!(
        url.ends_with(&format!("/v{VERSION}/mcpvisor-{VERSION}-{target}.tar.gz")),
        "{url}"
    );
    let inside = filled(&binstall["bin-dir"], target);
    assert_eq!(inside, format!("mcpvisor-{VERSION}-{target}/mcpvisor"));
    for processor in ["x86_64", "aarch64"] {
        let own = &binstall["overrides"][format!("{processor}-unknown-linux-musl").as_str()];
        let name = format!("mcpvisor-{VERSION}-{processor}-unknown-linux-static");
        let url = filled(&own["pkg-url"], "");
        assert!(
            url.ends_with(&format!("/v{VERSION}/{name}.tar.gz")),
            "{url}"
        );
        assert_eq!(filled(&own["bin-dir"], ""), format!("{name}/mcpvisor"));
    }
}
