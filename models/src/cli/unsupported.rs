//! Stand-in for the commands of the feature `tables` in a build without it: they are listed, and refused with any
//! arguments.

use crate::error::ModelsError;
use crate::stop::Stop;
use clap::Args;
use std::ffi::OsString;

pub(super) use UnsupportedArgs as ExportTableArgs;
pub(super) use UnsupportedArgs as ImportTableArgs;
pub(super) use UnsupportedArgs as LayOutArgs;

pub(super) const EXAMPLES: &str = "This build has no such command: run `make build`.";

#[derive(Debug, Args)]
pub(super) struct UnsupportedArgs {
    #[arg(hide = true, trailing_var_arg = true, allow_hyphen_values = true)]
    _unread: Vec<OsString>,
}

pub(super) async fn run_import(_: UnsupportedArgs, _: &Stop) -> Result<(), ModelsError> {
    Err(unsupported("import-table"))
}

pub(super) fn run_export(_: &UnsupportedArgs, _: &Stop) -> Result<(), ModelsError> {
    Err(unsupported("export-table"))
}

pub(super) async fn run(_: &UnsupportedArgs, _: &Stop) -> Result<(), ModelsError> {
    Err(unsupported("lay-out"))
}

fn unsupported(command: &str) -> ModelsError {
    ModelsError::Usage(format!(
        "`{command}` needs Parquet and Arrow, which this build leaves out: run `make build`"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    #[command(after_help = EXAMPLES)]
    enum Commands {
        ImportTable(ImportTableArgs),
        ExportTable(ExportTableArgs),
        LayOut(LayOutArgs),
    }

    #[tokio::test]
    async fn every_left_out_command_is_refused_by_its_name_with_any_arguments() {
        for line in [
            "import-table --part 1/4 users.parquet --key user_id",
            "export-table users.rows --to users.parquet",
            "lay-out --layout=parquet",
            "lay-out",
        ] {
            let words = line.split(' ');
            let refused = match Commands::parse_from(std::iter::once("tierlab-models").chain(words)) {
                Commands::ImportTable(args) => run_import(args, &Stop::never()).await,
                Commands::ExportTable(args) => run_export(&args, &Stop::never()),
                Commands::LayOut(args) => run(&args, &Stop::never()).await,
            };
            let refused = refused.unwrap_err();
            assert_eq!(refused.exit_code(), 2);
            let name = format!("`{}` needs", line.split(' ').next().unwrap());
            assert!(refused.to_string().starts_with(&name), "{refused}");
        }
    }
}
