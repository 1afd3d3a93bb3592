//! Checks the documented joins with Kubernetes metrics: each is tested on series from both sides, and must return a result.

use std::{fs, path::Path};

use anyhow::{Context as _, Result, ensure};

use crate::{
    host::tool,
    process::{command, root, run},
};

const DOCUMENT: &str = "docs/queries.md";
const TESTS: &str = "deploy/kubernetes/tests/joins.yml";
const BLOCKS: [&str; 2] = ["kube-state-metrics", "cAdvisor"];

pub(super) fn check() -> Result<()> {
    let tests = collapse_whitespace(&read(TESTS)?);
    ensure!(!tests.contains("exp_samples: []"), "{TESTS}: a query without a result proves nothing");
    let document = read(DOCUMENT)?;
    for block in BLOCKS {
        let queries = queries(&document, block);
        ensure!(!queries.is_empty(), "{DOCUMENT} has no {block} queries");
        for query in queries {
            ensure!(tests.contains(&query), "{TESTS} does not test this query of {DOCUMENT}: {query}");
        }
    }
    run(command(tool("bin/promtool"), &["test", "rules"]).arg(TESTS))
}

/// Returns the queries in all blocks of the given kind. Each paragraph is a query; comments are removed.
fn queries(document: &str, block: &str) -> Vec<String> {
    let opening = format!("```promql {block}\n");
    let blocks = document.split(&opening).skip(1).filter_map(|rest| rest.split("```").next());
    let paragraphs = blocks.flat_map(|block| block.split("\n\n"));
    paragraphs
        .map(|text| text.lines().filter(|line| !line.starts_with('#')).collect::<Vec<_>>().join("\n"))
        .map(|query| collapse_whitespace(&query))
        .filter(|query| !query.is_empty())
        .collect()
}

/// Collapses whitespace between words to one space.
fn collapse_whitespace(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn read(path: impl AsRef<Path>) -> Result<String> {
    let path = path.as_ref();
    fs::read_to_string(root().join(path)).with_context(|| format!("cannot read {}", path.display()))
}
