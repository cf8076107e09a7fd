//! Finds faults without cargo-mutants: replacements of an operator by another one.
//!
//! Building cargo-mutants takes more than a minute, which is too long for a sample in every run of the tests. Operators are more than half of the faults
//! that it finds, and need only the text. They get the names that cargo-mutants gives them.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use proc_macro2::LineColumn;
use syn::UnOp;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

use super::computed::past_what_the_compiler_computes;
use super::fault::{Fault, Kind, Place};

/// The replacements of each operator. `^` for `|` is left out, as in `.cargo/mutants.toml`: words are put together from parts that do not overlap.
const OTHERS: [(&str, &[&str]); 27] = [
    ("==", &["!="]),
    ("!=", &["=="]),
    ("&&", &["||"]),
    ("||", &["&&"]),
    ("<", &["==", ">", "<="]),
    (">", &["==", "<", ">="]),
    ("<=", &[">"]),
    (">=", &["<"]),
    ("+", &["-", "*"]),
    ("-", &["+", "/"]),
    ("*", &["+", "/"]),
    ("/", &["%", "*"]),
    ("%", &["/", "+"]),
    ("<<", &[">>"]),
    (">>", &["<<"]),
    ("&", &["|", "^"]),
    ("|", &["&"]),
    ("^", &["|", "&"]),
    ("+=", &["-=", "*="]),
    ("-=", &["+=", "/="]),
    ("*=", &["+=", "/="]),
    ("/=", &["%=", "*="]),
    ("%=", &["/=", "+="]),
    ("<<=", &[">>="]),
    (">>=", &["<<="]),
    ("&=", &["|="]),
    ("|=", &["&="]),
];

/// Returns the faults of a library, file by file, in the order in which modules declare each other. Code only for tests or the kernel has none.
pub(super) fn of_library(root: &Path, package: &str) -> Result<Vec<Fault>> {
    let mut faults = Vec::new();
    let mut files = vec![format!("{package}/src/lib.rs")];
    while let Some(file) = files.pop() {
        let path = root.join(&file);
        let text =
            std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let found = of_text(&file, &text).with_context(|| format!("cannot list faults of {file}"))?;
        for module in &found.modules {
            files.push(file_of(root, &file, module)?);
        }
        faults.extend(found.faults);
    }
    Ok(faults)
}

/// Returns the file that `mod module;` in a file names.
fn file_of(root: &Path, file: &str, module: &str) -> Result<String> {
    let dir = match file.strip_suffix("/lib.rs").or_else(|| file.strip_suffix("/mod.rs")) {
        Some(dir) => dir.to_owned(),
        None => file.trim_end_matches(".rs").to_owned(),
    };
    let candidates = [format!("{dir}/{module}.rs"), format!("{dir}/{module}/mod.rs")];
    let is_there = |candidate: &&String| PathBuf::from(root).join(candidate).is_file();
    match candidates.iter().find(is_there) {
        Some(found) => Ok(found.clone()),
        None => bail!("module {module} of {file} has no file; it would be one of {}", candidates.join(", ")),
    }
}

fn of_text<'a>(file: &'a str, text: &str) -> Result<Operators<'a>> {
    let parsed = syn::parse_file(text).context("not Rust")?;
    let mut found = Operators { file, names: Vec::new(), modules: Vec::new(), faults: Vec::new() };
    found.visit_file(&parsed);
    Ok(found)
}

struct Operators<'a> {
    file: &'a str,
    /// The names of the modules, types and functions around the present place.
    names: Vec<String>,
    /// Declared modules that are files of their own.
    modules: Vec<String>,
    /// The faults, in the order of the text.
    faults: Vec<Fault>,
}

impl Operators<'_> {
    fn add(&mut self, operator: proc_macro2::Span, change: &str, replacement: &str) {
        // Columns of cargo-mutants count from 1, those of the parser from 0.
        let place = |at: LineColumn| Place { line: at.line, column: at.column + 1 };
        let (start, end) = (place(operator.start()), place(operator.end()));
        let within =
            if self.names.is_empty() { String::new() } else { format!(" in {}", self.names.join("::")) };
        self.faults.push(Fault {
            name: format!("{}:{}:{}: {change}{within}", self.file, start.line, start.column),
            file: self.file.to_owned(),
            start,
            end,
            replacement: replacement.to_owned(),
            kind: Kind::Operator,
        });
    }

    /// Visits a named item, unless it is compiled only for unit tests or never for them.
    fn within(&mut self, name: String, attributes: &[syn::Attribute], go: impl FnOnce(&mut Self)) {
        if attributes.iter().any(is_apart) {
            return;
        }
        self.names.push(name);
        go(self);
        self.names.pop();
    }
}

/// Whether an attribute is `#[test]`, `#[cfg(test)]`, `#[cfg(target_arch = "bpf")]`, or lets nothing but tests and a feature for them have an item.
fn is_apart(attribute: &syn::Attribute) -> bool {
    let condition = match &attribute.meta {
        syn::Meta::List(list) if list.path.is_ident("cfg") => list.tokens.to_string().replace(' ', ""),
        _ => return attribute.path().is_ident("test"),
    };
    ["test", "target_arch=\"bpf\"", "any(test,feature=\"testbed\")"].contains(&condition.as_str())
}

/// Returns an item as it stands in the text.
fn shown(item: &impl Spanned) -> String {
    item.span().source_text().unwrap_or_default()
}

impl<'ast> Visit<'ast> for Operators<'_> {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        self.within(item.ident.to_string(), &item.attrs, |all| match &item.content {
            Some(_) => visit::visit_item_mod(all, item),
            None => all.modules.push(item.ident.to_string()),
        });
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        let own = shown(&*item.self_ty);
        let name = match &item.trait_ {
            Some((_, of, _)) => format!("<impl {} for {own}>", shown(of)),
            None => own,
        };
        self.within(name, &item.attrs, |all| visit::visit_item_impl(all, item));
    }

    fn visit_item_trait(&mut self, item: &'ast syn::ItemTrait) {
        self.within(item.ident.to_string(), &item.attrs, |all| visit::visit_item_trait(all, item));
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.within(item.sig.ident.to_string(), &item.attrs, |all| visit::visit_item_fn(all, item));
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.within(item.sig.ident.to_string(), &item.attrs, |all| visit::visit_impl_item_fn(all, item));
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        self.within(item.sig.ident.to_string(), &item.attrs, |all| visit::visit_trait_item_fn(all, item));
    }

    fn visit_expr_binary(&mut self, binary: &'ast syn::ExprBinary) {
        self.visit_expr(&binary.left);
        let operator = shown(&binary.op);
        let others =
            OTHERS.iter().find(|(known, _)| *known == operator).map_or(&[][..], |(_, others)| others);
        for other in others {
            self.add(binary.op.span(), &format!("replace {operator} with {other}"), other);
        }
        self.visit_expr(&binary.right);
    }

    fn visit_expr_unary(&mut self, unary: &'ast syn::ExprUnary) {
        let operator = match unary.op {
            UnOp::Not(_) => "!",
            UnOp::Neg(_) => "-",
            _ => "",
        };
        if !operator.is_empty() {
            self.add(unary.op.span(), &format!("delete {operator}"), "");
        }
        visit::visit_expr_unary(self, unary);
    }

    past_what_the_compiler_computes!();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Vec<String> {
        of_text("a.rs", text).unwrap().faults.into_iter().map(|fault| fault.name).collect()
    }

    #[test]
    fn operators_have_the_names_that_cargo_mutants_gives_them() {
        let text = "mod m {\n    impl<'a> From<u8> for A<'a> {\n        fn f(a: u8) -> bool { a < 1 }\n    }\n}\n\
                    impl A<'_> {\n    fn g(a: bool) -> bool { !a }\n}\n";
        assert_eq!(
            names(text),
            [
                "a.rs:3:33: replace < with == in m::<impl From<u8> for A<'a>>::f",
                "a.rs:3:33: replace < with > in m::<impl From<u8> for A<'a>>::f",
                "a.rs:3:33: replace < with <= in m::<impl From<u8> for A<'a>>::f",
                "a.rs:7:29: delete ! in A<'_>::g",
            ]
        );
    }

    #[test]
    fn a_fault_takes_the_place_of_its_operator_and_of_nothing_else() {
        let text = "fn f(a: u8) -> u8 { a << 2 | 1 }";
        let put: Vec<_> =
            of_text("a.rs", text).unwrap().faults.iter().map(|fault| fault.put_into(text).unwrap()).collect();
        assert_eq!(put, ["fn f(a: u8) -> u8 { a >> 2 | 1 }", "fn f(a: u8) -> u8 { a << 2 & 1 }"]);
    }

    #[test]
    fn tests_what_the_kernel_alone_has_and_what_the_compiler_computes_have_no_faults() {
        let none = "const A: u8 = 1 + 1;\nstatic B: [u8; 2 * 2] = [0; 4];\n#[test]\nfn t() { 1 + 1; }\n\
                    #[cfg(test)]\nmod tests { fn f() { 1 + 1; } }\n#[cfg(target_arch = \"bpf\")]\nfn k() { 1 + 1; }\n";
        assert_eq!(names(none), Vec::<String>::new());
        assert_eq!(names("#[cfg(not(target_arch = \"bpf\"))]\nfn f() { !true; }\n").len(), 1);
    }

    #[test]
    fn files_of_a_library_are_those_that_its_modules_name() {
        let faults = of_library(&crate::workspace::root(), "ratelimit-ebpf").unwrap();
        let is_in =
            |file: &str| faults.iter().any(|fault| fault.file == format!("ratelimit-ebpf/src/{file}"));
        assert!(is_in("limit/mod.rs") && is_in("limit/total.rs") && is_in("budget.rs"));
        assert!(
            !is_in("main.rs")
                && !is_in("maps.rs")
                && !is_in("testbed/mod.rs")
                && !is_in("limit/tests/mod.rs")
        );
    }
}
