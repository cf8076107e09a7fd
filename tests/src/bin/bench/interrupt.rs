//! Ctrl-C, SIGTERM and SIGHUP as a flag that every loop here looks at.
//!
//! The signal itself does nothing else: the loop returns an error, the error unwinds, and the guards on the way take
//! everything down.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use anyhow::{Context, Result};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::flight::LANDING;

#[derive(Clone)]
pub(crate) struct Interrupt(Arc<AtomicBool>);

/// The user wants out.
#[derive(Debug)]
pub(crate) struct Interrupted;

impl fmt::Display for Interrupted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "interrupted; everything this run made is removed")
    }
}

impl std::error::Error for Interrupted {}

impl Interrupt {
    pub(crate) fn watch() -> Result<Self> {
        let flag = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::flag::register(signal, Arc::clone(&flag))
                .with_context(|| format!("cannot watch for signal {signal}"))?;
        }
        // SIGUSR1 ends a system call and nobody looks at it; without a handler the signal would end the process.
        signal_hook::flag::register(LANDING as i32, Arc::default()).context("cannot handle SIGUSR1")?;
        Ok(Self(flag))
    }

    pub(crate) fn check(&self) -> Result<()> {
        if self.0.load(Ordering::Relaxed) { Err(Interrupted.into()) } else { Ok(()) }
    }
}
