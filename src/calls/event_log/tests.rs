use super::*;

const LIMITS: EventLogLimits = EventLogLimits {
    events_per_stream: 3,
    bytes_max: 10_000,
    all_bytes_max: 100_000,
    queue_max: 2,
    queue_bytes_max: 100_000,
    finished_kept: Duration::from_secs(60),
};

/// Returns the ids and messages of the received events.
fn read(events: &mut Receiver<StreamEvent>) -> Vec<(String, String)> {
    let mut read = Vec::new();
    while let Ok(event) = events.try_recv() {
        let frame = event.frame.unwrap_or_default().to_vec();
        let id = event.id.unwrap().to_string();
        read.push((id, String::from_utf8(frame).unwrap()));
    }
    read
}

fn event(id: &str, frame: &str) -> (String, String) {
    (id.to_owned(), frame.to_owned())
}

fn id(text: &str) -> RequestId {
    RequestId::try_new(Bytes::copy_from_slice(text.as_bytes())).unwrap()
}

#[test]
fn a_client_goes_on_where_it_stopped() {
    let mut streams = EventLog::new(LIMITS, 7, &ByteGauge::default());
    let mut events = streams.open(5, Some(id("\"a b\"")), true);
    streams.send(5, b"{\"n\":\n1}");
    assert_eq!(
        read(&mut events),
        [
            event("7.5.1.%22a+b%22", ""),
            event("7.5.2.%22a+b%22", "{\"n\":\n1}")
        ]
    );
    drop(events);
    streams.send(5, b"{}");
    streams.answer(5, b"[]", None);
    let ResumeOutcome::Stream(mut events) = streams.resume("7.5.2.%22a+b%22") else {
        panic!()
    };
    assert!(!events.try_recv().unwrap().is_answer);
    let answer = events.try_recv().unwrap();
    assert!(answer.is_answer && answer.frame.unwrap() == "[]");
    assert!(matches!(
        events.try_recv(),
        Err(tokio::sync::mpsc::error::TryRecvError::Disconnected)
    ));
}

#[test]
fn s_sess_08_only_events_of_the_same_stream_are_replayed() {
    let mut streams = EventLog::new(LIMITS, 1, &ByteGauge::default());
    drop((
        streams.open(1, Some(id("1")), true),
        streams.open(2, Some(id("2")), true),
    ));
    streams.send(1, b"1");
    streams.send(2, b"2");
    let ResumeOutcome::Stream(mut events) = streams.resume("1.2.1.2") else {
        panic!()
    };
    assert_eq!(read(&mut events), [event("1.2.2.2", "2")]);
}

#[test]
fn a_stream_of_another_process_names_its_request() {
    let mut streams = EventLog::new(LIMITS, 1, &ByteGauge::default());
    for (text, request) in [
        ("2.5.1.%22a%22", Some(id("\"a\""))),
        ("1.5.1.7", Some(id("7"))),
        ("1.0.1.", None),
        ("garbage", None),
        ("", None),
    ] {
        let ResumeOutcome::Unknown(found) = streams.resume(text) else {
            panic!("{text}")
        };
        assert_eq!(found, request, "{text}");
    }
}

#[test]
fn a_burst_leaves_room_for_the_answer() {
    let limits = EventLogLimits {
        queue_max: 8,
        ..LIMITS
    };
    let mut streams = EventLog::new(limits, 1, &ByteGauge::default());
    let mut events = streams.open(1, Some(id("1")), false);
    for _ in 0..100 {
        streams.send_if_room(1, b"{}");
    }
    streams.answer(1, b"[]", None);
    let read = read(&mut events);
    assert_eq!(read.len(), 7);
    assert_eq!(read[6].1, "[]");
}

#[test]
fn the_log_is_bounded_and_a_slow_reader_is_let_go() {
    let mut streams = EventLog::new(LIMITS, 1, &ByteGauge::default());
    let events = streams.open(1, Some(id("1")), false);
    for _ in 0..10 {
        streams.send(1, b"{}");
    }
    assert_eq!(streams.kept, 3);
    assert!(!streams.has_reader(1));
    drop(events);
    // An event larger than the session's limit is kept while it is the newest.
    streams.send(1, &[b'1'; 20_000]);
    assert_eq!(streams.kept, 1);
    assert!(matches!(
        streams.resume("1.1.10.1"),
        ResumeOutcome::Stream(_)
    ));
    streams.send(1, b"{}");
    assert_eq!(streams.kept, 1);
    assert!(streams.bytes.own() < LIMITS.bytes_max);
    // It still has to fit the limit for all sessions.
    streams.send(1, &[b'1'; 200_000]);
    assert_eq!(streams.kept, 0);
    streams.end(1);
    assert!(streams.is_empty());
    assert_eq!(streams.bytes.own(), 0);
}

#[test]
fn streams_that_finished_make_room_before_those_that_are_open() {
    let mut streams = EventLog::new(LIMITS, 1, &ByteGauge::default());
    drop(streams.open(1, Some(id("1")), true));
    for number in 2..20 {
        drop(streams.open(number, Some(id("2")), false));
        streams.answer(number, &[b'2'; 2000], None);
    }
    assert!(streams.bytes.own() <= LIMITS.bytes_max);
    for (event, is_known) in [("1.1.0.1", true), ("1.2.0.2", false), ("1.19.0.2", true)] {
        let resumed = streams.resume(event);
        assert_eq!(
            !matches!(resumed, ResumeOutcome::Unknown(_)),
            is_known,
            "{event}"
        );
    }
    // If no stream has ended, the oldest events of open streams are dropped.
    drop(streams.open(20, Some(id("3")), false));
    for _ in 0..3 {
        streams.send(20, &[b'3'; 4000]);
    }
    assert!(streams.finished.is_empty());
    assert_eq!(streams.streams[&1].events.len(), 0);
    assert_eq!(streams.streams[&20].events.len(), 2);
}

/// Regression: sessions with progress streams kept 52 MiB indefinitely.
#[tokio::test(start_paused = true)]
async fn all_sessions_together_keep_no_more_than_the_limit() {
    const SESSIONS: u64 = 16;
    let limits = EventLogLimits {
        events_per_stream: 10_000,
        bytes_max: 1 << 20,
        all_bytes_max: 4 << 20,
        ..LIMITS
    };
    let all = ByteGauge::default();
    let mut sessions: Vec<EventLog> = (0..SESSIONS)
        .map(|_| EventLog::new(limits, 1, &all))
        .collect();
    for session in &mut sessions {
        drop(session.open(1, Some(id("1")), true));
        for _ in 0..5000 {
            session.send(1, &[b'1'; 100]);
        }
        session.answer(1, b"[]", None);
    }
    let kept = || all.share().all();
    assert!(kept() <= 4 << 20, "{}", kept());
    assert!(kept() > 3 << 20, "{}", kept());
    tokio::time::advance(limits.finished_kept).await;
    for session in &mut sessions {
        session.drop_finished();
        assert!(session.is_empty());
    }
    assert_eq!(kept(), 0);
}

#[tokio::test(start_paused = true)]
async fn finished_streams_are_dropped_in_time_and_others_stay() {
    let mut streams = EventLog::new(LIMITS, 1, &ByteGauge::default());
    for number in [1, 2, 3] {
        drop(streams.open(number, Some(id("1")), true));
    }
    streams.answer(1, b"[]", None);
    tokio::time::advance(Duration::from_secs(30)).await;
    streams.answer(2, b"[]", None);
    tokio::time::advance(Duration::from_secs(30)).await;
    assert_eq!(streams.next_drop(), Some(Instant::now()));
    streams.drop_finished();
    let next = Instant::now() + Duration::from_secs(30);
    assert_eq!(streams.next_drop(), Some(next));
    assert!(matches!(
        streams.resume("1.1.1.1"),
        ResumeOutcome::Unknown(Some(_))
    ));
    for number in [2, 3] {
        let resumed = streams.resume(&format!("1.{number}.1.1"));
        assert!(matches!(resumed, ResumeOutcome::Stream(_)));
    }
}
