//! Arguments of `mcpvisor auth`.

use clap::{Args, Subcommand};

#[derive(Clone, Debug, PartialEq, Eq, Args)]
pub struct AuthArguments {
    #[command(subcommand)]
    pub verb: AuthVerb,
}

#[derive(Clone, Debug, PartialEq, Eq, Subcommand)]
pub enum AuthVerb {
    /// Sign the gateway in to a server
    ///
    /// Prints the page to open and waits. Without a browser on this machine, open the page
    /// elsewhere and paste the address that the browser ends at.
    Login(LoginArguments),

    /// Show where the gateway is signed in, and which servers need a login
    Status {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },

    /// Renew the token for a server now
    Refresh {
        name: String,
        /// User whose token it is, by API key name
        #[arg(long, value_name = "NAME")]
        principal: Option<String>,
    },

    /// Delete and revoke the token for a server
    Logout {
        name: String,
        /// User whose token it is, by API key name
        #[arg(long, value_name = "NAME")]
        principal: Option<String>,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Args)]
pub struct LoginArguments {
    pub name: String,

    /// User to sign in (`credentials = "user"`), by API key name
    #[arg(long, value_name = "NAME")]
    pub principal: Option<String>,

    /// Print the page and exit
    #[arg(long)]
    pub no_wait: bool,

    /// Do not open the page in a browser
    #[arg(long)]
    pub no_browser: bool,
}
