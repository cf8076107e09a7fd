//! What the store is asked about one request: all counter keys are looked at, and then charged in an order in which what others find taken is hardly ever
//! given back.

use std::sync::Arc;

use tokio::time::Instant;

use super::Decision;
use crate::{
    clock::Clock,
    requests::{
        Request,
        counter_keys::{CounterKey, CounterKeys},
        leases::RequestLeases,
        shared::{self, SharedVerdict, Taking},
    },
    store::{
        inquiry::Inquiry,
        worker::{Store, Unavailable},
    },
};

/// A request, and where its counter keys are charged.
#[derive(Debug)]
pub(super) struct ChargeRequest<'q, 'r> {
    pub(super) store: &'q Store,
    pub(super) leases: &'q RequestLeases,
    pub(super) clock: &'q Clock,
    pub(super) cluster: &'q str,
    pub(super) headroom: bool,
    /// The counter keys that hosts count together.
    pub(super) counters: &'q CounterKeys<'r>,
    pub(super) request: &'q Request<'q>,
    pub(super) begun: Instant,
    /// How long the request may wait for answers.
    pub(super) until: Instant,
}

/// What the answers of the store come to.
#[derive(Debug)]
pub(super) struct Charged<'r> {
    /// The decision by the counter keys that the store has answered about; `None` if there is none of them.
    pub(super) decision: Option<Decision<'r>>,
    /// Whether the refusal may be due to units that another request gives back at this moment.
    pub(super) is_doubtful: bool,
    /// Inquiries that give back what was charged. Of a refused request all is given back already.
    pub(super) refunds: Vec<Inquiry>,
    /// Counter keys that the store has not answered about.
    pub(super) unanswered: CounterKeys<'r>,
}

/// Whether a counter key is one of these.
pub(super) fn contains(counters: &CounterKeys<'_>, counter: &CounterKey<'_>) -> bool {
    counters.iter().any(|other| other.hash == counter.hash)
}

impl<'r> Charged<'r> {
    fn new(unanswered: CounterKeys<'r>) -> Self {
        Self { decision: None, is_doubtful: false, refunds: Vec::new(), unanswered }
    }

    /// Whether a counter key refuses the request.
    pub(super) fn is_refused(&self) -> bool {
        self.decision.is_some_and(|decision| !decision.outcome.is_served())
    }
}

impl<'r> ChargeRequest<'_, 'r> {
    /// Whether more than half of the time has passed in which the request is to be answered.
    pub(super) fn is_late(&self) -> bool {
        Instant::now() >= self.begun + (self.until - self.begun) / 2
    }

    /// Looks at all counter keys. A refusal that `is_final` is believed.
    pub(super) async fn look(&self, is_final: bool) -> Charged<'r> {
        let nothing = Charged::new(CounterKeys::of(self.counters.api));
        self.in_steps(vec![self.counters.only(|_| true)], nothing, Taking::Nothing, is_final).await
    }

    /// Charges the counter keys step by step until one refuses. If there are several steps, all counter keys are looked at before.
    pub(super) async fn charge(&self, taking: Taking) -> Charged<'r> {
        if self.steps(self.counters).len() == 1 {
            return self.charge_seen(taking, CounterKeys::of(self.counters.api)).await;
        }
        let look = self.look(false).await;
        if look.is_refused() || look.decision.is_none() {
            return look;
        }
        self.charge_seen(taking, look.unanswered).await
    }

    /// Charges the counter keys step by step, after a look at which some had no answer.
    pub(super) async fn charge_seen(&self, taking: Taking, unanswered: CounterKeys<'r>) -> Charged<'r> {
        let answered = self.counters.only(|counter| !contains(&unanswered, counter));
        self.in_steps(self.steps(&answered), Charged::new(unanswered), taking, false).await
    }

    fn steps(&self, counters: &CounterKeys<'r>) -> Vec<CounterKeys<'r>> {
        shared::steps(counters, self.request, self.leases, self.clock.now_us())
    }

    async fn in_steps(
        &self,
        mut steps: Vec<CounterKeys<'r>>,
        mut all: Charged<'r>,
        taking: Taking,
        is_final: bool,
    ) -> Charged<'r> {
        while !steps.is_empty() {
            let step = match self.is_late() {
                true => merged(steps.drain(..), self.counters),
                false => steps.remove(0),
            };
            let Ok(one) = self.step(&step, &steps, taking, is_final).await else {
                let missing = merged(std::iter::once(step).chain(steps.drain(..)), self.counters);
                missing.iter().for_each(|counter| all.unanswered.push(*counter));
                break;
            };
            one.unanswered.iter().for_each(|counter| all.unanswered.push(*counter));
            all.refunds.extend(one.refunds);
            all.is_doubtful |= one.is_doubtful;
            all.decision = match (all.decision, one.decision) {
                (Some(before), Some(one)) => Some(before.and(one)),
                (before, one) => one.or(before),
            };
            if all.is_refused() {
                if !all.refunds.is_empty() {
                    self.store.tell(std::mem::take(&mut all.refunds));
                }
                break;
            }
        }
        all
    }

    /// Asks the store about some counter keys at once. `later` are those that it is asked about afterwards.
    async fn step(
        &self,
        step: &CounterKeys<'r>,
        later: &[CounterKeys<'r>],
        taking: Taking,
        is_final: bool,
    ) -> Result<Charged<'r>, Unavailable> {
        let asked: Arc<[Inquiry]> = self.inquiries(step, taking).into();
        let mut waiting = Waiting { charging: self, step, asked: &asked, later, ending: Ending::HungUp };
        let answers = self.store.ask(Arc::clone(&asked), self.until).await;
        waiting.ending = if answers.is_ok() { Ending::Answered } else { Ending::Unanswered };
        drop(waiting);
        let answers = answers?;
        // A part of the store may be away.
        let (mut told, mut answered) = (Vec::with_capacity(asked.len()), Vec::new());
        let (mut together, mut unanswered) = (CounterKeys::of(step.api), CounterKeys::of(step.api));
        for ((counter, inquiry), answer) in step.iter().zip(asked.iter()).zip(answers) {
            match answer {
                Ok(answer) => {
                    together.push(*counter);
                    told.push(answer);
                    answered.push(inquiry.clone());
                }
                Err(Unavailable) => {
                    unanswered.push(*counter);
                    shared::failed(
                        &unanswered.only(|other| other.hash == counter.hash),
                        std::slice::from_ref(inquiry),
                        self.leases,
                    );
                }
            }
        }
        let now_us = self.clock.now_us();
        let SharedVerdict { decision, is_doubtful } =
            shared::verdict(&together, &answered, &told, self.leases, is_final, now_us);
        let charged = answered.iter().zip(&told).filter(|(inquiry, told)| told.spent && !inquiry.ask.peek);
        let refunds = charged.map(|(inquiry, _)| shared::refund(inquiry)).collect();
        let decision = (!told.is_empty()).then_some(decision);
        Ok(Charged { decision, is_doubtful, refunds, unanswered })
    }

    fn inquiries(&self, step: &CounterKeys<'r>, taking: Taking) -> Vec<Inquiry> {
        let Self { request, leases, cluster, headroom, .. } = self;
        shared::inquiries(step, request, leases, cluster, *headroom, taking, self.clock.now_us())
    }
}

/// Returns the counter keys of several steps, in the order of the request.
fn merged<'r>(steps: impl Iterator<Item = CounterKeys<'r>>, all: &CounterKeys<'r>) -> CounterKeys<'r> {
    let steps: Vec<CounterKeys<'r>> = steps.collect();
    all.only(|counter| steps.iter().any(|step| contains(step, counter)))
}

/// A question that the store has not answered yet.
struct Waiting<'w, 'q, 'r> {
    charging: &'w ChargeRequest<'q, 'r>,
    step: &'w CounterKeys<'r>,
    asked: &'w [Inquiry],
    later: &'w [CounterKeys<'r>],
    ending: Ending,
}

/// How waiting for an answer has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    Answered,
    Unanswered,
    /// The caller has hung up.
    HungUp,
}

impl Drop for Waiting<'_, '_, '_> {
    fn drop(&mut self) {
        if self.ending == Ending::Answered {
            return;
        }
        // The leases send the same entries again.
        shared::failed(self.step, self.asked, self.charging.leases);
        if self.ending == Ending::HungUp {
            // Who hangs up pays under all counter keys, so that nobody spends units of a common key alone.
            let later = self.later.iter().flat_map(|step| self.charging.inquiries(step, Taking::Once));
            let later: Vec<Inquiry> = later.collect();
            if !later.is_empty() {
                self.charging.store.tell(later);
            }
        }
    }
}
