//! The embedded S3 and NFSv3 servers: real servers over real sockets, made for tests and for the lab on loopback.

pub mod nfs;
pub mod s3;
