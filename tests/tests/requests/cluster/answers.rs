//! What hosts say of a limit that they count together: what is left, what is in the margin, which limits refuse, and when there is more.

use std::time::Duration;

use ratelimit_tests::redis::{Options, Redis};
use ratelimit_user::requests::{Outcome, Request, asking::Asking};

use super::{Answer, answer, hosts, policy};

#[test]
fn of_what_a_host_holds_each_request_takes_one_in_every_answer() {
    let server = Redis::single(Options::default());
    let further = "[[api]]\nname = \"few\"\nlimits = [\"640/hour\"]\nalgorithm = \"fixed-window\"\n\
                   [[api]]\nname = \"slow\"\nlimits = [\"640/day\"]\n";
    let hosts = hosts(1, &policy(&server.url(), further));
    for api in ["few", "slow"] {
        let question = Request::new("user", api);
        for left in (0..640).rev() {
            if left % 50 == 0 {
                let peeked = answer(&hosts[0], &question, Asking::Peeking);
                assert_eq!((peeked.left, peeked.outcome), (left + 1, Outcome::Allowed), "{api}");
            }
            assert_eq!(answer(&hosts[0], &question, Asking::Counted).left, left, "{api}");
        }
        let (asked, _) = hosts[0].store().unwrap().counts();
        // About half that without another load; all of them if nothing were held.
        assert!(asked < 1_200, "{asked} questions");
    }
}

#[test]
fn hosts_tell_of_a_margin_of_all_that_refuse_and_of_when_there_is_more() {
    let server = Redis::single(Options::default());
    let further = "[plan.default]\nlimits = [\"5/day fixed-window\"]\n\
                   [[api]]\nname = \"soft\"\nkey = [\"ip\"]\nlimits = [\"10/day\"]\nthrottle = \"soft 50%\"\n\
                   [[api]]\nname = \"lent\"\nkey = [\"ip\"]\nlimits = [\"100/day\"]\nthrottle = \"soft 50%\"\n\
                   [[api]]\nname = \"two\"\nlimits = [\"100/hour\", \"5/min\"]\nalgorithm = \"fixed-window\"\n";
    let hosts = hosts(2, &policy(&server.url(), further));
    // A bucket with a margin tells which of it is above, whoever asks.
    for (api, of) in [("soft", 10), ("lent", 100)] {
        let ask = Request::new("", api).from("192.0.2.1".parse().unwrap());
        let all: Vec<Answer> =
            (0..of * 3 / 2 + 1).map(|nth| answer(&hosts[nth % 2], &ask, Asking::Counted)).collect();
        let count = |wanted: Outcome| all.iter().filter(|answer| answer.outcome == wanted).count();
        assert_eq!((count(Outcome::Allowed), count(Outcome::InMargin)), (of, of / 2), "{api}");
        assert_eq!((all[2].left, all[of].left), (of as u64 - 3, 0), "{api}");
        let Some(Answer { outcome: Outcome::Refused { retry_us: Some(retry_us) }, more_us, .. }) = all.last()
        else {
            panic!("{api}: {:?}", all.last())
        };
        let one_us = 86_400_000_000 / (of as u64 * 3 / 2);
        assert!(
            (one_us - 10_000_000..=one_us).contains(more_us) && retry_us >= more_us,
            "{more_us} {retry_us}"
        );
    }
    let question = Request::new("ann", "two");
    assert_eq!(answer(&hosts[0], &question.costing(3), Asking::Counted).left, 2);
    let refused = answer(&hosts[1], &question.costing(3), Asking::Counted);
    assert_eq!((refused.left, refused.violated.join(" ")), (2, "two-min default".to_owned()));
    // A host that answers from what the store has told it a moment ago says as much.
    let again = answer(&hosts[1], &question.costing(3), Asking::Counted);
    assert_eq!((again.left, again.violated, again.limit), (2, refused.violated, refused.limit));
}

#[test]
fn elastic_limits_without_headroom_are_each_as_large_as_they_say() {
    let server = Redis::single(Options::default());
    let further = "[[api]]\nname = \"two\"\nlimits = [\"10/hour elastic 50%\", \"100/day elastic 50%\"]\nalgorithm = \"fixed-window\"\n";
    let hosts = hosts(1, &policy(&server.url(), further));
    let question = Request::new("user", "two");
    let served = |times: usize| {
        (0..times).filter(|_| answer(&hosts[0], &question, Asking::Counted).outcome.is_served()).count()
    };
    hosts[0].engine().set_headroom(false);
    assert_eq!(served(12), 10);
    hosts[0].engine().set_headroom(true);
    std::thread::sleep(Duration::from_millis(1_050));
    assert_eq!(served(12), 5);
}
