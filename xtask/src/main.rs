//! Command line of `cargo xtask`. Each command is a module.

mod abuse;
mod bench;
mod cargo_deb;
mod deploy;
mod dist;
mod ebpf;
mod fleet;
mod folder;
mod hash;
mod host;
mod kernel_results;
mod kernel_sources;
mod lint;
mod process;
mod run;
mod screenshot;
mod static_build;
mod suites;
mod test;
mod test_results;
mod vm;

use clap::Parser;

/// biolat's developer commands
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
enum Command {
    /// Build the daemon in release mode and run it as root, with sudo if needed
    Run {
        /// Arguments for the daemon
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        flags: Vec<String>,
    },
    /// Run every test that this machine can run, and list the others with their missing requirements
    Test(test::Tests),
    /// Attack the daemon with random requests, files and responses, hostile clients and failing system calls, then soak it
    Abuse {
        /// Approximate duration, not counting the soak, which takes as long again
        #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1440))]
        minutes: u32,
    },
    /// Run the kernel tests in emulated machines, with other kernels and drives
    Vm(vm::Matrix),
    /// Measure the cost of the probe, a collection or a scrape, or compare I/O engines
    Bench {
        subject: bench::Subject,
        /// Arguments for the benchmark: `-- --help` lists them
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        flags: Vec<String>,
    },
    /// Measure the load of a synthetic fleet on a real Prometheus, and how well the rules find sick drives
    Fleet {
        /// Arguments: `-- --help` lists them
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        flags: Vec<String>,
    },
    /// Rebuild the committed probe object and its manifest
    Ebpf {
        /// Only verify, and fail if the committed probe does not match its sources
        #[arg(long)]
        check: bool,
        /// With --check: also fail if the recorded compiler, which a rebuild needs, is missing
        #[arg(long, requires = "check")]
        strict: bool,
    },
    /// Build the release artifacts in target/dist: static binaries, their SBOMs, Debian packages and the image
    Dist {
        /// Rebuild in another directory, for this machine's architecture only, and fail if any byte differs
        #[arg(long)]
        check: bool,
        /// With --check: rebuild the dependencies as well
        #[arg(long, requires = "check")]
        whole: bool,
        /// Build for this architecture only: amd64 or arm64
        #[arg(long, value_name = "ARCHITECTURE", conflicts_with = "check")]
        only: Option<String>,
    },
    /// Check the files in deploy/ and the release artifacts with the tools that users run on them
    Deploy {
        /// Fail if a tool is missing
        #[arg(long)]
        strict: bool,
        /// Instead of checking, regenerate files such as the dashboards and the plain Kubernetes manifest
        #[arg(long, conflicts_with = "strict")]
        write: bool,
        /// Run only the checks of this kind
        #[arg(long, value_enum, value_name = "KIND", conflicts_with_all = ["write", "component"])]
        only: Option<deploy::Kind>,
        /// Check or write only this component, such as grafana or package
        component: Option<String>,
    },
    /// Retake the README's screenshot of the page, with a minute of load on loop devices
    Screenshot,
    /// Check import cycles, formatting, dependencies, clippy (daemon and probe) and documentation
    Lint {
        /// Fail if a tool is missing
        #[arg(long)]
        strict: bool,
    },
}

fn main() -> std::process::ExitCode {
    let result = match Command::parse() {
        Command::Run { flags } => run::run(&flags),
        Command::Test(tests) => tests.run(),
        Command::Abuse { minutes } => abuse::abuse(minutes),
        Command::Vm(matrix) => matrix.run(),
        Command::Bench { subject, flags } => bench::bench(subject, &flags),
        Command::Fleet { flags } => fleet::fleet(&flags),
        Command::Ebpf { check: false, .. } => ebpf::rebuild(),
        Command::Ebpf { check: true, strict } => ebpf::check(strict),
        Command::Dist { check: false, only, .. } => dist::dist(only.as_deref()),
        Command::Dist { check: true, whole, .. } => dist::check(whole),
        Command::Deploy { write: true, component, .. } => deploy::write(component.as_deref()),
        Command::Deploy { strict, only, component, .. } => deploy::check(strict, only, component.as_deref()),
        Command::Screenshot => screenshot::screenshot(),
        Command::Lint { strict } => lint::lint(strict),
    };
    match result {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            std::process::ExitCode::FAILURE
        }
    }
}
