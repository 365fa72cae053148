//! A server's replies to the calls that mount an NFS export and list it, over a real connection. The input is cut into replies: two
//! bytes of length before each. The transaction id of the call is laid over the word behind each one's record mark.

#![no_main]

use libfuzzer_sys::fuzz_target;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{LazyLock, Mutex};
use std::time::Duration;
use tierlab_storage::TierConfig;
use tokio::runtime::{Builder, Runtime};

/// The client gives up long before this.
const PATIENCE: Duration = Duration::from_secs(8);

static REPLIES: Mutex<Vec<Vec<u8>>> = Mutex::new(Vec::new());
static SERVER: LazyLock<(u16, Runtime)> = LazyLock::new(|| {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("its address").port();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || answer(stream));
        }
    });
    (port, Builder::new_current_thread().enable_all().build().expect("a runtime"))
});

fn answer(mut stream: TcpStream) -> Option<()> {
    loop {
        let mut mark = [0; 4];
        stream.read_exact(&mut mark).ok()?;
        let mut call = vec![0; (u32::from_be_bytes(mark) & 0x7fff_ffff) as usize];
        stream.read_exact(&mut call).ok()?;
        let mut reply = REPLIES.lock().ok()?.pop()?;
        if let (Some(to), Some(xid)) = (reply.get_mut(4..8), call.get(..4)) {
            to.copy_from_slice(xid);
        }
        stream.write_all(&reply).ok()?;
    }
}

fuzz_target!(|data: &[u8]| {
    let (port, runtime) = &*SERVER;
    let (mut rest, mut replies) = (data, Vec::new());
    while let Some((len, behind)) = rest.split_first_chunk::<2>() {
        let (reply, behind) = behind.split_at(usize::from(u16::from_le_bytes(*len)).min(behind.len()));
        replies.insert(0, reply.to_vec());
        rest = behind;
    }
    *REPLIES.lock().expect("no panic") = replies;
    let toml = format!("kind = \"nfs\"\nurl = \"nfs://127.0.0.1:{port}/e\"\ntimeout_ms = 100\n");
    let config = TierConfig::parse("fuzz", &toml).expect("a configuration");
    runtime.block_on(async {
        let used = async {
            if let Ok(tier) = tierlab_storage::open(&config).await {
                let _ = tier.list(None).await;
            }
        };
        tokio::time::timeout(PATIENCE, used).await.expect("the client ends");
    });
});
