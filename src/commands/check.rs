//! `mcpvisor check` and `mcpvisor config`.

use std::path::Path;

use mcpvisor::admin::{ask_status, notice_lines};
use mcpvisor::cli::ConfigVerb;
use mcpvisor::config::{
    Config, Lookup, ProcessEnvironment, default_file, describe, reference, schema, unable_servers,
};
use mcpvisor::front::FrontTls;
use mcpvisor::gateway::stored_notices;
use mcpvisor::telemetry::printable;

use super::output::{CliError, current_thread_runtime, pretty, print};
use super::plan::run_migrate_command;

pub(crate) fn check(path: Option<&Path>) -> Result<(), CliError> {
    let environment = ProcessEnvironment::new();
    let loaded = Config::load(path, Lookup::WorkingDirectory, &environment)?;
    print(&printable(&(describe(&loaded) + "\n")))?;
    // Only a gateway that runs or has stored lists knows which names are shortened.
    current_thread_runtime()?.block_on(async {
        if let Ok(status) = ask_status(&loaded.config.data_dir).await {
            return print(&notice_lines(&status.notices));
        }
        match stored_notices(&loaded.config).await {
            Some(notices) => print(&notice_lines(&notices)),
            None => print("names          unknown: no gateway has listed these servers yet\n"),
        }
    })?;
    let mut unable = unable_servers(&loaded.config, &environment);
    if let Err(why) = FrontTls::load(&loaded.config.front.tls) {
        unable.push(format!("[tls] cannot be served: {why}"));
    }
    match unable.as_slice() {
        [] => Ok(()),
        unable => Err(format!("error: {}", unable.join("\nerror: ")).into()),
    }
}

pub(crate) fn run_config_command(path: Option<&Path>, verb: ConfigVerb) -> Result<(), CliError> {
    match verb {
        ConfigVerb::Default => print(&default_file()),
        ConfigVerb::Schema => print(&pretty(&schema())?),
        ConfigVerb::Reference => print(&reference()),
        ConfigVerb::Migrate => run_migrate_command(path),
    }
}
