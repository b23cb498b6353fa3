//! Fuzzes a running gateway with bytes on a socket: it returns an HTTP answer with valid JSON or
//! events, or closes the connection, and never panics.
//!
//! Input before the first empty line is used as additional headers of a request, and the rest as
//! its body, whose answer is read to the end. Input without an empty line is sent unchanged.

#![no_main]

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{OnceLock, mpsc};
use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use mcpvisor::config::{Lookup, ProcessEnvironment};
use mcpvisor::gateway::{Clients, ConfigFile, ConfigOverrides, Gateway};
use mcpvisor::telemetry::LogRecords;

/// How long a stream without an end is read.
const STREAM_READ: Duration = Duration::from_millis(5);
/// Maximum time for an answer.
const ANSWER_MAX: Duration = Duration::from_secs(5);

const CONFIG: &str = "
[gateway]
workers = 1
data_dir = 'mcpvisor-fuzz'
[sessions]
idle_timeout = '10s'
";

fuzz_target!(|bytes: &[u8]| {
    let split = bytes.windows(2).position(|pair| pair == b"\n\n");
    match split {
        Some(at) => request(&bytes[..at], &bytes[at + 2..]),
        None => raw(bytes),
    }
});

fn connect() -> TcpStream {
    static ADDRESS: OnceLock<SocketAddr> = OnceLock::new();
    let address = ADDRESS.get_or_init(start);
    let socket = TcpStream::connect(address).expect("the gateway listens");
    socket.set_read_timeout(Some(ANSWER_MAX)).expect("a socket");
    socket
}

fn start() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let (started, is_started) = mpsc::channel();
    std::thread::spawn(move || {
        actix_rt::System::new().block_on(async move {
            let mut environment = ProcessEnvironment::new();
            environment.listens_on(address);
            let name = format!("mcpvisor-fuzz-{}.toml", std::process::id());
            let path = std::env::temp_dir().join(name);
            std::fs::write(&path, CONFIG).expect("a file");
            let overrides = ConfigOverrides::default();
            let file = Some(path);
            let opened = ConfigFile::open(file, Lookup::WorkingDirectory, environment, overrides);
            let (file, loaded) = opened.expect("a configuration");
            let clients = Clients::Http(Some(listener));
            let _gateway = Gateway::start(file, loaded, clients, LogRecords::default())
                .await
                .expect("a gateway");
            started.send(()).expect("somebody waits");
            std::future::pending::<()>().await;
        });
    });
    is_started.recv().expect("the gateway starts");
    address
}

/// Sends bytes; the gateway may close the socket before everything is written or read.
fn send(socket: &mut TcpStream, bytes: &[u8]) {
    let _ = socket.write_all(bytes);
}

fn raw(bytes: &[u8]) {
    let mut socket = connect();
    socket
        .set_read_timeout(Some(STREAM_READ))
        .expect("a socket");
    send(&mut socket, bytes);
    let mut answer = [0; 12];
    if socket.read_exact(&mut answer).is_ok() {
        assert!(answer.starts_with(b"HTTP/1."), "{answer:?}");
    }
}

fn request(headers: &[u8], body: &[u8]) {
    let mut message = b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n".to_vec();
    message.extend(b"Content-Type: application/json\r\n");
    message.extend(b"Accept: application/json, text/event-stream\r\n");
    for line in headers
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
    {
        message.extend(line);
        message.extend(b"\r\n");
    }
    message.extend(format!("Content-Length: {}\r\n\r\n", body.len()).as_bytes());
    message.extend(body);
    let mut socket = connect();
    send(&mut socket, &message);
    check(&read(&mut socket));
}

fn read(socket: &mut TcpStream) -> Vec<u8> {
    let (mut answer, mut buffer) = (Vec::new(), [0; 16 * 1024]);
    loop {
        match socket.read(&mut buffer) {
            Ok(0) => return answer,
            Ok(length) => answer.extend(&buffer[..length]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                assert!(is_stream(&answer), "no answer in {ANSWER_MAX:?}");
                return answer;
            }
            Err(_) => return answer,
        }
        if is_stream(&answer) {
            socket
                .set_read_timeout(Some(STREAM_READ))
                .expect("a socket");
        }
    }
}

fn is_stream(answer: &[u8]) -> bool {
    head(answer).is_some_and(|(head, _)| head.contains("text/event-stream"))
}

fn head(answer: &[u8]) -> Option<(String, &[u8])> {
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n")?;
    let head = String::from_utf8_lossy(&answer[..end]).to_ascii_lowercase();
    Some((head, &answer[end + 4..]))
}

/// Checks that a JSON body is a single value.
fn check(answer: &[u8]) {
    let Some((head, body)) = head(answer) else {
        return assert!(answer.is_empty() || answer.starts_with(b"HTTP/1."));
    };
    assert!(head.starts_with("http/1."), "{head}");
    let is_whole = head.contains("content-length") && head.contains("application/json");
    if is_whole && !body.is_empty() {
        serde_json::from_slice::<serde_json::Value>(body).expect("JSON");
    }
}
