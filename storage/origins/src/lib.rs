//! The embedded S3, NFSv3 and Flight servers: real servers over real sockets, made for tests and for the lab on loopback.

pub mod flight;
pub mod nfs;
pub mod s3;
