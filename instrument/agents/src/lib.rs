//! Protocol for instruments that measure from several processes: a run gives orders to agents on other hosts, or to processes of its
//! own, which start together and reply with results.
//!
//! In: addresses and credentials, or a listener. Out: links for the messages of each instrument, compared clocks, and a
//! common start. Independent of the measurement.
//!
//! - [`options`]: flags of a run and of an agent; [`tls`], [`token`]: their credentials
//! - [`message`]: messages and their bytes; [`link`]: a connection to the peer
//! - [`handshake`]: permission to give orders
//! - [`clock`]: offset of another clock, and the common start
//! - [`worker`]: one process from the run's view; [`remote`]: the connections to agents
//! - [`session`]: runs from an agent's view, and their admission

pub mod clock;
pub mod handshake;
pub mod link;
pub mod message;
pub mod options;
pub mod remote;
pub mod session;
pub mod tls;
pub mod token;
pub mod worker;

/// Maximum number of processes or agents in one run.
pub const MAX_PROCESSES: u32 = 64;
