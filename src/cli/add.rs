//! Arguments of `mcpvisor servers add`.

use std::str::FromStr;

use clap::Args;
use url::Url;

use super::Header;
use crate::clients::REGISTRY;

#[derive(Clone, Debug, PartialEq, Eq, Args)]
#[command(after_help = "\
Examples:
  mcpvisor servers add files -- npx -y @modelcontextprotocol/server-filesystem ~/project
  mcpvisor servers add docs https://mcp.example.com/mcp --bearer '${DOCS_TOKEN}'
  mcpvisor servers add io.github.brave/brave-search-mcp-server
  mcpvisor servers add - < mcp.json")]
pub struct AddArguments {
    /// Name in the configuration. A SERVER alone, without NAME, brings its own
    pub name: Option<String>,

    /// URL of a server, a name in the MCP registry (`io.github.user/server`, optionally with
    /// `@VERSION`), the path or URL of a `server.json` or `mcp.json`, a command line in quotes, or
    /// `-` for one of these from stdin
    pub server: Option<String>,

    /// Program of the server with its arguments, instead of SERVER
    #[arg(last = true, value_name = "PROGRAM")]
    pub command: Vec<String>,

    /// Variable of the program's environment; VALUE can contain `${VAR}`
    #[arg(long, value_name = "NAME=VALUE")]
    pub env: Vec<Setting>,

    /// Header of each request to the URL
    #[arg(long, value_name = "NAME: VALUE", value_parser = super::stdio::header)]
    pub header: Vec<Header>,

    /// Token for the URL; `'${VAR}'` reads it from the environment
    #[arg(long, value_name = "TOKEN")]
    pub bearer: Option<String>,

    /// View that shows the server, besides the default one
    #[arg(long)]
    pub view: Option<String>,

    /// Add the server without starting it
    #[arg(long)]
    pub disabled: bool,

    #[command(flatten)]
    pub registry: Registry,

    /// Value of a variable, header or argument that a `server.json` asks for; can contain `${VAR}`
    #[arg(long = "set", value_name = "NAME=VALUE")]
    pub settings: Vec<Setting>,

    /// Package of a `server.json` to use: npm, pypi, oci, nuget or remote
    #[arg(long, value_parser = ["npm", "pypi", "oci", "nuget", "remote"])]
    pub kind: Option<String>,

    /// Only print what would be written
    #[arg(long)]
    pub dry_run: bool,
}

/// The registry to ask.
#[derive(Clone, Debug, PartialEq, Eq, Args)]
pub struct Registry {
    /// Registry to look up names in
    #[arg(
        long = "registry",
        value_name = "URL",
        env = "MCPVISOR_REGISTRY",
        default_value = REGISTRY
    )]
    pub url: Url,
}

/// A value by its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    pub name: String,
    pub value: String,
}

impl FromStr for Setting {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, value) = text
            .split_once('=')
            .ok_or("values have the form NAME=VALUE")?;
        if name.is_empty() {
            return Err("a value needs a name: NAME=VALUE".to_owned());
        }
        Ok(Self {
            name: name.to_owned(),
            value: value.to_owned(),
        })
    }
}
