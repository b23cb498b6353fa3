//! `mcpvisor auth`.

use std::path::Path;
use std::time::Duration;

use mcpvisor::admin::{ControlRequest, LoginOrder, LoginOrigin, ask};
use mcpvisor::cli::{AuthArguments, AuthVerb, LoginArguments};
use mcpvisor::credentials::{CredentialView, SIGN_IN_WITHIN};
use mcpvisor::telemetry::{one_line, rfc3339};
use serde_json::Value;

use super::output::{CliError, current_thread_runtime, pretty, print, typed_lines};
use super::running_gateway::gateway_data_dir;
use super::ui::open_browser;

/// Time between two looks whether somebody signed in.
const LOOK_EVERY: Duration = Duration::from_millis(500);

pub(crate) fn run_auth_command(
    path: Option<&Path>,
    arguments: AuthArguments,
) -> Result<(), CliError> {
    let data_dir = gateway_data_dir(path)?;
    current_thread_runtime()?.block_on(async {
        match arguments.verb {
            AuthVerb::Login(arguments) => log_in(&data_dir, arguments).await,
            AuthVerb::Status { json } => {
                let logins: Vec<CredentialView> = ask(&data_dir, &ControlRequest::Logins).await?;
                print(&if json {
                    pretty(&logins)?
                } else {
                    login_table(&logins)
                })
            }
            AuthVerb::Refresh { name, principal } => {
                order(&data_dir, &name, principal, LoginOrder::Refresh).await?;
                print(&format!("the token for `{}` is renewed\n", one_line(&name)))
            }
            AuthVerb::Logout { name, principal } => {
                let done = order(&data_dir, &name, principal, LoginOrder::Forget).await?;
                print(match done["forgotten"].as_bool() {
                    Some(true) => "logged out\n",
                    _ => "nobody was logged in\n",
                })
            }
        }
    })
}

async fn order(
    data_dir: &Path,
    server: &str,
    principal: Option<String>,
    order: LoginOrder,
) -> Result<Value, CliError> {
    let request = ControlRequest::Login {
        server: server.to_owned(),
        principal,
        order,
    };
    Ok(ask(data_dir, &request).await?)
}

/// Prints the page, and waits until the browser or the address that is pasted ends the login.
async fn log_in(data_dir: &Path, arguments: LoginArguments) -> Result<(), CliError> {
    let signed_in_at = || async {
        let (server, principal) = (&arguments.name, arguments.principal.clone());
        let login = order(data_dir, server, principal, LoginOrder::SignedInAt).await?;
        Ok::<_, CliError>(login["signedInAt"].as_u64())
    };
    let before = signed_in_at().await?;
    let begin = LoginOrder::Begin {
        redirect_uri: None,
        origin: LoginOrigin::CommandLine,
    };
    let begun = order(
        data_dir,
        &arguments.name,
        arguments.principal.clone(),
        begin,
    )
    .await?;
    let page = begun["url"].as_str().unwrap_or_default();
    print(&format!("{}\n", one_line(page)))?;
    if arguments.no_wait {
        return Ok(());
    }
    if !arguments.no_browser {
        open_browser(page);
    }
    let beyond = begun["authorizationUrl"].as_str().unwrap_or(page);
    if beyond != page {
        eprintln!("If your browser cannot reach this machine, open this one instead:");
        eprintln!("{}", one_line(beyond));
    }
    eprintln!(
        "Open the page and sign in. Where the browser cannot come back to this machine, paste the \
         address that it is sent to here."
    );
    let mut pasted = typed_lines();
    let too_late = tokio::time::sleep(SIGN_IN_WITHIN);
    tokio::pin!(too_late);
    loop {
        tokio::select! {
            () = &mut too_late => {
                return Err("nobody signed in at this page, which is too old now; run this command again".into());
            }
            Some(answer) = pasted.recv() => {
                if answer.is_empty() {
                    continue;
                }
                ask::<Value>(data_dir, &ControlRequest::FinishLogin { answer }).await?;
                break;
            }
            () = tokio::time::sleep(LOOK_EVERY) => {
                let now = signed_in_at().await?;
                if now.is_some() && now != before {
                    break;
                }
            }
        }
    }
    print("signed in\n")
}

fn login_table(logins: &[CredentialView]) -> String {
    if logins.is_empty() {
        return "no server needs a login\n".to_owned();
    }
    logins.iter().map(login_line).collect()
}

fn login_line(login: &CredentialView) -> String {
    let (server, state) = (one_line(&login.server), one_line(&login.state));
    let (of, option) = match login.principal.as_deref().map(one_line) {
        Some(user) => (format!(" for {user}"), format!(" --principal {user}")),
        None => (String::new(), String::new()),
    };
    let mut remarks = Vec::new();
    if let Some(at) = login.expires_at {
        let verb = if login.is_renewable {
            "is renewed before"
        } else {
            "expires"
        };
        remarks.push(format!("{verb} {}", rfc3339(at.saturating_mul(1000))));
    }
    if !matches!(state.as_str(), "signed in" | "needs token") {
        remarks.push(format!("`mcpvisor auth login {server}{option}`"));
    }
    format!("{server}{of}  {state}  {}\n", remarks.join(", "))
}
