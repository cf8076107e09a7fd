//! Limits that hold on all hosts together.

pub mod address;
