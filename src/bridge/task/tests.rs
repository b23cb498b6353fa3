use proptest::prelude::*;

use super::*;

fn raw(value: &Value) -> RawJson {
    RawJson::from_value(value)
}

fn value(raw: &RawJson) -> Value {
    raw.parse().unwrap()
}

fn legacy_fields() -> Value {
    json!({ "taskId": "t-9", "status": "working", "statusMessage": "m", "createdAt": "2026-11-20T10:00:00Z",
        "lastUpdatedAt": "2026-11-20T10:01:00Z", "ttl": 3600000, "pollInterval": 5000 })
}

fn modern_fields() -> Value {
    json!({ "taskId": "t-9", "status": "working", "statusMessage": "m", "createdAt": "2026-11-20T10:00:00Z",
        "lastUpdatedAt": "2026-11-20T10:01:00Z", "ttlMs": 3600000, "pollIntervalMs": 5000 })
}

fn with(mut fields: Value, members: Value) -> Value {
    let added = members.as_object().unwrap().clone();
    fields.as_object_mut().unwrap().extend(added);
    fields
}

#[test]
fn a_task_reads_the_same_in_both_eras() {
    let task = Task::from_legacy(&raw(&legacy_fields())).unwrap();
    assert_eq!(
        Task::from_modern(&raw(&modern_fields())),
        Some(task.clone())
    );
    let created = Task::from_legacy_created(&raw(&json!({ "task": legacy_fields() })));
    assert_eq!(created, Some(task.clone()));
    assert_eq!(value(&task.legacy()), legacy_fields());
    let modern = with(modern_fields(), json!({ "resultType": "task" }));
    assert_eq!(value(&task.modern_created()), modern);
    let sealed = value(&task.with_id("gt1.k.x").modern_created());
    assert_eq!(sealed["taskId"], "gt1.k.x");
}

#[test]
fn a_task_without_limits_has_no_expiry_and_a_bounded_poll_interval() {
    let bare = json!({ "taskId": "t", "status": "input_required", "ttl": null });
    let task = Task::from_legacy(&raw(&bare)).unwrap();
    assert_eq!((task.ttl_ms, task.poll_interval_ms()), (None, POLL_DEFAULT));
    assert_eq!(value(&task.modern_created())["ttlMs"], Value::Null);
    let polls = [
        (json!(1), POLL_MIN),
        (json!(2500.0), 2500),
        (json!(-5), POLL_DEFAULT),
        (json!(1e14), POLL_MAX),
    ];
    for (poll, expected) in polls {
        let task = with(bare.clone(), json!({ "pollInterval": poll }));
        assert_eq!(
            Task::from_legacy(&raw(&task)).unwrap().poll_interval_ms(),
            expected,
            "{poll}"
        );
    }
    for broken in [
        json!({}),
        json!([]),
        json!({ "taskId": "t", "status": "done" }),
        json!({ "taskId": 1, "status": "working" }),
    ] {
        assert_eq!(Task::from_legacy(&raw(&broken)), None, "{broken}");
    }
    assert_eq!(Task::from_legacy_created(&raw(&legacy_fields())), None);
    let terminal = TaskStatus::ALL.map(TaskStatus::is_terminal);
    assert_eq!(terminal, [false, false, true, true, true]);
}

#[test]
fn s_task_x_06_and_07_a_detail_says_how_the_task_ended() {
    let failed =
        Task::from_legacy(&raw(&with(legacy_fields(), json!({ "status": "failed" })))).unwrap();
    let result = json!({ "content": [], "isError": true });
    let detail = TaskDetail::from_legacy(
        failed.clone(),
        Vec::new(),
        Some(Outcome::Result(raw(&result))),
    );
    let modern = value(&detail.modern());
    assert_eq!(modern["status"], "completed");
    assert_eq!(
        (&modern["resultType"], &modern["result"]),
        (&json!("complete"), &result)
    );
    assert_eq!(detail.legacy().status, TaskStatus::Failed);
    let again = TaskDetail::from_modern(&raw(&modern)).unwrap().unwrap();
    assert_eq!(value(&again.modern()), modern);
    let error = json!({ "code": -32603, "message": "m" });
    let ended = TaskDetail::from_legacy(failed, Vec::new(), Some(Outcome::Error(raw(&error))));
    let modern = value(&ended.modern());
    assert_eq!(
        (&modern["status"], &modern["error"]),
        (&json!("failed"), &error)
    );
    assert!(modern.get("inputRequests").is_none());
}

#[test]
fn s_task_x_06_a_detail_carries_what_the_task_asks_for() {
    let asks = json!({ "q-1": { "method": "elicitation/create", "params": { "message": "m" } } });
    let modern = with(
        modern_fields(),
        json!({ "resultType": "complete", "status": "input_required", "inputRequests": asks }),
    );
    let detail = TaskDetail::from_modern(&raw(&modern)).unwrap().unwrap();
    assert_eq!(detail.requests[0].0, "q-1");
    assert_eq!(value(&detail.modern()), modern);
    let broken = with(modern, json!({ "inputRequests": { "a": {} } }));
    assert!(TaskDetail::from_modern(&raw(&broken)).is_err());
    assert!(matches!(
        TaskDetail::from_modern(&raw(&json!({}))),
        Ok(None)
    ));
}

#[test]
fn s_task_l_08_related_task_is_found_and_set() {
    let holder = raw(&json!({ "content": [], "_meta": { "a/b": 1 } }));
    assert_eq!(related_task(&holder), None);
    let marked = with_related_task(&holder, "t-9");
    assert_eq!(related_task(&marked).as_deref(), Some("t-9"));
    let again = with_related_task(&marked, "gt1");
    assert_eq!(
        value(&again)["_meta"],
        json!({ "a/b": 1, RELATED_TASK: { "taskId": "gt1" } })
    );
    assert_eq!(
        related_task(&with_related_task(&raw(&json!({})), "x")).as_deref(),
        Some("x")
    );
    let elsewhere = raw(&json!({ "text": RELATED_TASK }));
    assert_eq!(related_task(&elsewhere), None);
}

#[test]
fn task_capabilities_are_recognised() {
    let declared = json!({ "extensions": { EXTENSION: {} } });
    assert!(is_declared(declared.as_object().unwrap()));
    let none = json!({ "extensions": { "other": {} }, "tasks": {} });
    assert!(!is_declared(none.as_object().unwrap()));
    let tool =
        |support: Value| TaskSupport::of_tool(&raw(&json!({ "name": "n", "execution": support })));
    assert_eq!(
        tool(json!({ "taskSupport": "required" })),
        TaskSupport::Required
    );
    assert_eq!(
        tool(json!({ "taskSupport": "optional" })),
        TaskSupport::Optional
    );
    for support in [
        json!({}),
        json!({ "taskSupport": "forbidden" }),
        Value::Null,
        json!(7),
    ] {
        assert_eq!(tool(support), TaskSupport::Forbidden);
    }
}

proptest! {
    #[test]
    fn a_task_survives_translation_between_eras(
        id in "\\PC{1,20}", status in prop::sample::select(TaskStatus::ALL.to_vec()),
        message in prop::option::of("\\PC{0,10}"), ttl_ms in prop::option::of(0..u64::MAX), poll_ms in prop::option::of(0..u64::MAX),
    ) {
        let task = Task { id, status, message, created_at: Some("x".into()), updated_at: None, ttl_ms, poll_ms };
        prop_assert_eq!(Task::from_legacy(&task.legacy()), Some(task.clone()));
        let created = RawJson::from_value(&json!({ "task": value(&task.legacy()) }));
        prop_assert_eq!(Task::from_legacy_created(&created), Some(task.clone()));
        prop_assert_eq!(Task::from_modern(&task.modern_created()), Some(task));
    }
}
