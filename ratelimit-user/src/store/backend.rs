//! What the store worker needs of a store: servers that can be connected to, and that carry out calls.

use std::{fmt::Display, future::Future};

use super::{
    deadline::Deadline,
    redis::{Call, ServerFacts, StoreError, Value},
};
use crate::policy::address::Endpoint;

/// Takes the answers of a run as they come, each with the place of its call among the calls.
pub type TakeAnswer<'a> = &'a mut (dyn FnMut(usize, Result<Value, StoreError>) + Send);

/// Connections to all servers of a store. They do nothing by themselves: no reconnecting, no repeating. Several runs may be under way at once.
///
/// Redis is in [`super::redis`]. Another store is another file that implements this, and [`super::AddressedStore`] names it.
pub trait Backend: Sized + Send + Sync + 'static {
    /// The address of the store.
    type Address: Clone + Display + Send + Sync + 'static;

    /// Whether keys of one call must share a slot.
    fn is_sharded(address: &Self::Address) -> bool;

    /// Connects to the store. A server of several that cannot be reached is no error as long as others can.
    fn open(
        address: &Self::Address,
        until: Deadline,
    ) -> impl Future<Output = Result<Self, StoreError>> + Send;

    /// Connects again, and looks again which servers there are. Connections that work are kept, except those to `suspects`.
    fn successor(
        &self,
        suspects: &[Endpoint],
        until: Deadline,
    ) -> impl Future<Output = Result<Self, StoreError>> + Send;

    /// Returns the servers that calls go to, and for each without a connection the reason.
    fn servers(&self) -> Vec<(Endpoint, Option<StoreError>)>;

    /// Returns the server that a call goes to, if there is one.
    fn server_of(&self, call: &Call<'_>) -> Option<Endpoint>;

    /// Runs the calls and hands over one answer for each, as soon as it is there and not later than `until`. A call that fails or takes long neither hides
    /// nor holds back the answers of others. A call is sent again only if the server says that it has not run it. One that timed out or whose connection
    /// was lost may have run, or may run later.
    fn run_each(
        &self,
        calls: &[Call<'_>],
        until: Deadline,
        take: TakeAnswer<'_>,
    ) -> impl Future<Output = ()> + Send;

    /// Runs the calls as [`Self::run_each`] does, and returns the answers in the order of the calls when all are there.
    fn run(
        &self,
        calls: &[Call<'_>],
        until: Deadline,
    ) -> impl Future<Output = Vec<Result<Value, StoreError>>> + Send {
        async move {
            let mut answers = vec![Err(until.missed("the store")); calls.len()];
            self.run_each(calls, until, &mut |call, answer| answers[call] = answer).await;
            answers
        }
    }

    /// Whether the servers that know where the store is name another one by now than the one that calls go to, which may still answer. Answers not later than `until`.
    fn has_moved(&self, _until: Deadline) -> impl Future<Output = bool> + Send {
        async { false }
    }

    /// Returns what the connected servers tell about themselves. A server that is too old is an error.
    fn facts(&self, until: Deadline) -> impl Future<Output = Result<Vec<ServerFacts>, StoreError>> + Send;
}
