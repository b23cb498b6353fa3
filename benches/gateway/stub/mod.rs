//! The stub server behind the gateway. It does as little as an MCP server can, so that the gateway
//! dominates the measurement.

pub(crate) mod http;
pub(crate) mod stdio;

use std::io::Write as _;

use crate::client::{Era, SESSIONLESS};
use crate::scan;

/// Tools with a function, in the order of the list; all others only fill the list.
const TOOLS: [&str; 5] = ["echo", "big", "progress", "sleep", "never"];

/// A member that only sessionless requests have.
const CLAIM: &[u8] = b"\"io.modelcontextprotocol/protocolVersion\"";

/// Largest answer of `big`, in bytes.
const BIG_MAX: usize = 64 * 1024 * 1024;

/// The stub, with its serialized list of tools.
pub(crate) struct Stub {
    era: Era,
    list: Vec<u8>,
}

/// The kinds of requests.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum StubRequest<'a> {
    /// Not a request, so there is nothing to answer.
    Nothing,
    Initialize {
        revision: &'a [u8],
    },
    Discover,
    Ping,
    List,
    Echo {
        message: &'a [u8],
    },
    Big {
        bytes: usize,
    },
    Progress {
        steps: usize,
        token: &'a [u8],
    },
    Sleep {
        ms: usize,
    },
    Never,
    Unknown,
}

/// The raw id of a message, and the request that it makes of a server of this era.
fn read(message: &[u8], era: Era) -> (&[u8], StubRequest<'_>) {
    let (Some(id), Some(method)) = (scan::value(message, "id"), scan::value(message, "method"))
    else {
        return (b"null", StubRequest::Nothing);
    };
    if era == Era::Sessionless && !scan::contains(message, CLAIM) {
        return (id, StubRequest::Unknown);
    }
    let request = match method {
        b"\"tools/call\"" if era == Era::Handshake && scan::contains(message, CLAIM) => {
            StubRequest::Unknown
        }
        b"\"tools/call\"" => call(message),
        b"\"tools/list\"" => StubRequest::List,
        b"\"ping\"" => StubRequest::Ping,
        b"\"server/discover\"" if era == Era::Sessionless => StubRequest::Discover,
        b"\"initialize\"" if era == Era::Handshake => {
            let revision = scan::value(message, "protocolVersion");
            StubRequest::Initialize {
                revision: revision.unwrap_or(b"\"2025-11-25\""),
            }
        }
        _ => StubRequest::Unknown,
    };
    (id, request)
}

fn call(message: &[u8]) -> StubRequest<'_> {
    let size = |key| {
        scan::value(message, key)
            .and_then(scan::number)
            .unwrap_or(0)
    };
    match tool(message) {
        Some(b"\"echo\"") => StubRequest::Echo {
            message: scan::value(message, "message").unwrap_or(b"\"\""),
        },
        Some(b"\"big\"") => StubRequest::Big {
            bytes: size("bytes").min(BIG_MAX),
        },
        Some(b"\"progress\"") => {
            let token = scan::value(message, "progressToken").unwrap_or(b"null");
            StubRequest::Progress {
                steps: size("steps").min(1000),
                token,
            }
        }
        Some(b"\"sleep\"") => StubRequest::Sleep { ms: size("ms") },
        Some(b"\"never\"") => StubRequest::Never,
        _ => StubRequest::Unknown,
    }
}

/// Name of the tool. The search skips `clientInfo`, which also has a name and can come first.
fn tool(message: &[u8]) -> Option<&[u8]> {
    let name = scan::value(message, "name")?;
    let bare = name
        .strip_prefix(b"\"")
        .and_then(|name| name.strip_suffix(b"\""));
    if bare.is_some_and(|bare| TOOLS.iter().any(|tool| bare == tool.as_bytes())) {
        return Some(name);
    }
    let at = scan::find(message, b"\"name\"")?;
    tool(message.get(at + 6..)?)
}

impl Stub {
    /// Creates a stub with this many tools of about 400 bytes each.
    pub(crate) fn new(era: Era, tools: usize) -> Self {
        let filler = "A tool of the stub server. ".repeat(6);
        let names = TOOLS.iter().map(|name| (*name).to_owned());
        let fillers = (TOOLS.len()..).map(|number| format!("filler-{number}"));
        let list: Vec<String> = names
            .chain(fillers)
            .take(tools)
            .map(|name| {
                let number = r#"{"type":"integer","minimum":0}"#;
                format!(
                    r#"{{"name":"{name}","description":"{filler}","inputSchema":{{"type":"object","properties":{{"message":{{"type":"string"}},"bytes":{number},"steps":{number},"ms":{number}}}}}}}"#
                )
            })
            .collect();
        let cached = match era {
            Era::Handshake => "",
            Era::Sessionless => r#","ttlMs":60000,"cacheScope":"public","resultType":"complete""#,
        };
        Self {
            era,
            list: format!(r#"{{"tools":[{}]{cached}}}"#, list.join(",")).into_bytes(),
        }
    }

    /// The raw id of a message, and the request that it makes.
    pub(crate) fn read<'a>(&self, message: &'a [u8]) -> (&'a [u8], StubRequest<'a>) {
        read(message, self.era)
    }

    /// Appends the whole answer to `out`.
    pub(crate) fn answer(&self, id: &[u8], request: &StubRequest<'_>, out: &mut Vec<u8>) {
        out.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"id\":");
        out.extend_from_slice(id);
        if *request == StubRequest::Unknown {
            return out.extend_from_slice(
                b",\"error\":{\"code\":-32601,\"message\":\"not known to the stub\"}}",
            );
        }
        out.extend_from_slice(b",\"result\":");
        match request {
            StubRequest::Initialize { revision } => {
                out.extend_from_slice(b"{\"protocolVersion\":");
                out.extend_from_slice(revision);
                out.extend_from_slice(b",\"capabilities\":{\"tools\":{}},\"serverInfo\":{\"name\":\"stub\",\"version\":\"1\"}}");
            }
            StubRequest::Discover => {
                out.extend_from_slice(b"{\"resultType\":\"complete\",\"supportedVersions\":[\"");
                out.extend_from_slice(SESSIONLESS.as_bytes());
                out.extend_from_slice(b"\"],\"capabilities\":{\"tools\":{}},\"ttlMs\":60000,\"cacheScope\":\"public\"}");
            }
            StubRequest::List => out.extend_from_slice(&self.list),
            StubRequest::Echo { message } => self.text(out, |out| out.extend_from_slice(message)),
            StubRequest::Big { bytes } => self.text(out, |out| {
                out.push(b'"');
                out.resize(out.len() + bytes, b'x');
                out.push(b'"');
            }),
            StubRequest::Progress { .. } | StubRequest::Sleep { .. } => {
                self.text(out, |out| out.extend_from_slice(b"\"done\""));
            }
            StubRequest::Ping
            | StubRequest::Never
            | StubRequest::Nothing
            | StubRequest::Unknown => {
                out.extend_from_slice(b"{}");
            }
        }
        out.push(b'}');
    }

    fn text(&self, out: &mut Vec<u8>, value: impl FnOnce(&mut Vec<u8>)) {
        out.extend_from_slice(b"{\"content\":[{\"type\":\"text\",\"text\":");
        value(out);
        out.extend_from_slice(match self.era {
            Era::Handshake => b"}]}".as_slice(),
            Era::Sessionless => b"}],\"resultType\":\"complete\"}".as_slice(),
        });
    }
}

/// Appends one progress notification.
pub(crate) fn progress(token: &[u8], step: usize, steps: usize, out: &mut Vec<u8>) {
    out.extend_from_slice(
        b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{\"progressToken\":",
    );
    out.extend_from_slice(token);
    // Writing to a vector cannot fail.
    let _ = write!(out, ",\"progress\":{step},\"total\":{steps}}}}}");
}

/// Ends the process when its parent has ended, which closes the pipe on stdin.
pub(crate) fn end_with_parent() {
    std::thread::spawn(|| {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        #[expect(
            clippy::disallowed_methods,
            reason = "nothing here needs to be drained"
        )]
        std::process::exit(0);
    });
}
