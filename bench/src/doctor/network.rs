//! Network below a tier, measured by connections to its address. In: a URL and the system's files. Out: findings.

use super::finding::{Finding, Tree};
use nix::sys::socket::{getsockopt, sockopt::IpMtu};
use std::io;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};
use tierlab_instrument::units::{bytes, digits3, latency};

/// Number of connections; their median time is the round trip.
const CONNECTIONS: usize = 5;
const TIMEOUT: Duration = Duration::from_secs(3);
/// Minimum round trip to a server outside this zone.
const FAR_ROUND_TRIP: Duration = Duration::from_millis(2);
/// MTU of Ethernet; a lower one is a tunnel's.
const ETHERNET_MTU: i32 = 1500;
/// Rate that one connection should reach, in bytes per second: 10 Gbit/s.
const MIN_RATE: f64 = 1.25e9;

/// Connects to the address of a URL.
pub(super) fn findings(tree: &Tree, url: &str) -> Vec<Finding> {
    let address = address(url);
    let (round_trips, mtu) = match connect(&address) {
        Ok(measured) => measured,
        Err(error) => {
            let none = Finding::warning("network", format!("{address} does not answer: {error}"))
                .effect("the tier cannot be read")
                .times(f64::INFINITY)
                .change("check the address in the tier's TOML, DNS, routes and firewalls");
            return vec![none];
        }
    };
    let time = |of: Duration| latency(of.as_secs_f64() * 1e6);
    let (round_trip, longest) = (round_trips[CONNECTIONS / 2], time(round_trips[CONNECTIONS - 1]));
    let first = Finding::warning("round trip", format!("{} to {address}", time(round_trip)))
        .effect("each read waits for at least one round trip, and sequential reads for one after another")
        .change("run in the zone of the storage, raise the reads in flight, or add a cache")
        .measured(format!("median of {CONNECTIONS} connections, the longest {longest}"))
        .fine_if(round_trip < FAR_ROUND_TRIP);
    let second = match mtu {
        None => Finding::unknown("MTU", "not reported by the kernel"),
        Some(mtu) => Finding::warning("MTU", mtu.to_string())
            .effect("a tunnel on the path: more packets for the same bytes, and CPU for each")
            .change("use a network without a tunnel, or raise the MTU below it")
            .measured(format!("{} packets for 1 MiB", (1 << 20) / (mtu - 40).max(1) + 1))
            .fine_if(mtu >= ETHERNET_MTU),
    };
    vec![first, second, buffers(tree, round_trip)]
}

/// Host and port of a URL; the port is its scheme's if it names none.
fn address(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("http", url));
    // A password may contain any character. An NFS export may contain an `@`, but its URL has no password.
    let authority = match scheme {
        "nfs" => rest,
        _ => rest.rsplit('@').next().unwrap_or_default(),
    };
    let host = authority.split(['/', '?', '#']).next().unwrap_or_default();
    let port = match scheme {
        "nfs" => 2049,
        "redis" | "rediss" => 6379,
        "http" | "grpc" => 80,
        _ => 443,
    };
    // An IPv6 address with its colons is in brackets.
    match host.rsplit_once(':') {
        Some((_, after)) if !after.contains(']') => host.to_owned(),
        _ => format!("{host}:{port}"),
    }
}

/// Returns the sorted round trips, and the path's MTU according to the kernel.
fn connect(address: &impl ToSocketAddrs) -> io::Result<([Duration; CONNECTIONS], Option<i32>)> {
    let peers = Vec::from_iter(address.to_socket_addrs()?);
    // A server may listen at one of its name's addresses only, such as the second of `localhost`.
    let answers = |peer: &&SocketAddr| TcpStream::connect_timeout(peer, TIMEOUT).is_ok();
    let peer = peers.iter().find(answers).or(peers.first());
    let peer = peer.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
    let (mut round_trips, mut mtu) = ([Duration::ZERO; CONNECTIONS], None);
    for round_trip in &mut round_trips {
        let started = Instant::now();
        let connection = TcpStream::connect_timeout(peer, TIMEOUT)?;
        *round_trip = started.elapsed();
        mtu = getsockopt(&connection, IpMtu).ok();
    }
    round_trips.sort();
    Ok((round_trips, mtu))
}

/// Rate that the kernel's largest receive buffer allows to one connection.
fn buffers(tree: &Tree, round_trip: Duration) -> Finding {
    let about = "TCP receive buffer";
    let text = tree.text("proc/sys/net/ipv4/tcp_rmem").unwrap_or_default();
    let Some(max) = text.split_whitespace().nth(2).and_then(|text| text.parse::<u64>().ok()) else {
        return Finding::unknown(about, "/proc/sys/net/ipv4/tcp_rmem cannot be read");
    };
    let window = match tree.number("proc/sys/net/ipv4/tcp_window_scaling") {
        Some(0) => max.min(64 << 10),
        // The kernel uses about half of a buffer itself.
        _ => max / 2,
    };
    let rate = window as f64 / round_trip.as_secs_f64().max(1e-6);
    Finding::warning(about, format!("up to {}", bytes(max)))
        .effect("a connection moves at most one window per round trip; parallel reads are slowed less")
        .change("run `sysctl net.ipv4.tcp_rmem='4096 131072 67108864' net.ipv4.tcp_window_scaling=1`")
        .measured(format!("at most {} MB/s per connection", digits3(rate / 1e6)))
        .times(MIN_RATE / rate)
        .fine_if(rate >= MIN_RATE)
}

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::*;

    #[test]
    fn addresses_of_urls_have_a_port() {
        for (url, want) in [
            ("http://127.0.0.1:9000/a", "127.0.0.1:9000"),
            ("https://s3.eu-west-1.amazonaws.com", "s3.eu-west-1.amazonaws.com:443"),
            ("nfs://filer/export", "filer:2049"),
            ("grpc://[::1]:8815", "[::1]:8815"),
            ("http://[::1]/x", "[::1]:80"),
            ("redis://user:p@ss/word@cache:6380", "cache:6380"),
            ("rediss://:word@[::1]", "[::1]:6379"),
            ("nfs://filer/a@b", "filer:2049"),
        ] {
            assert_eq!(address(url), want);
        }
    }

    #[test]
    fn a_server_at_the_second_address_of_its_name_answers() {
        let [closed, open] = [0; 2].map(|_| std::net::TcpListener::bind("127.0.0.1:0").unwrap());
        let addresses = [&closed, &open].map(|listener| listener.local_addr().unwrap());
        drop(closed);
        assert!(connect(&&addresses[..1]).is_err());
        connect(&&addresses[..]).unwrap();
    }

    #[test]
    fn a_connection_to_this_machine_is_tried_and_a_closed_port_is_a_warning() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join("proc/sys/net/ipv4")).unwrap();
        let tree = Tree::at(folder.path());
        let rmem = |text: &str| std::fs::write(folder.path().join("proc/sys/net/ipv4/tcp_rmem"), text).unwrap();
        rmem("4096 131072 67108864\n");
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let found = findings(&tree, &url);
        let names: Vec<&str> = found.iter().map(|finding| finding.about.as_str()).collect();
        assert_eq!(names, ["round trip", "MTU", "TCP receive buffer"]);
        assert!(found.iter().all(|finding| finding.measured.is_some()), "{found:?}");
        assert_eq!(
            (found[0].level, found[1].level),
            (Level::Fine, Level::Fine),
            "{found:?}"
        );
        drop(listener);
        let silent = findings(&tree, &url).remove(0);
        assert!(silent.found.contains("does not answer"), "{silent:?}");
        // The worst of all findings.
        assert_eq!(silent.times, Some(f64::INFINITY));
        // A long way with a small buffer: 64 KiB in 50 ms are 1.31 MB/s.
        rmem("4096 87380 131072\n");
        let far = buffers(&tree, Duration::from_millis(50));
        assert_eq!(far.level, Level::Warning);
        assert!(far.measured.unwrap().contains("1.31 MB/s"));
    }
}
