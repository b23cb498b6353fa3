//! Arguments of `mcpvisor servers add`.

use std::str::FromStr;

use clap::Args;
use url::Url;

#[derive(Clone, Debug, PartialEq, Eq, Args)]
pub struct AddArguments {
    /// A name in the MCP registry (`io.github.user/server`, optionally with `@VERSION`), the path
    /// or URL of a `server.json`, or the URL of a server
    #[arg(value_name = "NAME|FILE|URL")]
    pub from: String,

    /// Registry to look up a name in
    #[arg(
        long,
        value_name = "URL",
        env = "MCPVISOR_REGISTRY",
        default_value = "https://registry.modelcontextprotocol.io"
    )]
    pub registry: Url,

    /// Name in the configuration [default: the file's name for it, or the URL's host]
    #[arg(long)]
    pub name: Option<String>,

    /// Value of a variable, header or argument that the file asks for; can contain `${VAR}`
    #[arg(long = "set", value_name = "NAME=VALUE")]
    pub settings: Vec<Setting>,

    /// Package to use: npm, pypi, oci, nuget or remote
    #[arg(long, value_parser = ["npm", "pypi", "oci", "nuget", "remote"])]
    pub kind: Option<String>,

    /// Only print what would be written
    #[arg(long)]
    pub dry_run: bool,
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
