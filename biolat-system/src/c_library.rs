//! Safe wrappers for functions of the C library that neither std nor rustix wraps.

#![allow(unsafe_code, reason = "no dependency has safe wrappers for these")]

/// Allocations of at least this size get pages of their own, which go back to the kernel as soon as they are freed. By default
/// glibc raises this threshold to the largest allocation freed so far, and large bodies would then stay in the heap.
const OWN_PAGES: libc::c_int = 128 << 10;

/// Makes all threads share one malloc arena, and gives large allocations pages of their own. With one arena per thread, a thread
/// cannot reuse memory that another one has freed: several megabytes after the kernel's BTF has been parsed.
pub fn share_one_heap() {
    #[cfg(target_env = "gnu")]
    // SAFETY: integer arguments only; glibc locks internally.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
        libc::mallopt(libc::M_MMAP_THRESHOLD, OWN_PAGES);
    }
}

/// Returns free heap memory to the kernel.
pub fn trim_heap() {
    #[cfg(target_env = "gnu")]
    // SAFETY: no precondition.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Unmaps the pages of the program's own code and constants, so code that runs only at startup does not stay resident. Pages that
/// are needed again are mapped again, from the page cache.
pub fn unmap_code() {
    unsafe extern "C" {
        safe static __executable_start: u8;
        safe static etext: u8;
    }
    let start = &raw const __executable_start;
    let bytes = (&raw const etext).addr().saturating_sub(start.addr());
    // SAFETY: nothing writes to these pages, so they match the file. The linker puts writable data after the code.
    unsafe {
        libc::madvise(start.cast_mut().cast(), bytes - bytes % page_size() as usize, libc::MADV_DONTNEED)
    };
}

/// Returns the kernel's clock ticks per second, the unit of times in `/proc/<pid>/stat`.
pub fn clock_ticks_per_second() -> u64 {
    system(libc::_SC_CLK_TCK)
}

/// Returns the page size in bytes.
pub fn page_size() -> u64 {
    system(libc::_SC_PAGESIZE)
}

fn system(name: libc::c_int) -> u64 {
    // SAFETY: no precondition.
    unsafe { libc::sysconf(name) }.max(1).cast_unsigned()
}

/// Converts seconds since the epoch to hour, minute and second in this host's time zone.
pub fn local_time(seconds: f64) -> [i32; 3] {
    let parts = local_parts(seconds);
    [parts.tm_hour, parts.tm_min, parts.tm_sec]
}

/// Converts seconds since the epoch to year, month and day in this host's time zone.
pub fn local_date(seconds: f64) -> [i32; 3] {
    let parts = local_parts(seconds);
    [parts.tm_year.saturating_add(1900), parts.tm_mon + 1, parts.tm_mday]
}

fn local_parts(seconds: f64) -> libc::tm {
    let time = seconds as libc::time_t;
    // SAFETY: zero is valid for the struct's numbers and its pointer, which is not read. The call fills the struct or leaves it
    // unchanged. It can only race with changes to environment variables, which are unsafe themselves.
    unsafe {
        let mut parts: libc::tm = std::mem::zeroed();
        libc::localtime_r(&raw const time, &raw mut parts);
        parts
    }
}

/// Returns seconds since the epoch for a time of day in this host's time zone, `days_ago` days before `now`.
pub fn time_of_local_day(now: i64, days_ago: i32, [hour, minute, second]: [u8; 3]) -> Option<i64> {
    // SAFETY: as in `local_parts`; `mktime` reads and normalizes the numbers that `localtime_r` has filled in.
    let time = unsafe {
        let mut parts: libc::tm = std::mem::zeroed();
        if libc::localtime_r(&raw const now, &raw mut parts).is_null() {
            return None;
        }
        parts.tm_mday -= days_ago;
        (parts.tm_hour, parts.tm_min, parts.tm_sec) = (hour.into(), minute.into(), second.into());
        // Lets the C library determine whether daylight saving time applies.
        parts.tm_isdst = -1;
        libc::mktime(&raw mut parts)
    };
    (time != -1).then_some(time)
}

/// Makes writing beyond the file size limit (`ulimit -f`) an ordinary error, as if the disk were full. By default the kernel
/// kills the process.
pub fn ignore_file_size_signal() {
    // SAFETY: no code runs when the signal arrives.
    unsafe {
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
    }
}

/// Stops this process as Ctrl-Z would without a handler, by the default action of SIGTSTP. The kernel ignores the signal if no
/// shell could continue the process. Returns when the process is continued.
pub fn stop_process() {
    // SAFETY: the structs are plain numbers, for which zero is valid. The previous handler is restored.
    unsafe {
        let (mut default, mut before): (libc::sigaction, libc::sigaction) =
            (std::mem::zeroed(), std::mem::zeroed());
        default.sa_sigaction = libc::SIG_DFL;
        libc::sigaction(libc::SIGTSTP, &raw const default, &raw mut before);
        libc::raise(libc::SIGTSTP);
        libc::sigaction(libc::SIGTSTP, &raw const before, std::ptr::null_mut());
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::{clock_ticks_per_second, local_time, page_size};

    fn output(program: &str, arguments: &[&str]) -> String {
        let output = Command::new(program).args(arguments).output().unwrap();
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    #[test]
    fn local_time_matches_date() {
        let [hour, minute, second] = local_time(1_700_000_000.9);
        let expected = output("date", &["-d", "@1700000000", "+%H:%M:%S"]);
        assert_eq!(format!("{hour:02}:{minute:02}:{second:02}"), expected);
    }

    #[test]
    fn constants_match_getconf() {
        assert_eq!(clock_ticks_per_second().to_string(), output("getconf", &["CLK_TCK"]));
        assert_eq!(page_size().to_string(), output("getconf", &["PAGESIZE"]));
    }
}
