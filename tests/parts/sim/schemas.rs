//! Whether what leaves the gateway about tasks is what its reader's revision knows.

use jsonschema::Draft;
use serde_json::{Value, json};

/// A notification to a client of 2025-11-25.
pub(crate) fn check_notification(message: &Value) {
    let name = match message["method"].as_str() {
        Some("notifications/tasks/status") => "TaskStatusNotification",
        Some("notifications/progress") => "ProgressNotification",
        other => panic!("{other:?}"),
    };
    check(include_str!("../../schema/2025-11-25.json"), name, message);
}

/// A result or message of the extension, by its name in the extension's schema.
pub(crate) fn check_task(name: &str, value: &Value) {
    check(include_str!("../../schema/tasks.json"), name, value);
}

fn check(schema: &str, name: &str, value: &Value) {
    let schema: Value = serde_json::from_str(schema).unwrap();
    let one = json!({"$ref": format!("#/$defs/{name}"), "$defs": schema["$defs"]});
    let options = jsonschema::options().with_draft(Draft::Draft202012);
    let validator = options.build(&one).unwrap();
    let faults = validator.iter_errors(value).map(|fault| fault.to_string());
    let faults: Vec<_> = faults.collect();
    assert!(faults.is_empty(), "no {name}: {faults:?}: {value}");
}
