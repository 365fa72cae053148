//! The `tierlab-origin` command.

fn main() -> std::process::ExitCode {
    tierlab_origins::cli::main()
}
