//! Questions and errands with a body: one, or many at once, each answered in its place.

use std::{net::IpAddr, sync::Arc, time::Duration};

use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::{
    StatusCode,
    body::{Bytes, Incoming},
};
use serde::Serialize;

use super::{
    answer::{self, DecisionJson, HttpAnswer, Trouble},
    forwarded::CallerOrigin,
    json::{Element, RequestBody},
};
use crate::requests::decision_service::DecisionService;

/// The longest body, in bytes.
const MAX_BODY: usize = 1024 * 1024;
/// How long a body may take to arrive.
const BODY: Duration = Duration::from_secs(10);

/// What is to be done about each question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Errand {
    /// Decide about the request.
    Check,
    /// Give back what the request was charged.
    Refund,
    /// Forget what was counted under the keys of the request.
    Reset,
}

impl Errand {
    /// Whether the errand changes counts that other callers depend on, so that it is not for everybody.
    pub(super) fn is_change(self) -> bool {
        matches!(self, Self::Refund | Self::Reset)
    }
}

/// Reads a body to its end.
pub(super) async fn read(body: Incoming) -> Result<Bytes, Trouble> {
    let all = tokio::time::timeout(BODY, Limited::new(body, MAX_BODY).collect()).await;
    let late = || {
        let detail = format!("the body has not come within {} s", BODY.as_secs());
        Trouble::new(StatusCode::REQUEST_TIMEOUT, detail)
    };
    match all.map_err(|_| late())? {
        Ok(all) => Ok(all.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => {
            let detail = format!("the body is longer than {MAX_BODY} bytes; ask with several requests");
            Err(Trouble::new(StatusCode::PAYLOAD_TOO_LARGE, detail))
        }
        Err(error) => Err(Trouble::bad(format!("the body cannot be read: {error}"))),
    }
}

/// Answers a body of one question or many.
pub(super) async fn answer(
    decisions: &Arc<DecisionService>,
    errand: Errand,
    text: &[u8],
    origin: impl Fn(Option<IpAddr>) -> CallerOrigin,
) -> Result<HttpAnswer, Trouble> {
    match RequestBody::parse(text)? {
        RequestBody::One(element) => one(decisions, errand, element, origin).await,
        RequestBody::Many(elements) => {
            let mut body = Vec::with_capacity(2 + elements.len() * 160);
            body.push(b'[');
            for (nth, element) in elements.into_iter().enumerate() {
                if nth > 0 {
                    body.push(b',');
                }
                if let Err(trouble) = append(decisions, errand, element, &origin, &mut body).await {
                    answer::write(&mut body, &Failed { error: &trouble.detail });
                }
            }
            body.push(b']');
            Ok(answer::json(StatusCode::OK, body))
        }
    }
}

async fn one(
    decisions: &Arc<DecisionService>,
    errand: Errand,
    element: Element,
    origin: impl Fn(Option<IpAddr>) -> CallerOrigin,
) -> Result<HttpAnswer, Trouble> {
    let question = element?;
    let parts = question.parts();
    let request = question.request(origin(question.ip), &parts);
    match errand {
        Errand::Check => Ok(decisions.check(&request, question.asking, answer::decided_in_json).await?),
        Errand::Refund => Ok(decisions.refund(&request, question.age_us).await.map(|()| answer::done())?),
        Errand::Reset => Ok(decisions.reset(&request).await.map(|()| answer::done())?),
    }
}

/// Appends the answer to one of many questions.
async fn append(
    decisions: &Arc<DecisionService>,
    errand: Errand,
    element: Element,
    origin: impl Fn(Option<IpAddr>) -> CallerOrigin,
    body: &mut Vec<u8>,
) -> Result<(), Trouble> {
    let question = element?;
    let parts = question.parts();
    let request = question.request(origin(question.ip), &parts);
    match errand {
        Errand::Check => {
            decisions
                .check(&request, question.asking, |decision| {
                    answer::write(body, &DecisionJson::new(decision));
                })
                .await?;
        }
        Errand::Refund => {
            decisions.refund(&request, question.age_us).await?;
            answer::write(body, &BatchEnd { done: true });
        }
        Errand::Reset => {
            decisions.reset(&request).await?;
            answer::write(body, &BatchEnd { done: true });
        }
    }
    Ok(())
}

#[derive(Serialize)]
struct BatchEnd {
    done: bool,
}

#[derive(Serialize)]
struct Failed<'t> {
    error: &'t str,
}
