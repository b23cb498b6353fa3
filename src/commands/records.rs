//! `mcpvisor history` and `mcpvisor logs`.

use std::path::Path;

use mcpvisor::admin::{OperatorClient, Parameters, RecordPage, Screen};
use mcpvisor::cli::{GatewayLogArguments, HistoryArguments, Moment, ShownRecords};
use mcpvisor::history::CallPage;
use mcpvisor::telemetry::{LogPage, millis, unix_millis};
use tokio::signal::unix::{SignalKind, signal};

use super::output::{CliError, FOLLOW_EVERY, current_thread_runtime, pretty, print};
use super::running_gateway::gateway_data_dir;

pub(crate) fn show_history(
    path: Option<&Path>,
    arguments: HistoryArguments,
) -> Result<(), CliError> {
    let data_dir = gateway_data_dir(path)?;
    if let Some(id) = arguments.replay {
        let client = OperatorClient::open(&data_dir)?;
        let answer = current_thread_runtime()?.block_on(client.replay(&id))?;
        return print(&pretty(&answer)?);
    }
    let filters = [
        ("server", arguments.server),
        ("method", arguments.method),
        ("outcome", arguments.outcome),
        ("session", arguments.session),
    ];
    let parameters = parameters(filters, &arguments.shown);
    let shown = show_records::<CallPage>(&data_dir, parameters, &arguments.shown);
    current_thread_runtime()?.block_on(shown)
}

pub(crate) fn show_gateway_log(
    path: Option<&Path>,
    arguments: GatewayLogArguments,
) -> Result<(), CliError> {
    let data_dir = gateway_data_dir(path)?;
    let filters = [("server", arguments.server), ("level", arguments.level)];
    let parameters = parameters(filters, &arguments.shown);
    let shown = show_records::<LogPage>(&data_dir, parameters, &arguments.shown);
    current_thread_runtime()?.block_on(shown)
}

fn parameters<const N: usize>(
    filters: [(&'static str, Option<String>); N],
    shown: &ShownRecords,
) -> Parameters {
    let since = shown.since.map(|since| match since {
        Moment::Ago(time) => unix_millis().saturating_sub(millis(time)),
        Moment::At(at) => at,
    });
    let since = since.map(|since| since.to_string());
    let others = [
        ("text", shown.text.clone()),
        ("since", since),
        ("limit", Some(shown.lines.to_string())),
    ];
    let all = filters.into_iter().chain(others);
    all.filter_map(|(name, value)| Some((name, value?)))
        .collect()
}

/// Shows the latest records, newest last, and follows new ones if requested.
async fn show_records<P: RecordPage>(
    data_dir: &Path,
    mut parameters: Parameters,
    shown: &ShownRecords,
) -> Result<(), CliError> {
    let screen = Screen::of_stdout();
    let mut interrupt = signal(SignalKind::interrupt())?;
    let client = OperatorClient::open(data_dir)?;
    let mut entries = client.last_records::<P>(&parameters).await?;
    loop {
        if shown.json {
            return print(&pretty(&entries)?);
        }
        print(&P::lines(&entries, &screen))?;
        if !shown.follow {
            return Ok(());
        }
        if let Some(last) = entries.last() {
            parameters.insert("after", P::id_of(last).to_owned());
        }
        parameters.insert("limit", "1000".to_owned());
        tokio::select! {
            () = tokio::time::sleep(FOLLOW_EVERY) => {}
            _ = interrupt.recv() => return Ok(()),
        }
        (entries, _) = client.records::<P>(&parameters).await?;
    }
}
