//! The `tierlab-server` command.

use std::process::ExitCode;

/// Of the whole process, ONNX Runtime's own arenas aside.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    tierlab_server::command::main()
}
