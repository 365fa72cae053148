//! TLS connections of the scripted server, with a certificate created at the start. In: TCP connections. Out:
//! connections after their handshake; a slow handshake delays no other.

use axum::serve::Listener;
use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::server::TlsStream;

const WAITING: usize = 1024;

pub(crate) struct SecureListener {
    address: SocketAddr,
    ready: mpsc::Receiver<(TlsStream<TcpStream>, SocketAddr)>,
}

impl SecureListener {
    /// Listens on a free port of that address, and writes the certificate that clients have to trust.
    pub(crate) async fn bind(listen: SocketAddr, ca: &Path) -> Result<Self, Box<dyn Error>> {
        let acceptor = acceptor(listen, ca)?;
        let listener = TcpListener::bind(SocketAddr::new(listen.ip(), 0)).await?;
        let address = listener.local_addr()?;
        let (sender, ready) = mpsc::channel(WAITING);
        tokio::spawn(async move {
            while let Ok((stream, from)) = listener.accept().await {
                let (acceptor, sender) = (acceptor.clone(), sender.clone());
                tokio::spawn(async move {
                    let _ = stream.set_nodelay(true);
                    if let Ok(stream) = acceptor.accept(stream).await {
                        let _ = sender.send((stream, from)).await;
                    }
                });
            }
        });
        Ok(Self { address, ready })
    }

    pub(crate) const fn address(&self) -> SocketAddr {
        self.address
    }
}

fn acceptor(listen: SocketAddr, ca: &Path) -> Result<TlsAcceptor, Box<dyn Error>> {
    let made = rcgen::generate_simple_self_signed([listen.ip().to_string()])?;
    std::fs::write(ca, made.cert.pem())?;
    let key = rustls_pki_types::PrivateKeyDer::try_from(made.signing_key.serialize_der())?;
    let config = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

impl Listener for SecureListener {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        match self.ready.recv().await {
            Some(accepted) => accepted,
            // The listener is gone, and the process ends soon.
            None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        Ok(self.address)
    }
}
