//! Whatever a file holds, it is no panic.

use std::path::Path;

use mcpvisor::config::{Config, default_file, describe};
use proptest::prelude::*;

use super::{env, generated};

/// Texts that are near enough to a configuration to reach every reader.
fn nearly_toml() -> impl Strategy<Value = String> {
    let key = prop::sample::select(vec![
        "gateway",
        "servers",
        "limits",
        "supervision",
        "sessions",
        "listen",
        "sse_after",
        "workers",
        "body",
        "jitter",
        "max_restarts",
        "command",
        "args",
        "env",
        "url",
        "headers",
        "transport",
        "tools",
        "allow",
        "prefix",
        "roots",
        "enabled",
        "log",
        "a",
        "ä",
        "\"\"",
        "\"\\n\\u001b[1m\"",
        "\"x y\"",
    ]);
    let value = prop_oneof![
        Just("1".to_owned()),
        Just("-1".to_owned()),
        Just("nan".to_owned()),
        Just("1e400".to_owned()),
        Just("true".to_owned()),
        Just("1979-05-27".to_owned()),
        Just("[]".to_owned()),
        Just("[1, [\"${A}\"], {}]".to_owned()),
        Just("{ a = \"${B\", b = { c = 1 } }".to_owned()),
        any::<i64>().prop_map(|number| number.to_string()),
        any::<f64>().prop_map(|number| format!("{number:?}")),
        any::<String>().prop_map(|text| format!("{text:?}")),
        "[$a-z{}:+\\-A-Z ./0-9\u{e4}]{0,24}".prop_map(|text| format!("\"{text}\"")),
        "\\PC{0,12}",
    ];
    let path = prop::collection::vec(key, 1..4).prop_map(|keys| keys.join("."));
    let line = (path, value, 0..4_u8).prop_map(|(path, value, form)| match form {
        0 => format!("[{path}]"),
        1 => format!("[[{path}]]"),
        _ => format!("{path} = {value}"),
    });
    prop::collection::vec(line, 0..12).prop_map(|lines| lines.join("\n"))
}

proptest! {
    #[test]
    fn no_text_is_a_panic(text in prop_oneof![any::<String>(), nearly_toml()]) {
        let environment = env(&[("A", "x"), ("B", "")]);
        match Config::parse(&text, "config.toml", Path::new("/"), &environment) {
            Ok(loaded) => {
                prop_assert!(!describe(&loaded).is_empty());
                generated::assert_schema_accepts(&text);
            }
            Err(error) => {
                prop_assert!(!error.problems().is_empty());
                prop_assert!(!error.to_string().is_empty() && !error.summary().contains('\n'));
            }
        }
    }

    #[test]
    fn a_damaged_file_is_no_panic(at in 0..default_file().len(), cut in 0..64_usize, with in ".{0,3}") {
        let file = default_file();
        let bytes = file.as_bytes();
        let end = (at + cut).min(bytes.len());
        let damaged = [&bytes[..at], with.as_bytes(), &bytes[end..]].concat();
        let text = String::from_utf8_lossy(&damaged);
        let _ = Config::parse(&text, "config.toml", Path::new("/"), &env(&[]))
            .map_err(|error| error.to_string());
    }
}
