//! The system calls that a thread may make, by a seccomp filter. Any other is answered as by a kernel that has not got it
//! (`ENOSYS`), so that a C library which tries a new one first falls back to what is allowed.

use std::{collections::BTreeMap, ffi::c_long};

use anyhow::Result;
use aya_obj::generated::bpf_cmd;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};

use super::Thread;

/// Memory, locks, clocks, the log, and what there is to know of files. Reading one is below.
const BOTH: &[c_long] = &[
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
    libc::SYS_pread64,
    libc::SYS_read,
    libc::SYS_readlinkat,
    libc::SYS_readv,
    libc::SYS_restart_syscall,
    // A fault is handled by giving it its default back, so that it ends the process: denied, it would come again and again.
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
    libc::SYS_readlink,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_stat,
];

/// Connections that come in, and threads. None that goes out: there is no `socket` and no `connect`.
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

/// Signals and the keyboard, which come by sockets and pipes of the process' own.
const SHOWING: &[c_long] = &[
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_eventfd2,
    libc::SYS_pipe2,
    libc::SYS_ppoll,
    libc::SYS_recvfrom,
    libc::SYS_rseq,
    libc::SYS_set_robust_list,
    libc::SYS_socketpair,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_epoll_wait,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_poll,
];

/// What there is to ask of a terminal, and to set: its size, whether keys are told as they are pressed. None that types into it.
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

/// Reading and making maps: no command that loads, attaches or looks for anything.
const BPF_COMMANDS: [bpf_cmd; 6] = [
    bpf_cmd::BPF_MAP_CREATE,
    bpf_cmd::BPF_MAP_LOOKUP_ELEM,
    bpf_cmd::BPF_MAP_UPDATE_ELEM,
    bpf_cmd::BPF_MAP_DELETE_ELEM,
    bpf_cmd::BPF_MAP_LOOKUP_BATCH,
    bpf_cmd::BPF_OBJ_GET_INFO_BY_FD,
];

/// What there is to ask of a file that is open: not whom to send signals about it.
const FILE_COMMANDS: [i32; 3] = [libc::F_GETFD, libc::F_GETFL, libc::F_DUPFD_CLOEXEC];

/// Whatever makes or changes a file.
const WRITING: u64 = (libc::O_ACCMODE | libc::O_CREAT | libc::O_TRUNC) as u64;

const EXECUTABLE: u64 = libc::PROT_EXEC as u64;

/// Lets the calling thread, and those that it starts, make no other calls than it has to.
pub(super) fn filter(thread: Thread) -> Result<()> {
    let program: BpfProgram = SeccompFilter::new(
        rules(thread)?,
        SeccompAction::Errno(libc::ENOSYS.cast_unsigned()),
        SeccompAction::Allow,
        std::env::consts::ARCH.try_into()?,
    )?
    .try_into()?;
    Ok(seccompiler::apply_filter(&program)?)
}

/// What is allowed: a call without rules always, one with rules if one of them holds.
fn rules(thread: Thread) -> Result<BTreeMap<i64, Vec<SeccompRule>>> {
    let own: &[_] = match thread {
        Thread::Serving => SERVING,
        Thread::Collecting => &[],
        Thread::Showing => SHOWING,
    };
    let mut rules: BTreeMap<_, _> = BOTH.iter().chain(own).map(|&call| (call, Vec::new())).collect();
    rules.insert(libc::SYS_openat, vec![without(2, WRITING)?]);
    #[cfg(target_arch = "x86_64")]
    rules.insert(libc::SYS_open, vec![without(1, WRITING)?]);
    rules.insert(libc::SYS_mmap, vec![without(2, EXECUTABLE)?]);
    rules.insert(libc::SYS_mprotect, vec![without(2, EXECUTABLE)?]);
    rules.insert(libc::SYS_fcntl, one_of(1, FILE_COMMANDS.map(|command| command as u64))?);
    // Asking for a limit, not setting one.
    rules.insert(libc::SYS_prlimit64, vec![is_null(2)?]);
    if thread != Thread::Collecting {
        let threads = libc::CLONE_THREAD as u64;
        let is_thread = when(0, SeccompCmpArgLen::Dword, SeccompCmpOp::MaskedEq(threads), threads)?;
        rules.insert(libc::SYS_clone, vec![is_thread]);
        rules.insert(libc::SYS_prctl, one_of(0, [libc::PR_SET_NAME as u64])?);
        // To whom the socket is connected: with an address of its own, a message is a connection to anywhere. Signals are
        // told by one too.
        rules.insert(libc::SYS_sendto, vec![is_null(4)?]);
    }
    match thread {
        Thread::Serving => {}
        Thread::Showing => {
            // Ctrl-Z.
            rules.insert(libc::SYS_tgkill, one_of(2, [libc::SIGTSTP as u64])?);
            rules.insert(libc::SYS_tkill, one_of(1, [libc::SIGTSTP as u64])?);
            rules.insert(libc::SYS_ioctl, one_of(1, TERMINAL_COMMANDS)?);
        }
        Thread::Collecting => {
            rules.insert(libc::SYS_bpf, one_of(0, BPF_COMMANDS.map(|command| command as u64))?);
        }
    }
    Ok(rules)
}

/// An argument without any of these bits.
fn without(argument: u8, bits: u64) -> Result<SeccompRule> {
    when(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::MaskedEq(bits), 0)
}

/// An argument that is any of these.
fn one_of<const N: usize>(argument: u8, values: [u64; N]) -> Result<Vec<SeccompRule>> {
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
    use std::{fs, io, net::UdpSocket, process::Command, ptr, thread};

    use aya_obj::generated::bpf_cmd;

    use super::Thread;
    use crate::rights::give_up;

    /// Runs it in a thread that has given up what it can.
    fn confined<T: Send>(thread: Thread, run: impl FnOnce() -> T + Send) -> T {
        let confined = || {
            give_up(thread, true).unwrap();
            run()
        };
        thread::scope(|scope| scope.spawn(confined).join().unwrap())
    }

    fn is_denied<T>(result: io::Result<T>) -> bool {
        result.is_err_and(|error| error.raw_os_error() == Some(libc::ENOSYS))
    }

    fn call(number: libc::c_long, arguments: [usize; 4]) -> io::Result<()> {
        let [a, b, c, d] = arguments;
        // SAFETY: whoever calls this hands over numbers and no pointers.
        let result = unsafe { libc::syscall(number, a, b, c, d) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    fn map(protection: i32) -> io::Result<()> {
        // SAFETY: a mapping of its own, used by nobody.
        let address = unsafe {
            libc::mmap(ptr::null_mut(), 4096, protection, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0)
        };
        if address == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    #[test]
    fn neither_writes_files_nor_starts_programs_nor_makes_code_nor_connections() {
        let path = std::env::temp_dir().join(format!("biolat-test-calls-{}", std::process::id()));
        for thread in [Thread::Serving, Thread::Collecting, Thread::Showing] {
            confined(thread, || {
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
    fn a_socket_sends_to_nobody_but_whom_it_is_connected_to() {
        let (one, other) = (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
        let address = other.local_addr().unwrap();
        one.connect(address).unwrap();
        for thread in [Thread::Serving, Thread::Showing] {
            confined(thread, || {
                assert!(is_denied(one.send_to(b"x", address)));
                assert_eq!(one.send(b"x").unwrap(), 1);
            });
        }
        confined(Thread::Collecting, || assert!(is_denied(one.send(b"x"))));
    }

    #[test]
    fn the_collector_alone_talks_of_maps_and_of_nothing_else() {
        let bpf = |command: bpf_cmd| call(libc::SYS_bpf, [command as usize, 0, 0, 0]);
        confined(Thread::Serving, || assert!(is_denied(bpf(bpf_cmd::BPF_MAP_LOOKUP_ELEM))));
        confined(Thread::Collecting, || {
            assert!(
                bpf(bpf_cmd::BPF_MAP_LOOKUP_ELEM).is_err() && !is_denied(bpf(bpf_cmd::BPF_MAP_LOOKUP_ELEM))
            );
            for command in
                [bpf_cmd::BPF_PROG_LOAD, bpf_cmd::BPF_RAW_TRACEPOINT_OPEN, bpf_cmd::BPF_MAP_GET_FD_BY_ID]
            {
                assert!(is_denied(bpf(command)), "{}", command as u32);
            }
        });
    }

    #[test]
    fn who_serves_starts_threads_and_the_collector_does_not() {
        let start = || thread::Builder::new().spawn(|| 42).map(|thread| thread.join().unwrap());
        assert_eq!(confined(Thread::Serving, start).unwrap(), 42);
        assert!(is_denied(confined(Thread::Collecting, start)));
        assert_eq!(confined(Thread::Showing, start).unwrap(), 42);
    }

    #[test]
    fn who_shows_things_asks_a_terminal_and_does_not_type_into_it() {
        confined(Thread::Showing, || {
            for asked in [libc::TIOCGWINSZ, libc::TCGETS] {
                assert!(!is_denied(call(libc::SYS_ioctl, [0, asked as usize, 0, 0])));
            }
            assert!(is_denied(call(libc::SYS_ioctl, [0, libc::TIOCSTI as usize, 0, 0])));
            assert!(is_denied(call(libc::SYS_bpf, [0; 4])));
        });
        confined(Thread::Serving, || {
            assert!(is_denied(call(libc::SYS_ioctl, [0, libc::TIOCGWINSZ as usize, 0, 0])));
        });
    }
}
