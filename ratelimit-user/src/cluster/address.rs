//! Where the store is.

/// Where the store is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreAddress(pub String);
