//! Restricts a thread to certain system calls with a seccomp filter. All others fail with `ENOSYS`, as if the kernel did not
//! implement them, so a C library that tries a newer call first falls back to an allowed one.

use std::{collections::BTreeMap, ffi::c_long, os::fd::RawFd};

use anyhow::Result;
use aya_obj::generated::bpf_cmd;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};

use super::{Keeping, Role};

/// Memory, locks, clocks, logging, reading files and their metadata. [`rules`] restricts how files can be opened.
const EVERY_ROLE: &[c_long] = &[
    libc::SYS_brk,
    libc::SYS_clock_getres,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_close,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_faccessat,
    libc::SYS_fstat,
    libc::SYS_futex,
    libc::SYS_getcwd,
    libc::SYS_getdents64,
    libc::SYS_getpid,
    libc::SYS_getrandom,
    libc::SYS_gettid,
    libc::SYS_lseek,
    libc::SYS_madvise,
    libc::SYS_mremap,
    libc::SYS_munmap,
    libc::SYS_nanosleep,
    libc::SYS_newfstatat,
    libc::SYS_ppoll,
    libc::SYS_pread64,
    libc::SYS_read,
    libc::SYS_readlinkat,
    libc::SYS_readv,
    libc::SYS_restart_syscall,
    // Rust's handler for stack overflows restores the default action and returns, and the repeated fault ends the process. If the
    // call were denied, the fault would repeat forever.
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_yield,
    libc::SYS_sigaltstack,
    libc::SYS_statx,
    libc::SYS_write,
    libc::SYS_writev,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_access,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_gettimeofday,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_lstat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_poll,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_readlink,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_stat,
];

/// Incoming connections and threads. Outgoing connections are not possible without `socket` and `connect`.
const SERVING: &[c_long] = &[
    libc::SYS_accept4,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_getpeername,
    libc::SYS_getsockname,
    libc::SYS_getsockopt,
    libc::SYS_recvfrom,
    libc::SYS_rseq,
    libc::SYS_set_robust_list,
    libc::SYS_setsockopt,
    libc::SYS_shutdown,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_epoll_wait,
];

/// Signals and the keyboard, which tokio and crossterm read through sockets and pipes within this process.
const TUI: &[c_long] = &[
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_eventfd2,
    libc::SYS_pipe2,
    libc::SYS_recvfrom,
    libc::SYS_rseq,
    libc::SYS_set_robust_list,
    libc::SYS_socketpair,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_epoll_wait,
];

/// Reading a terminal's size and switching to raw mode. Excludes `TIOCSTI`, which inserts input.
const TERMINAL_COMMANDS: [libc::Ioctl; 9] = [
    libc::TIOCGWINSZ,
    libc::TCGETS,
    libc::TCSETS,
    libc::TCSETSW,
    libc::TCSETSF,
    libc::TCGETS2,
    libc::TCSETS2,
    libc::TCSETSW2,
    libc::TCSETSF2,
];

/// Reading, changing and creating maps, and running or attaching a program that is already open. Excludes loading programs and
/// opening objects by id or path.
const BPF_COMMANDS: [bpf_cmd; 10] = [
    bpf_cmd::BPF_MAP_CREATE,
    bpf_cmd::BPF_MAP_LOOKUP_ELEM,
    bpf_cmd::BPF_MAP_UPDATE_ELEM,
    bpf_cmd::BPF_MAP_DELETE_ELEM,
    bpf_cmd::BPF_MAP_LOOKUP_AND_DELETE_ELEM,
    bpf_cmd::BPF_MAP_LOOKUP_BATCH,
    bpf_cmd::BPF_MAP_GET_NEXT_KEY,
    bpf_cmd::BPF_OBJ_GET_INFO_BY_FD,
    bpf_cmd::BPF_PROG_TEST_RUN,
    bpf_cmd::BPF_RAW_TRACEPOINT_OPEN,
];

/// Reading the flags of an open file and duplicating it. Excludes `F_SETOWN`, which can send signals to other processes.
const FILE_COMMANDS: [i32; 3] = [libc::F_GETFD, libc::F_GETFL, libc::F_DUPFD_CLOEXEC];

/// Flags of `open` for creating or changing a file.
const WRITING: u64 = (libc::O_ACCMODE | libc::O_CREAT | libc::O_TRUNC) as u64;

const EXECUTABLE: u64 = libc::PROT_EXEC as u64;

/// Restricts the calling thread, and the threads that it starts, to the system calls of its role.
pub(super) fn filter(role: Role) -> Result<()> {
    let program: BpfProgram = SeccompFilter::new(
        rules(role)?,
        SeccompAction::Errno(libc::ENOSYS.cast_unsigned()),
        SeccompAction::Allow,
        std::env::consts::ARCH.try_into()?,
    )?
    .try_into()?;
    Ok(seccompiler::apply_filter(&program)?)
}

/// Returns the allowed calls: a call without rules is always allowed, others if one of their rules matches.
fn rules(role: Role) -> Result<BTreeMap<i64, Vec<SeccompRule>>> {
    let own: &[_] = match role {
        Role::Serving => SERVING,
        Role::Collecting { .. } | Role::ReadingSysfs | Role::WaitingForRuns | Role::WritingHistory { .. } => {
            &[]
        }
        Role::Tui => TUI,
    };
    let mut rules: BTreeMap<_, _> = EVERY_ROLE.iter().chain(own).map(|&call| (call, Vec::new())).collect();
    rules.insert(libc::SYS_openat, vec![without(2, WRITING)?]);
    #[cfg(target_arch = "x86_64")]
    rules.insert(libc::SYS_open, vec![without(1, WRITING)?]);
    rules.insert(libc::SYS_mmap, vec![without(2, EXECUTABLE)?]);
    rules.insert(libc::SYS_mprotect, vec![without(2, EXECUTABLE)?]);
    rules.insert(libc::SYS_fcntl, one_of(1, FILE_COMMANDS.map(|command| command as u64))?);
    // A limit can be read, but not set.
    rules.insert(libc::SYS_prlimit64, vec![is_null(2)?]);
    if role == Role::Serving {
        // For the threads that it starts: see `isolate_thread`.
        rules.insert(libc::SYS_close_range, Vec::new());
        rules.insert(libc::SYS_unshare, one_of(0, [libc::CLONE_FILES as u64])?);
    }
    if matches!(role, Role::Serving | Role::Tui) {
        let threads = libc::CLONE_THREAD as u64;
        let is_thread = when(0, SeccompCmpArgLen::Dword, SeccompCmpOp::MaskedEq(threads), threads)?;
        rules.insert(libc::SYS_clone, vec![is_thread]);
        rules.insert(libc::SYS_prctl, one_of(0, [libc::PR_SET_NAME as u64])?);
        // Only on connected sockets: with an address, a message could go anywhere. tokio's signal handlers need this too.
        rules.insert(libc::SYS_sendto, vec![is_null(4)?]);
    }
    match role {
        Role::Serving | Role::ReadingSysfs => {}
        Role::WaitingForRuns => {
            rules.insert(libc::SYS_bpf, one_of(0, [bpf_cmd::BPF_MAP_UPDATE_ELEM as u64])?);
        }
        Role::Tui => {
            // Ctrl-Z.
            rules.insert(libc::SYS_tgkill, one_of(2, [libc::SIGTSTP as u64])?);
            rules.insert(libc::SYS_tkill, one_of(1, [libc::SIGTSTP as u64])?);
            rules.insert(libc::SYS_ioctl, one_of(1, TERMINAL_COMMANDS)?);
        }
        Role::WritingHistory { files } => {
            for call in [libc::SYS_pwrite64, libc::SYS_ftruncate, libc::SYS_fdatasync, libc::SYS_flock] {
                rules.insert(call, one_of(0, files.map(|file| u64::from(file.cast_unsigned())))?);
            }
        }
        Role::Collecting { keeping } => {
            let mut commands = BPF_COMMANDS.map(|command| command as u64).to_vec();
            match keeping {
                None => {}
                Some(Keeping::InPins) => commands.push(bpf_cmd::BPF_OBJ_PIN as u64),
                Some(Keeping::WithSystemd { socket, state }) => {
                    let only = |file: RawFd| one_of(0, [u64::from(file.cast_unsigned())]);
                    rules.insert(libc::SYS_pwrite64, only(state)?);
                    rules.insert(libc::SYS_sendmsg, only(socket)?);
                }
            }
            rules.insert(libc::SYS_bpf, one_of(0, commands)?);
        }
    }
    Ok(rules)
}

/// Matches an argument that has none of these bits set.
fn without(argument: u8, bits: u64) -> Result<SeccompRule> {
    when(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::MaskedEq(bits), 0)
}

/// Matches an argument that equals one of these values.
fn one_of(argument: u8, values: impl IntoIterator<Item = u64>) -> Result<Vec<SeccompRule>> {
    let is = |value| when(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, value);
    values.into_iter().map(is).collect()
}

fn is_null(argument: u8) -> Result<SeccompRule> {
    when(argument, SeccompCmpArgLen::Qword, SeccompCmpOp::Eq, 0)
}

fn when(argument: u8, length: SeccompCmpArgLen, comparison: SeccompCmpOp, value: u64) -> Result<SeccompRule> {
    Ok(SeccompRule::new(vec![SeccompCondition::new(argument, length, comparison, value)?])?)
}

#[cfg(test)]
mod tests {
    use std::{
        fs::{self, File},
        io,
        net::UdpSocket,
        os::{
            fd::AsRawFd as _,
            unix::{fs::FileExt as _, net::UnixDatagram},
        },
        process::Command,
        ptr, thread,
    };

    use aya_obj::generated::bpf_cmd;

    use super::{Keeping, Role};
    use crate::rights::drop_privileges;

    const COLLECTING: Role = Role::Collecting { keeping: None };

    /// Runs a closure in a thread that has dropped its privileges.
    fn confined<T: Send>(role: Role, run: impl FnOnce() -> T + Send) -> T {
        let confined = || {
            drop_privileges(role, true).unwrap();
            run()
        };
        thread::scope(|scope| scope.spawn(confined).join().unwrap())
    }

    fn is_denied<T>(result: io::Result<T>) -> bool {
        result.is_err_and(|error| error.raw_os_error() == Some(libc::ENOSYS))
    }

    fn call(number: libc::c_long, arguments: [usize; 4]) -> io::Result<()> {
        let [a, b, c, d] = arguments;
        // SAFETY: the tests pass numbers and null, never a pointer to memory.
        let result = unsafe { libc::syscall(number, a, b, c, d) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    fn map(protection: i32) -> io::Result<()> {
        // SAFETY: creates a new mapping that nothing uses.
        let address = unsafe {
            libc::mmap(ptr::null_mut(), 4096, protection, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0)
        };
        if address == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    #[test]
    fn denies_writing_exec_executable_memory_and_sockets() {
        let path = std::env::temp_dir().join(format!("biolat-test-calls-{}", std::process::id()));
        for role in [Role::Serving, COLLECTING, Role::Tui] {
            confined(role, || {
                assert!(fs::read_to_string("/proc/self/stat").is_ok());
                assert!(is_denied(fs::write(&path, "x")));
                assert!(is_denied(fs::OpenOptions::new().append(true).open("/dev/null")));
                assert!(is_denied(fs::remove_file(&path)));
                assert!(is_denied(Command::new("/bin/true").status()));
                assert!(is_denied(UdpSocket::bind("127.0.0.1:0")));
                assert!(is_denied(map(libc::PROT_READ | libc::PROT_EXEC)));
                assert!(map(libc::PROT_READ | libc::PROT_WRITE).is_ok());
                assert!(is_denied(call(libc::SYS_ptrace, [libc::PTRACE_TRACEME as usize, 0, 0, 0])));
                assert!(is_denied(call(libc::SYS_fcntl, [0, libc::F_SETOWN as usize, 1, 0])));
                assert!(call(libc::SYS_fcntl, [0, libc::F_GETFD as usize, 0, 0]).is_ok());
            });
        }
    }

    #[test]
    fn sends_only_on_connected_sockets() {
        let (one, other) = (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
        let address = other.local_addr().unwrap();
        one.connect(address).unwrap();
        for role in [Role::Serving, Role::Tui] {
            confined(role, || {
                assert!(is_denied(one.send_to(b"x", address)));
                assert_eq!(one.send(b"x").unwrap(), 1);
            });
        }
        confined(COLLECTING, || assert!(is_denied(one.send(b"x"))));
    }

    #[test]
    fn restricts_bpf_commands() {
        let bpf = |command: bpf_cmd| call(libc::SYS_bpf, [command as usize, 0, 0, 0]);
        confined(Role::Serving, || assert!(is_denied(bpf(bpf_cmd::BPF_MAP_LOOKUP_ELEM))));
        confined(COLLECTING, || {
            assert!(
                bpf(bpf_cmd::BPF_MAP_LOOKUP_ELEM).is_err() && !is_denied(bpf(bpf_cmd::BPF_MAP_LOOKUP_ELEM))
            );
            for command in [
                bpf_cmd::BPF_PROG_LOAD,
                bpf_cmd::BPF_MAP_GET_FD_BY_ID,
                bpf_cmd::BPF_OBJ_PIN,
                bpf_cmd::BPF_OBJ_GET,
            ] {
                assert!(is_denied(bpf(command)), "{}", command as u32);
            }
        });
        confined(Role::WaitingForRuns, || {
            assert!(!is_denied(bpf(bpf_cmd::BPF_MAP_UPDATE_ELEM)));
            assert!(is_denied(bpf(bpf_cmd::BPF_MAP_CREATE)) && is_denied(bpf(bpf_cmd::BPF_PROG_LOAD)));
        });
        confined(Role::Collecting { keeping: Some(Keeping::InPins) }, || {
            assert!(!is_denied(bpf(bpf_cmd::BPF_OBJ_PIN)));
            assert!(is_denied(bpf(bpf_cmd::BPF_OBJ_GET)) && is_denied(bpf(bpf_cmd::BPF_PROG_LOAD)));
        });
    }

    #[test]
    fn collector_cannot_start_threads() {
        let start = || thread::Builder::new().spawn(|| 42).map(|thread| thread.join().unwrap());
        assert_eq!(confined(Role::Serving, start).unwrap(), 42);
        assert!(is_denied(confined(COLLECTING, start)));
        assert_eq!(confined(Role::Tui, start).unwrap(), 42);
    }

    #[test]
    fn collector_writes_only_to_its_socket_and_state_file() {
        let (one, other) = UnixDatagram::pair().unwrap();
        let memory = || rustix::fs::memfd_create("test", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let [file, other_file] = [File::from(memory()), File::from(memory())];
        let send = |socket: &UnixDatagram| {
            let control = &mut rustix::net::SendAncillaryBuffer::default();
            let message = [io::IoSlice::new(b"x")];
            rustix::net::sendmsg(socket, &message, control, rustix::net::SendFlags::NOSIGNAL)
                .map_err(io::Error::from)
        };
        confined(COLLECTING, || {
            assert!(is_denied(send(&one)) && is_denied(file.write_at(b"x", 0)));
        });
        let keeping = Keeping::WithSystemd { socket: one.as_raw_fd(), state: file.as_raw_fd() };
        confined(Role::Collecting { keeping: Some(keeping) }, || {
            assert_eq!(send(&one).unwrap(), 1);
            assert!(is_denied(send(&other)));
            assert_eq!(file.write_at(b"x", 0).unwrap(), 1);
            assert!(is_denied(other_file.write_at(b"x", 0)));
        });
        confined(Role::Serving, || {
            assert!(is_denied(send(&one)) && is_denied(file.write_at(b"x", 0)));
        });
    }

    #[test]
    fn history_thread_writes_only_to_its_files() {
        let memory =
            || File::from(rustix::fs::memfd_create("test", rustix::fs::MemfdFlags::CLOEXEC).unwrap());
        let [one, two, other] = [memory(), memory(), memory()];
        confined(Role::WritingHistory { files: [one.as_raw_fd(), two.as_raw_fd()] }, || {
            for file in [&one, &two] {
                assert_eq!(file.write_at(b"x", 0).unwrap(), 1);
                file.set_len(0).unwrap();
                file.sync_data().unwrap();
                file.lock().unwrap();
            }
            assert!(is_denied(other.write_at(b"x", 0)) && is_denied(other.set_len(0)));
            assert!(is_denied(other.sync_data()) && is_denied(other.lock()));
            assert!(is_denied(fs::OpenOptions::new().append(true).open("/dev/null")));
            assert!(is_denied(UdpSocket::bind("127.0.0.1:0")));
        });
    }

    #[test]
    fn tui_cannot_insert_terminal_input() {
        confined(Role::Tui, || {
            for command in [libc::TIOCGWINSZ, libc::TCGETS] {
                assert!(!is_denied(call(libc::SYS_ioctl, [0, command as usize, 0, 0])));
            }
            assert!(is_denied(call(libc::SYS_ioctl, [0, libc::TIOCSTI as usize, 0, 0])));
            assert!(is_denied(call(libc::SYS_bpf, [0; 4])));
        });
        confined(Role::Serving, || {
            assert!(is_denied(call(libc::SYS_ioctl, [0, libc::TIOCGWINSZ as usize, 0, 0])));
        });
    }
}
