//! Connections of the lab's own processes to other machines.
//!
//! In: the kernel's tables of TCP sockets, and the processes' open files. Out: whether there are any. Loopback and the machine's own
//! addresses are not other machines.

use super::processes::Processes;
use procfs::net::TcpState;
use std::net::IpAddr;

/// The kernel's own mounts have connections that no process holds.
const NFS_PORT: u16 = 2_049;

/// True if one of the lab's own processes, or an NFS mount of the kernel, has a connection to another machine, or if this user may
/// not see so. The kernel does not count bytes by process: what such connections carry cannot be told from the traffic of others.
pub(super) fn reach_other_machines(processes: &Processes) -> bool {
    let tables = [procfs::net::tcp(), procfs::net::tcp6()];
    let connected = tables.into_iter().flatten().flatten();
    let connected = connected.filter(|entry| entry.state != TcpState::Listen);
    let mut remote = connected
        .filter(|entry| is_remote(entry.local_address.ip(), entry.remote_address.ip()))
        .peekable();
    if remote.peek().is_none() {
        return false;
    }
    let own = processes.own_sockets();
    remote.any(|entry| {
        let is_own = own.as_ref().is_none_or(|own| own.contains(&entry.inode));
        is_own || entry.remote_address.port() == NFS_PORT
    })
}

fn is_remote(own: IpAddr, peer: IpAddr) -> bool {
    let [own, peer] = [own, peer].map(|address| address.to_canonical());
    !peer.is_loopback() && peer != own
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_within_the_machine_reach_no_other() {
        for (own, peer, expected) in [
            ("10.0.0.1", "10.0.0.2", true),
            ("::ffff:10.0.0.1", "::ffff:10.0.0.2", true),
            ("10.0.0.1", "10.0.0.1", false),
            ("127.0.0.1", "127.0.0.2", false),
            ("::ffff:127.0.0.1", "::ffff:127.0.0.1", false),
            ("::1", "::1", false),
        ] {
            assert_eq!(
                is_remote(own.parse().unwrap(), peer.parse().unwrap()),
                expected,
                "{own} {peer}"
            );
        }
    }
}
