//! Developer verbs: `cargo xtask <verb>`. Each has a file of its own.

mod bench;
mod deploy;
mod dist;
mod ebpf;
mod folder;
mod host;
mod lint;
mod process;
mod run;
mod screenshot;
mod suites;
mod test;
mod vm;

use clap::Parser;

/// biolat's developer verbs
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
enum Verb {
    /// Build the daemon for release and run it, with sudo where that is needed
    Run {
        /// What the daemon is given
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        flags: Vec<String>,
    },
    /// Run every test that this machine can run, and say of each other one what it lacks
    Test {
        /// Fail if anything is missing
        #[arg(long)]
        strict: bool,
        /// Run only the kernel tests whose name contains this
        filter: Option<String>,
    },
    /// Run the kernel tests on other kernels and other drives, in emulated machines
    Vm(vm::Matrix),
    /// Measure what the probe, a pass or a scrape costs
    Bench {
        subject: bench::Subject,
        /// What the bench is given: `-- --help` lists it
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        flags: Vec<String>,
    },
    /// Rebuild the committed probe and its manifest
    Ebpf {
        /// Change nothing: fail if the committed probe is not what its sources give
        #[arg(long)]
        check: bool,
        /// With --check: fail too if the recorded compiler is not here to rebuild with
        #[arg(long, requires = "check")]
        strict: bool,
    },
    /// Make what users are given, in target/dist: the static binary, the image and the Debian package
    Dist {
        /// Make it here and, for this machine's architecture, in another folder; fail if a byte differs
        #[arg(long)]
        check: bool,
        /// Only for this architecture: amd64 or arm64
        #[arg(long, value_name = "ARCHITECTURE", conflicts_with = "check")]
        only: Option<String>,
    },
    /// Check what stands in deploy/, by the tools of those who will use it
    Deploy {
        /// Fail if a tool is missing
        #[arg(long)]
        strict: bool,
        /// Check nothing: write what is made of other files, as the plain manifest is of the chart
        #[arg(long, conflicts_with = "strict")]
        write: bool,
        /// Only this part
        part: Option<String>,
    },
    /// Take the README's picture of the page: a minute of load on devices of its own
    Screenshot,
    /// Check formatting, dependencies, clippy (daemon and probe) and documentation
    Lint {
        /// Fail if a tool is missing
        #[arg(long)]
        strict: bool,
    },
}

fn main() -> std::process::ExitCode {
    let result = match Verb::parse() {
        Verb::Run { flags } => run::run(&flags),
        Verb::Test { strict, filter } => test::test(strict, filter.as_deref()),
        Verb::Vm(matrix) => matrix.run(),
        Verb::Bench { subject, flags } => bench::bench(subject, &flags),
        Verb::Ebpf { check: false, .. } => ebpf::rebuild(),
        Verb::Ebpf { check: true, strict } => ebpf::check(strict),
        Verb::Dist { check: false, only } => dist::dist(only.as_deref()),
        Verb::Dist { check: true, .. } => dist::check(),
        Verb::Deploy { write: true, part, .. } => deploy::write(part.as_deref()),
        Verb::Deploy { strict, part, .. } => deploy::check(strict, part.as_deref()),
        Verb::Screenshot => screenshot::screenshot(),
        Verb::Lint { strict } => lint::lint(strict),
    };
    match result {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            std::process::ExitCode::FAILURE
        }
    }
}
