//! Which compressions are spoken, and whether a message is compressed.

use http::HeaderMap;
use tonic::codec::{Codec, CompressionEncoding};
use tonic::server::Grpc;

/// A call's wire format: both compressions are read, and used for replies where the request used one.
pub(super) fn wire<C: Codec>(codec: C, headers: &HeaderMap) -> Grpc<C> {
    let grpc = Grpc::new(codec)
        .accept_compressed(CompressionEncoding::Gzip)
        .accept_compressed(CompressionEncoding::Deflate);
    // Most clients say that they accept every compression; only those that compress want to pay for it.
    if is_compressed(headers) {
        grpc.send_compressed(CompressionEncoding::Gzip)
            .send_compressed(CompressionEncoding::Deflate)
    } else {
        grpc
    }
}

pub(super) fn is_compressed(headers: &HeaderMap) -> bool {
    headers
        .get("grpc-encoding")
        .is_some_and(|encoding| encoding != "identity")
}
