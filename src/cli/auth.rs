//! The words of `mcpvisor auth`.

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
    /// Prints the page to open, and waits until somebody signed in there. On a machine without a
    /// browser, open the page elsewhere and paste the address that the browser is sent to at the
    /// end.
    Login(LoginArguments),

    /// Show where the gateway is signed in, and which servers need a login
    Status {
        /// Write JSON, for programs
        #[arg(long)]
        json: bool,
    },

    /// Renew the token for a server now
    Refresh {
        name: String,
        /// That of this user (`credentials = "user"`), by the name of its API key
        #[arg(long, value_name = "NAME")]
        principal: Option<String>,
    },

    /// Forget the token for a server, and revoke it
    Logout {
        name: String,
        /// That of this user, by the name of its API key
        #[arg(long, value_name = "NAME")]
        principal: Option<String>,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Args)]
pub struct LoginArguments {
    pub name: String,

    /// Sign in this user (`credentials = "user"`), by the name of its API key
    #[arg(long, value_name = "NAME")]
    pub principal: Option<String>,

    /// Print the page and end
    #[arg(long)]
    pub no_wait: bool,

    /// Do not open the page in a browser
    #[arg(long)]
    pub no_browser: bool,
}
