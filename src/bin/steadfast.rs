//! The command line. All of it is in [`steadfast::cli`].

use std::process::ExitCode;

use clap::Parser as _;

fn main() -> ExitCode {
    steadfast::cli::run(steadfast::cli::Arguments::parse())
}
