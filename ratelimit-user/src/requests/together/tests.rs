//! Decisions of a host that has a store, some of which it makes alone: what the store is asked, told and given back.

use crate::{
    config,
    policy::Policy,
    requests::{
        Outcome, Request,
        asking::{Asking, NotRefunded, NotReset},
        decision_service::DecisionService,
    },
    store::worker::{
        MOST_KEPT,
        tests::scripted::{Heard, Scripted, settle, with_scripted},
    },
};

/// A plan that hosts count together, and an API that each counts for itself.
const MIXED: &str = "[plan.default]\nlimits = [\"640/hour\"]\n[[api]]\nname = \"own\"\nlimits = [\"2/hour\"]\nsharing = \"local\"\n";
/// A plan and an API that hosts count together: the store decides about each request.
const STRICT: &str = "[plan.default]\nlimits = [\"640/hour\"]\n[[api]]\nname = \"api\"\nlimits = [\"500/hour\"]\nsharing = \"strict\"\n";
/// An API whose requests are decided from leases.
const LEASED: &str = "[[api]]\nname = \"api\"\nlimits = [\"640/hour\"]\n";

const NO: [i64; 10] = [0, 5_000_000, 0, 0, 0, 1_000_000, 1, 0, 0, 0];
const YES: [i64; 10] = [1, 0, 0, 500, 0, 0, 0, 0, 0, 0];

fn policy(text: &str) -> Policy {
    let text =
        format!("[source]\nlimits = [\"1/s\"]\n[cluster]\nredis = \"redis://127.0.0.1\"\nhosts = 2\n{text}");
    config::parse(&text, "test").unwrap_or_else(|error| panic!("{error}")).policy
}

/// Runs a test with a service of this policy and its store.
fn with<F: Future<Output = ()>>(text: &str, test: impl FnOnce(DecisionService, Scripted) -> F) {
    let policy = policy(text);
    with_scripted(&policy, |store, scripted| test(DecisionService::with(&policy, Some(store)), scripted));
}

async fn outcome(service: &DecisionService, request: &Request<'_>, asking: Asking) -> Outcome {
    service.check(request, asking, |decision| decision.outcome).await.unwrap()
}

/// Returns what the store has heard: which limits, what was to be spent, and what to be given back.
async fn heard(scripted: &Scripted) -> Vec<(String, u64, u64)> {
    settle().await;
    let of = |(key, heard): (String, Heard)| {
        (key.split(':').next().unwrap().to_owned(), heard.spend, heard.refund)
    };
    scripted.heard().into_iter().map(of).collect()
}

fn line(kind: &str, spend: u64, refund: u64) -> (String, u64, u64) {
    (kind.to_owned(), spend, refund)
}

#[test]
fn what_this_host_refuses_is_charged_nowhere() {
    with(MIXED, async |service, scripted| {
        let request = Request::new("u", "own");
        for _ in 0..2 {
            assert_eq!(outcome(&service, &request, Asking::Counted).await, Outcome::Allowed);
            assert_eq!(heard(&scripted).await, [line("user", 1, 0)]);
        }
        let refused = outcome(&service, &request, Asking::Counted).await;
        assert!(matches!(refused, Outcome::Refused { retry_us: Some(1_000_000..) }), "{refused:?}");
        let [(_, looked)] = {
            settle().await;
            scripted.heard().try_into().unwrap()
        };
        assert!(looked.peek, "nothing is charged that another key refuses");
        assert!(!outcome(&service, &request, Asking::Peeking).await.is_served());
        assert_eq!(heard(&scripted).await, [line("user", 1, 0)]);
    });
}

#[test]
fn what_the_store_refuses_costs_nothing_here_and_all_that_refuse_are_named() {
    with(MIXED, async |service, scripted| {
        let request = Request::new("u", "own");
        scripted.answer("user:", NO);
        let no = Outcome::Refused { retry_us: Some(5_000_000) };
        for _ in 0..5 {
            assert_eq!(outcome(&service, &request, Asking::Counted).await, no);
        }
        scripted.answer("user:", YES);
        service.reset(&request).await.unwrap();
        assert_eq!(outcome(&service, &request.costing(2), Asking::Counted).await, Outcome::Allowed);
        scripted.answer("user:", NO);
        let (outcome, named) = service
            .check(&Request::new("u", "own"), Asking::Counted, |decision| {
                (
                    decision.outcome,
                    decision.violated.limits().map(|limit| limit.name.clone()).collect::<Vec<_>>(),
                )
            })
            .await
            .unwrap();
        assert!(matches!(outcome, Outcome::Refused { retry_us: Some(1_700_000_000..) }), "{outcome:?}");
        assert_eq!(named, ["default", "own"]);
    });
}

#[test]
fn what_one_key_was_charged_is_given_back_when_another_is_refused_by_the_store() {
    with(STRICT, async |service, scripted| {
        scripted.answer("api:", NO);
        let request = Request::new("u", "api").costing(3);
        assert_eq!(
            outcome(&service, &request, Asking::Counted).await,
            Outcome::Refused { retry_us: Some(5_000_000) }
        );
        let both = [line("api", 3, 0), line("user", 3, 0)];
        let told = heard(&scripted).await;
        assert_eq!(told[..2], both);
        assert_eq!(told[2], line("user", 0, 3));
        assert_eq!(told[3..], [both.clone(), both].concat(), "the refusal is looked at twice");
        assert!(!outcome(&service, &request, Asking::Peeking).await.is_served());
        assert!(heard(&scripted).await.iter().all(|(_, _, refund)| *refund == 0), "nothing was charged");
        scripted.answer("api:", YES);
        let left =
            service.check(&request, Asking::Peeking, |decision| decision.limit.unwrap().remaining).await;
        assert_eq!(left, Ok(0), "the plan has least");
    });
}

#[test]
fn of_two_that_serve_a_request_the_harder_one_is_told() {
    with(MIXED, async |service, scripted| {
        let remaining = async |service: &DecisionService| {
            let look = |decision: &super::Decision<'_>| {
                decision.limit.map(|near| (near.limit.name.clone(), near.remaining))
            };
            service.check(&Request::new("u", "own"), Asking::Counted, look).await.unwrap().unwrap()
        };
        scripted.answer("user:", YES);
        assert_eq!(remaining(&service).await, ("own".to_owned(), 1), "less is left of this host's");
        scripted.answer("user:", [1, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(remaining(&service).await, ("default".to_owned(), 0));
    });
}

#[test]
fn a_lease_is_spent_without_asking_and_what_was_not_used_of_it_is_taken_back_here() {
    with(LEASED, async |service, scripted| {
        let request = Request::new("u", "api");
        // One unit is spent, and ten are granted to hold.
        scripted.answer("api:", [1, 0, 10, 500, 0, 0, 0, 0, 0, 0]);
        assert_eq!(outcome(&service, &request, Asking::Counted).await, Outcome::Allowed);
        let first = scripted.heard();
        assert_eq!((first.len(), first[0].1.spend, first[0].1.wanted), (1, 1, 10));
        assert_eq!(outcome(&service, &request, Asking::Counted).await, Outcome::Allowed);
        assert_eq!(scripted.heard(), [], "from the lease");
        let left = |service: &DecisionService| service.engine().usage().keys;
        assert_eq!(left(&service), 0, "nothing is counted by this host alone");
        // The store need not hear of units that are given back to the lease.
        assert_eq!(service.refund(&request, 0).await, Ok(()));
        settle().await;
        assert_eq!(scripted.heard(), []);
        // Units that were not spent from the lease are given back in the store, with their age.
        assert_eq!(service.refund(&request.costing(50), 7_000).await, Ok(()));
        settle().await;
        let told = scripted.heard();
        assert_eq!((told.len(), told[0].1.refund, told[0].1.age_us, told[0].1.spend), (1, 50, 7_000, 0));
    });
}

#[test]
fn many_at_once_and_looks_take_no_lease() {
    with(LEASED, async |service, scripted| {
        let request = Request::new("u", "api");
        for (asking, peek) in [(Asking::InBulk, false), (Asking::Peeking, true)] {
            outcome(&service, &request, asking).await;
            let [(_, heard)] = scripted.heard().try_into().unwrap();
            assert_eq!((heard.wanted, heard.sequence, heard.peek), (0, 0, peek), "{asking:?}");
        }
    });
}

#[test]
fn a_reset_reaches_the_store_and_what_it_had_refused_is_asked_again() {
    with(LEASED, async |service, scripted| {
        let request = Request::new("u", "api");
        scripted.answer("api:", NO);
        assert!(!outcome(&service, &request, Asking::Counted).await.is_served());
        assert_eq!(scripted.heard().len(), 3, "a question, and two looks");
        assert!(!outcome(&service, &request, Asking::Counted).await.is_served());
        assert_eq!(scripted.heard().len(), 0, "refused a moment ago");
        scripted.answer("api:", YES);
        service.reset(&request).await.unwrap();
        settle().await;
        let [key] = scripted.resets().try_into().unwrap();
        assert!(key.contains("{u}:api:api:"), "{key}");
        assert_eq!(outcome(&service, &request, Asking::Counted).await, Outcome::Allowed);
    });
    // The store hears nothing of keys that this host counts alone.
    with(
        "[[api]]\nname = \"own\"\nlimits = [\"2/hour\"]\nsharing = \"local\"\n",
        async |service, scripted| {
            let request = Request::new("u", "own").costing(2);
            for _ in 0..3 {
                assert_eq!(outcome(&service, &request, Asking::Counted).await, Outcome::Allowed);
                assert!(!outcome(&service, &request, Asking::Counted).await.is_served());
                service.reset(&request).await.unwrap();
            }
            settle().await;
            assert_eq!((scripted.resets().len(), scripted.heard().len()), (0, 0));
        },
    );
}

/// Takes the store away, and waits until the worker has noticed.
async fn lose(service: &DecisionService, scripted: &Scripted) {
    scripted.is_down(true);
    let _first_to_find_out = outcome(service, &Request::new("somebody", "api"), Asking::Counted).await;
    settle().await;
    assert!(!service.store().unwrap().is_up());
}

#[test]
fn without_the_store_a_host_gives_its_share_and_gives_back_what_it_charged_itself() {
    with(STRICT, async |service, scripted| {
        lose(&service, &scripted).await;
        let request = Request::new("u", "api").costing(125);
        let mut all = Vec::new();
        for _ in 0..3 {
            all.push(outcome(&service, &request, Asking::Counted).await.is_served());
        }
        assert_eq!(all, [true, true, false], "half of 500");
        assert_eq!(service.refund(&request, 0).await, Ok(()));
        assert!(outcome(&service, &request, Asking::Counted).await.is_served());
        // The request is more than this host ever gives alone, but not more than the limit: the store may be back.
        let much = Request::new("v", "api").costing(400);
        assert_eq!(
            outcome(&service, &much, Asking::Counted).await,
            Outcome::Refused { retry_us: Some(1_000_000) }
        );
        let too_much = Request::new("v", "api").costing(501);
        assert_eq!(outcome(&service, &too_much, Asking::Counted).await, Outcome::Refused { retry_us: None });
        // Nothing was charged here.
        assert_eq!(service.refund(&Request::new("nobody", "api"), 0).await, Err(NotRefunded::StoreAway));
    });
}

#[test]
fn a_reset_without_the_store_is_kept_for_it_and_one_more_than_are_kept_changes_nothing() {
    with(STRICT, async |service, scripted| {
        lose(&service, &scripted).await;
        let request = Request::new("u", "api").costing(250);
        let is_served = async || outcome(&service, &request, Asking::Counted).await.is_served();
        assert!(is_served().await && !is_served().await, "half of 500");
        service.reset(&request).await.unwrap();
        assert!(is_served().await && !is_served().await, "it is all there again");
        // Each reset is kept for two keys, one of the API and one of the plan.
        for n in 1..MOST_KEPT / 2 {
            service.reset(&Request::new(&n.to_string(), "api")).await.unwrap();
        }
        assert_eq!(service.reset(&Request::new("one more", "api")).await, Err(NotReset::TooMany));
        assert_eq!(service.reset(&request).await, Ok(()), "it is kept already");
        assert!(is_served().await && !is_served().await);
        settle().await;
        assert_eq!(scripted.resets().len(), 0);
        scripted.is_down(false);
        // Nobody asks anything; the worker looks by itself.
        let mut told = 0;
        while told < MOST_KEPT {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
            told += scripted.resets().len();
        }
        assert_eq!(service.reset(&Request::new("one more", "api")).await, Ok(()));
    });
}

#[test]
fn a_refund_that_the_store_does_not_take_leaves_a_lease_as_it_was() {
    with(LEASED, async |service, scripted| {
        scripted.answer("api:", [1, 0, 10, 500, 0, 0, 0, 0, 0, 0]);
        let request = Request::new("u", "api");
        outcome(&service, &request, Asking::Counted).await;
        lose(&service, &scripted).await;
        assert_eq!(service.refund(&request.costing(50), 0).await, Err(NotRefunded::StoreAway));
        // Ten units of the lease are still there, and no more.
        let mut served = 0;
        while outcome(&service, &request, Asking::Counted).await.is_served() && served < 1_000 {
            served += 1;
        }
        assert_eq!(served, 10 + 320, "the lease, and the share of this host");
    });
}

#[test]
fn a_host_that_refuses_without_the_store_says_when_to_come_again() {
    with(
        "[[api]]\nname = \"api\"\nlimits = [\"640/hour\"]\nwithout_store = \"refuse\"\n",
        async |service, scripted| {
            lose(&service, &scripted).await;
            let look = |decision: &super::Decision<'_>| {
                let near = decision.limit.unwrap();
                let named = decision.violated.limits().count();
                (decision.outcome, near.remaining, near.reset_us, near.more_us, named)
            };
            let told = service.check(&Request::new("u", "api"), Asking::Counted, look).await.unwrap();
            let soon = 1_000_000;
            assert_eq!(told, (Outcome::Refused { retry_us: Some(soon) }, 0, soon, soon, 1));
        },
    );
}

#[test]
fn whoever_hangs_up_while_the_store_is_asked_leaves_the_lease_to_be_asked_for_again() {
    with(LEASED, async |service, scripted| {
        let request = Request::new("u", "api");
        scripted.answer("api:", [1, 0, 10, 500, 0, 0, 0, 0, 0, 0]);
        {
            let mut asking = std::pin::pin!(outcome(&service, &request, Asking::Counted));
            let once =
                std::future::poll_fn(|cx| std::task::Poll::Ready(asking.as_mut().poll(cx).is_pending()));
            assert!(once.await, "it waits for the store");
        }
        settle().await;
        let before = scripted.heard();
        assert_eq!((before.len(), before[0].1.wanted), (1, 10));
        outcome(&service, &request, Asking::Counted).await;
        let again = scripted.heard();
        assert_eq!((again.len(), again[0].1.sequence, again[0].1.wanted), (1, before[0].1.sequence, 10));
    });
}

/// Limits of which each is small enough for the store to be asked about one after the other.
const SMALL: &str =
    "[plan.default]\nlimits = [\"40/hour\"]\n[[api]]\nname = \"api\"\nlimits = [\"20/hour\"]\n";

#[test]
fn small_keys_are_looked_at_and_charged_in_order() {
    with(SMALL, async |service, scripted| {
        let request = Request::new("u", "api");
        let asked = async |scripted: &Scripted| {
            settle().await;
            let of = |(key, heard): &(String, Heard)| (key.starts_with("api:"), heard.peek);
            scripted.heard().iter().map(of).collect::<Vec<_>>()
        };
        assert_eq!(outcome(&service, &request, Asking::Counted).await, Outcome::Allowed);
        let (looks, charges) = ([(true, true), (false, true)], [(true, false), (false, false)]);
        assert_eq!(asked(&scripted).await, [looks, charges].concat());
        scripted.answer("user:", NO);
        assert!(!outcome(&service, &request, Asking::Counted).await.is_served());
        assert_eq!(asked(&scripted).await, [looks; 3].concat(), "nothing is charged that another refuses");
    });
}

#[test]
fn a_refusal_that_does_not_last_is_not_told() {
    with(SMALL, async |service, scripted| {
        scripted.answer("user:", NO);
        let request = Request::new("u", "api");
        let gives_back = async {
            while scripted.heard().is_empty() {
                tokio::task::yield_now().await;
            }
            scripted.answer("user:", YES);
        };
        let (outcome, ()) = tokio::join!(outcome(&service, &request, Asking::Counted), gives_back);
        assert_eq!(outcome, Outcome::Allowed);
        assert_eq!(heard(&scripted).await[2..], [line("api", 1, 0), line("user", 1, 0)], "after a look");
    });
}

#[test]
fn hanging_up_between_two_keys_is_charged_under_both() {
    with(SMALL, async |service, scripted| {
        let mut heard = Vec::new();
        let is_charge = |(_, heard): &&(String, Heard)| !heard.peek;
        {
            let request = Request::new("u", "api");
            let mut asking = std::pin::pin!(outcome(&service, &request, Asking::Counted));
            while !heard.iter().any(|line| is_charge(&line)) {
                let poll =
                    std::future::poll_fn(|cx| std::task::Poll::Ready(asking.as_mut().poll(cx).is_pending()));
                assert!(poll.await, "it waits for the store");
                settle().await;
                heard.extend(scripted.heard());
            }
        }
        settle().await;
        heard.extend(scripted.heard());
        let charged: Vec<&str> =
            heard.iter().filter(is_charge).map(|(key, _)| key.split(':').next().unwrap()).collect();
        assert_eq!(charged, ["api", "user"]);
    });
}
