//! Who gave an order, for the log.

use std::fmt;

use crate::control::{protocol::Operator, server::Caller};

/// The process that asked, and where its operator sits as far as that is known.
#[derive(Clone, Copy, Debug)]
pub(super) struct By<'a> {
    pub(super) caller: Caller,
    pub(super) operator: Option<&'a Operator>,
}

impl fmt::Display for By<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "uid {}", self.caller.uid)?;
        if let Some(pid) = self.caller.pid {
            write!(f, " (pid {pid})")?;
        }
        if let Some(address) = self.operator.and_then(|operator| operator.origin) {
            write!(f, " from {address}")?;
        }
        if self.operator.is_some_and(|operator| operator.force) {
            f.write_str(" with --force")?;
        }
        Ok(())
    }
}
