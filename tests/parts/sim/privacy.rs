//! Privacy in a random run: a client reads only its own messages.

use serde_json::Value;

/// Nothing may reach a client that is another's.
pub(crate) fn check_message(message: &Value, user: &str, tag: Option<&str>) {
    let is_of_user = |text: &Value| {
        let text = text.as_str().unwrap();
        text.split(' ').next() == Some(user)
    };
    match message["method"].as_str() {
        Some("notifications/progress") => {
            assert_eq!(
                message["params"]["progressToken"].as_str(),
                tag,
                "{message}"
            );
        }
        Some("elicitation/create") => {
            assert!(
                is_of_user(&message["params"]["message"]),
                "{user}: {message}"
            );
        }
        Some("notifications/cancelled" | "notifications/tools/list_changed") => {}
        Some(method) if method.ends_with("list_changed") && tag.is_none() => {}
        // A server may report what its client did not subscribe to, in the session of that client.
        Some("notifications/resources/updated") if tag.is_none() => {}
        Some(method) => panic!("{user} got {method}"),
        None => {
            let content = &message["result"]["content"][0]["text"];
            let of_server = message["result"]["_meta"].is_null() && content.is_string();
            assert!(!of_server || content.as_str() == tag, "{user}: {message}");
            let refused = &message["error"];
            assert!(
                refused["code"] != -32000 || refused["message"].as_str() == tag,
                "{user}: {message}"
            );
        }
    }
}
