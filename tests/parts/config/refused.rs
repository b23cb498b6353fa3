//! Refused configurations, and their errors.

use super::refused;

/// text, line, and what the rendered error holds
#[rustfmt::skip]
const REFUSED: &[(&str, usize, &[&str])] = &[
    ("[gateway]\nlisten = 127.0.0.1:1", 2, &["invalid TOML", "= 127", "strings need quotes"]),
    ("[gateway\n", 1, &["invalid TOML"]),
    ("a = 1\na = 2\n", 2, &["invalid TOML", "duplicate"]),
    ("[gateway]\nlisen = 1", 2, &["unknown key `gateway.lisen`", "mean `listen`?"]),
    ("[gateway]\n\nmax_restarts = 1", 3, &["`max_restarts` is a key of [supervision]"]),
    ("[gatway]", 1, &["unknown key `gatway`", "mean `gateway`?"]),
    ("[mcpServers.a]\ncommand = \"x\"", 1, &["mcpvisor calls it `servers`"]),
    ("[servers.a]\ncommand = \"x\"\ntype = \"stdio\"", 3, &["mcpvisor calls it `transport`"]),
    ("[servers.a]\ncommand = \"x\"\nzzzz = 1", 3, &["`servers.a.zzzz`", "known keys are"]),
    ("[servers.a]\ncommand = \"x\"\ntools = { alow = [] }", 3, &["`servers.a.tools.alow`"]),
    ("[servers.a.supervision]\nwithn = \"1s\"\n[servers.a]\ncommand=\"x\"", 2, &["`within`?"]),
    ("gateway = 5", 1, &["`gateway` must be a table"]),
    ("[[servers]]\ncommand = \"x\"", 1, &["`servers` must be a table"]),
    ("servers.a = \"npx\"", 1, &["`servers.a` must be a table"]),
    ("[gateway]\nsse_after = 5", 2, &["`gateway.sse_after` must be a duration", "as `\"5s\"`"]),
    ("[gateway]\nsse_after = \"0s\"", 2, &["from `\"10ms\"` to `\"10m\"`"]),
    ("[gateway]\nsse_after = \"-1s\"", 2, &["must be a duration"]),
    ("[gateway]\nsse_after = \"1 fortnight\"", 2, &["must be a duration"]),
    ("[gateway]\nkeep_alive = \"9999d\"", 2, &["to `\"1h\"`"]),
    ("[limits]\nbody = \"0\"", 2, &["`limits.body` must be a size from `\"1KiB\"` to `\"1GiB\"`"]),
    ("[limits]\nbody = -1", 2, &["must be a size"]),
    ("[limits]\nbody = \"16 MegaByte\"", 2, &["must be a size"]),
    ("[limits]\nbody = 99999999999999999999", 2, &["must be a size"]),
    ("[limits]\nbody = \"512MiB\"", 2, &["`limits.bytes_in_flight` must be at least"]),
    ("version = 2\n[sessions]\nmax = 0\nnew = 1", 1, &["has version 2, but mcpvisor", "reads version 1", "written for"]),
    ("version = 0", 1, &["`version` must be 1"]),
    ("version = \"1\"", 1, &["`version` must be 1"]),
    ("[sessions]\nmax = 0", 2, &["must be a number from 1 to 10000000"]),
    ("[sessions]\nmax = 1.5", 2, &["must be a number"]),
    ("[sessions]\nmax = \"7\"", 2, &["must be a number"]),
    ("[gateway]\nlog = \"jsno\"", 2, &["one of `\"auto\"`, `\"human\"`", "mean `\"json\"`?"]),
    ("[gateway]\nlog = true", 2, &["one of"]),
    ("[gateway]\nendpoint = \"mcp\"", 2, &["`gateway.endpoint` must be a path"]),
    ("[gateway]\nendpoint = \"/health\"", 2, &["must be a path"]),
    ("[gateway]\nendpoint = \"/sse\"", 2, &["must be a path"]),
    ("[gateway]\nendpoint = \"/api/mcp\"", 2, &["must be a path"]),
    ("[gateway]\nlisten = \"nowhere\"", 2, &["must be an address and port"]),
    ("[gateway]\nlisten = \"0.0.0.0:80\"", 2, &["no authentication", "allow_unauthenticated"]),
    ("[gateway]\nallowed_origins = [\"x\"]", 2, &["`gateway.allowed_origins[0]`", "an origin"]),
    ("[gateway]\nallowed_hosts = [\"mcp.example\"]", 2, &["`gateway.allowed_hosts`", "no authentication", "mcpvisor keys add"]),
    ("[auth.keys.ci]", 1, &["`auth.keys.ci.hash` is missing"]),
    ("[auth.keys.ci]\nhash = \"secret\"", 2, &["`auth.keys.ci.hash` must be the hash of a key"]),
    ("[auth.keys]\nci = \"secret\"", 2, &["`auth.keys.ci` must be a table"]),
    ("[auth.keys.\"a b\"]\nhash = \"sha256:00\"", 1, &["must be a name"]),
    ("[gateway]\nallowed_hosts = [\"http://x\"]", 2, &["`gateway.allowed_hosts[0]`"]),
    ("[gateway]\nallowed_hosts = \"x\"", 2, &["must be an array"]),
    ("[gateway]\nallow_unauthenticated = \"yes\"", 2, &["must be `true` or `false`"]),
    ("[gateway]\nrequest_timeout = \"1h\"", 2, &["`gateway.request_timeout_max` must be at least"]),
    ("[gateway]\ndata_dir = \"${NO_DIR}\"", 2, &["`NO_DIR` is not set", "`${NO_DIR:-default}`"]),
    ("[gateway]\ndata_dir = \"${\"", 2, &["without a closing `}`"]),
    ("[gateway]\ndata_dir = \"${cmd:ls}\"", 2, &["an unknown form"]),
    ("[supervision]\njitter = 2.0", 2, &["`supervision.jitter` must be a number from 0 to 1"]),
    ("[supervision]\njitter = nan", 2, &["from 0 to 1"]),
    ("[supervision]\nbackoff_factor = 0.5", 2, &["from 1 to 100"]),
    ("[supervision]\nbackoff_max = \"1ms\"", 2, &["`supervision.backoff_max` must be at least `"]),
    ("[servers.a]", 1, &["neither `command` nor `url`"]),
    ("[servers.a]\ntransport = \"http\"", 1, &["`servers.a.url` is missing"]),
    ("[servers.a]\ntransport = \"stdio\"\nurl = \"http://x\"", 1, &["`servers.a.command` is miss"]),
    ("[servers.a]\ntransport = \"sse\"\ncommand = \"x\"", 1, &["`servers.a.url` is missing"]),
    ("[servers.a]\ntransport = \"ws\"\nurl = \"http://x\"", 2, &["one of `\"stdio\"`"]),
    ("[servers.a]\ncommand = \"x\"\nurl = \"http://x\"", 3, &["cannot be combined with `command`"]),
    ("[servers.a]\nurl = \"http://x\"\nargs = []", 3, &["`servers.a.args` cannot be combined with `url`"]),
    ("[servers.a__b]\ncommand = \"x\"", 1, &["a server name is 1 to 32 characters"]),
    ("[servers.'my server']\ncommand = \"x\"", 1, &["call it `my-server`: `[servers.my-server]`"]),
    ("[servers.a]\ncommand = \"npx -y pkg\"", 2, &["no shell", "`command = \"npx\"` and `args = [\"-y\", \"pkg\"]`"]),
    ("[servers.a]\ncommand = \"x --token=hunter2 --api-key hunter2\"", 2, &["`args = [\"--token=…\", \"--api-key\", \"…\"]`"]),
    ("[servers.a]\ncommand = 'sh -c \"a b\"'", 2, &["`args = [\"-c\", \"a b\"]`"]),
    ("[servers.a]\ncommand = \"~/bin/x\"", 2, &["starts with `~`", "`command = \"${HOME}/bin/x\"`"]),
    ("[servers.a]\ncommand = \"~/bin/x -v\"", 2, &["`command = \"${HOME}/bin/x\"` and `args = [\"-v\"]`"]),
    ("[servers.a]\ncommand = \"x\"\ninherit_env = \"AWS_*\"", 3, &["`true`, `false` or an array"]),
    ("[servers.a]\ncommand = \"x\"\ninherit_env = [\"[\"]", 3, &["`servers.a.inherit_env[0]`", "glob"]),
    ("[servers.a]\ncommand = \"x\"\nenv = { A = \"hunter2\" B = \"hunter2\" }", 3, &["toml:3:23", "{ A = \"*******\" B = \"*******\" }"]),
    ("[servers.a]\ncommand = \"x\"\nargs = [\"-y\" \"package\"]", 3, &["toml:3:14", "[\"-y\" \"package\"]"]),
    ("[servers.a]\ncommand = \"x\"\nargs = [\"--token\" \"hunter2\"]", 3, &["toml:3:19", "[\"--token\" \"*******\"]"]),
    ("[servers.a]\ncommand = \"x\"\n[servers.a.env]\nTOKEN = hunter2", 4, &["toml:4:9", "TOKEN = *******"]),
    ("[servers.a]\ncommand = \"x\"\nenv = { PIN = 4711 }", 3, &["`servers.a.env.PIN` must be a string", "{ PIN = **** }"]),
    ("[servers.a]\nurl = \"http://x\"\noauth = { client_secret = \"hunter2\", scopes = 5 }", 3, &["`servers.a.oauth.scopes`", "\"*******\""]),
    ("[auth.introspection]\nclient_secret = 'hunter2' 5", 2, &["client_secret = '*******' *"]),
    ("[auth]\nintrospection = { client_secret = \"hunter2\", cache_for = 5 }", 2, &["`auth.introspection.cache_for`", "\"*******\""]),
    ("[auth.keys.laptop]\nhash = \"hunter2\"", 2, &["`auth.keys.laptop.hash` must be"]),
    ("[sources.a]\nurl = \"https://a.example\"\nkey = [\"hunter2\"]", 3, &["`sources.a.key`"]),
    ("[sources.a]\nurl = \"https://a.example\"\nkye = \"hunter2\"", 3, &["`sources.a.kye`"]),
    ("[servers.a]\nurl = \"ftp://x\"", 2, &["a URL with `http://`"]),
    ("[servers.a]\nurl = \"x\"", 2, &["must be a URL"]),
    ("[servers.a]\nurl = \"http://x/#y\"", 2, &["without a fragment"]),
    ("[servers.a]\nurl = \"http://u:hunter2@x/\"", 2, &["without credentials", "headers = {"]),
    ("[servers.a]\ncommand = 5", 2, &["`servers.a.command` must be a string in quotes, not integer"]),
    ("[servers.a]\ncommand = \"\"", 2, &["a non-empty string"]),
    ("[servers.a]\ncommand = \"x\"\nargs = [\"--token\", \"hunter2\", 5]", 3, &["`servers.a.args[2]`"]),
    ("[servers.a]\ncommand = \"x\"\nenv = { \"A=B\" = \"hunter2\" }", 3, &["the name of an env"]),
    ("[servers.a]\nurl = \"http://x\"\nheaders = { \"A B\" = \"hunter2\" }", 3, &["HTTP header"]),
    ("[servers.a]\nurl = \"http://x\"\nheaders = { A = \"hunter2\\n\" }", 3, &["header value"]),
    ("[servers.a]\nurl = \"http://x\"\nheaders = { Accept = \"x\" }", 3, &["the gateway sets"]),
    ("[servers.a]\nurl = \"http://x\"\nheaders = { A = \"1\", a = \"2\" }", 3, &["unique"]),
    ("[servers.a]\nurl = \"http://x\"\nheaders = { A = \"hunter2 }", 3, &["invalid TOML"]),
    ("[servers.a]\ncommand = \"x\"\nargs = [\n\"--token=hunter2\n]", 4, &["invalid TOML"]),
    ("[servers.a]\ncommand = \"x\"\nsharing = \"all\"", 3, &["one of `\"auto\"`"]),
    ("[servers.a]\ncommand = \"x\"\nroots = [\"/home\"]", 3, &["`servers.a.roots[0]`", "file://"]),
    ("[servers.a]\ncommand = \"x\"\ntools = { allow = [\"[\"] }", 3, &["a.tools.allow[0]`"]),
    ("[servers.a]\ncommand = \"x\"\ntools = { prefix = \"a b\" }", 3, &["`servers.a.tools.pre"]),
    ("[servers.a]\ncommand = \"x\"\nentries_max = 0", 3, &["from 1 to 1000"]),
    ("[servers.a]\ncommand = \"x\"\nenabled = 1", 3, &["`true` or `false`"]),
];

#[test]
fn every_mistake_is_reported_with_its_place() {
    for (text, line, parts) in REFUSED {
        let error = refused(text);
        let shown = error.to_string();
        assert_eq!(error.problems()[0].line, Some(*line), "{text}\n{shown}");
        assert!(
            shown.contains(&format!("config.toml:{line}:")),
            "{text}\n{shown}"
        );
        assert!(shown.contains('^'), "{text}\n{shown}");
        for part in *parts {
            assert!(shown.contains(part), "{part}\n{text}\n{shown}");
        }
        assert!(!shown.contains("hunter2"), "{shown}");
        assert!(
            error
                .summary()
                .starts_with(&format!("config.toml:{line}: ")),
            "{}",
            error.summary()
        );
        assert!(!error.summary().contains('\n'));
    }
}

#[test]
fn several_mistakes_are_reported_together_in_the_order_of_the_file() {
    let error = refused(
        "[gateway]\nlisen = 1\nsse_after = 5\n[sessions]\nmax = 0\n\
         [servers.a]\nurl = \"x\"\nbad = 1",
    );
    let lines: Vec<_> = error
        .problems()
        .iter()
        .filter_map(|problem| problem.line)
        .collect();
    assert_eq!(lines, [2, 3, 5, 7, 8], "{error}");
    assert!(
        error.summary().ends_with("(and 4 more)"),
        "{}",
        error.summary()
    );
}

#[test]
fn an_error_looks_like_this() {
    let expected = "\
error: unknown key `gateway.lisen`
 --> config.toml:2:1
  |
2 | lisen = \"127.0.0.1:1\"
  | ^^^^^
  |
  = help: did you mean `listen`?";
    assert_eq!(
        refused("[gateway]\nlisen = \"127.0.0.1:1\"").to_string(),
        expected
    );
}
