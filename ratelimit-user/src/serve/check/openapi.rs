//! What can be asked, for programs that write clients.

/// An OpenAPI 3.1 document.
pub(super) const DOCUMENT: &str = include_str!("openapi.json");
