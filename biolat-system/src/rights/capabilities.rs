//! Capabilities. They belong to threads; a new thread inherits those of the thread that starts it.

use caps::{
    CapSet::{Bounding, Effective, Inheritable, Permitted},
    Capability::{self, CAP_BPF, CAP_PERFMON, CAP_SYS_ADMIN},
    CapsHashSet,
    errors::CapsError,
};

use super::Role;

/// Makes all permitted capabilities effective. The effective bit of a file capability can then stay off, so that the program
/// also starts where a capability cannot be granted, and reports which one is missing.
pub fn raise() -> Result<(), CapsError> {
    caps::set(None, Effective, &caps::read(None, Permitted)?)
}

/// Makes no capability effective, as while the daemon serves. The permitted ones stay.
pub fn clear_effective() -> Result<(), CapsError> {
    caps::clear(None, Effective)
}

/// The capabilities for loading the probe that this thread does not have, as text; `None` if it has all.
pub fn missing_capabilities() -> Result<Option<String>, CapsError> {
    Ok(missing_of(&caps::read(None, Effective)?))
}

/// The capabilities for loading the probe that are not in this set.
pub fn missing_of(effective: &CapsHashSet) -> Option<String> {
    if effective.contains(&CAP_SYS_ADMIN) {
        return None;
    }
    let names = [CAP_BPF, CAP_PERFMON].into_iter().filter(|capability| !effective.contains(capability));
    let names: Vec<_> = names.map(|capability| capability.to_string()).collect();
    if names.is_empty() { None } else { Some(names.join(" and ")) }
}

/// Drops every capability that the role does not need, from every set.
pub(super) fn keep(role: Role) -> Result<(), CapsError> {
    for capability in caps::all() {
        // Needs CAP_SETPCAP, which few have. The bounding set has no effect once no_new_privs is set.
        let _ = caps::drop(None, Bounding, capability);
    }
    let kept: CapsHashSet = kept(role, &caps::read(None, Permitted)?).into_iter().collect();
    // The effective set first, as it has to be a subset of the permitted one. The kernel clears the ambient set with them.
    caps::set(None, Effective, &kept)?;
    caps::set(None, Permitted, &kept)?;
    caps::clear(None, Inheritable)
}

/// The least capability that allows creating maps.
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
    fn missing_capabilities_are_named() {
        assert_eq!(missing_of(&[].into()).as_deref(), Some("CAP_BPF and CAP_PERFMON"));
        assert_eq!(missing_of(&[CAP_BPF].into()).as_deref(), Some("CAP_PERFMON"));
        assert_eq!(missing_of(&[CAP_BPF, CAP_PERFMON].into()), None);
        assert_eq!(missing_of(&[CAP_SYS_ADMIN].into()), None);
    }

    #[test]
    fn the_collector_keeps_the_least_right_to_make_maps() {
        let root = [CAP_CHOWN, CAP_SYS_ADMIN, CAP_BPF].into();
        assert_eq!(kept(Role::Collecting { keeping: None }, &root), Some(CAP_BPF));
        assert_eq!(kept(Role::Collecting { keeping: None }, &[CAP_SYS_ADMIN].into()), Some(CAP_SYS_ADMIN));
        assert_eq!(kept(Role::Serving, &root), None);
    }
}
