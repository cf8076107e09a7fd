//! Puts many faults into one text, each behind its number: `a + b` becomes `(if fault::on(7) { a - b } else { a + b })`.
//!
//! With one fault at a time, each of thousands would take a minute to compile. Here all are compiled at once, and a number in the environment
//! says which one is on.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::ops::Range;

use anyhow::{Context, Result};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

use super::computed::past_what_the_compiler_computes;
use super::fault::{Fault, Kind};

/// The module that tells whether a fault is on. It is appended to a crate's `lib.rs`.
///
/// The compiler computes constants and has no environment, so there are no faults in them.
pub(super) const SWITCH: &str = r#"
pub mod fault {
    extern crate std;
    use core::sync::atomic::{AtomicU32, Ordering::Relaxed};
    use std::{cell::RefCell, io::Write as _, string::String, sync::LazyLock, vec::Vec};

    // The number of the fault that is there, 0 for none. It is asked for in the innermost loops.
    static CHOSEN: AtomicU32 = AtomicU32::new(NOT_KNOWN);
    const NOT_KNOWN: u32 = u32::MAX;
    const NOTING: u32 = u32::MAX - 1;

    #[inline(always)]
    pub const fn on(number: u32) -> bool {
        core::intrinsics::const_eval_select((number,), never, is_chosen)
    }

    const fn never(_: u32) -> bool {
        false
    }

    #[inline(always)]
    fn is_chosen(number: u32) -> bool {
        let chosen = CHOSEN.load(Relaxed);
        if chosen < NOTING { chosen == number } else { look(number) }
    }

    #[cold]
    fn look(number: u32) -> bool {
        static REACHED: LazyLock<Option<String>> = LazyLock::new(|| chosen("RATELIMIT_FAULTS_REACHED"));
        if let Some(file) = &*REACHED {
            CHOSEN.store(NOTING, Relaxed);
            note(file, number);
            return false;
        }
        let fault = chosen("RATELIMIT_FAULT").map_or(0, |text| text.parse().unwrap());
        CHOSEN.store(fault, Relaxed);
        fault == number
    }

    fn chosen(name: &str) -> Option<String> {
        std::env::var(name).ok()
    }

    fn note(file: &str, number: u32) {
        // A mark for each: a loop comes by the same ones a million times.
        std::thread_local! { static SEEN: RefCell<Vec<bool>> = const { RefCell::new(Vec::new()) }; }
        let see = |seen: &mut Vec<bool>| {
            let at = number as usize;
            if seen.len() <= at {
                seen.resize(at + 1, false);
            }
            !core::mem::replace(&mut seen[at], true)
        };
        // A thread that is ending has no memory any more.
        let is_new = SEEN.try_with(|seen| seen.try_borrow_mut().map_or(false, |mut seen| see(&mut seen)));
        if is_new.unwrap_or(true) {
            let thread = std::thread::current();
            let line = std::format!("{number} {}\n", thread.name().unwrap_or("-"));
            let mut file = std::fs::OpenOptions::new().append(true).create(true).open(file).unwrap();
            file.write_all(line.as_bytes()).unwrap();
        }
    }
}
"#;

/// The attributes that are put at the beginning of `lib.rs`.
pub(super) const ALLOWED: &str = "#![feature(core_intrinsics, const_eval_select)]\n#![allow(warnings, internal_features, \
     arithmetic_overflow, unconditional_panic, overflowing_literals, unused_comparisons)]\n";

/// A text with faults behind their numbers.
pub(super) struct Switched {
    pub(super) text: String,
    /// The lines of the new text that each fault has for itself, by its number.
    pub(super) lines: Vec<(usize, Range<usize>)>,
    /// Numbers of faults that are not in the text: in constants, and where a number cannot be read.
    pub(super) left: Vec<usize>,
}

/// Puts faults into a text, behind their numbers.
pub(super) fn switched(source: &str, faults: &[(usize, &Fault)]) -> Result<Switched> {
    let file = syn::parse_file(source).context("not Rust")?;
    let mut places = Places::default();
    places.visit_file(&file);
    let mut insertions = Insertions::default();
    let mut left = Vec::new();
    for &(number, fault) in faults {
        match place(source, fault, &places) {
            Some(how) => insertions.add(number, fault, how),
            None => left.push(number),
        }
    }
    let text = insertions.into_text(source);
    let lines = own_lines(&text);
    Ok(Switched { text, lines, left })
}

/// The way in which a fault is put behind its number.
enum How {
    /// A return before the first statement of a function.
    Return(usize),
    /// An expression, and its text with the fault.
    Instead(Range<usize>, String),
    /// A condition after a pattern.
    Condition(usize),
}

fn place(source: &str, fault: &Fault, places: &Places) -> Option<How> {
    let (start, end) = (fault.start.offset(source)?, fault.end.offset(source)?);
    let instead = |range: &Range<usize>| {
        let text =
            [source.get(range.start..start)?, &fault.replacement, source.get(end..range.end)?].concat();
        Some(How::Instead(range.clone(), text))
    };
    match fault.kind {
        Kind::Value => places.bodies.contains(&start).then_some(How::Return(start)),
        Kind::Operator => instead(places.operators.get(&start)?),
        Kind::Guard => instead(places.guards.get(&start)?),
        Kind::Arm => places.arms.get(&start).map(|pattern_end| How::Condition(*pattern_end)),
        Kind::Field => {
            let around = |range: &&Range<usize>| range.start <= start && end <= range.end;
            instead(places.structures.iter().filter(around).min_by_key(|range| range.len())?)
        }
    }
}

/// Additions to a text, by place. The text itself does not change, so that expressions inside others can have faults of their own.
#[derive(Default)]
struct Insertions {
    /// The begins and ends of expressions, with the faults of each.
    wrapped: BTreeMap<(usize, usize), Vec<(usize, String)>>,
    /// Added statements and conditions.
    single: Vec<(usize, String)>,
}

impl Insertions {
    fn add(&mut self, number: usize, fault: &Fault, how: How) {
        match how {
            How::Return(at) => {
                let value = &fault.replacement;
                self.single
                    .push((at, format!("\nif {} {{ return {{ {value} }}; }} {}\n", on(number), end(number))));
            }
            How::Condition(at) => self.single.push((at, format!("\nif !{} {}\n", on(number), end(number)))),
            How::Instead(range, text) => {
                self.wrapped.entry((range.start, range.end)).or_default().push((number, text));
            }
        }
    }

    fn into_text(self, source: &str) -> String {
        // Pieces are sorted by place; at one place ends come before begins, the inner end first, the outer begin first, and a statement before every expression.
        let mut pieces: Vec<(usize, bool, Reverse<usize>, String)> = Vec::new();
        for ((from, to), faults) in self.wrapped {
            let mut open = "(".to_owned();
            for (number, text) in faults {
                let _ = write!(open, "\nif {} {{ {text} }} {}\nelse ", on(number), end(number));
            }
            open.push('{');
            pieces.push((from, true, Reverse(to - from), open));
            pieces.push((to, false, Reverse(usize::MAX - (to - from)), "})".to_owned()));
        }
        pieces.extend(self.single.into_iter().map(|(at, text)| (at, true, Reverse(usize::MAX), text)));
        pieces.sort_by_key(|(at, begins, size, _)| (*at, *begins, *size));
        let mut text = String::with_capacity(source.len() * 2);
        let mut done = 0;
        for (at, _, _, piece) in pieces {
            text.push_str(&source[done..at]);
            text.push_str(&piece);
            done = at;
        }
        text.push_str(&source[done..]);
        text
    }
}

fn on(number: usize) -> String {
    format!("/*fault {number}*/ crate::fault::on({number})")
}

fn end(number: usize) -> String {
    format!("/*end {number}*/")
}

/// Returns the lines of each fault, from its first to its last.
fn own_lines(text: &str) -> Vec<(usize, Range<usize>)> {
    let mut open: BTreeMap<usize, usize> = BTreeMap::new();
    let mut lines = Vec::new();
    let number = |rest: &str| rest.split("*/").next().and_then(|digits| digits.parse::<usize>().ok());
    for (line, at) in text.lines().zip(1..) {
        for rest in line.split("/*fault ").skip(1) {
            open.extend(number(rest).map(|number| (number, at)));
        }
        for rest in line.split("/*end ").skip(1) {
            if let Some((from, number)) =
                number(rest).and_then(|number| Some((open.remove(&number)?, number)))
            {
                lines.push((number, from..at + 1));
            }
        }
    }
    lines
}

/// The places in a text where faults can be, in bytes.
#[derive(Default)]
struct Places {
    /// The first statement of each function.
    bodies: BTreeSet<usize>,
    /// The place of each operator, with its expression.
    operators: BTreeMap<usize, Range<usize>>,
    /// The conditions of arms.
    guards: BTreeMap<usize, Range<usize>>,
    /// Arms without a condition, with the end of their pattern, in matches that have a catch-all arm.
    arms: BTreeMap<usize, usize>,
    /// Structures that take the rest of their fields from another one.
    structures: Vec<Range<usize>>,
}

impl Places {
    fn body(&mut self, signature: &syn::Signature, block: &syn::Block) {
        let mut hidden = HiddenType(false);
        hidden.visit_return_type(&signature.output);
        if let Some(first) = block.stmts.first().filter(|_| !hidden.0) {
            self.bodies.insert(first.span().byte_range().start);
        }
    }
}

/// Whether a function returns an `impl` type: two values of it may have two types.
struct HiddenType(bool);

impl<'ast> Visit<'ast> for HiddenType {
    fn visit_type_impl_trait(&mut self, _: &'ast syn::TypeImplTrait) {
        self.0 = true;
    }
}

/// Whether a condition has a `let`, which cannot have parentheses around it.
fn has_let(expression: &syn::Expr) -> bool {
    match expression {
        syn::Expr::Let(_) => true,
        syn::Expr::Binary(binary) => has_let(&binary.left) || has_let(&binary.right),
        _ => false,
    }
}

impl<'ast> Visit<'ast> for Places {
    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.body(&item.sig, &item.block);
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.body(&item.sig, &item.block);
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        item.default.iter().for_each(|block| self.body(&item.sig, block));
        visit::visit_trait_item_fn(self, item);
    }

    fn visit_expr_binary(&mut self, binary: &'ast syn::ExprBinary) {
        if !has_let(&binary.left) && !has_let(&binary.right) {
            self.operators.insert(binary.op.span().byte_range().start, binary.span().byte_range());
        }
        visit::visit_expr_binary(self, binary);
    }

    fn visit_expr_unary(&mut self, unary: &'ast syn::ExprUnary) {
        self.operators.insert(unary.op.span().byte_range().start, unary.span().byte_range());
        visit::visit_expr_unary(self, unary);
    }

    fn visit_arm(&mut self, arm: &'ast syn::Arm) {
        match &arm.guard {
            Some((_, guard)) if has_let(guard) => {}
            Some((_, guard)) => {
                let range = guard.span().byte_range();
                self.guards.insert(range.start, range);
            }
            None => {}
        }
        visit::visit_arm(self, arm);
    }

    fn visit_expr_match(&mut self, one_of: &'ast syn::ExprMatch) {
        // For the compiler an arm with a condition covers nothing, so only a match with a catch-all arm may get conditions.
        let rest = |arm: &syn::Arm| arm.guard.is_none() && matches!(arm.pat, syn::Pat::Wild(_));
        if one_of.arms.iter().any(rest) {
            let bare = one_of.arms.iter().filter(|arm| arm.guard.is_none());
            self.arms
                .extend(bare.map(|arm| (arm.span().byte_range().start, arm.pat.span().byte_range().end)));
        }
        visit::visit_expr_match(self, one_of);
    }

    fn visit_expr_struct(&mut self, structure: &'ast syn::ExprStruct) {
        if structure.rest.is_some() {
            self.structures.push(structure.span().byte_range());
        }
        visit::visit_expr_struct(self, structure);
    }

    past_what_the_compiler_computes!();

    // The compiler computes patterns and the lengths of arrays too.
    fn visit_pat(&mut self, _: &'ast syn::Pat) {}
    fn visit_expr_repeat(&mut self, repeat: &'ast syn::ExprRepeat) {
        self.visit_expr(&repeat.expr);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mutants::fault::Place;

    fn fault(source: &str, wrong: &str, replacement: &str, kind: Kind) -> Fault {
        let at = source.find(wrong).unwrap();
        let line = source[..at].matches('\n').count() + 1;
        let column = source[..at].chars().rev().take_while(|c| *c != '\n').count() + 1;
        let end = Place { line, column: column + wrong.chars().count() };
        let (name, file) = (String::new(), String::new());
        Fault { name, file, start: Place { line, column }, end, replacement: replacement.to_owned(), kind }
    }

    /// Returns a text without the marks and lines that say where each fault is.
    fn plain(text: &str) -> String {
        let mut plain = text.replace('\n', " ");
        for number in 0..9 {
            plain = plain.replace(&on(number), &format!("on({number})")).replace(&end(number), "");
        }
        plain.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    fn put(source: &str, faults: &[Fault]) -> Switched {
        let numbered: Vec<(usize, &Fault)> = (1..).zip(faults).collect();
        switched(source, &numbered).unwrap()
    }

    #[test]
    fn expressions_inside_others_have_faults_of_their_own() {
        let source = "fn f(a: u8) -> u8 { a + a * 3 }";
        let faults = [fault(source, "+", "-", Kind::Operator), fault(source, "*", "/", Kind::Operator)];
        assert_eq!(
            plain(&put(source, &faults).text),
            "fn f(a: u8) -> u8 { ( if on(1) { a - a * 3 } else {a + ( if on(2) { a / 3 } else {a * 3})}) }"
        );
    }

    #[test]
    fn values_arms_conditions_and_fields_are_put_behind_their_numbers() {
        let source = "fn f(a: u8) -> S { match a { 1 => one(), 2 if two() => S { x: 1, ..b }, _ => d } }";
        let faults = [
            fault(
                source,
                "match a { 1 => one(), 2 if two() => S { x: 1, ..b }, _ => d }",
                "S::new()",
                Kind::Value,
            ),
            fault(source, "1 => one(),", "", Kind::Arm),
            fault(source, "two()", "true", Kind::Guard),
            fault(source, "x: 1,", "", Kind::Field),
        ];
        let put = put(source, &faults);
        assert_eq!(put.left, [0; 0]);
        assert_eq!(
            plain(&put.text),
            "fn f(a: u8) -> S { if on(1) { return { S::new() }; } match a { 1 if !on(2) => one(), \
             2 if ( if on(3) { true } else {two()}) => ( if on(4) { S { ..b } } else {S { x: 1, ..b }}), _ => d } }"
        );
    }

    #[test]
    fn what_the_compiler_computes_hidden_types_and_lets_in_conditions_are_left() {
        let source = "fn i() -> impl Iterator<Item = u8> { a() } const A: u8 = 1 + 2; fn f(a: Option<u8>) -> bool { let x = [0; 3 - 1]; if let Some(b) = a && b > 1 { } true }";
        let faults = [
            fault(source, "a()", "::std::iter::empty()", Kind::Value),
            fault(source, "+", "-", Kind::Operator),
            fault(source, "- 1", "+ 1", Kind::Operator),
            fault(source, "&&", "||", Kind::Operator),
            fault(source, "> 1", ">= 1", Kind::Operator),
        ];
        let put = put(source, &faults);
        assert_eq!(put.left, [1, 2, 3, 4]);
    }

    #[test]
    fn arms_of_a_match_without_one_for_everything_else_are_left() {
        let source = "fn f(a: Option<u8>) -> u8 { match a { _ if b() => 0, Some(c) => c, None => 1 } }";
        let faults =
            [fault(source, "Some(c) => c,", "", Kind::Arm), fault(source, "None => 1", "", Kind::Arm)];
        assert_eq!(put(source, &faults).left, [1, 2]);
    }

    #[test]
    fn a_complaint_about_a_line_is_about_the_fault_in_it() {
        let source = "fn f(a: u8) -> u8 {\n    a + 1\n}\n";
        let put = put(source, &[fault(source, "+", "-", Kind::Operator)]);
        let (number, lines) = put.lines[0].clone();
        assert_eq!(number, 1);
        let own: Vec<&str> = put.text.lines().skip(lines.start - 1).take(lines.len()).collect();
        assert!(own.concat().contains("a - 1") && !own.concat().contains("a + 1"), "{own:?}");
    }
}
