//! Opening connections. In: an address, and whether to come from a privileged port. Out: a stream.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use tokio::net::{TcpSocket, TcpStream};

/// Source ports that servers trust with the `secure` option.
const PRIVILEGED_PORTS: std::ops::RangeInclusive<u16> = 600..=1023;

/// Connects; from a privileged port when asked and allowed, as servers with the `secure` option want.
pub(super) async fn dial(address: SocketAddr, privileged: bool) -> io::Result<TcpStream> {
    let from_privileged = match privileged {
        true => from_privileged_port(address).await?,
        false => None,
    };
    let stream = match from_privileged {
        Some(stream) => stream,
        None => TcpStream::connect(address).await?,
    };
    stream.set_nodelay(true)?;
    Ok(stream)
}

async fn from_privileged_port(address: SocketAddr) -> io::Result<Option<TcpStream>> {
    let count = u32::from(PRIVILEGED_PORTS.end() - PRIVILEGED_PORTS.start()) + 1;
    let start = super::rpc::next_xid();
    for i in 0..count {
        let (socket, any): (_, IpAddr) = if address.is_ipv4() {
            (TcpSocket::new_v4()?, Ipv4Addr::UNSPECIFIED.into())
        } else {
            (TcpSocket::new_v6()?, Ipv6Addr::UNSPECIFIED.into())
        };
        let port = PRIVILEGED_PORTS.start() + u16::try_from(start.wrapping_add(i) % count).unwrap_or_default();
        match socket.bind(SocketAddr::new(any, port)) {
            Ok(()) => {}
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => return Ok(None),
            Err(_) => continue, // taken
        }
        match socket.connect(address).await {
            Err(e) if matches!(e.kind(), io::ErrorKind::AddrInUse | io::ErrorKind::AddrNotAvailable) => {}
            other => return other.map(Some),
        }
    }
    Ok(None)
}
