//! Checks whether this process may load the probe: capabilities, user namespace, lockdown.

use std::path::Path;

use biolat_model::shell::quoted;
use biolat_system::rights;

use super::{finding::Finding, process_rights::ProcessRights};

const ID: &str = "rights.capabilities";
const SUBJECT: &str = "rights";

pub(super) fn capabilities(process: &ProcessRights, program: &Path) -> Finding {
    if !process.in_first_namespace {
        return Finding::fail(
            ID,
            SUBJECT,
            "this is not the initial user namespace: capabilities do not apply to the whole kernel here",
        )
        .step(
            "run it in the initial user namespace: in a rootful container, in a unit without PrivateUsers=, in a pod without \
             hostUsers: false",
        );
    }
    let Some(missing) = rights::missing_of(&process.effective) else {
        let text =
            if process.user == 0 { "root with all required capabilities" } else { "CAP_BPF and CAP_PERFMON" };
        return Finding::ok(ID, SUBJECT, text);
    };
    let finding = Finding::fail(
        ID,
        SUBJECT,
        format!("loading the probe requires {missing}, which this process does not have"),
    );
    if rights::missing_of(&process.bounding).is_some() {
        return finding
            .step("in a container: --cap-add=BPF --cap-add=PERFMON; in a pod: capabilities: {add: [BPF, PERFMON]}")
            .step("in a systemd unit: CapabilityBoundingSet= and AmbientCapabilities=CAP_BPF CAP_PERFMON");
    }
    if process.no_new_privs {
        return finding
            .step("no_new_privs is set, so sudo and setcap cannot help; in a pod: allowPrivilegeEscalation: true")
            .step("in a systemd unit: AmbientCapabilities=CAP_BPF CAP_PERFMON");
    }
    let program = program.display().to_string();
    let program = quoted(&program);
    finding
        .command(format!("sudo {program} check"))
        .command(format!("sudo setcap cap_bpf,cap_perfmon+p {program}"))
        .step("with the Debian package: `sudo systemctl start biolat` (its unit grants the capabilities)")
}

/// Checks the kernel's lockdown mode, if lockdown is on.
pub(super) fn lockdown(modes: &str, is_loaded: bool) -> Option<Finding> {
    const ID: &str = "rights.lockdown";
    const SUBJECT: &str = "lockdown";
    let (_, rest) = modes.split_once('[')?;
    let mode = rest.split_once(']').map(|(mode, _)| mode).filter(|&mode| mode != "none")?;
    Some(if is_loaded {
        Finding::ok(ID, SUBJECT, format!("{mode}; the probe loads anyway"))
    } else if mode == "confidentiality" {
        Finding::fail(ID, SUBJECT, "confidentiality: BPF programs cannot read kernel memory")
            .step("boot with `lockdown=integrity`, which allows the probe")
    } else {
        Finding::note(ID, SUBJECT, format!("{mode}: this may be why the kernel rejects the probe"))
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{
        super::{
            finding::{
                Fix,
                Verdict::{Fail, Note, Ok as Fine},
            },
            process_rights::tests::{
                in_a_container, in_a_namespace, nobody, root, with_perfmon_alone, without_new_privileges,
            },
        },
        capabilities, lockdown,
    };

    #[test]
    fn reports_missing_capabilities_with_fixes() {
        for (process, verdict, text, fix) in [
            (root(), Fine, "root", ""),
            (
                nobody(),
                Fail,
                "requires CAP_BPF and CAP_PERFMON,",
                "setcap cap_bpf,cap_perfmon+p /opt/biolat-daemon",
            ),
            (with_perfmon_alone(), Fail, "requires CAP_BPF,", "sudo /opt/biolat-daemon check"),
            (in_a_container(), Fail, "requires CAP_BPF and CAP_PERFMON,", "--cap-add=BPF --cap-add=PERFMON"),
            (
                without_new_privileges(),
                Fail,
                "requires CAP_BPF and CAP_PERFMON,",
                "allowPrivilegeEscalation: true",
            ),
            (in_a_namespace(), Fail, "user namespace", "PrivateUsers="),
        ] {
            let finding = capabilities(&process, Path::new("/opt/biolat-daemon"));
            assert_eq!((finding.id, finding.verdict), ("rights.capabilities", verdict), "{finding:?}");
            assert!(finding.text.contains(text), "{finding:?}");
            assert!(format!("{:?}", finding.fix).contains(fix), "{finding:?}");
        }
        let fixes = capabilities(&without_new_privileges(), Path::new("/x")).fix;
        assert!(!fixes.iter().any(|fix| matches!(fix, Fix::Command(_))), "sudo would not help: {fixes:?}");
        let two = caps::CapsHashSet::from([caps::Capability::CAP_BPF, caps::Capability::CAP_PERFMON]);
        let daemon = super::ProcessRights { effective: two, ..nobody() };
        assert_eq!(capabilities(&daemon, Path::new("/x")).verdict, Fine);
    }

    #[test]
    fn lockdown_matters_only_if_the_probe_does_not_load() {
        assert_eq!(lockdown("[none] integrity confidentiality\n", false), None);
        assert_eq!(lockdown("", false), None);
        for (modes, otherwise) in
            [("none [integrity] confidentiality\n", Note), ("none integrity [confidentiality]\n", Fail)]
        {
            let verdict = |is_loaded| lockdown(modes, is_loaded).unwrap().verdict;
            assert_eq!((verdict(true), verdict(false)), (Fine, otherwise), "{modes}");
        }
    }
}
