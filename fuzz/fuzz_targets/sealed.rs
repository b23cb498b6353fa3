//! Fuzzes sealed states with any text and with modified seals: only unmodified ones can be opened.

#![no_main]

use libfuzzer_sys::fuzz_target;
use mcpvisor::bridge::seal::{
    Continuation, Digest, ExpectedBinding, RequestState, Sealer, SealingKey, StateBinding, TaskRef,
};
use mcpvisor::id::ServerName;
use mcpvisor::protocol::Method;
use serde_json::Map;

fuzz_target!(|bytes: &[u8]| {
    let sealer = Sealer::new(&SealingKey::try_new("k1", [7; 32]).expect("a name"), None);
    let binding = StateBinding::new(Method::ToolsCall, "alice", "tool", None, &Map::new());
    let binding = binding.expect("no arguments");
    let server = ServerName::try_new("db").expect("a name");
    let declaration = Digest::of_declaration(&["stdio"]);
    let expected = ExpectedBinding {
        binding: &binding,
        server: &server,
        declaration,
    };
    let text = String::from_utf8_lossy(bytes);
    assert!(sealer.open(&text, &expected, 5).is_err());
    assert!(sealer.open_task(&text, &binding.principal).is_err());

    let state = RequestState {
        binding: binding.clone(),
        issued_at: 0,
        expires_at: 10,
        server: server.clone(),
        declaration,
        round: 1,
        id: [1; 16],
        continuation: Continuation::Pass { state: None },
    };
    let task = TaskRef {
        server: server.clone(),
        declaration,
        native: "t".to_owned(),
        session: None,
        replica: None,
        lifetime: None,
    };
    let sealed = sealer.seal(&state, [2; 12]).expect("small");
    let id = sealer.seal_task(&task, &binding.principal).expect("small");
    let is_open = sealer.open(&changed(&sealed, bytes), &expected, 5).is_ok();
    assert_eq!(is_open, changed(&sealed, bytes) == sealed);
    let is_open = sealer.open_task(&changed(&id, bytes), &binding.principal);
    assert_eq!(is_open.is_ok(), changed(&id, bytes) == id);
});

/// Applies pairs of a position and a byte.
fn changed(text: &str, changes: &[u8]) -> String {
    let mut bytes = text.as_bytes().to_vec();
    for change in changes.chunks_exact(2) {
        let at = usize::from(change[0]) % bytes.len();
        bytes[at] = change[1];
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
