//! Skips code that the compiler computes. A fault there cannot be switched on, because the number of the fault is read when a program runs.

/// Defines the methods of a `syn::visit::Visit<'ast>` that skip everything that the compiler computes.
macro_rules! past_what_the_compiler_computes {
    () => {
        fn visit_item_const(&mut self, _: &'ast syn::ItemConst) {}
        fn visit_item_static(&mut self, _: &'ast syn::ItemStatic) {}
        fn visit_impl_item_const(&mut self, _: &'ast syn::ImplItemConst) {}
        fn visit_trait_item_const(&mut self, _: &'ast syn::TraitItemConst) {}
        fn visit_expr_const(&mut self, _: &'ast syn::ExprConst) {}
        fn visit_type_array(&mut self, _: &'ast syn::TypeArray) {}
        fn visit_generic_argument(&mut self, _: &'ast syn::GenericArgument) {}
    };
}

pub(super) use past_what_the_compiler_computes;
