//! Writes a binary's software bill of materials (SBOM) as CycloneDX JSON: the components linked into it, and the components that
//! ran during its build.
//!
//! <https://cyclonedx.org/docs/1.6/json/>
//! Crates come from `cargo tree`, which resolves them for the binary's target and features. (`cargo metadata` also lists crates
//! that only tests or other packages of the workspace enable.)

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::release_info::ReleaseInfo;
use crate::{
    ebpf,
    hash::hash,
    process::{cargo, output, root},
    static_build::{Architecture, Program},
};

const PROBE: &str = "biolat-ebpf";

/// Name and version of a crate, such as `serde@1.0.0`.
type Reference = String;

/// A package's crates with their direct dependencies.
type Tree = BTreeMap<Reference, Crate>;

#[derive(Debug, Default, PartialEq)]
struct Crate {
    license: String,
    dependencies: BTreeSet<Reference>,
}

/// Writes the SBOM of a binary next to it and returns its path.
pub(super) fn write(
    program: Program,
    binary: &Path,
    architecture: Architecture,
    info: &ReleaseInfo,
) -> Result<PathBuf> {
    let sbom = serde_json::to_vec_pretty(&sbom(program, binary, architecture, info)?)?;
    let mut path = binary.as_os_str().to_owned();
    path.push(".cdx.json");
    fs::write(&path, sbom).with_context(|| format!("cannot write {}", Path::new(&path).display()))?;
    Ok(path.into())
}

fn sbom(program: Program, binary: &Path, architecture: Architecture, info: &ReleaseInfo) -> Result<Value> {
    let Program { name, package } = program;
    let mut crates = tree(package, architecture.target, "normal,build")?;
    crates.extend(tree(PROBE, "all", "normal")?);
    // Cargo does not know that the program embeds the probe as data.
    let (program, probe) = (own(package, info), own(PROBE, info));
    let libraries = architecture.libraries()?;
    let root_crate = crates.get_mut(&program).context("cargo tree does not list the program")?;
    root_crate.dependencies.insert(probe.clone());
    root_crate.dependencies.extend(libraries.iter().map(|library| library.name.to_owned()));

    let mut linked = tree(package, architecture.target, "normal,no-proc-macro")?;
    linked.extend(tree(PROBE, "all", "normal,no-proc-macro")?);
    let sums = checksums(&fs::read_to_string(root().join("Cargo.lock"))?);
    let mut components: Vec<_> = crates
        .iter()
        .filter(|(reference, _)| **reference != program)
        .map(|(reference, package)| {
            component(reference, package, linked.contains_key(reference), sums.get(reference))
        })
        .collect();
    let object = fs::read(root().join(ebpf::OBJECT))?;
    for component in components.iter_mut().filter(|component| component["bom-ref"] == probe) {
        component["hashes"] = hashes(&hash(&object));
    }
    components.extend(libraries.iter().map(|library| {
        json!({
            "type": "library",
            "bom-ref": library.name,
            "name": library.name,
            "version": library.version,
            "scope": "required",
            "licenses": licenses(library.license),
            "cpe": format!("cpe:2.3:a:{}:{}:*:*:*:*:*:*:*", library.product, library.version),
        })
    }));
    let (author, _) = env!("CARGO_PKG_AUTHORS").split_once(" <").context("no author's address")?;
    Ok(json!({
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "timestamp": info.date("%Y-%m-%dT%H:%M:%SZ")?,
            "lifecycles": [{ "phase": "build" }],
            "authors": [{ "name": author }],
            "component": {
                "type": "application",
                "bom-ref": program,
                "name": name,
                "version": info.version,
                "hashes": hashes(&hash(&fs::read(binary)?)),
                "licenses": licenses(env!("CARGO_PKG_LICENSE")),
                "properties": [
                    { "name": "revision", "value": info.revision },
                    { "name": "target", "value": architecture.target },
                ],
            },
        },
        "components": components,
        "dependencies": crates
            .iter()
            .map(|(reference, package)| json!({ "ref": reference, "dependsOn": package.dependencies }))
            .collect::<Vec<_>>(),
    }))
}

/// Fails if the SBOM lacks a crate whose source paths appear in the binary's panic messages.
pub(super) fn check(sbom: &Path, binary: &[u8]) -> Result<()> {
    let sbom: Value = serde_json::from_slice(&fs::read(sbom)?)?;
    let components = sbom["components"].as_array().context("the SBOM has no components")?;
    let linked: BTreeSet<_> = components
        .iter()
        .filter(|component| component["scope"] == "required")
        .map(|component| {
            let field = |name: &str| component[name].as_str().unwrap_or_default();
            format!("{}-{}", field("name"), field("version"))
        })
        .collect();
    let found = crates_in(binary);
    let missing: Vec<_> = found.difference(&linked).collect();
    ensure!(missing.is_empty(), "the binary contains crates that are not in its SBOM: {missing:?}");
    ensure!(
        found.len() > linked.len() / 4,
        "only {} of {} crates found in the binary",
        found.len(),
        linked.len()
    );
    println!("{} of {} components are named in the binary", found.len(), linked.len());
    Ok(())
}

/// Returns names and versions of crates, such as `serde-1.0.0`, from the source paths of registry crates: the program's
/// (`cargo/NAME-VERSION/src`) and the probe's (`cargo/registry/src/INDEX/NAME-VERSION/src`).
fn crates_in(binary: &[u8]) -> BTreeSet<String> {
    const START: &[u8] = b"cargo/";
    let paths = binary.windows(START.len()).enumerate().filter(|(_, bytes)| *bytes == START);
    let names = paths.filter_map(|(at, start)| {
        let path = &binary[at + start.len()..];
        let path = path[..path.len().min(200)].utf8_chunks().next()?.valid();
        let path = path
            .strip_prefix("registry/src/")
            .and_then(|path| path.split_once('/'))
            .map_or(path, |(_, path)| path);
        let (name, rest) = path.split_once('/')?;
        rest.starts_with("src/").then(|| name.to_owned())
    });
    names.collect()
}

fn own(name: &str, info: &ReleaseInfo) -> Reference {
    format!("{name}@{}", info.version)
}

/// Returns a crate as a component. Build scripts and procedural macros run at build time and are not in the binary.
fn component(reference: &str, package: &Crate, is_linked: bool, checksum: Option<&String>) -> Value {
    let (name, version) = reference.split_once('@').unwrap_or((reference, ""));
    let mut component = json!({
        "type": "library",
        "bom-ref": reference,
        "name": name,
        "version": version,
        "scope": if is_linked { "required" } else { "excluded" },
        "licenses": licenses(&package.license),
    });
    // Only crates from the registry have a checksum.
    if let Some(checksum) = checksum {
        component["purl"] = json!(format!("pkg:cargo/{reference}"));
        component["hashes"] = hashes(checksum);
    }
    component
}

/// Returns an SPDX expression. Older crates separate alternatives with a slash.
fn licenses(expression: &str) -> Value {
    let alternatives: Vec<_> = expression.split('/').map(str::trim).collect();
    json!([{ "expression": alternatives.join(" OR ") }])
}

fn hashes(sha256: &str) -> Value {
    json!([{ "alg": "SHA-256", "content": sha256 }])
}

/// Returns the crates of a package for a target, following certain kinds of dependencies.
fn tree(package: &str, target: &str, edges: &str) -> Result<Tree> {
    let arguments = ["tree", "--locked", "--package", package, "--target", target, "--edges", edges];
    parse_tree(&output(cargo(&arguments).args(["--prefix", "depth", "--format", "|{p}|{l}"]))?)
}

/// Parses lines like `2|serde v1.0.0 (proc-macro)|MIT (*)`: depth, crate, license. Cargo lists the dependencies of a crate only
/// once.
fn parse_tree(lines: &str) -> Result<Tree> {
    let mut tree = Tree::new();
    let mut path: Vec<Reference> = Vec::new();
    for line in lines.lines() {
        let mut fields = line.trim_end_matches(" (*)").split('|');
        let mut field = || fields.next().with_context(|| format!("cargo tree prints {line:?}"));
        let (depth, package, license) = (field()?.parse()?, field()?, field()?);
        let mut words = package.split(' ');
        let name = words.next().unwrap_or_default();
        let version = words.next().and_then(|version| version.strip_prefix('v'));
        let version = version.with_context(|| format!("cargo tree prints {package:?} without a version"))?;
        let reference = format!("{name}@{version}");
        path.truncate(depth);
        if let Some(parent) = path.last().and_then(|parent| tree.get_mut(parent)) {
            parent.dependencies.insert(reference.clone());
        }
        tree.entry(reference.clone()).or_default().license = license.to_owned();
        path.push(reference);
    }
    Ok(tree)
}

/// Returns the SHA-256 checksums of registry crates in `Cargo.lock`.
fn checksums(lock: &str) -> BTreeMap<Reference, String> {
    let packages = lock.split("[[package]]").filter_map(|package| {
        let field = |name: &str| package.lines().find_map(|line| line.strip_prefix(name)?.strip_suffix('"'));
        let reference = format!("{}@{}", field("name = \"")?, field("version = \"")?);
        Some((reference, field("checksum = \"")?.to_owned()))
    });
    packages.collect()
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use serde_json::json;

    use super::{Crate, checksums, component, crates_in, parse_tree};

    #[test]
    fn parses_tree_with_edges() {
        let printed = "0|own v0.1.0 (/somewhere)|MIT\n1|a v1.0.0|MIT/Apache-2.0\n2|b v2.0.0 (proc-macro)|ISC\n\
                       1|b v2.0.0 (proc-macro)|ISC (*)\n";
        let package = |license: &str, dependencies: &[&str]| Crate {
            license: license.to_owned(),
            dependencies: dependencies.iter().map(ToString::to_string).collect(),
        };
        let expected = BTreeMap::from([
            ("own@0.1.0".to_owned(), package("MIT", &["a@1.0.0", "b@2.0.0"])),
            ("a@1.0.0".to_owned(), package("MIT/Apache-2.0", &["b@2.0.0"])),
            ("b@2.0.0".to_owned(), package("ISC", &[])),
        ]);
        assert_eq!(parse_tree(printed).unwrap(), expected);
        assert!(parse_tree("0|own (/somewhere)|MIT\n").is_err());
        assert!(parse_tree("a v1.0.0\n").is_err());
    }

    #[test]
    fn only_registry_crates_have_checksums() {
        let lock = "version = 4\n\n[[package]]\nname = \"a\"\nversion = \"1.0.0\"\nsource = \"registry\"\n\
                    checksum = \"00ff\"\n\n[[package]]\nname = \"own\"\nversion = \"0.1.0\"\n";
        assert_eq!(checksums(lock), BTreeMap::from([("a@1.0.0".to_owned(), "00ff".to_owned())]));
    }

    #[test]
    fn component_has_license_and_scope() {
        let package = Crate { license: "MIT / Apache-2.0".to_owned(), dependencies: BTreeSet::new() };
        let built_with = component("a@1.0.0", &package, false, Some(&"00ff".to_owned()));
        assert_eq!(built_with["licenses"], json!([{ "expression": "MIT OR Apache-2.0" }]));
        assert_eq!(built_with["scope"], "excluded");
        assert_eq!(built_with["purl"], "pkg:cargo/a@1.0.0");
        let own = component("own@0.1.0", &package, true, None);
        assert_eq!((&own["scope"], &own["purl"]), (&json!("required"), &json!(null)));
    }

    #[test]
    fn finds_crates_by_source_paths() {
        let binary = b"\xffcargo/a-1.0.0/src/lib.rscargo/registry/src/index-0f/b-2.0.0/src/x.rs\0cargo/c/lib.rs cargo/";
        assert_eq!(crates_in(binary), BTreeSet::from(["a-1.0.0".to_owned(), "b-2.0.0".to_owned()]));
    }
}
