//! `mcpvisor config`.

use clap::Subcommand;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Subcommand)]
pub enum ConfigVerb {
    /// Print the default configuration with a comment for every key
    Default,

    /// Print a JSON Schema of the configuration, for editors
    Schema,

    /// Print the reference of all keys in Markdown
    Reference,

    /// Update the configuration to the newest file version
    ///
    /// Keeps comments and order, and the previous content as `apply` does.
    Migrate,
}
