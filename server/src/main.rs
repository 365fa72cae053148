//! The `tierlab-server` command.

use std::process::ExitCode;

/// Allocator of the whole process, except ONNX Runtime's own arenas.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    tierlab_server::command::main()
}
