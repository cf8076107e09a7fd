//! The caller of an order, for the log.

use std::fmt;

use crate::control::{protocol::Operator, server::Caller};

/// The caller of an order, and its operator if the order names one.
#[derive(Clone, Copy, Debug)]
pub(in crate::daemon) struct By<'a> {
    pub(in crate::daemon) caller: Caller,
    pub(in crate::daemon) operator: Option<&'a Operator>,
}

impl fmt::Display for By<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.caller {
            Caller::Process { uid, pid: None } => write!(f, "uid {uid}")?,
            Caller::Process { uid, pid: Some(pid) } => write!(f, "uid {uid} (pid {pid})")?,
            Caller::Dashboard { from: None } => return f.write_str("the dashboard, from this host"),
            Caller::Dashboard { from: Some(address) } => return write!(f, "the dashboard, from {address}"),
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
