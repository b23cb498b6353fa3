//! Finds the process that already listens on an address, from `/proc` on Linux.

use std::collections::HashSet;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::instances::Instance;
use crate::telemetry::one_line;

/// The message for an address in use: the process that holds it, if known, and a solution.
pub fn address_in_use(address: SocketAddr, running: &[Instance]) -> String {
    let holder = holder(address);
    let known = running.iter().find(|instance| {
        let is_its_address = instance.listen.parse() == Ok(address);
        holder
            .as_ref()
            .map_or(is_its_address, |(pid, _)| *pid == instance.pid)
    });
    sentence(known, holder)
}

fn sentence(known: Option<&Instance>, holder: Option<(u32, String)>) -> String {
    let by = match (known, holder) {
        (Some(Instance { pid, config, .. }), _) => {
            let config = config
                .as_ref()
                .map(|path| format!(" with {}", path.display()));
            format!(
                "by another mcpvisor (pid {pid}{})",
                config.unwrap_or_default()
            )
        }
        (None, Some((pid, name))) => format!("by `{}` (pid {pid})", one_line(&name)),
        (None, None) => "by another program".to_owned(),
    };
    format!(
        "the address is in use {by}: stop that, or choose another address with `listen` under [gateway] or the variable PORT"
    )
}

/// The process that listens, if it belongs to this user or all processes are visible.
fn holder(address: SocketAddr) -> Option<(u32, String)> {
    let mut inodes = HashSet::new();
    for table in ["/proc/net/tcp", "/proc/net/tcp6"] {
        let text = fs::read_to_string(table).unwrap_or_default();
        inodes.extend(listening_sockets(&text, address));
    }
    let sockets: HashSet<String> = inodes
        .iter()
        .map(|inode| format!("socket:[{inode}]"))
        .collect();
    if sockets.is_empty() {
        return None;
    }
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let pid = pids.find(|pid| {
        let files = fs::read_dir(format!("/proc/{pid}/fd"));
        let mut targets = files
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|file| fs::read_link(file.path()).ok());
        targets.any(|target| {
            target
                .to_str()
                .is_some_and(|target| sockets.contains(target))
        })
    })?;
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    Some((pid, name.trim_end().to_owned()))
}

/// Inodes of sockets that listen on an address, or on all addresses with its port, parsed from
/// `/proc/net/tcp` or `tcp6`.
fn listening_sockets(text: &str, address: SocketAddr) -> Vec<u64> {
    const LISTENS: &str = "0A";
    let inode = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [_, local, _, LISTENS, _, _, _, _, _, inode, ..] = fields[..] else {
            return None;
        };
        let (ip, port) = local.split_once(':')?;
        let (ip, port) = (ip_of(ip)?, u16::from_str_radix(port, 16).ok()?);
        let is_same = ip == address.ip() || ip.is_unspecified() || address.ip().is_unspecified();
        if port != address.port() || !is_same {
            return None;
        }
        inode.parse().ok()
    };
    text.lines().filter_map(inode).collect()
}

/// Parses an address in words of four bytes, each in native byte order.
fn ip_of(hex: &str) -> Option<IpAddr> {
    let word = |at: usize| {
        let word = hex.get(at * 8..at * 8 + 8)?;
        Some(u32::from_str_radix(word, 16).ok()?.to_ne_bytes())
    };
    match hex.len() {
        8 => Some(IpAddr::V4(Ipv4Addr::from(word(0)?))),
        32 => {
            let mut bytes = [0; 16];
            for (at, part) in bytes.chunks_exact_mut(4).enumerate() {
                part.copy_from_slice(&word(at)?);
            }
            Some(IpAddr::V6(Ipv6Addr::from(bytes)))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::path::PathBuf;

    use super::*;

    #[cfg(target_endian = "little")]
    #[test]
    fn sockets_that_listen_are_found_by_their_address() {
        let text = "\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:2EE6 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 111 1 0
   1: 00000000:0050 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 222 1 0
   2: 0100007F:2EE6 0100007F:A1B2 01 00000000:00000000 00:00000000 00000000  1000        0 333 1 0
   3: 00000000000000000000000001000000:2EE6 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 444 1 0
   4: zz:2EE6 0 0A
";
        let table: [(&str, &[u64]); 5] = [
            ("127.0.0.1:12006", &[111]),
            ("10.0.0.1:12006", &[]),
            ("0.0.0.0:12006", &[111, 444]),
            ("10.0.0.1:80", &[222]),
            ("[::1]:12006", &[444]),
        ];
        for (address, expected) in table {
            let found = listening_sockets(text, address.parse().unwrap());
            assert_eq!(found, expected, "{address}");
        }
    }

    #[test]
    fn the_holder_is_named_as_well_as_it_is_known() {
        let instance = Instance {
            pid: 7,
            data_dir: PathBuf::new(),
            config: Some(PathBuf::from("/srv/config.toml")),
            listen: "127.0.0.1:1".to_owned(),
        };
        let table = [
            (
                Some(&instance),
                None,
                "by another mcpvisor (pid 7 with /srv/config.toml): stop",
            ),
            (
                None,
                Some((8, "no\nde".to_owned())),
                "by `no\\nde` (pid 8): stop",
            ),
            (None, None, "by another program: stop"),
        ];
        for (known, holder, part) in table {
            let sentence = sentence(known, holder);
            for part in [part, "`listen`", "PORT"] {
                assert!(sentence.contains(part), "{sentence}");
            }
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn our_own_socket_is_ours() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (pid, _) = holder(listener.local_addr().unwrap()).unwrap();
        assert_eq!(pid, std::process::id());
    }
}
