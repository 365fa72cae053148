//! The `tierlab-models` command.

fn main() -> std::process::ExitCode {
    tierlab_models::cli::main()
}
