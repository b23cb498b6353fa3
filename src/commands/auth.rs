//! `mcpvisor auth`.

use std::path::Path;
use std::time::Duration;

use mcpvisor::admin::{LoginPage, OperatorClient};
use mcpvisor::cli::{AuthArguments, AuthVerb, LoginArguments};
use mcpvisor::credentials::{CredentialView, SIGN_IN_WITHIN};
use mcpvisor::telemetry::{one_line, rfc3339};

use super::output::{CliError, current_thread_runtime, pretty, print, typed_lines};
use super::running_gateway::gateway_data_dir;
use super::ui::open_browser;

/// Interval between two checks whether the login has completed.
const LOOK_EVERY: Duration = Duration::from_millis(500);

pub(crate) fn run_auth_command(
    path: Option<&Path>,
    arguments: AuthArguments,
) -> Result<(), CliError> {
    let data_dir = gateway_data_dir(path)?;
    current_thread_runtime()?.block_on(async {
        let client = OperatorClient::open(&data_dir)?;
        match arguments.verb {
            AuthVerb::Login(arguments) => log_in(&client, arguments).await,
            AuthVerb::Status { json } => {
                let logins = client.logins().await?;
                print(&if json {
                    pretty(&logins)?
                } else {
                    login_table(&logins)
                })
            }
            AuthVerb::Refresh { name, principal } => {
                client.login(&name, principal.as_deref()).refresh().await?;
                print(&format!("renewed the token for `{}`\n", one_line(&name)))
            }
            AuthVerb::Logout { name, principal } => {
                let login = client.login(&name, principal.as_deref());
                print(match login.forget().await? {
                    true => "logged out\n",
                    false => "there was no login\n",
                })
            }
        }
    })
}

/// Prints the page's URL, and waits until the browser or a pasted address completes the login.
async fn log_in(client: &OperatorClient, arguments: LoginArguments) -> Result<(), CliError> {
    let login = client.login(&arguments.name, arguments.principal.as_deref());
    let before = login.signed_in_at().await?;
    let LoginPage {
        url: page,
        authorization_url: beyond,
    } = login.begin().await?;
    print(&format!("{}\n", one_line(&page)))?;
    if arguments.no_wait {
        return Ok(());
    }
    if !arguments.no_browser {
        open_browser(&page);
    }
    if beyond != page {
        eprintln!("If your browser cannot reach this machine, open this one instead:");
        eprintln!("{}", one_line(&beyond));
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
                return Err("the sign-in page has expired; run this command again".into());
            }
            Some(answer) = pasted.recv() => {
                if answer.is_empty() {
                    continue;
                }
                client.finish_login(answer).await?;
                break;
            }
            () = tokio::time::sleep(LOOK_EVERY) => {
                let now = login.signed_in_at().await?;
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
