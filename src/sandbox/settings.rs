//! How a server is confined, as configured.

/// The level of servers whose configuration names none.
pub const DEFAULT_LEVEL: Level = Level::Standard;

/// How much a server is confined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// Runs with all rights of the gateway's user.
    Off,
    /// Writes to its own places only, and reads everything but secrets.
    Standard,
    /// Reads listed paths only as well, and does not start unless the kernel keeps every promise.
    Strict,
}

impl Level {
    /// All levels with their names, the weakest first.
    pub const NAMED: &[(&str, Self)] = &[
        ("off", Self::Off),
        ("standard", Self::Standard),
        ("strict", Self::Strict),
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Standard => "standard",
            Self::Strict => "strict",
        }
    }
}

/// The network that a server reaches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Network {
    #[default]
    All,
    None,
}

/// The level of a server and its exceptions. A path can begin with `~/`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SandboxSettings {
    /// `None` for [`DEFAULT_LEVEL`].
    pub level: Option<Level>,
    /// Paths that the server can read though the level hides them.
    pub read: Vec<String>,
    /// Paths that the server can read and write.
    pub write: Vec<String>,
    pub network: Network,
    /// Unix sockets that the server can connect to.
    pub unix_sockets: Vec<String>,
    /// Devices below `/dev`.
    pub devices: Vec<String>,
}

impl SandboxSettings {
    pub fn level(&self) -> Level {
        self.level.unwrap_or(DEFAULT_LEVEL)
    }
}
