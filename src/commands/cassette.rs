//! `mcpvisor record` and `mcpvisor replay`.

use std::collections::BTreeMap;
use std::path::Path;

use mcpvisor::admin::{OperatorClient, Parameters};
use mcpvisor::cassette::{
    Cassette, Fault, Matching, RecordedAnswer, RecordedExchange, mark_volatile, serve_cassette,
};
use mcpvisor::cli::{RecordArguments, ReplayArguments};
use mcpvisor::history::{CallPage, RecordedCall};
use mcpvisor::id::{ServerName, ViewId};
use mcpvisor::telemetry::counted;
use serde_json::Value;

use super::output::{CliError, current_thread_runtime, print};
use super::running_gateway::gateway_data_dir;
use super::tools::client::GatewayClient;

/// Maximum calls of a cassette: the last ones of the history.
const CALLS_MAX: &str = "1000";

/// Lists of a cassette: capability, method and member of the result.
const LISTS: [(&str, &str, &str); 4] = [
    ("tools", "tools/list", "tools"),
    ("prompts", "prompts/list", "prompts"),
    ("resources", "resources/list", "resources"),
    ("resources", "resources/templates/list", "resourceTemplates"),
];

/// Writes a cassette of the server's lists and the calls in the history.
pub(crate) fn record(path: Option<&Path>, arguments: &RecordArguments) -> Result<(), CliError> {
    let data_dir = gateway_data_dir(path)?;
    let server = ServerName::try_new(&arguments.server).map_err(|error| error.to_string())?;
    let recorded = current_thread_runtime()?.block_on(recorded(&data_dir, &server))?;
    let cassette = serde_json::to_string_pretty(&recorded.cassette)? + "\n";
    std::fs::write(&arguments.file, cassette)?;
    let calls = counted(recorded.cassette.calls.len() as u64, "call", "calls");
    let file = arguments.file.display();
    let mut text = format!("recorded {calls} of server `{server}` in {file}\n");
    if recorded.skipped > 0 {
        let skipped = counted(recorded.skipped, "call was", "calls were");
        text += &format!(
            "{skipped} left out, because the history did not keep it whole (`history.bodies`), or \
             the gateway answered it\n"
        );
    }
    print(&text)
}

/// Serves a cassette on stdin and stdout.
pub(crate) fn replay(arguments: &ReplayArguments) -> Result<(), CliError> {
    let matching = match arguments.loose {
        true => Matching::Loose,
        false => Matching::Strict,
    };
    let runtime = current_thread_runtime()?;
    let outcome = runtime.block_on(serve_cassette(&arguments.file, matching));
    // A thread that still reads stdin would delay the exit.
    runtime.shutdown_background();
    outcome.map_err(|error| format!("{}: {error}", arguments.file.display()).into())
}

struct Recording {
    cassette: Cassette,
    /// Calls that could not be recorded.
    skipped: u64,
}

async fn recorded(data_dir: &Path, server: &ServerName) -> Result<Recording, CliError> {
    let view = ViewId::Server(server.clone());
    let mut client = GatewayClient::open(data_dir, view, false).await?;
    let mut lists = BTreeMap::new();
    for (capability, method, member) in LISTS {
        if client.initialized["capabilities"].get(capability).is_some() {
            lists.insert(member.to_owned(), client.list(method, member).await?);
        }
    }
    let operator = OperatorClient::open(data_dir)?;
    let parameters = Parameters::from([
        ("server", server.to_string()),
        ("limit", CALLS_MAX.to_owned()),
    ]);
    let calls = operator.last_records::<CallPage>(&parameters).await?;
    let tools = operator.tools(ViewId::Default).await?;
    let mut tools = tools.iter().filter(|tool| tool.server == server.as_str());
    let prefix = tools.find_map(|tool| tool.name.strip_suffix(&tool.native_name));
    let total = calls.len();
    let calls: Vec<_> = calls
        .into_iter()
        .filter_map(|call| exchange(call, prefix.unwrap_or_default()))
        .collect();
    let skipped = (total - calls.len()) as u64;
    Ok(Recording {
        cassette: Cassette::new(client.initialized, lists, calls),
        skipped,
    })
}

/// The exchange with the server behind a call of the history; `None` if the server did not answer
/// it, or the history does not have all of it. `prefix` is what the merged view puts before names.
fn exchange(call: RecordedCall, prefix: &str) -> Option<RecordedExchange> {
    let is_whole = |state: &str| matches!(state, "whole" | "redacted");
    let kept = call.result.filter(|_| is_whole(&call.result_state));
    let answer = match call.outcome.as_str() {
        "ok" | "tool_error" => RecordedAnswer::Result(kept?),
        "protocol_error" => RecordedAnswer::Error(kept?),
        "server_lost" => RecordedAnswer::Fault(Fault::Exit),
        "timeout" => RecordedAnswer::Fault(Fault::Silence),
        _ => return None,
    };
    let mut params = call.params.filter(|_| is_whole(&call.params_state))?;
    if let Some(params) = params.as_object_mut() {
        params.remove("_meta");
        if let Some(Value::String(name)) = params.get_mut("name") {
            *name = name.strip_prefix(prefix).unwrap_or(name).to_owned();
        }
        params.get_mut("arguments").map(mark_volatile);
    }
    Some(RecordedExchange {
        method: call.method,
        params,
        answer,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn call(outcome: &str, params_state: &'static str) -> RecordedCall {
        RecordedCall {
            method: "tools/call".to_owned(),
            outcome: outcome.to_owned(),
            params: Some(json!({
                "name": "git__log", "arguments": {"n": 1}, "_meta": {"progressToken": 1},
            })),
            params_state: params_state.into(),
            result: Some(json!({"content": []})),
            result_state: "whole".into(),
            ..RecordedCall::default()
        }
    }

    #[test]
    fn only_what_the_server_did_is_recorded() {
        let result = || RecordedAnswer::Result(json!({"content": []}));
        let cases = [
            ("ok", "whole", Some(result())),
            ("tool_error", "redacted", Some(result())),
            (
                "server_lost",
                "whole",
                Some(RecordedAnswer::Fault(Fault::Exit)),
            ),
            (
                "timeout",
                "whole",
                Some(RecordedAnswer::Fault(Fault::Silence)),
            ),
            ("denied", "whole", None),
            ("shed", "whole", None),
            ("ok", "cut", None),
        ];
        for (outcome, state, expected) in cases {
            let found = exchange(call(outcome, state), "git__");
            let answer = found.as_ref().map(|found| found.answer.clone());
            assert_eq!(answer, expected, "{outcome} {state}");
            if let Some(found) = found {
                assert_eq!(found.params, json!({"name": "log", "arguments": {"n": 1}}));
            }
        }
        let found = exchange(call("ok", "whole"), "").unwrap();
        assert_eq!(found.params["name"], "git__log");
    }
}
