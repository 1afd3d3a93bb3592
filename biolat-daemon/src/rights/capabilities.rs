//! Capabilities. They belong to threads: a thread that is started has those of the one that starts it.

use caps::{
    CapSet::{Bounding, Effective, Inheritable, Permitted},
    Capability::{self, CAP_BPF, CAP_PERFMON, CAP_SYS_ADMIN},
    CapsHashSet,
    errors::CapsError,
};

use super::Thread;

/// Puts everything into effect that is permitted, so that a file's capabilities need not be effective: then the program
/// starts without them too, and can say what it lacks.
pub fn take_up() -> Result<(), CapsError> {
    caps::set(None, Effective, &caps::read(None, Permitted)?)
}

/// Puts nothing into effect, as it is when the daemon serves. What is permitted stays.
pub(crate) fn lay_down() -> Result<(), CapsError> {
    caps::clear(None, Effective)
}

/// What of the capabilities that loading the probe takes is not there, in words; none if all are.
pub fn lacking() -> Result<Option<String>, CapsError> {
    Ok(lacks(&caps::read(None, Effective)?))
}

/// What is lacking of these.
pub(crate) fn lacks(effective: &CapsHashSet) -> Option<String> {
    if effective.contains(&CAP_SYS_ADMIN) {
        return None;
    }
    let names = [CAP_BPF, CAP_PERFMON].into_iter().filter(|capability| !effective.contains(capability));
    let names: Vec<_> = names.map(|capability| capability.to_string()).collect();
    if names.is_empty() { None } else { Some(names.join(" and ")) }
}

/// Drops all that the thread does not need, wherever it stands.
pub(super) fn keep(thread: Thread) -> Result<(), CapsError> {
    for capability in caps::all() {
        // It takes a right of its own, which few have. Without new privileges that set is of no consequence.
        let _ = caps::drop(None, Bounding, capability);
    }
    let kept: CapsHashSet = kept(thread, &caps::read(None, Permitted)?).into_iter().collect();
    // Those in effect first, as they have to be permitted. The ambient ones go with them.
    caps::set(None, Effective, &kept)?;
    caps::set(None, Permitted, &kept)?;
    caps::clear(None, Inheritable)
}

/// What stands for the right to make maps, and nothing else does.
fn kept(thread: Thread, permitted: &CapsHashSet) -> Option<Capability> {
    match thread {
        Thread::Serving | Thread::Showing => None,
        Thread::Collecting => [CAP_BPF, CAP_SYS_ADMIN].into_iter().find(|right| permitted.contains(right)),
    }
}

#[cfg(test)]
mod tests {
    use caps::Capability::{CAP_BPF, CAP_CHOWN, CAP_PERFMON, CAP_SYS_ADMIN};

    use super::{Thread, kept, lacks};

    #[test]
    fn what_is_lacking_is_named() {
        assert_eq!(lacks(&[].into()).as_deref(), Some("CAP_BPF and CAP_PERFMON"));
        assert_eq!(lacks(&[CAP_BPF].into()).as_deref(), Some("CAP_PERFMON"));
        assert_eq!(lacks(&[CAP_BPF, CAP_PERFMON].into()), None);
        assert_eq!(lacks(&[CAP_SYS_ADMIN].into()), None);
    }

    #[test]
    fn the_least_right_to_make_maps_is_kept() {
        let root = [CAP_CHOWN, CAP_SYS_ADMIN, CAP_BPF].into();
        assert_eq!(kept(Thread::Collecting, &root), Some(CAP_BPF));
        assert_eq!(kept(Thread::Collecting, &[CAP_SYS_ADMIN].into()), Some(CAP_SYS_ADMIN));
        assert_eq!(kept(Thread::Serving, &root), None);
    }
}
