//! Calls on their way: one pipeline per server, redirected and repeated only where the server says that a call did not run.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use ::redis::{Pipeline, ServerError, Value};
use futures_util::{StreamExt as _, stream::FuturesUnordered};
use tokio::time::sleep;

use super::{
    connection::Connection,
    dial::{Dialer, Whom},
    refusal::{RefusedCall, refusal},
    routes::{Routes, StoreRoute},
    script::{Call, Form},
    slots::redirection,
    store_error::StoreError,
};
use crate::{
    policy::address::Endpoint,
    store::{backend::TakeAnswer, deadline::Deadline},
};

/// How often one call may be sent on: because of a script that is missing, and of redirections of a slot that moves. More is a loop.
const MOST_LEGS: u8 = 16;
/// How often one call is sent on without a pause. Nodes that disagree about a slot send calls back and forth until they have talked.
const LEGS_AT_ONCE: u8 = 4;
/// The pause before a call is tried again whose keys, or whose slot, are on their way from one node to another.
const WHILE_KEYS_MOVE: Duration = Duration::from_millis(2);

/// One sending of a call to one server.
#[derive(Clone, Copy, Debug)]
struct Leg {
    call: usize,
    form: Form,
    /// Whether the call stands behind ASKING: the node takes such a call for a slot that it does not have yet.
    asking: bool,
    /// Whether the call is sent after a pause, and not at once.
    later: bool,
    /// Whether the call is sent without its spare key, which is not where its other key is.
    spares: bool,
    number: u8,
}

/// What came back from one server.
struct Landing {
    from: Endpoint,
    legs: Vec<Leg>,
    /// The connection that was made for these calls, if there was none.
    fresh: Option<Connection>,
    answers: Result<Vec<Value>, StoreError>,
}

/// Where a call goes next, or how it ended.
enum Next {
    Done(Result<Value, StoreError>),
    On(Endpoint, Leg),
}

/// Runs calls, and hands over one answer for each as it comes.
pub(super) async fn run(
    calls: &[Call<'_>],
    dialer: &Dialer,
    routes: &Mutex<Routes>,
    until: Deadline,
    take: TakeAnswer<'_>,
) {
    let routes = || routes.lock().unwrap_or_else(PoisonError::into_inner);
    let mut waiting: BTreeMap<(Endpoint, bool), Vec<Leg>> = BTreeMap::new();
    for (call, asked) in calls.iter().enumerate() {
        let target = routes().route.target(asked);
        match target {
            Ok(endpoint) => {
                let leg =
                    Leg { call, form: Form::Hash, asking: false, later: false, spares: false, number: 0 };
                waiting.entry((endpoint, false)).or_default().push(leg);
            }
            Err(error) => take(call, Err(error)),
        }
    }
    let mut flights = FuturesUnordered::new();
    loop {
        for ((endpoint, _), legs) in std::mem::take(&mut waiting) {
            let known = routes().nodes.get(&endpoint).cloned();
            flights.push(fly(calls, dialer, endpoint, known, legs, until));
        }
        let Some(landing) = flights.next().await else { break };
        if let Some(fresh) = landing.fresh {
            routes().nodes.insert(landing.from.clone(), Ok(fresh));
        }
        let answers = match landing.answers {
            Ok(answers) => answers,
            Err(error) => {
                // A slow server keeps its connection: the caller decides when to give it up.
                if !matches!(error, StoreError::TimedOut { .. }) {
                    routes().nodes.insert(landing.from, Err(error.clone()));
                }
                landing.legs.iter().for_each(|leg| take(leg.call, Err(error.clone())));
                continue;
            }
        };
        for (leg, answer) in landing.legs.into_iter().zip(answers) {
            let next = next(&calls[leg.call], &landing.from, &mut routes().route, leg, answer);
            match next {
                Next::Done(end) => take(leg.call, end),
                Next::On(to, leg) => waiting.entry((to, leg.later)).or_default().push(leg),
            }
        }
    }
}

async fn fly(
    calls: &[Call<'_>],
    dialer: &Dialer,
    to: Endpoint,
    known: Option<Result<Connection, StoreError>>,
    legs: Vec<Leg>,
    until: Deadline,
) -> Landing {
    let at = to.to_string();
    let mut fresh = None;
    let answers = until.hold(&at, async {
        if legs.iter().any(|leg| leg.later) {
            sleep(WHILE_KEYS_MOVE).await;
        }
        let connection = match known {
            Some(known) => known?,
            // A redirection has named this node.
            None => fresh.insert(dialer.dial(&to, Whom::Data, until).await?).clone(),
        };
        let mut answers = connection.ask_all(&commands(calls, &legs)).await?.into_iter();
        // The answers to ASKING are of no interest: if it was refused, so is the call.
        let of_leg = |leg: &Leg| answers.nth(usize::from(leg.asking)).unwrap_or(Value::Nil);
        Ok(legs.iter().map(of_leg).collect())
    });
    let answers = answers.await;
    Landing { from: to, legs, fresh, answers }
}

fn commands(calls: &[Call<'_>], legs: &[Leg]) -> Pipeline {
    let mut commands = Pipeline::with_capacity(legs.len());
    let mut there: Vec<&str> = Vec::new();
    for leg in legs {
        let call = &calls[leg.call];
        if leg.asking {
            commands.cmd("ASKING");
        }
        let keys = call.keys.len() - usize::from(leg.spares);
        // The text is sent once per script: the server has the script for the calls behind.
        let is_there = there.contains(&call.script.sha1());
        if leg.form == Form::Text && !is_there {
            there.push(call.script.sha1());
        }
        commands.add_command(call.command(if is_there { Form::Hash } else { leg.form }, keys));
    }
    commands
}

fn next(call: &Call<'_>, from: &Endpoint, route: &mut StoreRoute, leg: Leg, answer: Value) -> Next {
    let Value::ServerError(error) = answer else { return Next::Done(Ok(answer)) };
    let refused =
        || Next::Done(Err(refusal(&from.to_string(), RefusedCall::Script(call.script.name()), &error)));
    if leg.number >= MOST_LEGS {
        let why = format!(
            "sent on {MOST_LEGS} times, at last with {} {}",
            error.code(),
            error.details().unwrap_or_default()
        );
        return Next::Done(Err(StoreError::ClusterDown { at: from.to_string(), why }));
    }
    let further = Leg { later: leg.number >= LEGS_AT_ONCE, number: leg.number + 1, ..leg };
    match (error.code(), route) {
        ("NOSCRIPT", _) => Next::On(from.clone(), Leg { form: Form::Text, ..further }),
        ("MOVED", StoreRoute::Slots(map)) => match redirected(&error, from) {
            Some((slot, to)) => {
                map.moved(slot, to.clone());
                Next::On(to, Leg { asking: false, ..further })
            }
            None => refused(),
        },
        ("ASK", StoreRoute::Slots(_)) => match redirected(&error, from) {
            Some((_, to)) => Next::On(to, Leg { asking: true, ..further }),
            None => refused(),
        },
        ("TRYAGAIN", StoreRoute::Slots(_)) if call.has_spare_key() && !leg.spares => {
            Next::On(from.clone(), Leg { spares: true, ..further })
        }
        ("TRYAGAIN", StoreRoute::Slots(_)) => Next::On(from.clone(), Leg { later: true, ..further }),
        _ => refused(),
    }
}

fn redirected(error: &ServerError, from: &Endpoint) -> Option<(u16, Endpoint)> {
    redirection(error.details()?, from)
}
