//! How items of a server are named and which of them are shown.

/// Naming and filtering of one server's tools, prompts and resources.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NameSettings {
    /// Put before tool and prompt names as `prefix__name`; `None` is the server's name, an empty
    /// text leaves native names unchanged.
    pub prefix: Option<String>,
    /// Globs over native tool names; empty allows all.
    pub allow: Vec<String>,
    /// Globs over native tool names; wins over `allow`.
    pub deny: Vec<String>,
}

/// Limits of the merged catalog.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CatalogSettings {
    /// Longest prefixed name, in characters: clients put their own prefix before it and stop at
    /// 60 or 64.
    pub name_max: usize,
    /// Items on one page of a list.
    pub page_items: usize,
    /// Length of the merged server instructions, in bytes.
    pub instructions_max: usize,
}
