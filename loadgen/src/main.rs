//! The `tierlab-loadgen` command.

fn main() -> anyhow::Result<std::process::ExitCode> {
    tierlab_loadgen::cli::main()
}
