//! `mcpvisor vault`.

use std::path::{Path, PathBuf};

use mcpvisor::admin::ask_status;
use mcpvisor::cli::{VaultArguments, VaultVerb};
use mcpvisor::config::{Config, Lookup, ProcessEnvironment};
use mcpvisor::credentials::{VaultKey, read_key_file, rotate_vault};
use secrecy::SecretString;

use super::output::{CliError, current_thread_runtime, print};

pub(crate) fn run_vault_command(
    path: Option<&Path>,
    arguments: VaultArguments,
) -> Result<(), CliError> {
    let VaultVerb::Rotate { old_key_file } = arguments.verb;
    let environment = ProcessEnvironment::new();
    let loaded = Config::load(path, Lookup::WorkingDirectory, &environment)?;
    let key = loaded.config.vault_key(&environment);
    let place = loaded.config.vault_place();
    let old = old_key_file.map(read_key).transpose()?;
    let is_fixed = matches!(key, VaultKey::Variable(..));
    if is_fixed && current_thread_runtime()?.block_on(is_running(&place.data_dir)) {
        let why = format!(
            "a running gateway still uses the old key; restart it with the new key from {key}"
        );
        return Err(why.into());
    }
    if !place.data_dir.is_dir() {
        return Err("no tokens are stored yet".into());
    }
    let rotated = rotate_vault(&place, &key, old.as_ref())?;
    let before = match rotated.went_on {
        true => " that an earlier run left",
        false => "",
    };
    print(&format!(
        "re-encrypted {} files{before}, with {key}\n",
        rotated.resealed
    ))?;
    for file in &rotated.unreadable {
        eprintln!(
            "`{}` is encrypted with neither key and was left unchanged",
            file.display()
        );
    }
    Ok(())
}

fn read_key(path: PathBuf) -> Result<SecretString, CliError> {
    let unreadable = |error| format!("`{}` cannot be read: {error}", path.display());
    Ok(read_key_file(&path).map_err(unreadable)?)
}

async fn is_running(data_dir: &Path) -> bool {
    ask_status(data_dir).await.is_ok()
}
