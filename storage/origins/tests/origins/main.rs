//! The S3 and NFS tiers against the embedded origins, in this process and as the real binary.

mod binary;
mod nfs;
mod process;
mod recorded;
mod s3;
