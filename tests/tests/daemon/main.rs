//! A daemon and its operators: every verb, every change of the policy, and what survives a restart.

mod apply;
mod attacks;
mod change;
mod cli;
mod disk;
mod explain;
mod restart;
mod supervisor;
mod top;
mod trace;
mod watch;
