//! A BPF program that runs for a while and holds up RCU grace periods, like a task preempted in the probe.

use std::{
    io,
    os::fd::{AsFd as _, AsRawFd as _, FromRawFd as _, OwnedFd},
    time::Duration,
};

use aya::maps::{Array, IterableMap as _};
use aya_obj::generated::{bpf_attr, bpf_cmd, bpf_prog_type};

/// Size of the buffer that the program copies repeatedly; the maximum for an array value on older kernels.
const BYTES: usize = 4 << 20;

/// Maximum number of rounds. The verifier walks every round of the loop, and would reject many more.
const MOST_ROUNDS: u64 = 4_000;
const COPIES_PER_ROUND: usize = 20;

#[repr(C, align(8))]
#[derive(Clone, Copy)]
struct Memory([u8; BYTES]);

// SAFETY: plain bytes.
unsafe impl aya::Pod for Memory {}

pub(crate) struct RcuReader {
    program: OwnedFd,
}

impl RcuReader {
    /// Loads the program without running it.
    pub(crate) fn load(duration: Duration) -> Self {
        let memory: Array<_, Memory> = Array::create(1, 0).unwrap();
        let instructions = instructions(memory.map().fd().as_fd().as_raw_fd(), duration);
        let mut attr = zeroed();
        // SAFETY: a union of plain integers; this is the member that the command reads.
        let load = unsafe { &mut attr.__bindgen_anon_3 };
        load.prog_type = bpf_prog_type::BPF_PROG_TYPE_RAW_TRACEPOINT as u32;
        load.insns = instructions.as_ptr() as u64;
        load.insn_cnt = instructions.len() as u32;
        load.license = c"GPL".as_ptr() as u64;
        let program = bpf(bpf_cmd::BPF_PROG_LOAD, &mut attr).unwrap();
        // SAFETY: a new file descriptor, which nothing else owns.
        Self { program: unsafe { OwnedFd::from_raw_fd(program) } }
    }

    pub(crate) fn run(&self) {
        let mut attr = zeroed();
        attr.test.prog_fd = self.program.as_raw_fd().cast_unsigned();
        bpf(bpf_cmd::BPF_PROG_TEST_RUN, &mut attr).unwrap();
    }
}

/// Returns code that copies memory until the duration has elapsed.
fn instructions(memory: i32, duration: Duration) -> Vec<u64> {
    const CLOCK: u64 = 5;
    const PROBE_READ_KERNEL: u64 = 113;
    let of = |code: u64, to: u64, from: u64, jump: i16, number: u64| {
        code | to << 8 | from << 12 | u64::from(jump.cast_unsigned()) << 16 | number << 32
    };
    let load =
        |to, from, number: u64| [of(0x18, to, from, 0, number & 0xffff_ffff), of(0, 0, 0, 0, number >> 32)];
    let set = |to, number| of(0xb7, to, 0, 0, number);
    let copy = |to, from| of(0xbf, to, from, 0, 0);
    let call = |helper| of(0x85, 0, 0, 0, helper);
    let mut code = Vec::new();
    code.extend(load(6, 2, u64::from(memory.cast_unsigned())));
    code.extend([call(CLOCK), copy(7, 0), set(8, MOST_ROUNDS)]);
    let first = code.len();
    for _ in 0..COPIES_PER_ROUND {
        code.extend([copy(1, 6), set(2, BYTES as u64), copy(3, 6), call(PROBE_READ_KERNEL)]);
    }
    code.push(call(CLOCK));
    // r0 -= r7; if r0 > r1, leave the loop; r8 -= 1; if r8 != 0, repeat
    code.push(of(0x1f, 0, 7, 0, 0));
    code.extend(load(1, 0, duration.as_nanos() as u64));
    code.extend([of(0x2d, 0, 1, 2, 0), of(0x17, 8, 0, 0, 1)]);
    code.push(of(0x55, 8, 0, first as i16 - code.len() as i16 - 1, 0));
    code.extend([set(0, 0), of(0x95, 0, 0, 0, 0)]);
    code
}

fn zeroed() -> bpf_attr {
    // SAFETY: a union of plain integers, for which zero is valid.
    unsafe { std::mem::zeroed() }
}

fn bpf(command: bpf_cmd, attr: &mut bpf_attr) -> io::Result<i32> {
    // SAFETY: every pointer in `attr` points to a live buffer, and the kernel writes to none of them.
    let result = unsafe {
        libc::syscall(libc::SYS_bpf, command as libc::c_long, std::ptr::from_mut(attr), size_of::<bpf_attr>())
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result as i32) }
}
