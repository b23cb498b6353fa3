//! docs/images/status.svg shows what `mcpvisor status` prints in a terminal.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use mcpvisor::admin::{Screen, tree};
use mcpvisor::telemetry::Paint;
use rustix::process::Signal;

use crate::support::{Gateway, Setup, example, quick, signal, until};

const PICTURE: &str = "docs/images/status.svg";
/// Of a character and of a line, in pixels.
const CELL: f64 = 7.8;
const LINE: f64 = 19.0;

/// One server in each of the states that people meet.
fn config() -> String {
    let servers = [
        example("files"),
        memory(),
        example("search") + "start = \"lazy\"\n",
        "[servers.database]\ncommand = \"sh\"\nargs = [\"-c\", \"read line; exit 1\"]\n".to_owned(),
        "[servers.mail]\ncommand = \"true\"\nenv = { TOKEN = \"${MAIL_TOKEN}\" }\n".to_owned(),
    ];
    let patience = quick().replace("reconnect_every = \"300ms\"", "reconnect_every = \"1h\"");
    format!(
        "{patience}max_restarts = 1\n[resources]\nwrap = \"always\"\n{}",
        servers.concat()
    )
}

/// A server that has a few tools and nothing else, so that its line has room for its last exit.
fn memory() -> String {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/support/mortal.py");
    format!(
        "[servers.memory]\ncommand = \"python3\"\nargs = [\"{script}\", \".\"]\n\
         env = {{ IT_MARK = \"${{IT_MARK}}\", IT_SERVER = \"memory\" }}\n"
    )
}

async fn shown() -> String {
    let gateway = Setup::new(&config()).serve().await;
    let memory = gateway.wait_state("memory", "up").await;
    let generation = memory["connection"]["shared"]["generation"].as_u64();
    signal(gateway.server_pid("memory"), Signal::KILL);
    gateway.wait_renewed("memory", generation.unwrap()).await;
    for (server, state) in [("files", "up"), ("search", "idle"), ("database", "broken")] {
        gateway.wait_state(server, state).await;
    }
    for (server, tools) in [("files", 11), ("search", 11), ("memory", 2)] {
        until("all lists", || async {
            (gateway.server(server).await["items"]["tools"] == tools).then_some(())
        })
        .await;
    }
    gateway.wait_compared().await;
    text_of(&gateway).await
}

async fn text_of(gateway: &Gateway) -> String {
    let mut status = gateway.typed_status().await;
    status.config.path = Some("/home/me/.config/mcpvisor/config.toml".to_owned());
    status.listen = "127.0.0.1:12006".to_owned();
    // A kernel that keeps all promises of the default sandbox, which `status` does not mention then.
    for server in &mut status.servers {
        server.sandbox = None;
    }
    let screen = Screen {
        columns: None,
        rows: None,
        paint: Paint::new(true, |_| None),
    };
    tree(&status, &screen, false)
}

/// The parts of a line, each with the code of its colour: `32`, or nothing.
fn parts(line: &str) -> Vec<(&str, &str)> {
    let mut pieces = line.split("\x1b[");
    let mut parts = vec![("", pieces.next().unwrap_or_default())];
    parts.extend(pieces.filter_map(|piece| piece.split_once('m')));
    parts.retain(|(_, text)| !text.is_empty());
    parts
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

fn svg(text: &str) -> String {
    let count = text.lines().count();
    let widths = text.lines().map(|line| {
        let parts = parts(line).into_iter();
        parts.map(|(_, text)| text.chars().count()).sum::<usize>()
    });
    let columns = widths.max().unwrap_or_default();
    let (width, height) = (columns as f64 * CELL + 32.0, count as f64 * LINE + 74.0);
    let mut svg = format!(
        r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img" aria-label="mcpvisor status in a terminal">
<style>text {{ font: 13px ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; fill: #d6deeb; white-space: pre }}
.c2 {{ fill: #8190a5 }} .c31 {{ fill: #ff7b72 }} .c32 {{ fill: #7ee787 }} .c33 {{ fill: #f2cc60 }} .c36 {{ fill: #79c0ff }} .c1 {{ font-weight: bold }}</style>
<rect width="{width}" height="{height}" rx="10" fill="#0d1726" stroke="#44546a"/>
<circle cx="22" cy="20" r="6" fill="#ff5f57"/><circle cx="42" cy="20" r="6" fill="#febc2e"/><circle cx="62" cy="20" r="6" fill="#28c840"/>
"##
    );
    let prompt = ("$ mcpvisor status", 54.0);
    writeln!(svg, r#"<text x="16" y="{}">{}</text>"#, prompt.1, prompt.0).unwrap();
    for (number, line) in text.lines().enumerate() {
        let y = prompt.1 + (number + 1) as f64 * LINE;
        write!(svg, r#"<text y="{y}">"#).unwrap();
        let mut column = 0;
        for (code, part) in parts(line) {
            let class = if matches!(code, "" | "0") {
                String::new()
            } else {
                format!(r#" class="c{code}""#)
            };
            let letters = part.chars().count();
            let (x, length) = (16.0 + column as f64 * CELL, letters as f64 * CELL);
            let part = escaped(part);
            write!(svg, r#"<tspan x="{x:.1}" textLength="{length:.1}" xml:space="preserve"{class}>{part}</tspan>"#).unwrap();
            column += letters;
        }
        svg.push_str("</text>\n");
    }
    svg + "</svg>\n"
}

/// The text in a picture, without what differs from run to run: numbers, times and widths.
fn masked(svg: &str) -> Vec<String> {
    let lines = svg.lines().filter(|line| line.starts_with("<text"));
    let texts = lines.map(|line| {
        let text: String = line
            .split('<')
            .filter_map(|tag| Some(tag.split_once('>')?.1))
            .collect();
        let mut masked = String::new();
        for letter in text.replace("&lt;", "").chars() {
            let letter = if letter.is_ascii_digit() { '0' } else { letter };
            let repeats = masked.ends_with(letter) && (letter == '0' || letter == ' ');
            if !repeats {
                masked.push(letter);
            }
        }
        masked
            .replace("0m 0s", "0s")
            .replace("0h 0m", "0s")
            .replace("0.0s", "0s")
    });
    texts.collect()
}

#[tokio::test]
async fn the_picture_of_the_readme_is_what_status_prints() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(PICTURE);
    let svg = svg(&shown().await);
    if std::env::var_os("PICTURE").is_some_and(|value| value == "write") {
        fs::write(&file, &svg).unwrap();
    }
    let kept = fs::read_to_string(&file).unwrap();
    assert_eq!(
        masked(&kept),
        masked(&svg),
        "`PICTURE=write cargo test --test it picture` draws {PICTURE} anew"
    );
    assert!(masked(&kept).len() > 7, "{kept}");
}
