//! Checks the kernel: release, BTF, tracepoint, recursion.

use std::{io, path::Path};

use biolat_probe::{
    kernel::{Kernel, UnsupportedKernel},
    release::Release,
};

use super::finding::Finding;

/// First release in which disks have a sequence number (`diskseq`).
pub(super) const WITH_SEQUENCE: Release = Release(5, 15);
/// Names as printed by `uname -m`.
const TESTED_MACHINES: [&str; 2] = ["x86_64", "aarch64"];

pub(super) fn release(found: io::Result<Release>, machine: &str) -> Finding {
    const ID: &str = "kernel.release";
    let release = match found {
        Ok(release) => release,
        Err(error) => {
            return Finding::note(ID, "kernel", format!("cannot read the kernel release: {error}"))
                .step("give the mount point of procfs with --procfs");
        }
    };
    let name = format!("Linux {}.{}", release.0, release.1);
    if let Err(unsupported) = release.supported() {
        let Release(major, minor) = Release::OLDEST_SUPPORTED;
        return Finding::fail(ID, "kernel", unsupported)
            .step(format!("boot kernel {major}.{minor} or later, preferably 6.1 or later"));
    }
    if !TESTED_MACHINES.contains(&machine) {
        return Finding::note(
            ID,
            "kernel",
            format!("{name} on {machine}: biolat has not been tested on this architecture"),
        );
    }
    Finding::ok(ID, "kernel", name)
}

/// Checks what happens to a completion on a CPU that is already running the probe.
pub(super) fn recursion(kernel: &Kernel) -> Finding {
    const ID: &str = "kernel.recursion";
    const SUBJECT: &str = "recursion";
    if kernel.refuses_runs {
        return Finding::ok(
            ID,
            SUBJECT,
            "the kernel does not run the probe recursively; a second program counts the completions that the probe then misses",
        );
    }
    let text = "the kernel runs the probe recursively: a count can be lost if an interrupt occurs while the probe runs. No \
                second program is loaded";
    Finding::note(ID, SUBJECT, text).step("boot kernel 6.1 or later")
}

/// Checks the BTF and the tracepoint. Also returns the kernel and the size of its BTF, or `None` if the BTF is not usable.
pub(super) fn btf(path: &Path, read: io::Result<Vec<u8>>) -> (Vec<Finding>, Option<(Kernel, usize)>) {
    const ID: &str = "kernel.btf";
    const SUBJECT: &str = "BTF";
    let named = path.display();
    let bytes = match read {
        Ok(bytes) => bytes,
        Err(error) => {
            let finding = Finding::fail(ID, SUBJECT, format!("{named}: {error}"));
            let finding = match error.kind() {
                io::ErrorKind::NotFound => finding.step(
                    "boot a kernel built with CONFIG_DEBUG_INFO_BTF=y, or give the mount point of sysfs with --sysfs",
                ),
                _ => finding.step(format!("make {named} readable for this user")),
            };
            return (vec![finding], None);
        }
    };
    let fine = Finding::ok(ID, SUBJECT, named.to_string());
    match Kernel::from_btf(&bytes) {
        Ok(kernel) => (vec![fine, tracepoint(Ok(()))], Some((kernel, bytes.len()))),
        Err(UnsupportedKernel::Malformed(malformed)) => {
            let finding = Finding::fail(ID, SUBJECT, format!("{named}: {malformed}"));
            (vec![finding.step("give the mount point of this kernel's sysfs with --sysfs")], None)
        }
        Err(unsupported) => (vec![fine, tracepoint(Err(unsupported))], None),
    }
}

fn tracepoint(found: Result<(), UnsupportedKernel>) -> Finding {
    const ID: &str = "kernel.tracepoint";
    const SUBJECT: &str = "tracepoint";
    match found {
        Ok(()) => Finding::ok(ID, SUBJECT, "block_rq_complete, with all fields that the probe reads"),
        Err(UnsupportedKernel::Missing(what)) => Finding::fail(
            ID,
            SUBJECT,
            format!("the kernel's BTF has no {what}: biolat does not support this kernel yet"),
        )
        .step("report this with the output of `uname -r`"),
        Err(_) => Finding::fail(ID, SUBJECT, "the kernel's BTF has no block_rq_complete")
            .step("boot kernel 5.8 or later, built with CONFIG_BLOCK and CONFIG_DEBUG_INFO_BTF"),
    }
}

#[cfg(test)]
mod tests {
    use std::{io, path::Path};

    use biolat_probe::{kernel::Kernel, release::Release};
    use biolat_testing::btf::{modern, without_tracepoint};

    use super::{
        super::finding::Verdict::{Fail, Note, Ok as Fine},
        btf, recursion, release,
    };

    #[test]
    fn releases() {
        for (found, machine, verdict, expected) in [
            (Ok(Release(6, 12)), "x86_64", Fine, "Linux 6.12"),
            (Ok(Release(6, 1)), "x86_64", Fine, "Linux 6.1"),
            (Ok(Release(5, 10)), "x86_64", Fine, "Linux 5.10"),
            (Ok(Release(5, 4)), "x86_64", Fail, "this is Linux 5.4, biolat requires 5.8 or later"),
            (Ok(Release(6, 12)), "aarch64", Fine, "Linux 6.12"),
            (Ok(Release(6, 12)), "riscv64", Note, "Linux 6.12 on riscv64"),
            (Err(io::Error::from(io::ErrorKind::NotFound)), "x86_64", Note, "cannot read"),
        ] {
            let finding = release(found, machine);
            assert_eq!((finding.id, finding.verdict), ("kernel.release", verdict), "{finding:?}");
            assert!(finding.text.contains(expected), "{finding:?}");
        }
    }

    #[test]
    fn second_program_needs_a_kernel_that_refuses_recursion() {
        let kernel = |refuses_runs| Kernel { refuses_runs, ..Kernel::from_btf(&modern("")).unwrap() };
        let finding = recursion(&kernel(true));
        assert_eq!((finding.id, finding.verdict), ("kernel.recursion", Fine));
        assert!(finding.text.contains("a second program counts"), "{finding:?}");
        let finding = recursion(&kernel(false));
        assert_eq!(finding.verdict, Note);
        assert!(finding.text.contains("a count can be lost"), "{finding:?}");
    }

    #[test]
    fn reports_btf_and_tracepoint() {
        let path = Path::new("/sys/kernel/btf/vmlinux");
        let denied = || io::Error::from(io::ErrorKind::PermissionDenied);
        let missing = || io::Error::from(io::ErrorKind::NotFound);
        let expected: [(_, &[_], _, _); 6] = [
            (
                Ok(modern("")),
                &[("kernel.btf", Fine), ("kernel.tracepoint", Fine)],
                "all fields that the probe reads",
                "",
            ),
            (Err(missing()), &[("kernel.btf", Fail)], "not found", "CONFIG_DEBUG_INFO_BTF=y"),
            (Err(denied()), &[("kernel.btf", Fail)], "denied", "make /sys/kernel/btf/vmlinux readable"),
            (Ok(vec![7; 100]), &[("kernel.btf", Fail)], "malformed BTF", "--sysfs"),
            (
                Ok(without_tracepoint()),
                &[("kernel.btf", Fine), ("kernel.tracepoint", Fail)],
                "no block_rq_complete",
                "CONFIG_BLOCK",
            ),
            (
                Ok(modern("io_start_time_ns")),
                &[("kernel.btf", Fine), ("kernel.tracepoint", Fail)],
                "no member io_start_time_ns in struct request",
                "uname -r",
            ),
        ];
        for (read, verdicts, text, fix) in expected {
            let (findings, kernel) = btf(path, read);
            let found: Vec<_> = findings.iter().map(|finding| (finding.id, finding.verdict)).collect();
            assert_eq!(found, verdicts);
            assert_eq!(kernel.is_some(), fix.is_empty());
            let last = findings.last().unwrap();
            assert!(last.text.contains(text) && format!("{:?}", last.fix).contains(fix), "{last:?}");
        }
    }
}
