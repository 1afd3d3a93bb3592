//! `biolat`: parses the command line, runs the command, and turns errors into exit codes.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use biolat_cli::cli::Cli;
use biolat_daemon::option_values::parse_command_line;
use biolat_system::{
    c_library,
    log_lines::{self, LogFormat, LogLevel},
    process,
};

const EXIT_FAILURE: u8 = 1;

fn main() -> ExitCode {
    c_library::share_one_heap();
    c_library::ignore_file_size_signal();
    let cli: Cli = parse_command_line();
    log_lines::start(LogFormat::Text, LogLevel::Info);
    process::raise_file_limit();
    biolat_cli::run(cli).unwrap_or_else(|error| {
        log::error!("{error:#}");
        EXIT_FAILURE.into()
    })
}
