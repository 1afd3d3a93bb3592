//! Finds import cycles between the modules of a crate.
//!
//! A crate's top-level modules form one graph, and the children of each directory module form another. Every file below a child
//! belongs to that child's node. The parent's own file (`lib.rs`, `main.rs`, `mod.rs`) is a separate node, `super`: it may import
//! a child, or the child may import from it, but not both. An edge is a path to another module, in code or in a `use`. Test-only
//! modules are ignored. A path to an item that a parent re-exports or imports from a child (`use child::Item`) is an edge to that
//! child.

mod remaining;
mod source;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, bail};

use crate::process::root;
use remaining::REMAINING;
use source::Source;

/// Names from the crate's root to a module or an item.
type ModulePath = Vec<String>;

/// Fails if there are cycles, and lists them.
pub(super) fn check() -> Result<()> {
    let mut found = Vec::new();
    let mut outdated = BTreeSet::from(REMAINING);
    for folder in crates(&root())? {
        let mut files = Vec::new();
        read(&folder, &folder, &mut files)?;
        let (cycles, remaining) = cycles(folder.strip_prefix(root())?, &files, &REMAINING);
        found.extend(cycles);
        outdated.retain(|module| !remaining.contains(module));
    }
    found.extend(
        outdated.iter().map(|module| format!("{module} is in no cycle: remove it from remaining.rs")),
    );
    if !found.is_empty() {
        bail!("modules import each other:\n{}", found.join("\n"));
    }
    Ok(())
}

/// Returns the root directories of all crates: `src` and `benches` of each package, and the subdirectories of its `tests`.
fn crates(workspace: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for package in folders(workspace)?.into_iter().filter(|folder| folder.join("Cargo.toml").is_file()) {
        found.extend(["src", "benches"].map(|name| package.join(name)));
        if package.join("tests").is_dir() {
            found.extend(folders(&package.join("tests"))?);
        }
    }
    found.retain(|folder| ["lib.rs", "main.rs"].iter().any(|root| folder.join(root).is_file()));
    Ok(found)
}

fn folders(parent: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(parent).with_context(|| format!("cannot list {}", parent.display()))?;
    let paths: Vec<_> = entries.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    Ok(paths.into_iter().filter(|path| path.is_dir()).collect())
}

/// Reads every Rust file of a crate. If there is a `lib.rs`, `main.rs` is a separate crate.
fn read(root: &Path, folder: &Path, files: &mut Vec<(PathBuf, String)>) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))? {
        let path = entry?.path();
        let name = path.strip_prefix(root)?.to_owned();
        let is_other_crate = name == Path::new("main.rs") && root.join("lib.rs").is_file();
        if path.is_dir() {
            read(root, &path, files)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") && !is_other_crate {
            files.push((name, fs::read_to_string(&path)?));
        }
    }
    Ok(())
}

/// Returns a file's module: `[]` for `lib.rs` and `main.rs`, `[a]` for `a.rs` and `a/mod.rs`.
fn module_of(file: &Path) -> ModulePath {
    let mut names: Vec<_> =
        file.with_extension("").iter().map(|name| name.to_string_lossy().into_owned()).collect();
    let is_root = names.len() == 1 && matches!(&names[0][..], "lib" | "main");
    if is_root || names.last().is_some_and(|name| name == "mod") {
        names.pop();
    }
    names
}

/// Each node's imports, with the first place where each occurs. A node is a child's name or [`PARENT`].
type Graph = BTreeMap<String, BTreeMap<String, String>>;

const PARENT: &str = "super";

/// Describes each cycle among the files of a crate, except cycles caused by a known module that imports its parent. Also returns
/// the known modules that still cause one.
fn cycles<'a>(
    folder: &Path,
    files: &[(PathBuf, String)],
    known: &[&'a str],
) -> (Vec<String>, BTreeSet<&'a str>) {
    let (mut found, mut remaining) = (Vec::new(), BTreeSet::new());
    for (parent, mut graph) in graphs(files) {
        let prefix = folder.iter().map(|name| name.to_string_lossy()).chain(parent.iter().map(Into::into));
        let prefix = prefix.collect::<Vec<_>>().join("/");
        let in_cycle: Vec<_> = known
            .iter()
            .filter_map(|module| Some((module, module.strip_prefix(&prefix)?.strip_prefix('/')?)))
            .filter(|(_, child)| graph.get(*child).is_some_and(|targets| targets.contains_key(PARENT)))
            .filter(|(_, child)| shortest_path(PARENT, child, &graph).is_some())
            .collect();
        for (module, child) in in_cycle {
            remaining.insert(*module);
            graph.entry(child.to_owned()).or_default().remove(PARENT);
        }
        found.extend(describe(&prefix, &graph));
    }
    (found, remaining)
}

/// Builds the graphs, keyed by the directory module whose children they connect.
fn graphs(files: &[(PathBuf, String)]) -> BTreeMap<ModulePath, Graph> {
    let mut sources: BTreeMap<ModulePath, (PathBuf, Source)> =
        files.iter().map(|(file, text)| (module_of(file), (file.clone(), Source::parse(text)))).collect();
    let test_modules: Vec<ModulePath> = sources
        .iter()
        .flat_map(|(module, (_, source))| source.test_modules.iter().map(|name| child(module, name)))
        .collect();
    sources.retain(|module, _| !test_modules.iter().any(|tests| module.starts_with(tests)));

    let modules: BTreeSet<ModulePath> = sources.keys().cloned().collect();
    // Items that a module imports from its children, by the path that other modules use.
    let imported: BTreeMap<ModulePath, &String> = sources
        .iter()
        .flat_map(|(module, (_, source))| source.imports.iter().map(move |path| (module, path)))
        .filter_map(|(module, path)| match &path[..] {
            [from, .., name] if modules.contains(&child(module, from)) => Some((child(module, name), from)),
            _ => None,
        })
        .collect();

    let mut graphs: BTreeMap<ModulePath, Graph> = BTreeMap::new();
    for (module, (file, source)) in &sources {
        for (line, path) in &source.paths {
            let Some(mut target) = resolve(module, path, &modules) else { continue };
            // Follow re-exports to the module that defines the item.
            let mut depth = 0;
            while depth < target.len() {
                if !modules.contains(&target[..=depth]) {
                    match imported.get(&target[..=depth]) {
                        Some(from) => target.insert(depth, (*from).clone()),
                        None => target.truncate(depth),
                    }
                }
                depth += 1;
            }
            let common = module.iter().zip(&target).take_while(|(one, other)| one == other).count();
            let node = |path: &[String]| path.get(common).map_or(PARENT, String::as_str).to_owned();
            if *module != target {
                let graph = graphs.entry(module[..common].to_vec()).or_default();
                let places = graph.entry(node(module)).or_default();
                places.entry(node(&target)).or_insert_with(|| format!("{}:{line}", file.display()));
            }
        }
    }
    graphs
}

fn child(module: &[String], name: &str) -> ModulePath {
    [module, &[name.to_owned()]].concat()
}

/// Resolves a path from the crate's root. Returns `None` if it leaves the crate, or starts with a name that is not a child
/// module.
fn resolve(module: &[String], path: &[String], modules: &BTreeSet<ModulePath>) -> Option<ModulePath> {
    let supers = path.iter().take_while(|name| *name == "super").count();
    let (base, rest) = match path.first()?.as_str() {
        "crate" => (&module[..0], &path[1..]),
        "self" => (module, &path[1..]),
        "super" => (&module[..module.len().checked_sub(supers)?], &path[supers..]),
        name if modules.contains(&child(module, name)) => (module, path),
        _ => return None,
    };
    Some([base, rest].concat())
}

/// Describes a shortest cycle through each module that is in one, without duplicates.
fn describe(folder: &str, graph: &Graph) -> Vec<String> {
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    for start in graph.keys() {
        let Some(cycle) = shortest_path(start, start, graph) else { continue };
        if !seen.insert(cycle.iter().copied().collect::<BTreeSet<_>>()) {
            continue;
        }
        let mut text = format!("in {folder}:");
        for (from, to) in cycle.iter().zip(cycle.iter().cycle().skip(1)) {
            let _ = write!(text, "\n  {from} imports {to} at {}", graph[*from][*to]);
        }
        found.push(text);
    }
    found
}

/// Returns the nodes on a shortest path, without `to`.
fn shortest_path<'a>(from: &'a str, to: &str, graph: &'a Graph) -> Option<Vec<&'a str>> {
    let mut paths = VecDeque::from([vec![from]]);
    let mut reached = BTreeSet::new();
    while let Some(path) = paths.pop_front() {
        for next in path.last().and_then(|last| graph.get(*last)).into_iter().flat_map(BTreeMap::keys) {
            if next == to {
                return Some(path);
            }
            if reached.insert(next) {
                paths.push_back([path.as_slice(), &[next]].concat());
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::cycles;

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let files: Vec<_> = files.iter().map(|(name, text)| (name.into(), (*text).to_owned())).collect();
        cycles(Path::new("a/src"), &files, &[]).0
    }

    #[test]
    fn finds_cycle_of_two_modules() {
        let files = [
            ("lib.rs", "mod a; mod b;"),
            ("a.rs", "\nuse crate::{b::B, other};"),
            ("b.rs", "fn b() { crate::a::run() }"),
        ];
        assert_eq!(found(&files), ["in a/src:\n  a imports b at a.rs:2\n  b imports a at b.rs:1"]);
        assert!(found(&files[..2]).is_empty());
    }

    #[test]
    fn finds_cycle_of_three_through_directories() {
        let files = [
            ("a/mod.rs", "mod x;"),
            ("a/x.rs", "use crate::b;"),
            ("b.rs", "use super::c::C;"),
            ("c/y/z.rs", "use super::super::super::a::x;"),
            ("c/mod.rs", ""),
            ("c/y/mod.rs", ""),
        ];
        let [cycle] = &found(&files)[..] else { panic!("{:?}", found(&files)) };
        assert!(
            cycle.contains("a imports b at a/x.rs:1") && cycle.contains("b imports c at b.rs:1"),
            "{cycle}"
        );
        assert!(cycle.contains("c imports a at c/y/z.rs:1"), "{cycle}");
    }

    #[test]
    fn finds_cycle_among_children() {
        let files = [
            ("a/mod.rs", "mod x;\nmod y;\npub use y::{Y, deep::Z as Other};\npub struct Own;"),
            ("a/x.rs", "use super::Own;\npub struct X;"),
            ("a/y.rs", "use super::x::X;"),
        ];
        assert!(found(&files).is_empty(), "{:?}", found(&files));
        for imports in ["use super::Y;", "use super::{Own, Y};", "use crate::a::Y;", "use super::y;"] {
            let through_parent = [files[0], ("a/x.rs", imports), files[2]];
            let expected = "in a/src/a:\n  x imports y at a/x.rs:1\n  y imports x at a/y.rs:1";
            assert_eq!(found(&through_parent), [expected], "{imports}");
        }
    }

    #[test]
    fn finds_cycle_of_parent_and_child() {
        let child = ("a/x.rs", "use super::Own;");
        for parent in [
            "use x::X;",
            "pub struct Own(x::X);",
            "fn f() { self::x::f() }",
            "pub(crate) use x::X;\npub struct Own(X);",
            "pub use x::X;\nimpl Own { fn f() { X::new() } }",
        ] {
            let [cycle] = &found(&[("a.rs", parent), child])[..] else { panic!("{parent}") };
            assert!(cycle.starts_with("in a/src/a:\n  super imports x at a.rs:"), "{cycle}");
            assert!(cycle.ends_with("\n  x imports super at a/x.rs:1"), "{cycle}");
            assert!(found(&[("a.rs", parent), ("a/x.rs", "use super::super::b;"), ("b.rs", "")]).is_empty());
        }
        for parent in ["mod x;", "pub use x::X;", "pub(crate) use x::{X, f};", "fn f() { y::x::f() }"] {
            assert!(found(&[("a/mod.rs", parent), child]).is_empty(), "{parent}");
        }
        let re_exported = [("a.rs", "pub use crate::b::B;"), ("b.rs", "use crate::a;")];
        assert_eq!(found(&re_exported).len(), 1);
        let in_root = [("main.rs", "fn main() { x::f() }"), ("x.rs", "use crate::Own;")];
        assert_eq!(found(&in_root).len(), 1);
    }

    #[test]
    fn finds_cycle_through_two_re_exports() {
        let files = [
            ("a/mod.rs", "use b::X;\npub struct Own;"),
            ("a/b/mod.rs", "pub use c::X;"),
            ("a/b/c.rs", "use super::super::Own;"),
            ("a/d.rs", "use super::X;"),
        ];
        assert_eq!(
            found(&files),
            ["in a/src/a:\n  b imports super at a/b/c.rs:1\n  super imports b at a/mod.rs:1"]
        );
    }

    #[test]
    fn excludes_known_cycles_that_remain() {
        let known = ["a/src/a/x", "a/src/a/y", "b/src/a/x"];
        let files = |x: &str, y: &str| {
            [("a.rs", "use x::X; use y::Y;"), ("a/x.rs", x), ("a/y.rs", y)]
                .map(|(name, text)| (name.into(), text.to_owned()))
        };
        let with = |x: &str, y: &str| cycles(Path::new("a/src"), &files(x, y), &known);
        assert_eq!(with("use super::Own;", ""), (Vec::new(), ["a/src/a/x"].into()));
        assert_eq!(with("", ""), (Vec::new(), [].into()));
        let (found, remaining) = with("use super::{Own, y::Y};", "use super::x::X;");
        assert!(found.len() == 1 && !found[0].contains("super"), "{found:?}");
        assert_eq!(remaining, ["a/src/a/x"].into());
    }

    #[test]
    fn attributes_re_exports_to_their_origin() {
        let files = [
            ("a/mod.rs", "mod x; pub use x::X;"),
            ("a/x.rs", "use crate::b::B;"),
            ("b.rs", "use crate::a::X;"),
        ];
        assert_eq!(found(&files), ["in a/src:\n  a imports b at a/x.rs:1\n  b imports a at b.rs:1"]);
    }

    #[test]
    fn ignores_tests_comments_and_strings() {
        let a = "use crate::b;";
        for b in [
            "// crate::a::run()",
            "/* crate::a /* nested */ crate::a */",
            "//! [`x`](crate::a::x)",
            r##"const TEXT: &str = "\"crate::a::x"; const RAW: &str = r#"crate::a"x"#;"##,
            "#[cfg(test)]\nmod tests { use crate::a::x; fn f() { '{'; } }",
            "#[cfg(test)]\nuse crate::a::x;",
            "pub(in crate::a) fn f() {}",
        ] {
            assert!(found(&[("a.rs", a), ("b.rs", b)]).is_empty(), "{b}");
        }
        let after_tests =
            "fn f<'a>(c: char) -> bool { c == '\"' }\n#[cfg(test)]\nmod tests {}\nuse crate::a::x;";
        assert_eq!(found(&[("a.rs", a), ("b.rs", after_tests)]).len(), 1);
        let test_modules = [
            ("a.rs", a),
            ("b/mod.rs", "#[cfg(test)]\npub(crate) mod samples;"),
            ("b/samples.rs", "use crate::a::x;"),
        ];
        assert!(found(&test_modules).is_empty());
    }
}
