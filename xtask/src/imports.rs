//! Finds which files of a crate import which others, from the syntax, without tests.
//!
//! A name that a module only re-exports leads to the file that defines it, so `mod.rs` of a folder is no detour. A module that declares or
//! re-exports items below it does not import them by that.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Attribute, Item, UseTree};

/// The path of a module, as names from the root of the crate.
type ModulePath = Vec<String>;

/// Files, each with the files that it imports; paths are relative to `src`.
pub(crate) type Imports = BTreeMap<String, BTreeSet<String>>;

/// The names that one file brings in and uses.
#[derive(Default)]
struct Module {
    file: String,
    /// Names that `use` brings in.
    brought: BTreeMap<String, Brought>,
    /// Paths that the file uses.
    used: Vec<ModulePath>,
}

/// A name that `use` brings in.
struct Brought {
    /// The path that the name comes from.
    origin: ModulePath,
    /// Whether the name is re-exported, so that modules outside can use it.
    is_handed_on: bool,
}

/// Returns the imports of the crate `name`, whose sources are in `src`.
pub(crate) fn of_crate(src: &Path, name: &str) -> Result<Imports> {
    let mut modules = BTreeMap::new();
    let mut files = Vec::new();
    list(src, &mut files)?;
    let paths: BTreeSet<ModulePath> = files.iter().map(|file| module_path(file)).collect();
    let mut of_tests = BTreeSet::new();
    for file in files {
        let text = fs::read_to_string(src.join(&file)).with_context(|| format!("cannot read {file}"))?;
        let syntax = syn::parse_file(&text).with_context(|| format!("{file} is not Rust"))?;
        let path = module_path(&file);
        let mut reader = Reader {
            name,
            path: &path,
            paths: &paths,
            module: Module { file: file.clone(), ..Module::default() },
            of_tests: &mut of_tests,
        };
        reader.visit_file(&syntax);
        let module = reader.module;
        modules.insert(path, module);
    }
    modules.retain(|path, _| !(1..=path.len()).any(|length| of_tests.contains(&path[..length])));
    Ok(modules.iter().map(|(path, module)| (module.file.clone(), imported(path, module, &modules))).collect())
}

fn imported(user: &ModulePath, module: &Module, modules: &BTreeMap<ModulePath, Module>) -> BTreeSet<String> {
    let files = module.used.iter().filter_map(|path| definer(user, path, modules, 8));
    files.filter(|file| **file != module.file).cloned().collect()
}

/// Returns the file that defines the item at `path`, as the module `user` sees it; `None` for the root of the crate and for items of other crates.
fn definer<'a>(
    user: &ModulePath,
    path: &[String],
    modules: &'a BTreeMap<ModulePath, Module>,
    steps: usize,
) -> Option<&'a String> {
    let depth = (0..=path.len()).rev().find(|depth| modules.contains_key(&path[..*depth]))?;
    let module = &modules[&path[..depth]];
    // An item may have the same name as a module that its file has brought in only for itself.
    let is_seen = |brought: &&Brought| brought.is_handed_on || user.starts_with(&path[..depth]);
    let brought = path.get(depth).and_then(|name| module.brought.get(name)).filter(is_seen);
    match brought {
        Some(Brought { origin, .. }) if steps > 0 => {
            let origin: ModulePath = origin.iter().chain(&path[depth + 1..]).cloned().collect();
            definer(user, &origin, modules, steps - 1)
        }
        _ => (depth > 0).then_some(&module.file),
    }
}

/// Reads one file.
struct Reader<'a> {
    name: &'a str,
    path: &'a ModulePath,
    paths: &'a BTreeSet<ModulePath>,
    module: Module,
    of_tests: &'a mut BTreeSet<ModulePath>,
}

impl Reader<'_> {
    /// Returns the absolute path for a path as written, if it leads into this crate.
    fn absolute(&self, written: &[String]) -> Option<ModulePath> {
        let (first, rest) = written.split_first()?;
        let below = || self.path.iter().chain(written).cloned().collect::<ModulePath>();
        match first.as_str() {
            "crate" => Some(rest.to_vec()),
            "self" => Some(self.path.iter().chain(rest).cloned().collect()),
            "super" => {
                let above = written.iter().take_while(|word| *word == "super").count();
                let kept = self.path.len().checked_sub(above)?;
                Some(self.path[..kept].iter().chain(&written[above..]).cloned().collect())
            }
            first if first == self.name => Some(rest.to_vec()),
            _ => {
                let child = [self.path.as_slice(), &written[..1]].concat();
                self.paths.contains(&child).then(below)
            }
        }
    }

    fn use_written(&mut self, written: &[String]) {
        self.module.used.extend(self.absolute(written));
    }

    fn bring(&mut self, tree: &UseTree, before: &mut Vec<String>, is_handed_on: bool) {
        match tree {
            UseTree::Path(path) => {
                before.push(path.ident.to_string());
                self.bring(&path.tree, before, is_handed_on);
                before.pop();
            }
            UseTree::Group(group) => {
                group.items.iter().for_each(|tree| self.bring(tree, before, is_handed_on));
            }
            UseTree::Name(name) => self.bring_one(before, &name.ident.to_string(), None, is_handed_on),
            UseTree::Rename(rename) => {
                self.bring_one(
                    before,
                    &rename.ident.to_string(),
                    Some(rename.rename.to_string()),
                    is_handed_on,
                );
            }
            UseTree::Glob(_) => self.use_written(before),
        }
    }

    fn bring_one(&mut self, before: &[String], name: &str, alias: Option<String>, is_handed_on: bool) {
        let mut written = before.to_vec();
        if name != "self" {
            written.push(name.to_owned());
        }
        let Some(origin) = self.absolute(&written) else { return };
        let is_below = origin.starts_with(self.path);
        if !(is_handed_on && is_below) {
            self.module.used.push(origin.clone());
        }
        if let Some(known_as) = alias.or_else(|| written.last().cloned()) {
            self.module.brought.insert(known_as, Brought { origin, is_handed_on });
        }
    }

    /// Reads paths among the tokens of a macro, which are not parsed as syntax.
    fn read_tokens(&mut self, tokens: TokenStream) {
        let mut written: Vec<String> = Vec::new();
        let mut colons = 0;
        for token in tokens {
            match token {
                TokenTree::Ident(word) => {
                    if colons != 2 {
                        self.end_of_path(&mut written);
                    }
                    written.push(word.to_string());
                    colons = 0;
                }
                TokenTree::Punct(punct) if punct.as_char() == ':' => colons += 1,
                other => {
                    self.end_of_path(&mut written);
                    colons = 0;
                    if let TokenTree::Group(group) = other {
                        self.read_tokens(group.stream());
                    }
                }
            }
        }
        self.end_of_path(&mut written);
    }

    fn end_of_path(&mut self, written: &mut Vec<String>) {
        if written.len() > 1 {
            self.use_written(written);
        }
        written.clear();
    }
}

impl<'ast> Visit<'ast> for Reader<'_> {
    fn visit_item(&mut self, item: &'ast Item) {
        if is_of_tests(attributes(item)) {
            if let Item::Mod(module) = item {
                self.of_tests.insert([self.path.as_slice(), &[module.ident.to_string()]].concat());
            }
            return;
        }
        visit::visit_item(self, item);
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        let is_handed_on = !matches!(item.vis, syn::Visibility::Inherited);
        self.bring(&item.tree, &mut Vec::new(), is_handed_on);
    }

    /// A path in brackets, as in `pub(in crate::daemon)`, imports nothing.
    fn visit_visibility(&mut self, _: &'ast syn::Visibility) {}

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        if !is_of_tests(&item.attrs) {
            visit::visit_impl_item_fn(self, item);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let written: Vec<String> = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        if written.len() > 1 {
            self.use_written(&written);
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, called: &'ast syn::Macro) {
        self.read_tokens(called.tokens.clone());
        visit::visit_macro(self, called);
    }
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

fn is_of_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && attribute.meta.require_list().is_ok_and(|list| list.tokens.to_string() == "test")
    })
}

/// Lists the Rust files below a directory, relative to it.
fn list(src: &Path, files: &mut Vec<String>) -> Result<()> {
    let mut dirs = vec![src.to_owned()];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(&dir).with_context(|| format!("cannot list {}", dir.display()))? {
            let path = entry?.path();
            if path.is_dir() {
                dirs.push(path);
            } else if path.extension().is_some_and(|ending| ending == "rs") {
                files.push(path.strip_prefix(src).unwrap_or(&path).to_string_lossy().into_owned());
            }
        }
    }
    files.sort();
    Ok(())
}

/// Returns the module of a file: `a/b.rs` and `a/b/mod.rs` are the module `a::b`.
fn module_path(file: &str) -> ModulePath {
    let stem = file.trim_end_matches(".rs");
    let stem = if ["lib", "main", "mod"].contains(&stem) { "" } else { stem.trim_end_matches("/mod") };
    stem.split('/').filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes a crate into a directory of its own, and returns the imports of its files.
    fn read(name: &str, files: &[(&str, &str)]) -> Imports {
        let src = std::env::temp_dir().join(format!("xtask-imports-{name}-{}", std::process::id()));
        for (file, text) in files {
            let path = src.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let imports = of_crate(&src, "ours").unwrap();
        fs::remove_dir_all(&src).unwrap();
        imports
    }

    fn of<'i>(imports: &'i Imports, file: &str) -> Vec<&'i str> {
        imports[file].iter().map(String::as_str).collect()
    }

    #[test]
    fn imports_are_found_however_they_are_written() {
        let imports = read(
            "forms",
            &[
                ("lib.rs", "mod a; mod b;"),
                ("a/mod.rs", "mod x; mod y; pub use x::Thing; fn f() { y::g(); }"),
                ("a/x.rs", "use super::{y::g as h}; pub struct Thing;"),
                ("a/y.rs", "pub fn g() -> crate::b::B { vec![crate::a::Thing]; ours::b::B }"),
                ("b.rs", "use crate::a::{self, Thing as Other}; pub(in crate::a) struct B;"),
            ],
        );
        assert_eq!(of(&imports, "a/mod.rs"), ["a/y.rs"]);
        assert_eq!(of(&imports, "a/x.rs"), ["a/y.rs"]);
        assert_eq!(of(&imports, "a/y.rs"), ["a/x.rs", "b.rs"]);
        assert_eq!(of(&imports, "b.rs"), ["a/mod.rs", "a/x.rs"]);
    }

    #[test]
    fn what_a_file_has_brought_in_for_itself_is_not_what_others_import_from_it() {
        let imports = read(
            "own",
            &[
                ("lib.rs", "mod a; mod b; mod c;"),
                ("a/mod.rs", "mod below; use crate::b; pub fn b() { b::f() }"),
                ("a/below.rs", "fn g() { super::b::f() }"),
                ("b.rs", "pub fn f() {}"),
                ("c.rs", "use crate::a::b; fn h() { b() }"),
            ],
        );
        assert_eq!(of(&imports, "c.rs"), ["a/mod.rs"]);
        assert_eq!(of(&imports, "a/below.rs"), ["b.rs"]);
    }

    #[test]
    fn tests_import_nothing() {
        let imports = read(
            "tests",
            &[
                ("lib.rs", "mod a; mod b;"),
                (
                    "a.rs",
                    "#[cfg(test)] mod tests; #[cfg(test)] mod more { use crate::b::B; } #[cfg(test)] use crate::b::B;",
                ),
                ("a/tests.rs", "use crate::b::B;"),
                ("b.rs", "pub struct B;"),
            ],
        );
        assert!(of(&imports, "a.rs").is_empty());
        assert!(!imports.contains_key("a/tests.rs"));
    }
}
