//! Translates requests and progress for peers of another revision.

use crate::protocol::{Edit, Era, Method, Notification, Request, Revision, json};

use crate::bridge::object::{contains_any, removal_edits};

/// The edits that remove from `params` what a server of this revision does not know: `context` of
/// completions, `task`, and members that only retries of sessionless calls have. None of them
/// touches a member that stays.
pub fn project_params(request: &Request, to: Revision) -> Vec<Edit> {
    let params = &request.params;
    let is_retry = params.input_responses.is_some() || params.request_state.is_some();
    let completes = request.method == Method::CompletionComplete;
    // Fast path for most calls: every revision knows all of their members.
    if !is_retry && !completes && params.task.is_none() {
        return Vec::new();
    }
    let has_retries = matches!(
        request.method,
        Method::ToolsCall | Method::PromptsGet | Method::ResourcesRead
    );
    let dropped = |key: &str| match key {
        "context" => completes && to < Revision::V2025_06_18,
        "task" => request.method == Method::ToolsCall && to != Revision::V2025_11_25,
        "inputResponses" | "requestState" => has_retries && to.era() == Era::Legacy,
        _ => false,
    };
    remove(request.frame.as_str(), dropped)
}

/// The edits that remove `message` from `notifications/progress` for a peer of 2024-11-05.
pub fn project_progress(progress: &Notification, to: Revision) -> Vec<Edit> {
    let dropped = |key: &str| key == "message" && to < Revision::V2025_03_26;
    remove(progress.frame.as_str(), dropped)
}

fn remove(frame: &str, dropped: impl Fn(&str) -> bool) -> Vec<Edit> {
    let words = [
        ("context", "\"context\""),
        ("task", "\"task\""),
        ("inputResponses", "\"inputResponses\""),
        ("requestState", "\"requestState\""),
        ("message", "\"message\""),
    ];
    let wanted = words.iter().filter(|(name, _)| dropped(name));
    let wanted: Vec<_> = wanted.map(|(_, word)| *word).collect();
    if !contains_any(frame.as_bytes(), &wanted) {
        return Vec::new();
    }
    let params = json::member(frame, "params");
    params.map_or_else(Vec::new, |params| removal_edits(frame, params, dropped))
}
