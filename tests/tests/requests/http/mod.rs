//! Questions about requests over HTTP, asked of a real `ratelimit serve`.

mod access;
mod bad_input;
mod connections;
mod dashboard;
mod delays;
mod examples;
mod forwarded;
mod headers;
mod many;
mod openapi;
mod operators;
mod stores;

use ratelimit_tests::service::{Client, Reply};

/// How many of so many questions were answered with 200, and the last answer.
fn allowed<S: std::io::Read + std::io::Write>(
    client: &mut Client<S>,
    target: &str,
    asked: usize,
) -> (usize, Reply) {
    let replies: Vec<Reply> = (0..asked).map(|_| client.get(target)).collect();
    let allowed = replies.iter().filter(|reply| reply.status == 200).count();
    (allowed, replies.last().expect("an answer").clone())
}
