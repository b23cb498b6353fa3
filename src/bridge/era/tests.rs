use bytes::Bytes;
use serde_json::{Value, json};

use super::*;
use crate::protocol::Envelope;

const ASKED: Revision = Revision::V2026_07_28;

fn error(code: i64, data: Value, status: Option<u16>) -> ProbeOutcome {
    let error = json!({ "code": code, "message": "no", "data": data });
    ProbeOutcome::Error {
        error: RawJson::from_value(&error),
        status,
    }
}

fn result(value: Value) -> ProbeOutcome {
    ProbeOutcome::Result(RawJson::from_value(&value))
}

#[test]
fn c_life_07_to_11_the_verdict_over_http() {
    let failed = ProbeVerdict::ModernFailed("no".to_owned());
    let table = [
        (
            result(json!({ "supportedVersions": ["2025-11-25", "2026-07-28"] })),
            ProbeVerdict::Modern(ASKED),
        ),
        (
            result(json!({ "supportedVersions": ["2025-11-25"] })),
            ProbeVerdict::Legacy,
        ),
        (result(json!({})), ProbeVerdict::Legacy),
        (
            error(-32022, json!({ "supported": ["2025-11-25"] }), Some(400)),
            ProbeVerdict::Legacy,
        ),
        (
            error(-32022, json!({ "supported": ["2099-01-01"] }), Some(400)),
            failed.clone(),
        ),
        (
            error(-32022, json!({ "supported": ["2026-07-28"] }), Some(400)),
            failed.clone(),
        ),
        (error(-32022, json!("x"), Some(400)), failed.clone()),
        (error(-32020, Value::Null, Some(400)), failed.clone()),
        (
            error(-32021, json!({ "requiredCapabilities": {} }), Some(400)),
            failed,
        ),
        (error(-32601, Value::Null, Some(404)), ProbeVerdict::Legacy),
        (error(-32601, Value::Null, Some(200)), ProbeVerdict::Legacy),
        (error(-32600, Value::Null, Some(400)), ProbeVerdict::Legacy),
        (
            error(-32000, Value::Null, Some(401)),
            ProbeVerdict::Authorize,
        ),
        (error(-32603, Value::Null, Some(503)), ProbeVerdict::Outage),
        (ProbeOutcome::Status(400), ProbeVerdict::Legacy),
        (ProbeOutcome::Status(404), ProbeVerdict::Legacy),
        (ProbeOutcome::Status(405), ProbeVerdict::Legacy),
        (ProbeOutcome::Status(403), ProbeVerdict::Authorize),
        (ProbeOutcome::Status(429), ProbeVerdict::Outage),
        (ProbeOutcome::Status(502), ProbeVerdict::Outage),
        (ProbeOutcome::Timeout, ProbeVerdict::Outage),
        (ProbeOutcome::Unreachable, ProbeVerdict::Outage),
    ];
    for (outcome, expected) in table {
        assert_eq!(
            verdict(ProbeTransport::Http, &outcome, ASKED),
            expected,
            "{outcome:?}"
        );
    }
    let older = verdict(
        ProbeTransport::Http,
        &error(-32022, json!({ "supported": ["2026-07-28"] }), Some(400)),
        Revision::V2025_11_25,
    );
    assert_eq!(older, ProbeVerdict::ModernRetry(ASKED));
}

#[test]
fn c_life_09_on_stdio_silence_and_exit_are_verdicts_too() {
    let legacy = [
        ProbeOutcome::Timeout,
        ProbeOutcome::Exited,
        ProbeOutcome::NotJsonRpc,
        error(-32601, Value::Null, None),
        error(-32602, json!([]), None),
    ];
    for outcome in legacy {
        assert_eq!(
            verdict(ProbeTransport::Stdio, &outcome, ASKED),
            ProbeVerdict::Legacy,
            "{outcome:?}"
        );
    }
    let modern = result(json!({ "supportedVersions": ["2026-07-28"], "capabilities": {} }));
    assert_eq!(
        verdict(ProbeTransport::Stdio, &modern, ASKED),
        ProbeVerdict::Modern(ASKED)
    );
    let failed = verdict(
        ProbeTransport::Stdio,
        &error(-32021, Value::Null, None),
        ASKED,
    );
    assert!(matches!(failed, ProbeVerdict::ModernFailed(_)));
}

#[test]
fn c_http_18_old_servers_are_asked_for_their_stream() {
    let table = [
        (400, AfterInitialize::TrySse),
        (404, AfterInitialize::TrySse),
        (405, AfterInitialize::TrySse),
        (401, AfterInitialize::Authorize),
        (503, AfterInitialize::Outage),
        (415, AfterInitialize::Failed),
    ];
    for (status, expected) in table {
        assert_eq!(after_initialize(status), expected, "{status}");
    }
}

#[test]
fn s_life_21_the_body_decides_the_era_of_a_message() {
    let table = [
        (
            "tools/list",
            json!({ "_meta": { VERSION: "2026-07-28" } }),
            None,
            RequestEra::Modern,
        ),
        (
            "tools/list",
            json!({ "_meta": { VERSION: "2099-01-01" } }),
            None,
            RequestEra::Modern,
        ),
        (
            "tools/list",
            json!({ "_meta": { VERSION: 7 } }),
            Some("2025-11-25"),
            RequestEra::Modern,
        ),
        (
            "tools/list",
            json!({ "_meta": { "x": VERSION } }),
            None,
            RequestEra::Legacy,
        ),
        (
            "tools/list",
            json!({}),
            Some("2026-07-28"),
            RequestEra::MissingClaim,
        ),
        (
            "tools/list",
            json!({}),
            Some("2025-11-25"),
            RequestEra::Legacy,
        ),
        (
            "tools/list",
            json!({}),
            Some("2099-01-01"),
            RequestEra::Legacy,
        ),
        (
            "tools/list",
            json!({ "cursor": VERSION }),
            None,
            RequestEra::Legacy,
        ),
        (
            "initialize",
            json!({ "protocolVersion": "2026-07-28" }),
            Some("2026-07-28"),
            RequestEra::Legacy,
        ),
        (
            "initialize",
            json!({ "_meta": { VERSION: "2026-07-28" } }),
            None,
            RequestEra::Modern,
        ),
    ];
    for (method, params, header, expected) in table {
        let frame = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        let Ok(Envelope::Request(request)) = Envelope::parse(Bytes::from(frame.to_string())) else {
            panic!("no request");
        };
        assert_eq!(incoming(&request, header), expected, "{frame} {header:?}");
        assert_eq!(claims_modern(&request), expected == RequestEra::Modern);
    }
}
