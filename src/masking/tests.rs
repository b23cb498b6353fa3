use ::url::Url;
use proptest::prelude::*;

use super::*;

const TOKEN: &str = "ghp_0123456789abcdefghij";

#[test]
fn a_command_line_without_secrets_is_unchanged() {
    let cases: [(&[&str], &[&str]); 5] = [
        (&["mcp-server-git"], &["mcp-server-git"]),
        (
            &[
                "-y",
                "@modelcontextprotocol/server-filesystem@2025.8.21",
                "/home/me/src",
            ],
            &[
                "-y",
                "@modelcontextprotocol/server-filesystem@2025.8.21",
                "/home/me/src",
            ],
        ),
        (
            &[
                "run",
                "-i",
                "--rm",
                "-e",
                "API_TOKEN",
                "ghcr.io/github/github-mcp-server",
            ],
            &[
                "run",
                "-i",
                "--rm",
                "-e",
                "API_TOKEN",
                "ghcr.io/github/github-mcp-server",
            ],
        ),
        (
            &["-m", "http.server", "--port=8080"],
            &["-m", "http.server", "--port=8080"],
        ),
        (
            &["-c", "No such words, in python3 or sha256"],
            &["-c", "No such words, in python3 or sha256"],
        ),
    ];
    for (arguments, expected) in cases {
        assert_eq!(shown_arguments(arguments.iter().copied(), MASK), expected);
    }
}

#[test]
fn the_secrets_of_a_command_line_are_hidden() {
    let cases: [(&[&str], &[&str]); 23] = [
        (&["--token", "hunter22"], &["--token", "***"]),
        (&["--token", "/hunter22"], &["--token", "***"]),
        (
            &["--api-key", "-Hunter22", "--read-only"],
            &["--api-key", "***", "--read-only"],
        ),
        (
            &["--api-key", "--read-only", "word"],
            &["--api-key", "--read-only", "word"],
        ),
        (&["--x-token=hunter22"], &["--x-token=***"]),
        (&["--token=a b c"], &["--token=***"]),
        (
            &["-c", "API_KEY=word exec mcp-server --token word /srv"],
            &["-c", "API_KEY=*** exec mcp-server --token *** /srv"],
        ),
        (&["--no-auth", "mcp-server"], &["--no-auth", "mcp-server"]),
        (
            &["--disable-token-check", "x"],
            &["--disable-token-check", "x"],
        ),
        (
            &["--password-stdin", "mcp-server"],
            &["--password-stdin", "mcp-server"],
        ),
        (&["-e", "API_TOKEN=word"], &["-e", "API_TOKEN=***"]),
        (&["--env=API_TOKEN=word"], &["--env=API_TOKEN=***"]),
        (&["-e", "LOG_LEVEL=debug"], &["-e", "LOG_LEVEL=debug"]),
        (
            &["--header", "Authorization: Bearer x"],
            &["--header", "Authorization: ***"],
        ),
        (
            &["--header", "Accept: text/html"],
            &["--header", "Accept: text/html"],
        ),
        (
            &["--token-file", "/run/token", "--auth-mode=oauth"],
            &["--token-file", "/run/token", "--auth-mode=oauth"],
        ),
        (&["--token", "${TOKEN}"], &["--token", "${TOKEN}"]),
        (
            &["postgres://me:word@db.example/x?ssl=on"],
            &["postgres://***@db.example/x?ssl=***"],
        ),
        (
            &[
                "git+https://git@example.com/a/b@3f2a9c1d3f2a9c1d3f2a9c1d3f2a9c1d3f2a9c1d#subdirectory=src",
            ],
            &[
                "git+https://git@example.com/a/b@3f2a9c1d3f2a9c1d3f2a9c1d3f2a9c1d3f2a9c1d#subdirectory=src",
            ],
        ),
        (
            &["mcp-remote", "https://a.example/mcp?apiKey=word"],
            &["mcp-remote", "https://a.example/mcp?apiKey=***"],
        ),
        (&[TOKEN, "x"], &["***", "x"]),
        (&["/x/0123456789abcdefghij+0/y"], &["/x/***/y"]),
        (
            &["--config", r#"{"apiKey":"word","root":"/srv"}"#],
            &["--config", r#"{"apiKey":"***","root":"/srv"}"#],
        ),
    ];
    for (arguments, expected) in cases {
        assert_eq!(shown_arguments(arguments.iter().copied(), MASK), expected);
    }
}

#[test]
fn a_url_shows_all_but_its_secrets() {
    let cases = [
        ("https://a.example/mcp", "https://a.example/mcp"),
        (
            "https://a.example:8443/v1/my-server_2/mcp/",
            "https://a.example:8443/v1/my-server_2/mcp/",
        ),
        ("https://me:word@a.example/mcp", "https://***@a.example/mcp"),
        (
            "https://0123456789abcdef@a.example/",
            "https://***@a.example/",
        ),
        (
            "https://a.example/mcp?key=word&region=eu",
            "https://a.example/mcp?key=***&region=***",
        ),
        ("https://a.example/mcp?word", "https://a.example/mcp?***"),
        (
            "https://a.example/mcp?key=${KEY}",
            "https://a.example/mcp?key=${KEY}",
        ),
        ("https://${HOST}/${PATH}/mcp", "https://${HOST}/${PATH}/mcp"),
        (
            "https://a.example/s/NTQyMWE3ZjktOGM/mcp",
            "https://a.example/s/***/mcp",
        ),
        ("no URL", "no URL"),
    ];
    for (url, expected) in cases {
        assert_eq!(shown_url(url, MASK), expected);
    }
}

#[test]
fn only_what_can_be_a_secret_is_looked_for() {
    let cases: [(&str, &str, &[&str]); 14] = [
        ("TOKEN", "canary-env", &["canary-env"]),
        (
            "Authorization",
            "Bearer canary-1",
            &["Bearer canary-1", "canary-1"],
        ),
        ("TOKEN", "${TOKEN}", &[]),
        ("TOKEN_FILE", "/run/secrets/token", &[]),
        ("LOG_LEVEL", "debugging", &[]),
        ("HOME", "/home/someone", &[]),
        ("TZ", "Europe/Berlin", &[]),
        ("MODEL", "gpt-4o-mini", &[]),
        ("Accept", "application/json", &[]),
        ("GREETING", "hello to the world", &[]),
        ("ENDPOINT", "https://a.example/v1", &[]),
        ("WHAT", "s3cretvalue99x1", &["s3cretvalue99x1"]),
        (
            "URL",
            "postgres://me:long-word@db",
            &["me:long-word", "long-word"],
        ),
        (
            "PEM_KEY",
            "one line\nother line",
            &["one line\nother line", "one line", "other line"],
        ),
    ];
    for (name, value, expected) in cases {
        let mut found = secrets_named(name, value);
        found.dedup();
        found.retain(|text| text.len() >= 8);
        for text in expected {
            assert!(
                found.iter().any(|it| it == text),
                "{name}={value}: {found:?}"
            );
        }
        assert!(
            found.len() <= expected.len() + 1,
            "{name}={value}: {found:?}"
        );
        assert_eq!(
            found.is_empty(),
            expected.is_empty(),
            "{name}={value}: {found:?}"
        );
    }
    for (name, value, is_secret) in [
        ("X-Own", "canary-header", true),
        ("X-Own", "canary", false),
        ("X-Region", "eu-central-1", false),
        ("Accept-Language", "en-US", false),
        ("Accept", "application/json", false),
    ] {
        let found = secrets_in_header(name, value);
        assert_eq!(!found.is_empty(), is_secret, "{name}: {value}");
    }
    let url =
        Url::parse("https://u:p%40ssword1@a.example/s/NTQyMWE3ZjktOGM?key=query-word").unwrap();
    let found = secrets_in_url(&url);
    for text in ["p@ssword1", "NTQyMWE3ZjktOGM", "query-word"] {
        assert!(found.iter().any(|it| it == text), "{text}: {found:?}");
    }
    let live = LiveSecrets::of(["short", "production", "PASSWORD", "long-enough"]);
    assert_eq!(
        live.masked("short production PASSWORD long-enough"),
        "short production PASSWORD ***"
    );
}

#[test]
fn the_words_of_a_server_lose_secrets_and_nothing_else() {
    let live = LiveSecrets::of(["abcd-1234-efgh"]);
    let cases = [
        ("token abcd-1234-efgh refused", "token *** refused"),
        ("cut abcd-12…", "cut ***…"),
        ("ends with abcd-12", "ends with abcd-12"),
        (
            "Traceback: No module named foo",
            "Traceback: No module named foo",
        ),
        (
            "KeyError: 'token' in /srv/app.py",
            "KeyError: 'token' in /srv/app.py",
        ),
        ("sent Bearer 0123456789", "sent Bearer ***"),
        ("with sk-proj-0123456789abcdef.", "with ***."),
        ("cursor eyJvZmZzZXQiOjEwfQ", "cursor eyJvZmZzZXQiOjEwfQ"),
        ("cut sk-SK", "cut sk-SK"),
        ("", ""),
    ];
    for (text, expected) in cases {
        assert_eq!(live.masked(text), expected);
    }
    let mut value = serde_json::json!({"abcd-1234-efgh": ["abcd-1234-efgh", 1], "plain": null});
    live.mask_json(&mut value);
    assert_eq!(value, serde_json::json!({"***": ["***", 1], "plain": null}));
    assert_eq!(format!("{live:?}"), "LiveSecrets(1)");
}

#[test]
fn the_oldest_of_one_origin_make_room_and_those_of_another_stay() {
    let live = LiveSecrets::of(["of-the-configuration"]);
    live.add(SecretOrigin::Server, "of-a-server");
    for number in 0..1100 {
        live.note(&format!("of-client-{number:04}"));
        live.note("of-one-that-comes-again");
    }
    let is_known = |text: &str| live.replaced(text, MASK).is_some();
    for text in [
        "of-the-configuration",
        "of-a-server",
        "of-client-1099",
        "of-client-0100",
    ] {
        assert!(is_known(text), "{text}");
    }
    assert!(!is_known("of-client-0000"));
    // A secret is found regardless of its origin.
    live.add(SecretOrigin::Client, "of-a-server");
    assert_eq!(format!("{live:?}"), "LiveSecrets(1026)");
}

fn spelled(secret: &str, before: &str, after: &str) -> Vec<String> {
    use base64::Engine as _;
    use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
    let joined = format!("{before}{secret}{after}");
    let percent: String = secret.bytes().map(|byte| format!("%{byte:02x}")).collect();
    let form: String = ::url::form_urlencoded::byte_serialize(secret.as_bytes()).collect();
    vec![
        joined.clone(),
        STANDARD.encode(&joined),
        URL_SAFE_NO_PAD.encode(&joined),
        format!("{before}{percent}{after}"),
        format!("{before} {form}&{after}"),
        serde_json::Value::from(joined.as_str()).to_string(),
    ]
}

/// Whether the rest reveals the secret, verbatim or decoded.
fn tells(text: &str, secret: &str) -> bool {
    use base64::Engine as _;
    use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
    let decoded = [
        STANDARD.decode(text).unwrap_or_default(),
        URL_SAFE_NO_PAD.decode(text).unwrap_or_default(),
        percent_encoding::percent_decode_str(&text.replace('+', " ")).collect(),
    ];
    let json = serde_json::from_str::<String>(text).unwrap_or_default();
    let has = |bytes: &[u8]| {
        bytes
            .windows(secret.len())
            .any(|it| it == secret.as_bytes())
    };
    has(text.as_bytes()) || has(json.as_bytes()) || decoded.iter().any(|bytes| has(bytes))
}

proptest! {
    #[test]
    fn no_live_secret_is_left_in_any_spelling(
        secrets in proptest::collection::vec("[a-zA-Z0-9é\"\\\\/+=&% -]{8,60}", 1..6),
        before in "[a-z0-9 ]{0,9}",
        after in "[a-z0-9 ]{0,9}",
    ) {
        let live = LiveSecrets::of(&secrets);
        for secret in &secrets {
            let secret = secret.trim();
            if secret.len() < 8 { continue; }
            for text in spelled(secret, &before, &after) {
                let masked = live.masked(&text);
                prop_assert!(!tells(&masked, secret), "{secret}: {text} -> {masked}");
            }
        }
    }

    #[test]
    fn no_secret_is_left_where_a_text_was_cut(
        secret in "[a-zé\"\\\\]{8,40}",
        before in "[0-9 ]{0,20}",
        cut in 0..60_usize,
    ) {
        let live = LiveSecrets::of([&secret]);
        let text: String = format!("{before}{secret}").chars().take(cut).collect();
        let masked = live.replaced_in_cut(&text, MASK).unwrap_or(text);
        let beginning: String = secret.chars().take(6).collect();
        prop_assert!(!masked.contains(&beginning), "{masked}");
    }

    #[test]
    fn a_text_without_secrets_is_unchanged(text in "[ -~é]{0,200}") {
        let live = LiveSecrets::of(["0123456789-abcdef", "correct horse battery"]);
        prop_assert_eq!(live.replaced(&text, MASK), None);
    }
}
