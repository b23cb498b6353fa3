use proptest::prelude::*;

use super::*;

fn decode(decoder: &mut SseDecoder, chunks: &[&[u8]]) -> Vec<String> {
    let mut events = Vec::new();
    for chunk in chunks {
        decoder.feed(chunk, |event| {
            events.push(match event {
                SseEvent::TooLarge { response_id: None } => "too large".to_owned(),
                SseEvent::TooLarge {
                    response_id: Some(id),
                } => format!("too large answer to {id}"),
                SseEvent::Message(message) => {
                    let data = String::from_utf8_lossy(&message.data).into_owned();
                    format!("{}|{data}", message.kind)
                }
            });
        });
    }
    events
}

#[test]
fn streams_of_the_standard() {
    let cases: &[(&str, &[&str], Option<&str>)] = &[
        ("data: a\n\n", &["|a"], None),
        ("data:a\r\rdata: b\r\n\r\n", &["|a", "|b"], None),
        ("\u{feff}data: a\n\n", &["|a"], None),
        ("\u{feff}\ndata: a\n\n", &["|a"], None),
        ("data: \u{feff}\n\n", &["|\u{feff}"], None),
        ("data: a\ndata:  b\ndata\ndata:\n\n", &["|a\n b\n\n"], None),
        (": comment\n\n:\ndata: a\n\n", &["|a"], None),
        ("event: endpoint\ndata: a\n\n", &["endpoint|a"], None),
        (
            "event: message\ndata: a\n\ndata: b\n\n",
            &["|a", "|b"],
            None,
        ),
        ("event: x\n\ndata: b\n\n", &["|b"], None),
        ("id: 1\ndata:\n\n", &["|"], Some("1")),
        ("id: 1\n\n", &[], Some("1")),
        ("id: 1\ndata: a\n\nid: 2\ndata: b\n", &["|a"], Some("1")),
        ("id: 1\n\nid\n\n", &[], None),
        ("id: 1\n\nid: 2\0\n\n", &[], Some("1")),
        ("id: 1\n\ndata: a\n\n", &["|a"], Some("1")),
        ("unknown: 1\nnonsense\ndata: a\n\n", &["|a"], None),
        ("data: no end\n", &[], None),
        ("data: no end", &[], None),
        ("\n\n\n", &[], None),
        ("", &[], None),
    ];
    for (text, events, last_id) in cases {
        let mut decoder = SseDecoder::new(100);
        assert_eq!(
            decode(&mut decoder, &[text.as_bytes()]),
            *events,
            "{text:?}"
        );
        assert_eq!(decoder.last_id(), *last_id, "{text:?}");
    }
}

#[test]
fn retry_is_digits_only_and_has_a_limit() {
    let cases = [
        ("retry: 1500\n", Some(1500)),
        ("retry: 0\n", Some(0)),
        ("retry: -1\n", None),
        ("retry: 1.5\n", None),
        ("retry:\n", None),
        ("retry: 99999999999999999999999\n", Some(600_000)),
    ];
    for (text, expected) in cases {
        let mut decoder = SseDecoder::new(100);
        decode(&mut decoder, &[text.as_bytes()]);
        let expected = expected.map(Duration::from_millis);
        assert_eq!(decoder.retry(), expected, "{text}");
    }
}

#[test]
fn an_event_over_the_limit_is_dropped_alone() {
    let long = "x".repeat(2000);
    let cases = [
        ("data: 1234567890\n\n".to_owned(), vec!["|1234567890"]),
        ("data: 12345678901\n\n".to_owned(), vec!["too large"]),
        ("data: 12345\ndata: 67890\n\n".to_owned(), vec!["too large"]),
        (format!("data: {long}\ndata: b\n\n"), vec!["too large"]),
        (
            format!("id: 7\ndata: a\ndata: {long}\n\n"),
            vec!["too large"],
        ),
        (format!(":{long}\ndata: a\n\n"), vec!["|a"]),
        (format!("data: {long}"), vec![]),
    ];
    for (text, expected) in cases {
        for chunk in [1, 7, 10_000] {
            let mut decoder = SseDecoder::new(10);
            let text = format!("{text}\n\ndata: next\n\n");
            let chunks: Vec<&[u8]> = text.as_bytes().chunks(chunk).collect();
            let events = decode(&mut decoder, &chunks);
            let mut expected = expected.clone();
            if expected.is_empty() {
                expected.push("too large");
            }
            expected.push("|next");
            assert_eq!(events, expected, "{chunk}");
            assert!(decoder.line.capacity() <= 256);
        }
    }
}

#[test]
fn an_answer_over_the_limit_says_which_request_it_answers() {
    let long = "x".repeat(2000);
    let answer = "too large answer to 7";
    let cases = [
        (format!(r#"data: {{"id":7,"result":"{long}"}}"#), answer),
        (format!(r#"data:{{"result":"{long}","id":7}}"#), answer),
        (
            format!("data: {{\"id\"\ndata: :7,\"result\":\"{long}\"}}"),
            answer,
        ),
        (
            format!("data: {{\"result\":\"{long}\"\n:\"id\":8,{long}\ndata: ,\"id\":7}}"),
            answer,
        ),
        (
            format!("data: {{\"result\":\"{long}\"\nid: {long}\ndata: ,\"id\":7}}"),
            answer,
        ),
        (r#"data: {"id":7,"result":{}}"#.to_owned(), answer),
        (
            format!(r#"data: {{"id":7,"method":"{long}"}}"#),
            "too large",
        ),
        (format!(r#"data: {{"result":"{long}"}}"#), "too large"),
        (format!(r#"dat: {{"id":7,"result":"{long}"}}"#), "too large"),
    ];
    for (text, expected) in cases {
        for chunk in [1, 7, 10_000] {
            let mut decoder = SseDecoder::new(10);
            let text = format!("{text}\n\ndata: next\n\n");
            let chunks: Vec<&[u8]> = text.as_bytes().chunks(chunk).collect();
            assert_eq!(decode(&mut decoder, &chunks), [expected, "|next"], "{text}");
        }
    }
}

#[test]
fn a_new_connection_drops_what_was_incomplete_and_keeps_the_id() {
    let mut decoder = SseDecoder::new(100);
    decode(
        &mut decoder,
        &[b"retry: 5\nid: 1\ndata: a\n\nid: 2\ndata: lost\nda"],
    );
    decoder.reconnected();
    assert_eq!(
        decode(&mut decoder, &["\u{feff}data: b\n\n".as_bytes()]),
        ["|b"]
    );
    assert_eq!(decoder.last_id(), Some("1"));
    assert_eq!(decoder.retry(), Some(Duration::from_millis(5)));
}

fn stream_bytes() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        Just(b"data: ".to_vec()),
        Just(b"id:".to_vec()),
        Just(b"event".to_vec()),
        Just(b"retry: 7".to_vec()),
        Just(b"\n".to_vec()),
        Just(b"\r".to_vec()),
        Just(b"\r\n".to_vec()),
        Just(b": ".to_vec()),
        Just(vec![b'x'; 70]),
        Just(b"\xef\xbb\xbf".to_vec()),
        proptest::collection::vec(any::<u8>(), 0..5),
    ];
    proptest::collection::vec(piece, 0..60).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn chunks_do_not_matter(
        bytes in stream_bytes(),
        chunk in 1..90_usize,
        event_max in prop_oneof![0..100_usize, Just(1000)],
    ) {
        let mut whole = SseDecoder::new(event_max);
        let mut parts = SseDecoder::new(event_max);
        let chunks: Vec<&[u8]> = bytes.chunks(chunk).collect();
        prop_assert_eq!(decode(&mut whole, &[&bytes]), decode(&mut parts, &chunks));
        prop_assert_eq!(whole.last_id(), parts.last_id());
        prop_assert_eq!(whole.retry(), parts.retry());
    }

    #[test]
    fn no_event_is_larger_than_the_limit(
        bytes in stream_bytes(),
        chunk in 1..9_usize,
        event_max in 0..20_usize,
    ) {
        let mut decoder = SseDecoder::new(event_max);
        for chunk in bytes.chunks(chunk) {
            decoder.feed(chunk, |event| {
                if let SseEvent::Message(message) = event {
                    assert!(message.data.len() <= event_max);
                }
            });
        }
    }
}

#[test]
fn an_event_that_is_discarded_names_its_call_and_does_not_spoil_the_next() {
    let long = format!("data: {{\"id\":7,\"result\":\"{}\"}}", "x".repeat(500));
    for cut in [3, 7, 40, 300] {
        let mut decoder = SseDecoder::new(10_000);
        let mut events = Vec::new();
        let (head, tail) = long.split_at(cut);
        decoder.feed(head.as_bytes(), |event| events.push(event));
        assert!(decoder.incomplete() > 0);
        decoder.discard();
        assert!(decoder.incomplete() < 8);
        for text in [tail, "\n\n", "data: {}\n\n"] {
            decoder.feed(text.as_bytes(), |event| events.push(event));
        }
        let [SseEvent::TooLarge { response_id }, SseEvent::Message(next)] = &events[..] else {
            panic!("{cut}: {events:?}");
        };
        assert_eq!(
            (*response_id, &next.data[..]),
            (Some(7), &b"{}"[..]),
            "{cut}"
        );
    }
}
