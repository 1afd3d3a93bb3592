//! Capabilities, which belong to threads. A new thread inherits them from the thread that starts it.

use caps::{
    CapSet::{Bounding, Effective, Inheritable, Permitted},
    Capability::{self, CAP_BPF, CAP_PERFMON, CAP_SYS_ADMIN},
    CapsHashSet,
    errors::CapsError,
};

use super::Role;

/// Makes all permitted capabilities effective. This way the effective bit of the file capabilities can stay off, so the program
/// starts even if a capability cannot be granted, and reports the missing one.
pub fn raise() -> Result<(), CapsError> {
    caps::set(None, Effective, &caps::read(None, Permitted)?)
}

/// Removes all effective capabilities, as when the daemon is serving. The permitted ones stay.
pub fn clear_effective() -> Result<(), CapsError> {
    caps::clear(None, Effective)
}

/// Names the capabilities that this thread lacks for loading the probe; `None` if it has all.
pub fn missing_capabilities() -> Result<Option<String>, CapsError> {
    Ok(missing_of(&caps::read(None, Effective)?))
}

/// Names the capabilities for loading the probe that this set lacks.
pub fn missing_of(effective: &CapsHashSet) -> Option<String> {
    if effective.contains(&CAP_SYS_ADMIN) {
        return None;
    }
    let names = [CAP_BPF, CAP_PERFMON].into_iter().filter(|capability| !effective.contains(capability));
    let names: Vec<_> = names.map(|capability| capability.to_string()).collect();
    if names.is_empty() { None } else { Some(names.join(" and ")) }
}

/// Drops every capability that the role does not need, from all sets.
pub(super) fn keep(role: Role) -> Result<(), CapsError> {
    for capability in caps::all() {
        // Needs CAP_SETPCAP, which is rarely granted. The bounding set has no effect once no_new_privs is set.
        let _ = caps::drop(None, Bounding, capability);
    }
    let kept: CapsHashSet = kept(role, &caps::read(None, Permitted)?).into_iter().collect();
    // The effective set comes first, because it has to be a subset of the permitted one. The kernel also clears the ambient set.
    caps::set(None, Effective, &kept)?;
    caps::set(None, Permitted, &kept)?;
    caps::clear(None, Inheritable)
}

/// Returns the weakest available capability that allows the role to create maps.
fn kept(role: Role, permitted: &CapsHashSet) -> Option<Capability> {
    match role {
        Role::Serving | Role::Tui | Role::ReadingSysfs | Role::WritingHistory { .. } => None,
        Role::Collecting { .. } | Role::WaitingForRuns => {
            [CAP_BPF, CAP_SYS_ADMIN].into_iter().find(|right| permitted.contains(right))
        }
    }
}

#[cfg(test)]
mod tests {
    use caps::Capability::{CAP_BPF, CAP_CHOWN, CAP_PERFMON, CAP_SYS_ADMIN};

    use super::{Role, kept, missing_of};

    #[test]
    fn names_missing_capabilities() {
        assert_eq!(missing_of(&[].into()).as_deref(), Some("CAP_BPF and CAP_PERFMON"));
        assert_eq!(missing_of(&[CAP_BPF].into()).as_deref(), Some("CAP_PERFMON"));
        assert_eq!(missing_of(&[CAP_BPF, CAP_PERFMON].into()), None);
        assert_eq!(missing_of(&[CAP_SYS_ADMIN].into()), None);
    }

    #[test]
    fn collector_keeps_weakest_sufficient_capability() {
        let root = [CAP_CHOWN, CAP_SYS_ADMIN, CAP_BPF].into();
        assert_eq!(kept(Role::Collecting { keeping: None }, &root), Some(CAP_BPF));
        assert_eq!(kept(Role::Collecting { keeping: None }, &[CAP_SYS_ADMIN].into()), Some(CAP_SYS_ADMIN));
        assert_eq!(kept(Role::Serving, &root), None);
    }
}
