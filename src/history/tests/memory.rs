//! Tests of the history without a file.

use super::*;

#[tokio::test]
async fn without_a_file_the_last_calls_are_read_from_memory() {
    let secrets = LiveSecrets::of(["canary-of-config"]);
    let settings = HistorySettings {
        file: false,
        ..settings()
    };
    let kept = start_with_secrets(settings.clone(), secrets.clone());
    let history = &kept.history;
    let params = json!({"name": "canary-of-config", "arguments": {"password": "canary-1"}});
    let result = json!({"content": [{"type": "text", "text": "a canary-of-server"}]});
    end(
        begin(history, &params),
        CallEnding::Result(&raw(&result)),
        1,
    );
    // Also a secret that the gateway got to know after the call.
    secrets.add(crate::masking::SecretOrigin::Server, "canary-of-server");
    let first = page(history, &[]).await;
    assert!(!first.to_string().contains("canary"), "{first}");
    assert_eq!(
        (&first["total"], &first["entries"][0]["target"]),
        (&json!(1), &json!(REDACTED))
    );
    for round in 1..=3_u64 {
        (0..1500).for_each(|at| history.push(record(round * 10_000 + at), 0));
        let last = page(history, &[("limit", "1000")]).await;
        assert_eq!(times(&last).len(), 1000, "round {round}");
        assert_eq!(times(&last)[999], round * 10_000 + 500);
        let total = last["total"].as_u64().unwrap();
        assert!((1000..2000).contains(&total), "{total}");
    }
    assert!(!kept.path().exists());
    history.configure(HistorySettings {
        file: true,
        ..settings
    });
    history.push(record(1), 0);
    assert_eq!(
        page(history, &[]).await["total"],
        1,
        "the file starts empty"
    );
    assert!(kept.path().exists());
}

#[tokio::test]
async fn a_long_method_that_a_client_invents_is_truncated() {
    let kept = start_with(HistorySettings {
        file: false,
        ..settings()
    });
    let frame = json!({"jsonrpc": "2.0", "id": 1, "method": "x".repeat(100_000)});
    let Ok(Envelope::Request(request)) = Envelope::parse(Bytes::from(frame.to_string())) else {
        panic!("a request");
    };
    let caller = RecordedCaller {
        session: None,
        client: None,
        revision: Revision::NEWEST,
        at_server: None,
    };
    drop(kept.history.begin(&request, &caller));
    let page = page(&kept.history, &[]).await;
    assert_eq!(page["entries"][0]["method"], "x".repeat(64));
    assert!(page.to_string().len() < 4096);
}
