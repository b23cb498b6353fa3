//! The places of a user that matter to servers: secrets, sockets, caches and toolchains.

/// Secrets below the user's home.
pub(super) const SECRETS: &[&str] = &[
    ".ssh",
    ".gnupg",
    ".aws",
    ".azure",
    ".config/gcloud",
    ".kube",
    ".docker",
    ".netrc",
    ".npmrc",
    ".yarnrc",
    ".yarnrc.yml",
    ".pypirc",
    ".config/pip",
    ".pip",
    ".config/uv",
    ".local/share/uv/credentials",
    ".cargo/credentials",
    ".cargo/credentials.toml",
    ".gem/credentials",
    ".m2/settings.xml",
    ".gradle/gradle.properties",
    ".composer/auth.json",
    ".config/composer/auth.json",
    ".config/NuGet",
    ".nuget/NuGet",
    ".terraform.d",
    ".terraformrc",
    ".vault-token",
    ".config/gh",
    ".config/hub",
    ".config/glab-cli",
    ".git-credentials",
    ".config/git/credentials",
    ".config/rclone",
    ".config/op",
    ".config/sops",
    ".config/doctl",
    ".config/mcpvisor",
    ".password-store",
    ".pgpass",
    ".my.cnf",
    ".Xauthority",
    // Keyrings and browsers.
    ".local/share/keyrings",
    ".local/share/kwalletd",
    ".mozilla",
    ".thunderbird",
    ".config/google-chrome",
    ".config/chromium",
    ".config/BraveSoftware",
    ".config/microsoft-edge",
    ".config/vivaldi",
    ".config/opera",
    ".var/app",
    "snap/firefox",
    "snap/chromium",
    // History, which contains secrets that were typed.
    ".bash_history",
    ".zsh_history",
    ".local/share/fish/fish_history",
    ".python_history",
    ".node_repl_history",
    ".psql_history",
    ".mysql_history",
    ".sqlite_history",
    ".rediscli_history",
    ".lesshst",
    ".viminfo",
];

/// Secrets of the system, which only root could read.
pub(super) const SYSTEM_SECRETS: &[&str] = &[
    "/etc/shadow",
    "/etc/gshadow",
    "/etc/mcpvisor",
    "/etc/ssl/private",
    "/var/lib/mcpvisor",
];

/// Sockets that give away the machine or the user's session, and directories of them.
pub(super) const SOCKETS: &[&str] = &[
    "/run/docker.sock",
    "/var/run/docker.sock",
    "/run/podman",
    "/run/containerd",
    "/run/crio",
    "/run/buildkit",
    "/run/libvirt",
    "/run/lxd.socket",
    "/var/lib/lxd/unix.socket",
    "/var/snap/lxd/common/lxd/unix.socket",
    "/run/incus",
    "/var/lib/incus/unix.socket",
    "/run/snapd.socket",
    "/run/snapd-snap.socket",
    "/run/dbus",
    "/run/systemd/private",
    "/run/systemd/io.systemd.Manager",
    "/run/user",
    "/run/gnupg",
    "/tmp/.X11-unix",
];

/// Inherited variables with the address of a socket, which a server gets if `inherit_env` names
/// them.
pub(super) const SOCKET_VARIABLES: [&str; 2] = ["SSH_AUTH_SOCK", "DBUS_SESSION_BUS_ADDRESS"];

/// Sockets of Docker, for servers that are its containers.
pub(super) const DOCKER_SOCKETS: &[&str] = &["/run/docker.sock", "/var/run/docker.sock"];

/// A directory of the user that a program finds by a variable or below its home.
pub(super) struct UserPlace {
    pub(super) variable: &'static str,
    /// Place below the user's home.
    pub(super) path: &'static str,
    /// Programs that write to it; it is created for them.
    pub(super) writers: &'static [&'static str],
}

const fn place(
    variable: &'static str,
    path: &'static str,
    writers: &'static [&'static str],
) -> UserPlace {
    UserPlace {
        variable,
        path,
        writers,
    }
}

/// Caches that servers share, so that no server downloads what another one has.
pub(super) const CACHES: &[UserPlace] = &[
    place("npm_config_cache", ".npm", &["npx", "npm"]),
    place("UV_CACHE_DIR", ".cache/uv", &["uvx", "uv"]),
    place("UV_TOOL_DIR", ".local/share/uv/tools", &["uvx", "uv"]),
    place(
        "UV_PYTHON_INSTALL_DIR",
        ".local/share/uv/python",
        &["uvx", "uv"],
    ),
    place("PIP_CACHE_DIR", ".cache/pip", &["pip", "pipx"]),
    place("PIPX_HOME", ".local/share/pipx", &["pipx"]),
    place(
        "BUN_INSTALL_CACHE_DIR",
        ".bun/install/cache",
        &["bunx", "bun"],
    ),
    place("DENO_DIR", ".cache/deno", &["deno"]),
    place("PLAYWRIGHT_BROWSERS_PATH", ".cache/ms-playwright", &[]),
];

/// Toolchains and settings that programs read.
pub(super) const TOOLS: &[UserPlace] = &[
    place("NVM_DIR", ".nvm", &[]),
    place("FNM_DIR", ".local/share/fnm", &[]),
    place("VOLTA_HOME", ".volta", &[]),
    place("PYENV_ROOT", ".pyenv", &[]),
    place("PYTHONUSERBASE", ".local", &[]),
    place("RUSTUP_HOME", ".rustup", &[]),
    place("CARGO_HOME", ".cargo", &[]),
    place("BUN_INSTALL", ".bun", &[]),
    place("ASDF_DATA_DIR", ".asdf", &[]),
    place("MISE_DATA_DIR", ".local/share/mise", &[]),
    place("SDKMAN_DIR", ".sdkman", &[]),
    place("GIT_CONFIG_GLOBAL", ".gitconfig", &[]),
];

/// Variables that would lead a server to places that it may not write to.
pub(super) const REMOVED: &[&str] = &[
    "XDG_CACHE_HOME",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
    "XDG_STATE_HOME",
    "XDG_RUNTIME_DIR",
];

/// The only directories that a strict server reads besides listed ones.
pub(super) const SYSTEM: &[&str] = &[
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/etc",
    "/opt",
    "/nix/store",
    "/gnu/store",
    "/snap",
    "/proc",
    "/sys",
    "/dev",
    "/run/current-system",
    "/run/systemd/resolve",
    "/run/resolvconf",
    "/run/NetworkManager",
    "/var/lib/ca-certificates",
];
