//! A client that generates load: one connection with its MCP session, which checks every answer.

use std::cell::Cell;
use std::rc::Rc;

use crate::Fallible;
use crate::http::{Answer, Connection};
use crate::scan;

/// Revision of clients with a handshake, and of sessionless clients.
const REVISION: &str = "2025-11-25";
pub(crate) const SESSIONLESS: &str = "2026-07-28";

/// All ids have the same length, so that equal answers have equal lengths.
const FIRST_ID: u64 = 100_000_000;

/// Length of the text for `echo`, in bytes; results in an answer of about 256 bytes.
const ECHO_LEN: usize = 180;

/// Maximum pages of a list.
const PAGES_MAX: usize = 100;

/// The request that a client repeats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Work {
    /// A call with an answer of about 256 bytes.
    Echo,
    /// A call with an answer of this many bytes.
    Big(usize),
    /// A call that sends this many progress events before its answer.
    Progress(usize),
    /// A call that takes this many milliseconds.
    Sleep(usize),
    /// A whole list with this many tools.
    List(usize),
    /// A whole session: initialize, initialized, a list with this many tools, one call, DELETE.
    Session(usize),
}

/// Generates unique request ids for one run.
#[derive(Clone, Default)]
pub(crate) struct Ids(Rc<Cell<u64>>);

impl Ids {
    fn next(&self) -> u64 {
        let id = self.0.get();
        self.0.set(id + 1);
        FIRST_ID + id
    }
}

/// Era of the requests: after a handshake, or self-contained.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Era {
    Handshake,
    Sessionless,
}

/// Destination of requests: the port, the prefix of tool names, the era, and the key or token.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    pub(crate) port: u16,
    pub(crate) prefix: &'static str,
    pub(crate) era: Era,
    pub(crate) credential: Option<String>,
}

impl Place {
    pub(crate) fn new(port: u16, era: Era) -> Self {
        let prefix = "";
        Self {
            port,
            prefix,
            era,
            credential: None,
        }
    }
}

pub(crate) struct BenchClient {
    place: Place,
    ids: Ids,
    connection: Connection,
    session: Option<String>,
    request: Vec<u8>,
    /// Length of the first correct answer, which all later ones must have.
    usual: Option<(Work, usize)>,
}

impl BenchClient {
    /// Connects, without a session.
    pub(crate) async fn connect(place: &Place, ids: &Ids) -> Fallible<Self> {
        let connection = Connection::open(place.port).await?;
        Ok(Self {
            place: place.clone(),
            ids: ids.clone(),
            connection,
            session: None,
            request: Vec::new(),
            usual: None,
        })
    }

    /// Connects, and opens a session if the era has sessions.
    pub(crate) async fn open(place: &Place, ids: &Ids) -> Fallible<Self> {
        let mut client = Self::connect(place, ids).await?;
        if place.era == Era::Handshake {
            client.initialize().await?;
        }
        Ok(client)
    }

    /// Opens a session and keeps its id.
    pub(crate) async fn initialize(&mut self) -> Fallible<()> {
        self.session = None;
        let id = self.ids.next();
        let params = format!(
            r#"{{"protocolVersion":"{REVISION}","capabilities":{{}},"clientInfo":{{"name":"bench","version":"1"}}}}"#
        );
        self.compose("initialize", None, &params, Some(id));
        let answer = self.connection.exchange(&self.request).await?;
        result(&answer, id)?;
        self.session = answer.session;
        self.compose("notifications/initialized", None, "{}", None);
        let answer = self.connection.exchange(&self.request).await?;
        match answer.status {
            202 => Ok(()),
            status => Err(format!("HTTP {status} to `initialized`").into()),
        }
    }

    /// Ends the session, if there is one.
    pub(crate) async fn delete(&mut self) -> Fallible<()> {
        if self.place.era == Era::Sessionless {
            return Ok(());
        }
        self.head("DELETE", "", None);
        let answer = self.connection.exchange(&self.request).await?;
        self.session = None;
        match answer.status {
            200 | 202 | 204 => Ok(()),
            status => Err(format!("HTTP {status} to DELETE").into()),
        }
    }

    pub(crate) fn take_session(&mut self) -> Option<String> {
        self.session.take()
    }

    pub(crate) fn set_session(&mut self, session: Option<String>) {
        self.session = session;
    }

    /// Does the work once and checks the answer.
    pub(crate) async fn run(&mut self, work: Work) -> Fallible<()> {
        match work {
            Work::Session(tools) => {
                self.initialize().await?;
                self.list(tools).await?;
                self.call(Work::Echo).await?;
                self.delete().await
            }
            Work::List(tools) => self.list(tools).await,
            Work::Echo | Work::Big(_) | Work::Progress(_) | Work::Sleep(_) => self.call(work).await,
        }
    }

    /// Calls a tool of the stub by name, or a tool of another server by its full name.
    pub(crate) async fn call_tool(&mut self, name: &str, arguments: &str) -> Fallible<Vec<u8>> {
        let id = self.ids.next();
        let params = format!(
            r#"{{"name":"{name}","arguments":{arguments}{}}}"#,
            self.meta("", ",")
        );
        self.compose("tools/call", Some(name), &params, Some(id));
        let answer = self.connection.exchange(&self.request).await?;
        Ok(answer.body.to_vec())
    }

    async fn call(&mut self, work: Work) -> Fallible<()> {
        let id = self.ids.next();
        let prefix = self.place.prefix;
        let (tool, arguments, meta) = match work {
            Work::Big(bytes) => ("big", format!(r#"{{"bytes":{bytes}}}"#), String::new()),
            Work::Progress(steps) => {
                let meta = format!(r#""progressToken":{id}"#);
                ("progress", format!(r#"{{"steps":{steps}}}"#), meta)
            }
            Work::Sleep(ms) => ("sleep", format!(r#"{{"ms":{ms}}}"#), String::new()),
            _ => (
                "echo",
                format!(r#"{{"message":"{id:x>ECHO_LEN$}"}}"#),
                String::new(),
            ),
        };
        let (name, meta) = (format!("{prefix}{tool}"), self.meta(&meta, ","));
        let params = format!(r#"{{"name":"{name}","arguments":{arguments}{meta}}}"#);
        self.compose("tools/call", Some(&name), &params, Some(id));
        let answer = self.connection.exchange(&self.request).await?;
        let (events, message) = (answer.body, result(&answer, id)?);
        let whole = match work {
            Work::Big(bytes) => {
                let known = self.usual == Some((work, message.len()));
                known || scan::value(message, "text").is_some_and(|text| text.len() == bytes + 2)
            }
            Work::Progress(steps) => {
                let token = format!(r#""progressToken":{id}"#);
                scan::count(events, token.as_bytes()) == steps
                    && scan::contains(message, b"\"done\"")
            }
            Work::Sleep(_) => scan::contains(message, b"\"done\""),
            _ => scan::contains(message, format!("{id:x>ECHO_LEN$}").as_bytes()),
        };
        let len = message.len();
        self.same_length(work, len)?;
        if whole {
            Ok(())
        } else {
            Err(format!("{work:?}: not what was asked for").into())
        }
    }

    async fn list(&mut self, tools: usize) -> Fallible<()> {
        let first = format!("{{{}}}", self.meta("", ""));
        let (mut found, mut len, mut params) = (0, 0, first);
        for _ in 0..PAGES_MAX {
            let id = self.ids.next();
            self.compose("tools/list", None, &params, Some(id));
            let answer = self.connection.exchange(&self.request).await?;
            let message = result(&answer, id)?;
            len += message.len();
            // Counting is expensive, so it is done only until the length is known.
            if !matches!(self.usual, Some((Work::List(_), _))) {
                found += scan::count(message, b"\"inputSchema\"");
            }
            // The cursor is before or after the tools, never between them.
            let (front, back) = ends(message, 200);
            let cursor =
                scan::value(front, "nextCursor").or_else(|| scan::value(back, "nextCursor"));
            match cursor.filter(|cursor| *cursor != b"null") {
                Some(cursor) => {
                    let cursor = String::from_utf8_lossy(cursor).into_owned();
                    params = format!(r#"{{"cursor":{cursor}{}}}"#, self.meta("", ","));
                }
                None => {
                    let known = matches!(self.usual, Some((Work::List(_), _)));
                    if !known && found != tools {
                        return Err(format!("a list of {found} tools instead of {tools}").into());
                    }
                    return self.same_length(Work::List(tools), len);
                }
            }
        }
        Err(format!("a list of more than {PAGES_MAX} pages").into())
    }

    /// All correct answers to the same work have the same length.
    fn same_length(&mut self, work: Work, len: usize) -> Fallible<()> {
        match self.usual {
            Some((usual, usually)) if usual == work && usually != len => {
                Err(format!("{work:?}: {len} bytes instead of {usually}").into())
            }
            _ => {
                self.usual = Some((work, len));
                Ok(())
            }
        }
    }

    /// `_meta` with these members and, for a sessionless client, its declaration; empty if there
    /// are none.
    fn meta(&self, members: &str, before: &str) -> String {
        let claim = format!(
            r#""io.modelcontextprotocol/protocolVersion":"{SESSIONLESS}","io.modelcontextprotocol/clientInfo":{{"name":"bench","version":"1"}},"io.modelcontextprotocol/clientCapabilities":{{}}"#
        );
        match (self.place.era, members) {
            (Era::Handshake, "") => String::new(),
            (Era::Handshake, members) => format!(r#"{before}"_meta":{{{members}}}"#),
            (Era::Sessionless, "") => format!(r#"{before}"_meta":{{{claim}}}"#),
            (Era::Sessionless, members) => format!(r#"{before}"_meta":{{{claim},{members}}}"#),
        }
    }

    /// Builds a request or notification; `name` is the tool's name, if it concerns a tool.
    fn compose(&mut self, method: &str, name: Option<&str>, params: &str, id: Option<u64>) {
        let id = id.map(|id| format!(r#""id":{id},"#)).unwrap_or_default();
        let body = format!(r#"{{"jsonrpc":"2.0",{id}"method":"{method}","params":{params}}}"#);
        let claim = match (self.place.era, name) {
            (Era::Handshake, _) => String::new(),
            (Era::Sessionless, name) => {
                let name = name.map(|name| format!("Mcp-Name: {name}\r\n"));
                let name = name.unwrap_or_default();
                format!("Mcp-Protocol-Version: {SESSIONLESS}\r\nMcp-Method: {method}\r\n{name}")
            }
        };
        self.head("POST", &claim, Some(body.len()));
        self.request.extend_from_slice(body.as_bytes());
    }

    fn head(&mut self, method: &str, claim: &str, body: Option<usize>) {
        let port = self.place.port;
        let mut head = format!(
            "{method} /mcp HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\
            Accept: application/json, text/event-stream\r\n{claim}"
        );
        if let Some(session) = &self.session {
            head += &format!("Mcp-Session-Id: {session}\r\nMcp-Protocol-Version: {REVISION}\r\n");
        }
        if let Some(credential) = &self.place.credential {
            head += &format!("Authorization: Bearer {credential}\r\n");
        }
        if let Some(len) = body {
            head += &format!("Content-Type: application/json\r\nContent-Length: {len}\r\n");
        }
        head += "\r\n";
        self.request.clear();
        self.request.extend_from_slice(head.as_bytes());
    }
}

fn ends(message: &[u8], len: usize) -> (&[u8], &[u8]) {
    let len = len.min(message.len());
    (
        message.split_at(len).0,
        message.split_at(message.len() - len).1,
    )
}

/// The answer to the request, if it is a successful one.
pub(crate) fn result<'a>(answer: &Answer<'a>, id: u64) -> Fallible<&'a [u8]> {
    let shown = || String::from_utf8_lossy(ends(answer.body, 300).0).into_owned();
    if answer.status != 200 {
        return Err(format!("HTTP {}: {}", answer.status, shown()).into());
    }
    let message = if answer.sse {
        last_event(answer.body)
    } else {
        answer.body
    };
    let id = format!(r#""id":{id}"#);
    let (front, back) = ends(message, 200);
    let ours = scan::contains(front, id.as_bytes()) || scan::contains(back, id.as_bytes());
    let failed = b"\"isError\":true";
    let failed = scan::contains(front, failed) || scan::contains(back, failed);
    let good = scan::contains(front, b"\"result\":") && !failed;
    if ours && good {
        Ok(message)
    } else {
        Err(format!("not the answer: {}", shown()).into())
    }
}

/// Data of the last event that has any.
fn last_event(body: &[u8]) -> &[u8] {
    let data = |line: &'_ [u8]| {
        line.strip_prefix(b"data:")
            .map(<[u8]>::trim_ascii_start)
            .is_some_and(|data| !data.is_empty())
    };
    let line = body.rsplit(|byte| *byte == b'\n').find(|line| data(line));
    line.and_then(|line| line.strip_prefix(b"data:"))
        .map(<[u8]>::trim_ascii)
        .unwrap_or_default()
}
