//! Orders to the daemon whose answer is a sentence.

use std::path::Path;

use super::output::{Output, print_done};
use crate::{
    control::{
        client::{ask, unexpected},
        protocol::{Order, Reply},
    },
    failure::Failure,
};

/// Sends an order and prints the sentence that comes back.
pub(super) fn order(state: &Path, request: Order, output: Output) -> Result<(), Failure> {
    match ask(state, request)? {
        Reply::Done(message) => print_done(output, &message),
        other => Err(unexpected(&other)),
    }
}
