//! Arguments of `mcpvisor stdio`.

use clap::Args;
use url::Url;

use crate::id::{ServerName, ViewId};

#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
pub struct StdioArguments {
    /// Serve this view, or with `server/NAME` one server with its original names
    #[arg(long, value_name = "NAME", conflicts_with = "connect", value_parser = view)]
    pub view: Option<ViewId>,

    /// Serve this server of the configuration as it is, and start no other
    #[arg(long, value_name = "NAME", conflicts_with_all = ["connect", "view"])]
    #[arg(value_parser = server)]
    pub server: Option<ServerName>,

    /// Relay to this MCP endpoint, such as http://127.0.0.1:12006/mcp
    #[arg(long, value_name = "URL")]
    pub connect: Option<Url>,

    /// Header for every request to it, such as "Authorization: Bearer x"; `${VAR}` is expanded
    #[arg(long = "header", value_name = "NAME: VALUE", requires = "connect")]
    #[arg(value_parser = header)]
    pub headers: Vec<Header>,
}

/// An HTTP header as written; variables are not filled in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    pub name: String,
    pub value: String,
}

pub(super) fn header(text: &str) -> Result<Header, String> {
    let (name, value) = text
        .split_once(':')
        .ok_or("headers have the form `NAME: VALUE`")?;
    let (name, value) = (name.trim(), value.trim());
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if name.is_empty() || !name.bytes().all(legal) {
        return Err("a header name consists of letters, digits and `-`".to_owned());
    }
    Ok(Header {
        name: name.to_owned(),
        value: value.to_owned(),
    })
}

fn server(text: &str) -> Result<ServerName, String> {
    ServerName::try_new(text).map_err(|error| error.to_string())
}

pub(super) fn view(text: &str) -> Result<ViewId, String> {
    ViewId::try_from(Some(text.to_owned())).map_err(|error| error.to_string())
}
