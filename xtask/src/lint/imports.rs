//! No import cycle between modules of the daemon.
//!
//! There is a graph of the crate's top-level modules, and one of each directory module's children. An edge is a path that begins
//! with `crate`, `super` or `self`, in code or in a `use`; modules for tests only do not count.
//!
//! - A path to an item that the parent re-exports or imports from a child (`use child::Item`) is an edge to that child.
//! - A module and its own children may use each other: `mod.rs` imports its children, and they extend its types. So what lies in
//!   `mod.rs` itself is no node of the children's graph, and in a graph every file below a child belongs to that child.

mod source;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, bail};

use crate::process::root;
use source::Source;

/// The names from the crate's root to a module or an item.
type ModulePath = Vec<String>;

/// Fails if there is a cycle, and names each.
pub(super) fn check() -> Result<()> {
    let folder = root().join("biolat-daemon/src");
    let mut files = Vec::new();
    read(&folder, &folder, &mut files)?;
    let found = cycles(&files);
    if !found.is_empty() {
        bail!("modules import each other:\n{}", found.join("\n"));
    }
    Ok(())
}

/// Every Rust file below a folder, but `main.rs`, which is a crate of its own.
fn read(root: &Path, folder: &Path, files: &mut Vec<(PathBuf, String)>) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))? {
        let path = entry?.path();
        let name = path.strip_prefix(root).unwrap_or(&path).to_owned();
        if path.is_dir() {
            read(root, &path, files)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") && name != Path::new("main.rs")
        {
            files.push((name, fs::read_to_string(&path)?));
        }
    }
    Ok(())
}

/// The module that a file is: none for `lib.rs`, `[a]` for `a.rs` and `a/mod.rs`.
fn module_of(file: &Path) -> ModulePath {
    let mut names: Vec<_> =
        file.with_extension("").iter().map(|name| name.to_string_lossy().into_owned()).collect();
    if names.last().is_some_and(|name| name == "mod" || (name == "lib" && names.len() == 1)) {
        names.pop();
    }
    names
}

/// From one module to another, and where.
struct Edge {
    from: String,
    to: String,
    place: String,
}

/// Each cycle among these files of a crate, in words.
fn cycles(files: &[(PathBuf, String)]) -> Vec<String> {
    let mut sources: BTreeMap<ModulePath, (PathBuf, Source)> =
        files.iter().map(|(file, text)| (module_of(file), (file.clone(), Source::parse(text)))).collect();
    let for_tests: Vec<ModulePath> = sources
        .iter()
        .flat_map(|(module, (_, source))| {
            source.test_modules.iter().map(|name| [module.as_slice(), std::slice::from_ref(name)].concat())
        })
        .collect();
    sources.retain(|module, _| !for_tests.iter().any(|tests| module.starts_with(tests)));

    let modules: BTreeSet<ModulePath> = sources.keys().cloned().collect();
    // What a module has from its children, by the name that others use.
    let imported: BTreeMap<(&ModulePath, &str), &str> = sources
        .iter()
        .flat_map(|(module, (_, source))| {
            source.imports.iter().filter_map(move |path| match &path[..] {
                [child, .., name] => Some(((module, name.as_str()), child.as_str())),
                _ => None,
            })
        })
        .filter(|((module, _), child)| {
            modules.contains(&[module.as_slice(), &[(*child).to_owned()]].concat())
        })
        .collect();

    // By the directory module whose children the edges connect.
    let mut graphs: BTreeMap<ModulePath, Vec<Edge>> = BTreeMap::new();
    for (module, (file, source)) in &sources {
        for (line, path) in &source.paths {
            let Some(mut target) = resolve(module, path) else { continue };
            // To the child that it comes from, where a parent passes it on.
            for depth in 0..target.len() {
                let parent = target[..depth].to_vec();
                let is_item = !modules.contains(&target[..=depth]);
                if let (true, Some(child)) = (is_item, imported.get(&(&parent, target[depth].as_str()))) {
                    target.insert(depth, (*child).to_owned());
                    break;
                }
            }
            let common = module.iter().zip(&target).take_while(|(one, other)| one == other).count();
            let (Some(from), Some(to)) = (module.get(common), target.get(common)) else { continue };
            if modules.contains(&target[..=common]) {
                let place = format!("{}:{line}", file.display());
                let edge = Edge { from: from.clone(), to: to.clone(), place };
                graphs.entry(target[..common].to_vec()).or_default().push(edge);
            }
        }
    }
    graphs.iter().flat_map(|(parent, edges)| describe(parent, edges)).collect()
}

/// From the crate's root. `None` if it leaves the crate or begins with another name.
fn resolve(module: &[String], path: &[String]) -> Option<ModulePath> {
    let supers = path.iter().take_while(|name| *name == "super").count();
    let (base, rest) = match path.first()?.as_str() {
        "crate" => (&module[..0], &path[1..]),
        "self" => (module, &path[1..]),
        "super" => (&module[..module.len().checked_sub(supers)?], &path[supers..]),
        _ => return None,
    };
    Some([base, rest].concat())
}

/// A shortest cycle through each module that is in one, each cycle once.
fn describe(parent: &[String], edges: &[Edge]) -> Vec<String> {
    let mut next: BTreeMap<&str, BTreeMap<&str, &str>> = BTreeMap::new();
    for edge in edges {
        next.entry(&edge.from).or_default().entry(&edge.to).or_insert(&edge.place);
    }
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    for start in next.keys() {
        let Some(cycle) = shortest_cycle(start, &next) else { continue };
        if !seen.insert(cycle.iter().copied().collect::<BTreeSet<_>>()) {
            continue;
        }
        let mut text =
            format!("in {}:", if parent.is_empty() { "the crate".to_owned() } else { parent.join("::") });
        for (from, to) in cycle.iter().zip(cycle.iter().cycle().skip(1)) {
            let _ = write!(text, "\n  {from} imports {to} at {}", next[from][to]);
        }
        found.push(text);
    }
    found
}

fn shortest_cycle<'a>(
    start: &'a str,
    next: &BTreeMap<&'a str, BTreeMap<&'a str, &'a str>>,
) -> Option<Vec<&'a str>> {
    let mut ways = VecDeque::from([vec![start]]);
    let mut reached = BTreeSet::new();
    while let Some(way) = ways.pop_front() {
        for to in way.last().and_then(|last| next.get(last)).into_iter().flat_map(BTreeMap::keys) {
            if *to == start {
                return Some(way);
            }
            if reached.insert(*to) {
                ways.push_back([way.as_slice(), &[*to]].concat());
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::cycles;

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        cycles(&files.iter().map(|(name, text)| (name.into(), (*text).to_owned())).collect::<Vec<_>>())
    }

    #[test]
    fn two_modules_that_import_each_other() {
        let files = [
            ("lib.rs", "mod a; mod b;"),
            ("a.rs", "\nuse crate::{b::B, other};"),
            ("b.rs", "fn b() { crate::a::run() }"),
        ];
        assert_eq!(found(&files), ["in the crate:\n  a imports b at a.rs:2\n  b imports a at b.rs:1"]);
        assert!(found(&files[..2]).is_empty());
    }

    #[test]
    fn a_cycle_of_three_through_directories() {
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
    fn children_of_a_module_among_themselves() {
        let files = [
            ("a/mod.rs", "mod x;\nmod y;\nuse y::{Y, deep::Z as Other};\npub struct Own;"),
            ("a/x.rs", "use super::Own;\npub struct X;"),
            ("a/y.rs", "use super::x::X;"),
        ];
        assert!(found(&files).is_empty(), "a module and its children: {:?}", found(&files));
        for imports in ["use super::Y;", "use super::{Own, Y};", "use crate::a::Y;", "use super::y;"] {
            let through_parent = [files[0], ("a/x.rs", imports), files[2]];
            let expected = "in a:\n  x imports y at a/x.rs:1\n  y imports x at a/y.rs:1";
            assert_eq!(found(&through_parent), [expected], "{imports}");
        }
    }

    #[test]
    fn what_a_module_re_exports_is_not_its_own() {
        let files = [
            ("a/mod.rs", "mod x; pub use x::X;"),
            ("a/x.rs", "use crate::b::B;"),
            ("b.rs", "use crate::a::X;"),
        ];
        assert_eq!(found(&files), ["in the crate:\n  a imports b at a/x.rs:1\n  b imports a at b.rs:1"]);
    }

    #[test]
    fn tests_comments_and_strings_import_nothing() {
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
        let behind = "fn f<'a>(c: char) -> bool { c == '\"' }\n#[cfg(test)]\nmod tests {}\nuse crate::a::x;";
        assert_eq!(found(&[("a.rs", a), ("b.rs", behind)]).len(), 1);
        let for_tests = [
            ("a.rs", a),
            ("b/mod.rs", "#[cfg(test)]\npub(crate) mod samples;"),
            ("b/samples.rs", "use crate::a::x;"),
        ];
        assert!(found(&for_tests).is_empty());
    }
}
