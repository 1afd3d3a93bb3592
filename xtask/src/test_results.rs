//! Parses a test runner's output into passed, failed and skipped tests.

use std::collections::{BTreeMap, BTreeSet};

/// If more tests than this fail, none is run again.
const MAX_RETRIED_TESTS: usize = 2;

#[derive(Default)]
pub(crate) struct TestResults {
    pub(crate) passed: BTreeSet<String>,
    pub(crate) failed: Vec<String>,
    /// Tests that the kernel cannot run, with the missing feature. The runner counts them as passed.
    pub(crate) skipped: BTreeMap<String, String>,
    /// The test whose output follows.
    current: String,
}

impl TestResults {
    pub(crate) fn record(&mut self, line: &str) {
        if let Some(test) = line.strip_prefix("---- ").and_then(|rest| rest.strip_suffix(" stdout ----")) {
            test.clone_into(&mut self.current);
        } else if let Some(reason) = line.strip_prefix("skipped: ") {
            self.passed.remove(&self.current);
            self.skipped.insert(self.current.clone(), reason.to_owned());
        }
        let Some(test) = line.strip_prefix("test ") else { return };
        self.passed.extend(test.strip_suffix(" ... ok").map(str::to_owned));
        self.failed.extend(test.strip_suffix(" ... FAILED").map(str::to_owned));
    }

    /// Whether few enough tests failed to be worth rerunning: other load on the CPUs may have disturbed them.
    pub(crate) fn are_worth_retrying(&self) -> bool {
        (1..=MAX_RETRIED_TESTS).contains(&self.failed.len())
    }
}

#[cfg(test)]
mod tests {
    use super::TestResults;

    #[test]
    fn parses_test_runner_output() {
        let mut results = TestResults::default();
        for line in [
            "running 3 tests",
            "test a::first ... ok",
            "test a::second ... FAILED",
            "test b::third ... ignored",
            "test c::fourth ... ok",
            "successes:",
            "---- a::first stdout ----",
            "12 of 30",
            "---- c::fourth stdout ----",
            "skipped: no zones before 5.9",
            "test result: FAILED. 2 passed; 1 failed; 1 ignored",
        ] {
            results.record(line);
        }
        assert_eq!(
            (results.passed, &results.failed[..]),
            (["a::first".to_owned()].into(), &["a::second".to_owned()][..])
        );
        assert_eq!(results.skipped, [("c::fourth".to_owned(), "no zones before 5.9".to_owned())].into());
    }

    #[test]
    fn few_failures_are_worth_retrying() {
        for (failed, expected) in [(0, false), (1, true), (2, true), (3, false)] {
            let results = TestResults { failed: vec![String::new(); failed], ..TestResults::default() };
            assert_eq!(results.are_worth_retrying(), expected, "{failed} failed");
        }
    }
}
