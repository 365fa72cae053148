//! TCP sockets of this machine, from the kernel's tables.
//!
//! In: a server's addresses; the lab's own processes. Out: the processes that listen at an address; true if the lab's own processes
//! are connected to another machine. Independent of the measurement.

use super::processes::Processes;
use procfs::net::{TcpNetEntry, TcpState};
use procfs::process::{FDTarget, Process, all_processes};
use std::net::{IpAddr, SocketAddr, ToSocketAddrs, UdpSocket};
use url::Url;

/// Programs that listen for others, by kernel name: their forwarding targets are unknown.
const PROXIES: [&str; 4] = ["docker-proxy", "rootlessport", "slirp4netns", "pasta"];

/// Port of NFS: the kernel's mounts have connections without a process.
const NFS_PORT: u16 = 2_049;

/// Returns the processes of this machine that serve some addresses; empty if other machines serve all of them. `None` if this user may
/// not inspect a local server.
pub(super) fn servers_at(urls: &[String]) -> Option<Vec<i32>> {
    let mut local = Vec::new();
    for url in urls {
        local.extend(server_at(url)?);
    }
    local.sort_unstable();
    local.dedup();
    Some(local)
}

/// Returns the result of [`servers_at`] for one address.
fn server_at(url: &str) -> Option<Vec<i32>> {
    let address = |url: Url| {
        let host = url.host_str()?.trim_matches(['[', ']']).to_owned();
        Some((host, url.port_or_known_default()?))
    };
    let Some((host, port)) = Url::parse(url).ok().and_then(address) else {
        return Some(Vec::new());
    };
    let addresses = (host.as_str(), port).to_socket_addrs();
    let is_local = addresses.is_ok_and(|mut all| all.any(|address| is_of_this_machine(address.ip())));
    if !is_local {
        return Some(Vec::new());
    }
    let found = listeners(port);
    let is_hidden = found.is_empty() || found.iter().any(is_proxy);
    (!is_hidden).then(|| found.iter().map(Process::pid).collect())
}

/// True for addresses of this machine: only those can be bound.
fn is_of_this_machine(ip: IpAddr) -> bool {
    ip.is_loopback() || UdpSocket::bind(SocketAddr::new(ip, 0)).is_ok()
}

fn is_proxy(process: &Process) -> bool {
    process.stat().is_ok_and(|stat| PROXIES.contains(&stat.comm.as_str()))
}

/// Returns the processes with a socket that listens on a port.
fn listeners(port: u16) -> Vec<Process> {
    let is_listening = |entry: &TcpNetEntry| entry.state == TcpState::Listen && entry.local_address.port() == port;
    let sockets: Vec<u64> = entries().filter(is_listening).map(|entry| entry.inode).collect();
    if sockets.is_empty() {
        return Vec::new();
    }
    let has_one = |process: &Process| {
        let mut files = process.fd().into_iter().flatten().flatten();
        files.any(|file| matches!(file.target, FDTarget::Socket(inode) if sockets.contains(&inode)))
    };
    let all = all_processes().into_iter().flatten().flatten();
    all.filter(has_one).collect()
}

/// True if one of the lab's own processes, or an NFS mount of the kernel, has a connection to another machine, or if this user may
/// not inspect them. The kernel does not count bytes by process, so own traffic cannot be separated from foreign traffic.
pub(super) fn has_remote_connections(processes: &Processes) -> bool {
    let connected = entries().filter(|entry| entry.state != TcpState::Listen);
    let remote = connected.filter(|entry| is_remote(entry.local_address.ip(), entry.remote_address.ip()));
    let mut remote = remote.peekable();
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

/// Returns all TCP sockets of this network namespace.
fn entries() -> impl Iterator<Item = TcpNetEntry> {
    let tables = [procfs::net::tcp(), procfs::net::tcp6()];
    tables.into_iter().flatten().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn who_listens_here_is_found_by_the_port() {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = socket.local_addr().unwrap().port();
        let me = i32::try_from(std::process::id()).unwrap();
        for url in [
            format!("http://127.0.0.1:{port}"),
            format!("http://localhost:{port}/v2"),
        ] {
            assert_eq!(server_at(&url), Some(vec![me]), "{url}");
        }
        drop(socket);
        assert_eq!(server_at(&format!("http://127.0.0.1:{port}")), None);
    }

    #[test]
    fn an_address_of_another_machine_is_elsewhere() {
        // RFC 5737: for documentation only.
        assert_eq!(server_at("http://192.0.2.1:8000"), Some(Vec::new()));
        assert_eq!(server_at("nonsense"), Some(Vec::new()));
    }

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
