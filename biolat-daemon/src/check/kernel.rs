//! Checks the kernel: architecture, BTF, abilities.

use std::{io, path::Path};

use biolat_probe::{
    abilities::{ALL, Abilities, Ability, Kernels, REQUIRED, Row},
    kernel::{Kernel, REQUIRED_KERNEL, UnsupportedKernel},
};

use super::finding::Finding;

/// Abilities that other findings are about, and one whose lack nobody notices.
const UNLISTED: [Ability; 3] =
    [Ability::RecursionGuard, Ability::CgroupChargedMaps, Ability::ShortVerification];
/// Names as printed by `uname -m`.
const TESTED_MACHINES: [&str; 2] = ["x86_64", "aarch64"];

pub(super) fn release(found: io::Result<String>, machine: &str) -> Finding {
    const ID: &str = "kernel.release";
    let name = match found {
        Ok(release) => format!("Linux {release}"),
        Err(error) => {
            return Finding::note(ID, "kernel", format!("cannot read the kernel release: {error}"))
                .step("give the mount point of procfs with --procfs");
        }
    };
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
    if kernel.has(Ability::RecursionGuard) {
        return Finding::ok(
            ID,
            SUBJECT,
            "the kernel does not run the probe recursively; a second program counts the completions that the probe then misses",
        );
    }
    let text = "the kernel runs the probe recursively: a count can be lost if an interrupt occurs while the probe runs. No \
                second program is loaded";
    Finding::note(ID, SUBJECT, text)
        .step("boot Linux 6.1 or later, or a distribution's kernel with this backport")
}

/// Lists what the kernel lacks. What later kernels have is worth a note.
pub(super) fn abilities(abilities: Abilities) -> Vec<Finding> {
    const ID: &str = "kernel.abilities";
    const SUBJECT: &str = "abilities";
    let lacking = |row: &&Row| !abilities.has(row.ability) && !UNLISTED.contains(&row.ability);
    let finding = |row: &Row| {
        let text = format!("no {}: {}", row.title(), row.without);
        match row.kernels {
            _ if REQUIRED.contains(&row.ability) => Some(lacks(ID, SUBJECT, row.ability)),
            Kernels::From(_) => Some(Finding::note(ID, SUBJECT, text)),
            Kernels::UpTo(_) => Some(Finding::ok(ID, SUBJECT, text)),
            Kernels::With(_) => None,
        }
    };
    let findings: Vec<_> = ALL.iter().filter(lacking).filter_map(finding).collect();
    if findings.is_empty() {
        return vec![Finding::ok(ID, SUBJECT, "the kernel has all that biolat can use")];
    }
    findings
}

fn lacks(id: &'static str, subject: &str, ability: Ability) -> Finding {
    Finding::fail(id, subject, ability.row().lacking()).step(format!("boot {REQUIRED_KERNEL}"))
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
        Err(UnsupportedKernel::Lacks(ability)) => lacks(ID, SUBJECT, ability),
        Err(UnsupportedKernel::Malformed(malformed)) => Finding::fail(ID, SUBJECT, malformed.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use std::{io, path::Path};

    use biolat_probe::{
        abilities::{ALL, Abilities, Ability},
        kernel::Kernel,
    };
    use biolat_testing::btf::{modern, without_tracepoint};

    use super::{
        super::finding::Verdict::{Fail, Note, Ok as Fine},
        UNLISTED, btf, recursion, release,
    };

    #[test]
    fn releases() {
        for (found, machine, verdict, expected) in [
            (Ok("6.12.118".to_owned()), "x86_64", Fine, "Linux 6.12.118"),
            (Ok("4.18.0-553.el8".to_owned()), "x86_64", Fine, "Linux 4.18.0-553.el8"),
            (Ok("6.12".to_owned()), "aarch64", Fine, "Linux 6.12"),
            (Ok("6.12".to_owned()), "riscv64", Note, "Linux 6.12 on riscv64"),
            (Err(io::Error::from(io::ErrorKind::NotFound)), "x86_64", Note, "cannot read"),
        ] {
            let finding = release(found, machine);
            assert_eq!((finding.id, finding.verdict), ("kernel.release", verdict), "{finding:?}");
            assert!(finding.text.contains(expected), "{finding:?}");
        }
    }

    #[test]
    fn second_program_needs_a_kernel_that_refuses_recursion() {
        let guarded = Kernel::from_btf(&modern("")).unwrap();
        let abilities = guarded.abilities.without(Ability::RecursionGuard);
        let finding = recursion(&guarded);
        assert_eq!((finding.id, finding.verdict), ("kernel.recursion", Fine));
        assert!(finding.text.contains("a second program counts"), "{finding:?}");
        let finding = recursion(&Kernel { abilities, ..guarded });
        assert_eq!(finding.verdict, Note);
        assert!(finding.text.contains("a count can be lost"), "{finding:?}");
    }

    /// A kernel with every ability but these.
    fn all_but(lacking: &[Ability]) -> Abilities {
        let all = ALL.iter().map(|row| row.ability);
        lacking.iter().fold(Abilities::with(all), |abilities, &ability| abilities.without(ability))
    }

    #[test]
    fn lists_what_the_kernel_lacks() {
        let found = |lacking: &[Ability]| super::abilities(all_but(lacking));
        for complete in [found(&[]), found(&UNLISTED), found(&[Ability::Zones, Ability::IoCost])] {
            let [complete] = &complete[..] else { panic!("{complete:?}") };
            assert_eq!((complete.id, complete.verdict), ("kernel.abilities", Fine));
            assert!(complete.text.ends_with("has all that biolat can use"), "{complete:?}");
        }
        let old = found(&[Ability::SubmissionTimestamps, Ability::FlushStatistics]);
        let old: Vec<_> = old.iter().map(|finding| (finding.verdict, &*finding.text)).collect();
        let expected = [
            (
                Note,
                "no flush statistics: flushes are counted but not audited: the disk statistics do not include them",
            ),
            (
                Fine,
                "no submission timestamps: only devices with io.latency or io.cost have admission latency",
            ),
        ];
        assert_eq!(old, expected);
    }

    #[test]
    fn kernel_without_the_capability_fails() {
        let findings = super::abilities(all_but(&[Ability::BpfCapability]));
        let [finding] = &findings[..] else { panic!("{findings:?}") };
        assert_eq!((finding.id, finding.verdict), ("kernel.abilities", Fail));
        let expected = "the kernel lacks bpf capability (at least 39 in `/proc/sys/kernel/cap_last_cap`)";
        assert_eq!(finding.text, expected);
        assert!(format!("{:?}", finding.fix).contains("RHEL 8.4"), "{finding:?}");
    }

    #[test]
    fn reports_btf_and_tracepoint() {
        let path = Path::new("/sys/kernel/btf/vmlinux");
        let denied = || io::Error::from(io::ErrorKind::PermissionDenied);
        let missing = || io::Error::from(io::ErrorKind::NotFound);
        let expected: [(_, &[_], _, _); 7] = [
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
                "the kernel lacks tracepoint types",
                "CONFIG_BLOCK",
            ),
            (
                Ok(modern("BPF_MAP_TYPE_RINGBUF")),
                &[("kernel.btf", Fine), ("kernel.tracepoint", Fail)],
                "the kernel lacks ring buffers",
                "RHEL 8.4",
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
