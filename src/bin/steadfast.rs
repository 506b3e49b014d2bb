//! The command line. All of it is in [`steadfast::cli`].

use std::process::ExitCode;

fn main() -> ExitCode {
    steadfast::cli::main()
}
