//! Fuzzes the event stream decoder: the same bytes, split anywhere, produce the same events, none
//! larger than the limit. The first byte is the size of the pieces, the second the limit.

#![no_main]

use libfuzzer_sys::fuzz_target;
use mcpvisor::transport::read_events;

fuzz_target!(|bytes: &[u8]| {
    let [piece, limit, stream @ ..] = bytes else {
        return;
    };
    let limit = usize::from(*limit);
    let whole = read_events(limit, [stream]);
    let pieces = read_events(limit, stream.chunks(usize::from(*piece).max(1)));
    assert_eq!(whole, pieces);
    assert!(whole.iter().flatten().all(|event| event.len() <= limit));
});
