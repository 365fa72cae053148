//! The embedded S3 and NFSv3 servers.
