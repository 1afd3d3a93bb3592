//! All benchmarks. They are one program, because linking takes a long time: the compiler optimizes the program together with
//! everything it uses.

mod collect;
mod command;
mod engines;
mod measure;
mod probe;
mod scrape;
mod target;

use std::{env, process::ExitCode};

fn main() -> ExitCode {
    let arguments: Vec<_> = env::args_os().skip(1).collect();
    // The first argument is the program name for clap, and names the benchmark.
    let main = match arguments.first().and_then(|name| name.to_str()) {
        Some("collect") => collect::main,
        Some("engines") => engines::main,
        Some("probe") => probe::main,
        Some("scrape") => scrape::main,
        _ => {
            eprintln!("error: no benchmark is named: use cargo xtask bench");
            return ExitCode::FAILURE;
        }
    };
    main(&arguments)
}
