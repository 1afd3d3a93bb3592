//! Compares the bucket arithmetic as run by the kernel's JIT with the same code in user space, which biolat-common's tests
//! compare with the definition.

use aya::{Ebpf, RawTracePointRunOptions, TestRun as _, maps::Array, programs::RawTracePoint};
use biolat_common::bucket::{COMMON_LIMIT_NS, LIMIT_NS, cell};

#[test]
#[ignore = "needs root and the probe's compiler: cargo xtask test"]
fn kernel_finds_same_cells() {
    let path = std::env::var_os("BIOLAT_TEST_CELLS")
        .expect("BIOLAT_TEST_CELLS is not set; cargo xtask test sets it");
    let mut object = Ebpf::load_file(path).unwrap();
    let result: Array<_, u64> = object.take_map("CELL").unwrap().try_into().unwrap();
    let program: &mut RawTracePoint = object.program_mut("cells").unwrap().try_into().unwrap();
    program.load().unwrap();
    let in_kernel = |ns: u64| {
        let mut options = RawTracePointRunOptions::new();
        options.args[0] = ns;
        program.test_run(options).unwrap();
        let [any, usual] = [0, 1].map(|index| result.get(&index, 0).unwrap() as usize);
        assert!(ns >= COMMON_LIMIT_NS || any == usual, "{ns} ns: {any}, but the common case finds {usual}");
        any
    };
    let boundaries =
        (0..LIMIT_NS.ilog2() * 8).map(|step| 2f64.powf(f64::from(step) / 8.0) * 1e9 / 2f64.powi(30));
    let mut compared = 0;
    for boundary in boundaries {
        for ns in (boundary as u64).saturating_sub(2)..=(boundary as u64 + 2).min(LIMIT_NS - 1) {
            assert_eq!(in_kernel(ns), cell(ns), "{ns} ns");
            compared += 1;
        }
    }
    for ns in [
        0,
        511,
        512,
        953,
        954,
        1_024_000_000_000,
        1_024_000_000_001,
        COMMON_LIMIT_NS - 1,
        COMMON_LIMIT_NS,
        LIMIT_NS - 1,
    ] {
        assert_eq!(in_kernel(ns), cell(ns), "{ns} ns");
    }
    assert!(compared > 1500);
}
